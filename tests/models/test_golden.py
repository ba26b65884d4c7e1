"""The official models' numbers, reproduced.

The golden folder is not part of the repository: SLICEGRAPH_GOLDEN says where it is. The literal
numbers of `test_graphormer_v1.py` need no folder.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from slicegraph.models import GraphSliceformer
from slicegraph.transforms import StructuralEncoding

FOLDER = os.environ.get("SLICEGRAPH_GOLDEN")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="SLICEGRAPH_GOLDEN is not set")

MIXERS = ["qkv", "attn_plus_sort", "sort_attn"]
WEIGHTS = ["spread", "init"]
NUM_MOLECULES = 200
NO_PATH, ADJACENT = 510, -1


@cache
def table(name: str) -> dict[str, np.ndarray]:
    assert FOLDER is not None
    with np.load(Path(FOLDER) / f"{name}.npz", allow_pickle=False) as file:
        return dict(file)


def official_path(mid: np.ndarray, i: int, j: int) -> list[tuple[int, int]]:
    """The edges from i to j, by splitting at the atom that the reference recorded."""
    if i == j or mid[i, j] == NO_PATH:
        return []
    if mid[i, j] == ADJACENT:
        return [(i, j)]
    return official_path(mid, i, mid[i, j]) + official_path(mid, mid[i, j], j)


@cache
def molecule(number: int) -> Data:
    """A molecule with the stored features and the paths that the reference chose."""
    s = table("structure")
    n = int(s["n_atoms"][number])
    nodes, edges, pairs = (
        slice(*s[f"{kind}_ptr"][number : number + 2]) for kind in ("node", "edge", "pair")
    )
    edge_index = s["edge_index"][:, edges].astype(np.int64)
    mid = s["floyd_mid"][pairs].reshape(n, n)
    number_of = {(i, j): e for e, (i, j) in enumerate(edge_index.T.tolist())}
    path = np.full((n, n, 5), -1, np.int16)
    for i, j in np.ndindex(n, n):
        for hop, edge in enumerate(official_path(mid, i, j)[:5]):
            path[i, j, hop] = number_of[edge]
    return Data(
        x=torch.from_numpy(s["node_feat"][nodes].astype(np.int64)),
        edge_index=torch.from_numpy(edge_index),
        edge_attr=torch.from_numpy(s["edge_feat"][edges].astype(np.int64)),
        pair_distance=torch.from_numpy(s["spd"][pairs]),
        pair_path=torch.from_numpy(path.reshape(n * n, 5)),
        in_degree=torch.from_numpy(s["in_degree"][nodes]),
        out_degree=torch.from_numpy(s["in_degree"][nodes]),
    )


def molecules() -> list[Data]:
    return [molecule(number) for number in range(NUM_MOLECULES)]


def official(weights: str, mixer: str, dtype: torch.dtype = torch.float32) -> GraphSliceformer:
    state = {name: torch.from_numpy(value) for name, value in table(f"weights_{weights}").items()}
    return GraphSliceformer.from_graphormer_v1(state, mixer=mixer).to(dtype).eval()


def expected(weights: str, name: str) -> Tensor:
    return torch.from_numpy(table(f"outputs_{weights}")[name])


def close(actual: Tensor, wanted: Tensor, atol: float) -> None:
    torch.testing.assert_close(actual, wanted, rtol=0, atol=atol)


def test_the_paths_are_those_of_the_reference():
    stored = table("structure")
    for number, data in enumerate(molecules()):
        pairs = slice(*stored["pair_ptr"][number : number + 2])
        features = data.edge_attr + 2 + 512 * torch.arange(3)
        path = data.pair_path.long()
        found = torch.where((path < 0).unsqueeze(-1), -1, features[path])
        assert torch.equal(found, torch.from_numpy(stored["edge_input5"][pairs].astype(np.int64)))


@pytest.mark.parametrize("weights", WEIGHTS)
@torch.no_grad()
def test_the_bias_is_that_of_the_reference(weights):
    model, outputs = official(weights, "qkv"), table(f"outputs_{weights}")
    wanted = expected(weights, "bias_hops5" if weights == "init" else "bias")
    for k, number in enumerate(outputs["bias_mol"]):
        bias = model.pair_bias(molecule(int(number))).bias[0]
        close(bias, wanted[slice(*outputs["bias_ptr"][k : k + 2])].view_as(bias), 1e-6)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mixer", MIXERS)
@torch.no_grad()
def test_every_molecule_alone(weights, mixer):
    model = official(weights, mixer)
    states = torch.cat([model.embed(data) for data in molecules()])
    hidden = "hidden_hops5" if weights == "init" else "hidden"
    close(states, expected(weights, f"{mixer}.{hidden}"), 1e-5)
    close(model.head(states).flatten(), expected(weights, f"{mixer}.pred_hops5"), 1e-5)


@pytest.mark.parametrize("size", [7, 200])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mixer", MIXERS)
@torch.no_grad()
def test_every_molecule_in_batches(weights, mixer, size):
    model, data = official(weights, mixer), molecules()
    batches = [Batch.from_data_list(data[i : i + size]) for i in range(0, len(data), size)]
    predictions = torch.cat([model(batch) for batch in batches]).flatten()
    close(predictions, expected(weights, f"{mixer}.pred_hops5"), 1e-5)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mixer", MIXERS)
@torch.no_grad()
def test_double_precision_agrees_to_rounding(weights, mixer):
    model = official(weights, mixer, torch.float64)
    predictions = model(Batch.from_data_list(molecules())).flatten()
    close(predictions, expected(weights, f"{mixer}.pred_hops5_f64"), 1e-12)


@pytest.mark.parametrize("mixer", MIXERS)
@torch.no_grad()
def test_our_own_paths_where_there_is_no_choice(mixer):
    names = ("x", "edge_index", "edge_attr")
    plain = [Data(**{name: data[name] for name in names}) for data in molecules()]
    encoded = [StructuralEncoding()(data) for data in plain]
    unique = torch.from_numpy(table("structure")["unique_path"])
    predictions = official("spread", mixer)(Batch.from_data_list(encoded)).flatten()
    wanted = expected("spread", f"{mixer}.pred_hops5")
    close(predictions[unique], wanted[unique], 1e-5)


@torch.no_grad()
def test_the_model_computes_the_encoding_itself():
    names = ("x", "edge_index", "edge_attr")
    plain = [Data(**{name: data[name] for name in names}) for data in molecules()]
    unique = torch.from_numpy(table("structure")["unique_path"])
    predictions = official("spread", "sort_attn")(Batch.from_data_list(plain)).flatten()
    close(predictions[unique], expected("spread", "sort_attn.pred_hops5")[unique], 1e-5)
