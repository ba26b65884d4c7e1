"""The importer of Graphormer folders of transformers.

`huggingface_golden.json` holds numbers of transformers 4.57.1; `huggingface_folder` says which.
`test_huggingface_peer.py` computes them again where transformers is installed.
"""

import json
from pathlib import Path

import pytest
import torch
from models.huggingface_folder import (
    GOLDEN,
    SMALL,
    VARIANTS,
    formula_folder,
    formula_weights,
    golden_graphs,
    write_folder,
)
from safetensors.torch import save_file
from torch_geometric.data import Batch

import slicegraph
from slicegraph.models import GraphSliceformer

LAYER = "encoder.graph_encoder.layers.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return formula_folder(tmp_path / "graphormer")


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_the_predictions_of_transformers(tmp_path, variant):
    model = GraphSliceformer.from_huggingface(formula_folder(tmp_path, **VARIANTS[variant]))
    graphs = golden_graphs()
    for inputs in ([Batch.from_data_list(graphs)], graphs):
        states = torch.cat([model.embed(data) for data in inputs])
        for actual, name in ((states, "embeddings"), (model.head(states), "predictions")):
            expected = torch.tensor(GOLDEN[name][variant])
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_the_configuration(tmp_path):
    config = GraphSliceformer.from_huggingface(formula_folder(tmp_path)).config
    assert (config.num_layers, config.channels, config.ffn_channels, config.heads) == (2, 16, 24, 4)
    assert (config.max_distance, config.max_hops, config.hop_blocks) == (509, 5, 128)
    assert (config.dropout, config.input_dropout, config.attention_dropout) == (0.1, 0.1, 0.1)
    assert (config.max_degree, config.num_targets, config.task) == (510, 1, "regression")
    assert config.node_vocabulary == (512,) * 9
    assert config.edge_vocabulary == (512,) * 3
    assert config.post_norm
    assert not config.embedding_norm


def test_every_weight_has_one_place(folder):
    weights = formula_weights(SMALL)
    parameters = dict(GraphSliceformer.from_huggingface(folder).named_parameters())
    assert len(parameters) == len(weights)
    for name, value in weights.items():
        same = [
            own
            for own, parameter in parameters.items()
            if torch.equal(parameter.flatten().sort().values, value.flatten().sort().values)
        ]
        assert len(same) == 1, name
        del parameters[same[0]]


@pytest.mark.parametrize("mixer", ["sort_attn", "attn_plus_sort", "attn", "sort"])
@torch.no_grad()
def test_a_sliceformer_takes_all_but_queries_and_keys(folder, mixer):
    graphormer = GraphSliceformer.from_huggingface(folder).state_dict()
    model = GraphSliceformer.from_huggingface(folder, mixer=mixer)
    for name, value in model.state_dict().items():
        assert torch.equal(graphormer.pop(name), value)
    unused = ("query_proj", "key_proj", *(["structural_bias"] if mixer == "sort" else []))
    assert all(any(part in name for part in unused) for name in graphormer)
    assert model(golden_graphs()[0]).isfinite().all()


@torch.no_grad()
def test_a_folder_without_a_head_gives_the_same_states(tmp_path, folder):
    weights = formula_weights(SMALL)
    plain = {k.removeprefix("encoder."): v for k, v in weights.items() if "classifier" not in k}
    other = GraphSliceformer.from_huggingface(write_folder(tmp_path / "plain", SMALL, plain))
    model, data = GraphSliceformer.from_huggingface(folder), golden_graphs()[2]
    assert torch.equal(other.embed(data), model.embed(data))


@torch.no_grad()
def test_weights_in_two_files(tmp_path, folder):
    expected = GraphSliceformer.from_huggingface(folder).state_dict()
    (folder / "model.safetensors").unlink()
    names, where = list(weights := formula_weights(SMALL)), {}
    for file, part in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        save_file({name: weights[name] for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    for name, value in GraphSliceformer.from_huggingface(folder).state_dict().items():
        assert torch.equal(value, expected[name])


@torch.no_grad()
def test_it_can_be_saved_as_one_of_ours(tmp_path):
    model = GraphSliceformer.from_huggingface(formula_folder(tmp_path / "a", **VARIANTS["near"]))
    model.save(tmp_path / "b")
    data = golden_graphs()[3]
    assert not model.training
    assert torch.equal(slicegraph.load(tmp_path / "b")(data), model(data))


def test_several_outputs_are_binary_unless_told_otherwise(tmp_path):
    formula_folder(tmp_path, num_classes=3)
    assert GraphSliceformer.from_huggingface(tmp_path).config.task == "binary"
    model = GraphSliceformer.from_huggingface(tmp_path, task="multiclass")
    assert model(golden_graphs()[0]).shape == (1, 1, 3)


@pytest.mark.parametrize("overrides", [{"num_targets": 2}, {"readout": "quantiles"}])
def test_a_head_of_another_size_is_new(folder, overrides):
    model, old = (GraphSliceformer.from_huggingface(folder, **o) for o in (overrides, {}))
    assert bool((model.head.bias == 0).all())
    assert torch.equal(model.final_transform.weight, old.final_transform.weight)


@torch.no_grad()
def test_graphs_with_a_single_feature(folder):
    one = {"node_vocabulary": (512 * 9,), "edge_vocabulary": (512 * 3,)}
    model, table = GraphSliceformer.from_huggingface(folder, **one), formula_weights(SMALL)
    atoms = table["encoder.graph_encoder.graph_node_feature.atom_encoder.weight"]
    features = torch.tensor([[0], [1000]])
    assert torch.equal(model.embedding.nodes(features), atoms[[3, 1003]])


@torch.no_grad()
def test_a_table_of_few_distances_has_one_more_for_no_path(tmp_path):
    model = GraphSliceformer.from_huggingface(formula_folder(tmp_path, num_spatial=9))
    distance = model.structural_bias.distance
    assert model.config.max_distance == 7
    assert torch.equal(distance[9], distance[8])
    assert model(golden_graphs()[3]).isfinite().all()


@pytest.mark.parametrize("name", [f"{LAYER}.fc1.bias", "classifier.classifier.weight"])
def test_a_missing_tensor_is_named(tmp_path, name):
    weights = formula_weights(SMALL)
    del weights[name]
    with pytest.raises(ValueError, match=f"'{name}' is missing"):
        GraphSliceformer.from_huggingface(write_folder(tmp_path, SMALL, weights))


@pytest.mark.parametrize("name", ["encoder.embed_out.weight", "encoder.graph_encoder.layers.2.x"])
def test_an_unknown_tensor_is_named(tmp_path, name):
    weights = formula_weights(SMALL) | {name: torch.zeros(1)}
    with pytest.raises(ValueError, match=f"'{name}' is not known"):
        GraphSliceformer.from_huggingface(write_folder(tmp_path, SMALL, weights))


def test_a_tensor_of_another_shape_is_named(tmp_path):
    weights = formula_weights(SMALL) | {f"{LAYER}.fc1.bias": torch.zeros(7)}
    with pytest.raises(RuntimeError, match=r"blocks\.1\.ffn_in\.bias"):
        GraphSliceformer.from_huggingface(write_folder(tmp_path, SMALL, weights))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "bert"),
        ("edge_type", "single_hop"),
        ("activation_fn", "relu"),
        ("q_noise", 0.1),
        ("bias", False),
        ("share_input_output_embed", True),
        ("num_out_degree", 64),
        ("multi_hop_max_dist", 0),
    ],
)
def test_a_field_that_is_not_supported_is_named(folder, field, value):
    (folder / "config.json").write_text(json.dumps(SMALL | {field: value}))
    with pytest.raises(ValueError, match=f"{field} = {value!r}"):
        GraphSliceformer.from_huggingface(folder)


def test_an_override_that_needs_other_weights_is_an_error(folder):
    with pytest.raises(ValueError, match=r"nothing for 'embedding_norm\.weight'"):
        GraphSliceformer.from_huggingface(folder, embedding_norm=True)


def test_a_pickle_is_refused_with_the_remedy(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors; its pytorch_model\.bin"):
        GraphSliceformer.from_huggingface(folder)


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        GraphSliceformer.from_huggingface(tmp_path)
