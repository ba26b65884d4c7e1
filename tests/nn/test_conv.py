"""SliceSortConv as a PyG layer, and the laws it keeps."""

import copy
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from models.small_graphs import disconnected_graph, equal_graph, random_graph, renumbered
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GPSConv, Sequential
from torch_geometric.nn.inits import reset

from slicegraph.nn import GPSLayer, SliceSort, SliceSortAttention, SliceSortConv
from slicegraph.nn.mixer import ALIGNS, MIXERS
from slicegraph.nn.slice_sort import ORDERS
from slicegraph.ops.operator import as_on_gpu
from slicegraph.ops.paths import shortest_paths
from slicegraph.testing import assert_padding_invariant, assert_permutation_equivariant
from slicegraph.vocabulary import OGB_BONDS

CASES = [
    (name, order, align)
    for name, kind in MIXERS.items()
    for order in (ORDERS if kind.needs_order else ["ascending"])
    for align in (ALIGNS if kind.needs_order else ["rows"])
]
CHANNELS = 8


def with_states(data: Data, seed: int = 0) -> Data:
    """The graph with random states instead of categories."""
    generator = torch.Generator().manual_seed(seed)
    data.x = torch.randn(data.num_nodes, CHANNELS, generator=generator)
    return data


def some_graphs() -> list[Data]:
    graphs = [random_graph(n, seed=n) for n in (7, 1, 4, 12, 2)]
    return [with_states(g, seed) for seed, g in enumerate([*graphs, disconnected_graph()])]


def layer(**arguments) -> SliceSortConv:
    """A layer whose bias is as large as what it mixes."""
    torch.manual_seed(0)
    conv = SliceSortConv(CHANNELS, heads=2, edge_vocabulary=OGB_BONDS, **arguments)
    if conv.structural_bias is not None:
        for parameter in conv.structural_bias.parameters():
            torch.nn.init.normal_(parameter)
    return conv


def run(conv: torch.nn.Module, graphs: list[Data]) -> list[Tensor]:
    """One output per graph, from a single batch."""
    batch = Batch.from_data_list(graphs)
    out = conv(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    return list(out.split([g.num_nodes for g in graphs]))


@pytest.mark.parametrize(("mixer", "order", "align"), CASES)
def test_every_mixer_keeps_the_laws(mixer, order, align):
    conv = layer(mixer=mixer, order=order, align=align, layer=1, num_layers=2)
    assert_padding_invariant(conv, some_graphs(), run, rtol=0, atol=1e-5)
    # Trees: where two shortest paths tie, the numbers of the nodes choose between them.
    trees = [with_states(random_graph(n, seed=n, extra_edges=0), n) for n in (7, 4, 12)]
    if not MIXERS[mixer].needs_order or align == "pivot":
        assert_permutation_equivariant(conv, trees, run, permute=renumbered, atol=1e-5, rtol=0)
    else:
        with pytest.raises(AssertionError, match="not permuted like its rows"):
            assert_permutation_equivariant(conv, trees, run, permute=renumbered, atol=1e-5, rtol=0)
    equal = equal_graph()
    equal.x = torch.ones(equal.num_nodes, CHANNELS)
    batch = Batch.from_data_list([*(with_states(random_graph(1)), equal), *some_graphs()])
    x = batch.x.requires_grad_()
    conv(x, batch.edge_index, batch.edge_attr, batch.batch).square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in [x, *conv.parameters()])


def test_pivot_is_not_promised_where_nodes_tie():
    """The nodes of a ring of equals tie in channel 0, so their numbers decide who gets what."""
    graph = equal_graph(4)
    graph.x = torch.ones(4, CHANNELS)
    graph.x[:, 1:] = torch.randn(4, CHANNELS - 1, generator=torch.Generator().manual_seed(0))
    options = {"edge_vocabulary": OGB_BONDS, "align": "pivot", "bias": False}
    conv = SliceSortConv(CHANNELS, mixer="sort", **options)
    with torch.no_grad():
        conv.mixer.value_proj.weight.copy_(torch.eye(CHANNELS))
        conv.mixer.out_proj.weight.copy_(torch.eye(CHANNELS))
    perm = torch.arange(4).flip(0)
    before, after = run(conv, [graph])[0], run(conv, [renumbered(graph, perm)])[0]
    assert not torch.allclose(after, before[perm])


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_given_encoding_is_used(mixer):
    batch = Batch.from_data_list(some_graphs())
    conv = layer(mixer=mixer)
    given = shortest_paths(batch.edge_index, batch.ptr)
    arguments = (batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    assert torch.equal(conv(*arguments, encoding=given), conv(*arguments))


def test_edges_need_not_be_grouped_by_graph():
    batch = Batch.from_data_list(some_graphs())
    order = torch.randperm(batch.num_edges, generator=torch.Generator().manual_seed(0))
    conv = layer()
    expected = conv(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    shuffled = (batch.edge_index[:, order], batch.edge_attr[order])
    torch.testing.assert_close(conv(batch.x, *shuffled, batch.batch), expected)


def test_graphs_without_nodes_are_skipped():
    graphs = [with_states(random_graph(n, seed=n)) for n in (3, 4)]
    batch = Batch.from_data_list(graphs)
    conv, numbers = layer(), torch.tensor([1, 3])[batch.batch]
    expected = torch.cat(run(conv, graphs))
    out = conv(batch.x, batch.edge_index, batch.edge_attr, numbers)
    torch.testing.assert_close(out, expected)


def test_no_batch_is_one_graph():
    graph = some_graphs()[0]
    conv = layer()
    zeros = torch.zeros(graph.num_nodes, dtype=torch.int64)
    arguments = (graph.x, graph.edge_index, graph.edge_attr)
    assert torch.equal(conv(*arguments), conv(*arguments, zeros))


def test_a_hundred_thousand_nodes_without_pairs():
    x, none = torch.randn(100_000, 4), torch.empty(2, 0, dtype=torch.int64)
    conv = SliceSortConv(4, mixer="sort")
    assert conv.structural_bias is None
    expected = conv.mixer.out_proj(conv.mixer.value_proj(x).sort(0).values)
    torch.testing.assert_close(conv(x, none), expected)


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(CHANNELS, CHANNELS)
        self.second = layer(mixer="sort_attn")
        self.third = GPSLayer(CHANNELS, layer())

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        x = self.second(x, edge_index, edge_attr, batch)
        return self.third(x, edge_index, batch, edge_attr=edge_attr)


def test_next_to_other_layers():
    batch = Batch.from_data_list(some_graphs())
    out = Small()(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    assert out.shape == batch.x.shape


@pytest.mark.parametrize("mixer", MIXERS)
def test_weights_survive_copying_and_are_reset(mixer):
    conv, graphs = layer(mixer=mixer), some_graphs()
    other = layer(mixer=mixer)
    other.reset_parameters()
    drawn = zip(conv.parameters(), other.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in drawn)
    other.load_state_dict(conv.state_dict())
    for one in (other, copy.deepcopy(conv)):
        assert torch.equal(torch.cat(run(one, graphs)), torch.cat(run(conv, graphs)))


def test_repr():
    conv = SliceSortConv(16, 8, heads=4, mixer="sort", align="pivot")
    assert repr(conv) == "SliceSortConv(16, 8, heads=4, mixer=sort, order=ascending, align=pivot)"
    assert repr(SliceSortConv(16)) == "SliceSortConv(16, 16, heads=1, mixer=quantile_attn)"


def test_compiles():
    conv, graphs = layer(mixer="sort_attn"), some_graphs()[:2]
    compiled = torch.compile(conv, backend="aot_eager")
    torch.testing.assert_close(run(compiled, graphs), run(conv, graphs))


def mixers_of_the_readme() -> dict[str, tuple[str, str]]:
    """Of each mixer in the table: whether it is equivariant, and whether it needs all pairs."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `.*` \| (yes|no) \| (yes|no) \|$", text, re.MULTILINE)
    rows += re.findall(r"^\| `(\w+)` \| `.*`,.*\| (yes|no) \| (yes|no) \|$", text, re.MULTILINE)
    return {mixer: (equivariant, pairs) for mixer, equivariant, pairs in rows}


def test_the_table_of_the_readme_has_every_mixer():
    assert mixers_of_the_readme().keys() == MIXERS.keys()


@pytest.mark.parametrize("mixer", MIXERS)
def test_the_table_of_the_readme_is_right(mixer):
    equivariant, pairs = mixers_of_the_readme()[mixer]
    conv = layer(mixer=mixer)
    assert (conv.structural_bias is not None) == (pairs == "yes")
    trees = [with_states(random_graph(n, seed=n, extra_edges=0), n) for n in (7, 4, 12)]
    expected = nullcontext() if equivariant == "yes" else pytest.raises(AssertionError)
    with expected:
        assert_permutation_equivariant(conv, trees, run, permute=renumbered, atol=1e-5, rtol=0)


def test_the_default_is_permutation_equivariant():
    trees = [with_states(random_graph(n, seed=n, extra_edges=0), n) for n in (7, 4, 12)]
    torch.manual_seed(0)
    conv = SliceSortConv(CHANNELS, heads=2, edge_vocabulary=OGB_BONDS)
    assert_permutation_equivariant(conv, trees, run, permute=renumbered, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mixer", MIXERS)
def test_input_and_output_have_sizes_of_their_own(mixer):
    batch = Batch.from_data_list(some_graphs())
    options = {"heads": 2, "edge_vocabulary": OGB_BONDS, "mixer": mixer}
    torch.manual_seed(0)
    conv = SliceSortConv(CHANNELS, 6, **options)
    lazy = SliceSortConv(-1, 6, **options)
    arguments = (batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    assert conv(*arguments).shape == lazy(*arguments).shape == (batch.num_nodes, 6)
    assert repr(lazy) == repr(conv)
    lazy.load_state_dict(conv.state_dict())
    assert torch.equal(lazy(*arguments), conv(*arguments))
    fresh = SliceSortConv(-1, 6, **options)
    fresh.load_state_dict(conv.state_dict())  # before the first input
    fresh.reset_parameters()
    assert fresh(*arguments).shape == (batch.num_nodes, 6)


def test_a_lazy_layer_needs_its_output_size():
    with pytest.raises(ValueError, match="in_channels = -1 needs out_channels"):
        SliceSortConv(-1)


def test_bipartite_sizes_are_refused():
    with pytest.raises(ValueError, match=r"in_channels = \(4, 8\), .* no bipartite graphs"):
        SliceSortConv((4, 8), 8)


EDGES = torch.tensor([[0, 1], [1, 0]])
X = torch.randn(2, CHANNELS)
SPARSE = torch.eye(2).to_sparse()


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((torch.randn(2, 7), EDGES), {}, r"x has shape \[2, 7\]"),
        ((X, EDGES), {"batch": torch.zeros(3).long()}, r"batch of shape \[3\] with x"),
        ((X, EDGES), {"batch": torch.tensor([1, 0])}, "batch is not sorted"),
        ((X, EDGES), {"batch": torch.tensor([-1, 0])}, r"batch\[0\] = -1 is negative"),
        (((X, X), EDGES), {}, "x is a tuple, .* no bipartite graphs"),
        ((None, EDGES), {}, "x is a NoneType"),
        ((X, SPARSE), {}, r"sparse adjacency matrix, .*to_edge_index\(adj\)"),
        ((X, EDGES), {"edge_weight": torch.ones(2)}, "weights are edge features: .*edge_dim=1"),
        ((X, EDGES, torch.zeros(2, dtype=torch.int64)), {}, "by name, as batch=batch"),
        ((X, EDGES, torch.zeros(2, 3)), {}, r"edge_attr of shape \[2, 3\] is given.*edge_dim"),
    ],
)
def test_wrong_input_is_named(arguments, named, message):
    for mixer in ("quantile_attn", "sort"):
        with pytest.raises(ValueError, match=message):
            SliceSortConv(CHANNELS, mixer=mixer)(*arguments, **named)


@pytest.mark.parametrize("edge_index", [None, [[0, 1], [1, 0]]])
def test_edges_that_are_no_tensor_are_named(edge_index):
    with pytest.raises(ValueError, match=r"edge_index is a \w+, expected a tensor \[2, E\]"):
        SliceSortConv(CHANNELS)(X, edge_index)


@pytest.mark.parametrize("batch", [torch.zeros(2), torch.zeros(2).bool(), [0, 0]])
@pytest.mark.parametrize(
    "found", [SliceSortConv(CHANNELS), GPSLayer(CHANNELS), GPSLayer(CHANNELS, layer())]
)
def test_a_batch_of_another_type_is_named(found, batch):
    with pytest.raises(TypeError, match=r"batch is .*, expected (a tensor|int64 or int32)"):
        found(X, EDGES, batch=batch)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("batch", [None, torch.zeros(2, dtype=torch.int64)])
def test_edge_features_of_other_edges_are_named(rows, batch):
    message = rf"edge_attr has shape \[{rows}, 1\], expected a row for each of the 2 edges"
    with pytest.raises(ValueError, match=message):
        SliceSortConv(CHANNELS, edge_dim=1)(X, EDGES, torch.zeros(rows, 1), batch)


@pytest.mark.parametrize("mixer", MIXERS)
def test_no_nodes_have_no_output(mixer):
    conv = SliceSortConv(CHANNELS, 6, heads=2, mixer=mixer)
    none = torch.empty(0, dtype=torch.int64)
    for batch in (None, none):
        for code in (nullcontext(), as_on_gpu()):
            with code:
                assert conv(X[:0], EDGES[:, :0], batch=batch).shape == (0, 6)


def test_the_numbers_of_the_graphs_take_no_memory():
    batch = torch.tensor([0, 10**12])
    expected = SliceSortConv(CHANNELS, mixer="attn")
    torch.testing.assert_close(
        expected(X, EDGES[:, :0], batch=batch), expected(X, EDGES[:, :0], batch=torch.arange(2))
    )


def test_edge_weights_are_edge_features():
    conv = SliceSortConv(CHANNELS, edge_dim=1)
    weights = torch.tensor([0.5, 2.0])
    assert torch.equal(conv(X, EDGES, weights), conv(X, EDGES, weights.unsqueeze(-1)))


# Containers that hand `batch` on.


def gps_with_slice_sort() -> torch.nn.Module:
    """PyG's own layer, with our attention in its slot."""
    found = GPSConv(CHANNELS, GCNConv(CHANNELS, CHANNELS), heads=2)
    found.attn = SliceSortAttention(CHANNELS)
    return found


class InSequence(torch.nn.Module):
    """PyG's Sequential, which hands on what its signature names."""

    def __init__(self) -> None:
        super().__init__()
        conv = (SliceSortConv(CHANNELS, heads=2), "x, edge_index, edge_attr, batch -> x")
        self.layers = Sequential("x, edge_index, edge_attr, batch", [conv])

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.layers(x, edge_index, None, batch)


CONTAINERS = {
    "PyG's GPSConv": gps_with_slice_sort,
    "PyG's Sequential": InSequence,
    "GPSLayer of a conv": lambda: GPSLayer(CHANNELS, SliceSortConv(CHANNELS, heads=2)),
    "GPSLayer of PyG's conv": lambda: GPSLayer(CHANNELS, GCNConv(CHANNELS, CHANNELS)),
    "GPSLayer alone": lambda: GPSLayer(CHANNELS),
    "GPSLayer of a graph norm": lambda: GPSLayer(
        CHANNELS, SliceSortConv(CHANNELS), norm="layer_norm", norm_kwargs={"mode": "graph"}
    ),
    "GPSLayer without norm": lambda: GPSLayer(CHANNELS, attn=SliceSort(CHANNELS), norm=None),
}


def run_container(layer: torch.nn.Module, graphs: list[Data]) -> list[Tensor]:
    batch = Batch.from_data_list(graphs)
    out = layer(batch.x, batch.edge_index, batch=batch.batch)
    return list(out.split([g.num_nodes for g in graphs]))


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_keeps_the_graphs_of_a_batch_apart(name):
    torch.manual_seed(0)
    layer = CONTAINERS[name]().eval()
    assert_padding_invariant(layer, some_graphs(), run_container, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in CONTAINERS if name != "GPSLayer without norm"])
def test_a_container_is_permutation_equivariant(name):
    torch.manual_seed(0)
    layer, graphs = CONTAINERS[name]().eval(), some_graphs()
    assert_permutation_equivariant(
        layer, graphs, run_container, permute=renumbered, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_parameter_of_a_container_has_a_gradient(name):
    torch.manual_seed(0)
    layer = CONTAINERS[name]()
    batch = Batch.from_data_list(some_graphs())
    target = torch.randn(batch.x.shape)
    (layer(batch.x, batch.edge_index, batch=batch.batch) * target).sum().backward()
    for key, parameter in layer.named_parameters():
        assert bool(parameter.grad.any()), key
    before = [parameter.clone() for parameter in layer.parameters()]
    reset(layer)
    after = zip(before, layer.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in after)


def test_an_attention_that_cannot_take_batch_is_refused():
    with pytest.raises(TypeError, match="attn is a Linear, whose forward has no argument batch"):
        GPSLayer(CHANNELS, attn=torch.nn.Linear(CHANNELS, CHANNELS))
