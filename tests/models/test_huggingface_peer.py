"""The same predictions as the Graphormer of transformers, which runs beside ours here.

Needs `.[peers]` and a C compiler for the collator of transformers. A shortest path need not be the
only one, and transformers chooses by Floyd and Warshall, we the lowest node numbers; so ours is
given the paths of transformers, or graphs where the choice makes no difference.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from models.huggingface_folder import GOLDEN, SMALL, VARIANTS, formula_folder, golden_graphs
from ogb.utils import smiles2graph
from torch import Tensor
from torch_geometric.data import Batch, Data

from slicegraph.models import GraphSliceformer
from slicegraph.models.graphormer import _HF_DEFAULTS, _HF_ONLY

graphormer = pytest.importorskip("transformers.models.deprecated.graphormer")
collating = pytest.importorskip(
    "transformers.models.deprecated.graphormer.collating_graphormer", exc_type=ImportError
)
if not hasattr(collating, "algos_graphormer"):
    pytest.skip("transformers' collator needs cython", allow_module_level=True)

SMILES = [
    "CCO",
    "O=C=O",
    "c1ccccc1C",
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "C1CC2CCC1O2",
    "CCCCCCCCCCCCCCCCCCCCCC(=O)O",
    "[Na+].CC(=O)[O-]",
    "F/C=C/Cl",
    "OC1C=CC2OC2C1N",
    "C[C@H](N)C(=O)O",
    "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
    "O=C1CC2C=CC1C2",
    "c1ccc2c(c1)[nH]c1ncccc12",
]


def graph(smiles: str) -> Data:
    found = smiles2graph(smiles)
    return Data(
        x=torch.from_numpy(found["node_feat"]),
        edge_index=torch.from_numpy(found["edge_index"]),
        edge_attr=torch.from_numpy(found["edge_feat"]),
    )


def prepared(data: Data) -> dict:
    """What transformers makes of a graph."""
    item = {
        "num_nodes": data.num_nodes,
        "node_feat": data.x.numpy(),
        "edge_index": data.edge_index.numpy(),
        "edge_attr": data.edge_attr.numpy(),
        "y": [0.0],
    }
    return collating.preprocess_item(item)


@torch.no_grad()
def theirs(model, graphs: list[Data], hops: int = 0) -> Tensor:
    """The logits of transformers, or the token of a model without a head; at least `hops` slots."""
    collate = collating.GraphormerDataCollator(spatial_pos_max=model.config.spatial_pos_max)
    inputs = collate([prepared(data) for data in graphs])
    labels, edges = inputs.pop("labels"), inputs["input_edges"]
    assert len(labels) == len(graphs)
    missing = max(0, hops - edges.shape[3])
    inputs["input_edges"] = torch.nn.functional.pad(edges, (0, 0, 0, missing))
    out = model(**inputs)
    return out.logits if "logits" in out else out.last_hidden_state[:, 0]


def with_their_paths(data: Data, hops: int = 5) -> Data:
    """The graph with the distances and the edges of the paths that transformers takes."""
    n, (starts, ends) = data.num_nodes, data.edge_index.tolist()
    adjacency = np.zeros((n, n), dtype=bool)
    adjacency[starts, ends] = True
    distance, middle = collating.algos_graphormer.floyd_warshall(adjacency)
    number = {ends: k for k, ends in enumerate(zip(starts, ends, strict=True))}
    path = torch.full((n, n, hops), -1)
    for i, j in np.argwhere((distance > 0) & (distance < 510)).tolist():
        nodes = [i, *collating.algos_graphormer.get_all_edges(middle, i, j), j]
        edges = [number[step] for step in pairwise(nodes)][:hops]
        path[i, j, : len(edges)] = torch.tensor(edges)
    new = data.clone()
    new.pair_distance = torch.from_numpy(distance).flatten().long()
    new.pair_path = path.view(n * n, hops)
    return new


def random_model(settings: dict, seed: int, head: bool = True):
    """A model of transformers with weights that are large enough to show a mistake."""
    config = graphormer.GraphormerConfig(**{k: v for k, v in settings.items() if k != "model_type"})
    name = "GraphormerForGraphClassification" if head else "GraphormerModel"
    model, g = getattr(graphormer, name)(config).eval(), torch.Generator().manual_seed(seed)
    for key, value in model.named_parameters():
        spread = 1.0 if "graph_attn_bias" in key else 0.3
        value.data = torch.randn(value.shape, generator=g) * spread + ("norm.weight" in key)
        if "edge_encoder" in key:
            value.data[0] = 0  # else the predictions of transformers depend on the batch
    return model


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_every_molecule_alone_and_in_a_batch(tmp_path, variant):
    peer = random_model(SMALL | VARIANTS[variant], seed=len(variant))
    peer.save_pretrained(tmp_path)
    model, graphs = GraphSliceformer.from_huggingface(tmp_path), [graph(s) for s in SMILES]
    expected = torch.cat([theirs(peer, [data]) for data in graphs])
    encoded = [with_their_paths(data) for data in graphs]
    close(torch.cat([model(data) for data in encoded]), expected)
    close(theirs(peer, graphs), expected)
    close(model(Batch.from_data_list(encoded)), expected)
    assert expected.std() > 0.1


@torch.no_grad()
def test_the_embedding_of_a_model_without_a_head(tmp_path):
    peer = random_model(SMALL | VARIANTS["published"], seed=1, head=False)
    peer.save_pretrained(tmp_path)
    model, graphs = GraphSliceformer.from_huggingface(tmp_path), [graph(s) for s in SMILES]
    encoded = Batch.from_data_list([with_their_paths(data) for data in graphs])
    close(model.embed(encoded), theirs(peer, graphs))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_golden_numbers_are_those_of_transformers(tmp_path, variant):
    formula_folder(tmp_path, **VARIANTS[variant])
    load = graphormer.GraphormerForGraphClassification.from_pretrained
    peer, info = load(tmp_path, output_loading_info=True)
    assert not any(info.values())
    close(theirs(peer, golden_graphs(), hops=5), torch.tensor(GOLDEN["predictions"][variant]))
    close(theirs(peer.encoder, golden_graphs(), 5), torch.tensor(GOLDEN["embeddings"][variant]))


def test_the_paths_of_the_golden_molecules_are_ours():
    for data in golden_graphs():
        model = GraphSliceformer.from_preset("mini", mixer="attn")
        own, other = (model.pair_bias(d).bias for d in (data, with_their_paths(data)))
        close(own, other)


def test_fields_that_are_not_given_have_the_defaults_of_transformers():
    config = graphormer.GraphormerConfig().to_dict()
    for field, value in (_HF_DEFAULTS | _HF_ONLY).items():
        assert config[field] == value, field
