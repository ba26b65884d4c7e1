"""The importers of Graphormer weights: official ones, and folders of transformers.

`official_bias.json` holds numbers of the official code: the bias of one molecule of five atoms, and
the rows of the weights that it reads. `test_golden.py` compares whole models.
`huggingface_golden.json` holds numbers of transformers 4.57.1; `huggingface_folder` says which.
`test_huggingface_peer.py` computes them again where transformers is installed.
"""

import json
import math
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
from models.small_graphs import disconnected_graph, random_graph
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import gelu, layer_norm
from torch_geometric.data import Batch, Data

import slicegraph
from slicegraph.models import GraphSliceformer
from slicegraph.ops.paths import shortest_paths

OFFICIAL = json.loads((Path(__file__).parent / "official_bias.json").read_text())
HEADS, WIDTH, LAYERS = 2, 8, 2


def official_state(heads: int = HEADS, width: int = WIDTH, layers: int = LAYERS, seed: int = 0):
    """Random weights under the official names, padding rows included."""
    shapes = {
        "atom_encoder.weight": (512 * 9 + 1, width),
        "edge_encoder.weight": (512 * 3 + 1, heads),
        "edge_dis_encoder.weight": (128 * heads * heads, 1),
        "spatial_pos_encoder.weight": (512, heads),
        "in_degree_encoder.weight": (512, width),
        "out_degree_encoder.weight": (512, width),
        "graph_token.weight": (1, width),
        "graph_token_virtual_distance.weight": (1, heads),
    }
    linears = [f"self_attention.linear_{name}" for name in "qkv"]
    linears += ["self_attention.output_layer", "ffn.layer1", "ffn.layer2"]
    for layer in range(layers):
        shapes[f"layers.{layer}.self_attention.weight"] = (2,)
        for name in linears:
            shapes[f"layers.{layer}.{name}.weight"] = (width, width)
            shapes[f"layers.{layer}.{name}.bias"] = (width,)
        for name in ("self_attention_norm", "ffn_norm"):
            shapes |= {f"layers.{layer}.{name}.{kind}": (width,) for kind in ("weight", "bias")}
    shapes |= {"final_ln.weight": (width,), "final_ln.bias": (width,)}
    shapes |= {"out_proj.weight": (1, width), "out_proj.bias": (1,)}
    g = torch.Generator().manual_seed(seed)
    return {k: torch.randn(s, generator=g, dtype=torch.float64) for k, s in shapes.items()}


def official_bias(w: dict[str, Tensor], data: Data) -> Tensor:
    """`[heads, n + 1, n + 1]` of one graph, five hop slots always."""
    n, heads = data.num_nodes, w["spatial_pos_encoder.weight"].shape[1]
    found = shortest_paths(data.edge_index, torch.tensor([0, n]), max_distance=509)
    blocks = w["edge_dis_encoder.weight"].view(-1, heads, heads)
    bias = w["graph_token_virtual_distance.weight"][0].expand(n + 1, n + 1, heads).clone()
    for i in range(n):
        for j in range(n):
            pair = i * n + j
            distance, total = int(found.distance[pair]), torch.zeros_like(bias[0, 0])
            for hop, edge in enumerate(found.path[pair].tolist()):
                rows = [0, 0, 0]
                if edge >= 0:
                    rows = [r + 3 + 512 * c for c, r in enumerate(data.edge_attr[edge].tolist())]
                total = total + w["edge_encoder.weight"][rows].mean(0) @ blocks[hop]
            own = w["spatial_pos_encoder.weight"][distance + 1]
            bias[i + 1, j + 1] = own + total / min(5, max(1, distance))
    return bias.permute(2, 0, 1)


def official_prediction(w: dict[str, Tensor], data: Data, mixer: str) -> Tensor:
    """The official model on one graph, in plain tensors."""
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    rows = data.x + 2 + 512 * torch.arange(9)
    x = w["atom_encoder.weight"][rows].sum(1)
    x = x + w["in_degree_encoder.weight"][degree + 1] + w["out_degree_encoder.weight"][degree + 1]
    x, bias = torch.cat([w["graph_token.weight"], x]), official_bias(w, data)

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])

    def split(x: Tensor) -> Tensor:
        return x.view(len(x), HEADS, -1).transpose(0, 1)

    for layer in range(LAYERS):
        at, y = f"layers.{layer}.", norm(x, f"layers.{layer}.self_attention_norm")
        q, k, v = (split(linear(y, f"{at}self_attention.linear_{name}")) for name in "qkv")
        scores = bias + (q @ k.transpose(1, 2) / math.sqrt(WIDTH / HEADS) if mixer == "qkv" else 0)
        mixed = scores.softmax(-1) @ v
        if mixer == "attn_plus_sort":
            mixed = mixed + v.sort(1).values
        if mixer == "sort_attn":
            mixed = mixed.sort(1).values
        mixed = mixed.transpose(0, 1).reshape(len(x), -1)
        x = x + linear(mixed, f"{at}self_attention.output_layer")
        inner = gelu(linear(norm(x, f"{at}ffn_norm"), f"{at}ffn.layer1"))
        x = x + linear(inner, f"{at}ffn.layer2")
    return linear(norm(x, "final_ln")[0], "out_proj")


def some_graphs() -> list[Data]:
    return [*(random_graph(n, seed=n) for n in (5, 1, 8)), disconnected_graph()]


@pytest.mark.parametrize("weights", ["spread", "init"])
@torch.no_grad()
def test_the_bias_of_the_official_code(weights):
    state = {name: torch.zeros_like(value) for name, value in official_state(heads=8).items()}
    for name, rows in OFFICIAL[weights]["weights"].items():
        for row, values in rows.items():
            values = torch.tensor(values, dtype=torch.float64)
            if row == "blocks":
                state[name][: len(values), 0] = values
            else:
                state[name][int(row)] = values
    model = GraphSliceformer.from_graphormer_v1(state, mixer="attn").float()
    data = Data(
        x=torch.zeros(OFFICIAL["num_nodes"], 9, dtype=torch.int64),
        edge_index=torch.tensor(OFFICIAL["edge_index"]),
        edge_attr=torch.tensor(OFFICIAL["edge_attr"]),
    )
    bias = model.pair_bias(data).bias[0]
    expected = torch.tensor(OFFICIAL[weights]["bias"]).view_as(bias)
    torch.testing.assert_close(bias, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mixer", ["qkv", "attn_plus_sort", "sort_attn"])
@torch.no_grad()
def test_predictions_follow_the_official_conventions(mixer):
    state, graphs = official_state(), some_graphs()
    model = GraphSliceformer.from_graphormer_v1(state, mixer=mixer).double().eval()
    predictions = model(Batch.from_data_list(graphs))
    expected = torch.stack([official_prediction(to_float(state), g, mixer) for g in graphs])
    torch.testing.assert_close(predictions, expected, rtol=1e-10, atol=1e-10)


def to_float(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What is left of the numbers in a float32 model."""
    return {name: value.float().double() for name, value in state.items()}


def test_sizes_are_read_off_the_weights():
    config = GraphSliceformer.from_graphormer_v1(official_state(heads=4, layers=3)).config
    assert (config.num_layers, config.channels, config.ffn_channels, config.heads) == (3, 8, 8, 4)
    assert (config.max_distance, config.max_degree, config.hop_blocks) == (509, 510, 128)
    assert config.node_vocabulary == (512,) * 9
    assert config.edge_vocabulary == (512,) * 3
    assert config.mixer == "qkv"
    assert config.empty_hops
    assert config.in_degree_twice


def test_the_unused_pairs_are_ignored():
    state = official_state()
    for layer in range(LAYERS):
        state[f"layers.{layer}.self_attention.weight"] += 100
    with_them = GraphSliceformer.from_graphormer_v1(state)
    without = {k: v for k, v in state.items() if not k.endswith("self_attention.weight")}
    for a, b in zip(
        with_them.parameters(),
        GraphSliceformer.from_graphormer_v1(without).parameters(),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_a_sliceformer_needs_no_queries_and_keys():
    state = official_state()
    without = {k: v for k, v in state.items() if "linear_q" not in k and "linear_k" not in k}
    a = GraphSliceformer.from_graphormer_v1(state, mixer="sort_attn")
    b = GraphSliceformer.from_graphormer_v1(without, mixer="sort_attn")
    for one, other in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("overrides", [{"mixer": "sort"}, {"readout": "mean"}, {"dropout": 0.1}])
def test_other_models_can_start_from_the_weights(overrides):
    model = GraphSliceformer.from_graphormer_v1(official_state(), **overrides)
    assert model(random_graph(4)).shape == (1, 1)


def test_other_names_of_the_output_layer():
    state = official_state()
    for kind in ("weight", "bias"):
        value = state.pop(f"out_proj.{kind}")
        state[f"downstream_out_proj.{kind}"] = value.repeat(3, *[1] * (value.dim() - 1))
    assert GraphSliceformer.from_graphormer_v1(state).config.num_targets == 3


def test_the_padding_row_is_not_trained():
    model = GraphSliceformer.from_graphormer_v1(official_state())
    model(random_graph(5)).sum().backward()
    assert bool((model.structural_bias.path_bias.edge_table.weight.grad[0] == 0).all())


@pytest.mark.parametrize("name", ["graph_token.weight", "layers.0.ffn.layer1.weight"])
def test_missing_weights_are_named(name):
    state = official_state()
    del state[name]
    with pytest.raises(ValueError, match=name):
        GraphSliceformer.from_graphormer_v1(state)


def test_missing_queries_are_named():
    state = {k: v for k, v in official_state().items() if "linear_q" not in k}
    with pytest.raises(ValueError, match=r"layers.0.self_attention.linear_q.weight"):
        GraphSliceformer.from_graphormer_v1(state, mixer="qkv")


# Folders of transformers.

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
