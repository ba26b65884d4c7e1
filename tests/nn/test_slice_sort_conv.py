"""SliceSortConv as a PyG layer, and the laws it keeps."""

import copy

import pytest
import torch
from models.small_graphs import disconnected_graph, equal_graph, random_graph, renumbered
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GPSConv, Sequential

from slicegraph.models.config import OGB_BONDS
from slicegraph.nn import SliceSortConv
from slicegraph.ops.shortest_paths import shortest_paths
from slicegraph.testing import assert_padding_invariant, assert_permutation_equivariant

MIXERS = ["quantile_attn", "sort_attn", "attn_plus_sort", "sort", "attn", "qkv"]
ORDERS = ["ascending", "descending", "interleave", "max_exchange"]
ALIGNS = ["rows", "pivot"]
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


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("align", ALIGNS)
def test_a_graph_does_not_depend_on_its_companions(mixer, order, align):
    conv = layer(mixer=mixer, order=order, align=align, layer=1, num_layers=2)
    assert_padding_invariant(conv, some_graphs(), run, rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_the_sort_itself_does_not_depend_on_companions_at_all(order):
    conv = SliceSortConv(CHANNELS, mixer="sort", order=order).double()
    graphs = some_graphs()
    for graph in graphs:
        graph.x = graph.x.mul(8).round().double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(parameter.mul(8).round())
    assert_padding_invariant(conv, graphs, run, rtol=0, atol=0)


@pytest.mark.parametrize("mixer", ["attn", "qkv"])
def test_attention_follows_a_renumbering_of_the_nodes(mixer):
    trees = [with_states(random_graph(n, seed=n, extra_edges=0), n) for n in (7, 4, 12)]
    conv = layer(mixer=mixer)
    assert_permutation_equivariant(conv, trees, run, permute=renumbered, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mixer", ["sort_attn", "attn_plus_sort", "sort"])
@pytest.mark.parametrize("order", ORDERS)
def test_pivot_follows_a_renumbering_of_the_nodes(mixer, order):
    # Trees: where two shortest paths tie, the numbers of the nodes choose between them.
    trees = [with_states(random_graph(n, seed=n, extra_edges=0), n) for n in (7, 4, 12)]
    conv = layer(mixer=mixer, order=order, align="pivot", layer=1, num_layers=2)
    assert_permutation_equivariant(conv, trees, run, permute=renumbered, atol=1e-5, rtol=0)


def test_rows_depend_on_the_numbering_by_staying_in_place():
    """The j-th value lands in row j whatever node has that number: the output does not move."""
    graph = with_states(random_graph(7, seed=7, extra_edges=0))
    conv = layer(mixer="sort_attn", align="rows")
    before = run(conv, [graph])[0]
    after = run(conv, [renumbered(graph, torch.arange(7).flip(0))])[0]
    torch.testing.assert_close(after, before, atol=1e-5, rtol=0)
    assert not torch.allclose(after, before.flip(0), atol=1e-3)


def test_pivot_is_not_promised_where_nodes_tie():
    """The nodes of a ring of equals tie in channel 0, so their numbers decide who gets what."""
    graph = equal_graph(4)
    graph.x = torch.ones(4, CHANNELS)
    graph.x[:, 1:] = torch.randn(4, CHANNELS - 1, generator=torch.Generator().manual_seed(0))
    conv = SliceSortConv(CHANNELS, mixer="sort", align="pivot", bias=False)
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


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("align", ALIGNS)
def test_gradients(mixer, order, align):
    graphs = [with_states(random_graph(n, seed=n)) for n in (4, 1, 3)]
    batch = Batch.from_data_list(graphs)
    conv = layer(mixer=mixer, order=order, align=align).double()
    x = batch.x.double().requires_grad_()
    call = (batch.edge_index, batch.edge_attr, batch.batch)
    assert torch.autograd.gradcheck(lambda x: conv(x, *call), x)


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("align", ALIGNS)
def test_gradients_are_finite_on_degenerate_graphs(mixer, order, align):
    equal = equal_graph()
    equal.x = torch.ones(equal.num_nodes, CHANNELS)
    graphs = [with_states(random_graph(1)), with_states(disconnected_graph()), equal]
    batch, conv = Batch.from_data_list(graphs), layer(mixer=mixer, order=order, align=align)
    x = batch.x.requires_grad_()
    conv(x, batch.edge_index, batch.edge_attr, batch.batch).square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in [x, *conv.parameters()])


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
        self.third = GPSConv(CHANNELS, GCNConv(CHANNELS, CHANNELS), heads=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        return self.third(self.second(x, edge_index, edge_attr, batch), edge_index, batch)


def test_next_to_other_layers():
    batch = Batch.from_data_list(some_graphs())
    out = Small()(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    assert out.shape == batch.x.shape


def test_as_the_local_layer_of_gps():
    graph = some_graphs()[0]
    out = GPSConv(CHANNELS, layer(), heads=2)(graph.x, graph.edge_index, edge_attr=graph.edge_attr)
    assert out.shape == graph.x.shape


def test_in_a_sequential_model():
    conv = layer()
    model = Sequential(
        "x, edge_index, edge_attr, batch",
        [(conv, "x, edge_index, edge_attr, batch -> x"), (torch.nn.ReLU(), "x -> x")],
    )
    graphs = some_graphs()
    batch = Batch.from_data_list(graphs)
    out = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    assert torch.equal(out, torch.cat(run(conv, graphs)).relu())


@pytest.mark.parametrize("mixer", MIXERS)
def test_weights_survive_copying_and_are_drawn_anew(mixer):
    conv, graphs = layer(mixer=mixer), some_graphs()
    other = layer(mixer=mixer)
    other.reset_parameters()
    drawn = zip(conv.parameters(), other.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in drawn)
    other.load_state_dict(conv.state_dict())
    for one in (other, copy.deepcopy(conv)):
        assert torch.equal(torch.cat(run(one, graphs)), torch.cat(run(conv, graphs)))


def test_repr():
    conv = SliceSortConv(16, heads=4, align="pivot")
    assert repr(conv) == "SliceSortConv(16, heads=4, mixer=sort_attn, order=ascending, align=pivot)"
    assert repr(SliceSortConv(16, mixer="qkv")) == "SliceSortConv(16, heads=1, mixer=qkv)"


@pytest.mark.parametrize("mixer", MIXERS)
def test_compiles_with_dynamic_sizes(mixer):
    conv = layer(mixer=mixer)
    compiled = torch.compile(conv, dynamic=True, backend="aot_eager")
    for graphs in (some_graphs()[:2], some_graphs()[3:]):
        expected, found = (output_and_gradients(one, conv, graphs) for one in (conv, compiled))
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(other, one)


def output_and_gradients(call, conv: SliceSortConv, graphs: list[Data]) -> list[Tensor]:
    conv.zero_grad()
    batch = Batch.from_data_list(graphs)
    x = batch.x.requires_grad_()
    out = call(x, batch.edge_index, batch.edge_attr, batch.batch)
    out.square().sum().backward()
    return [out, x.grad, *(parameter.grad for parameter in conv.parameters())]


EDGES = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("x", "batch", "message"),
    [
        (torch.randn(2, 7), None, r"x has shape \[2, 7\]"),
        (torch.randn(0, CHANNELS), None, "x has no rows"),
        (torch.randn(2, CHANNELS), torch.zeros(3), r"batch has shape \[3\]"),
        (torch.randn(2, CHANNELS), torch.tensor([1, 0]), "batch is not sorted"),
    ],
)
def test_wrong_input_is_named(x, batch, message):
    with pytest.raises(ValueError, match=message):
        SliceSortConv(CHANNELS)(x, EDGES, batch=batch)
