"""SliceSortConv as a PyG layer, and the laws it keeps."""

import copy

import pytest
import torch
from models.small_graphs import disconnected_graph, equal_graph, random_graph, renumbered
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GPSConv

from slicegraph.nn import SliceSortConv
from slicegraph.nn.mixer import ALIGNS, MIXERS
from slicegraph.nn.order import ORDERS
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
        self.third = GPSConv(CHANNELS, layer(), heads=2)

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
    conv = SliceSortConv(16, heads=4, align="pivot")
    assert repr(conv) == "SliceSortConv(16, heads=4, mixer=sort_attn, order=ascending, align=pivot)"
    assert repr(SliceSortConv(16, mixer="qkv")) == "SliceSortConv(16, heads=1, mixer=qkv)"


def test_compiles():
    conv, graphs = layer(mixer="sort_attn"), some_graphs()[:2]
    compiled = torch.compile(conv, backend="aot_eager")
    torch.testing.assert_close(run(compiled, graphs), run(conv, graphs))


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
