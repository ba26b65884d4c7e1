"""SliceSortAggregation against torch.quantile, and every readout of the tables."""

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATConv, MessagePassing, PNAConv, SAGEConv
from torch_geometric.nn.aggr import QuantileAggregation
from torch_geometric.nn.resolver import aggregation_resolver

from slicegraph.nn import GraphReadout, SequenceReadout, SliceSortAggregation
from slicegraph.testing import assert_padding_invariant, assert_permutation_invariant

LENGTHS = [4, 1, 0, 7, 2]
INDEX = torch.arange(5).repeat_interleave(torch.tensor(LENGTHS))


def quantiles(k: int) -> Tensor:
    return torch.linspace(0, 1, k, dtype=torch.float64) if k > 1 else torch.tensor([0.5]).double()


def expected_output(sets: list[Tensor], k: int) -> Tensor:
    """`[num_sets, k * C]`, quantile by quantile; zeros for a set without elements."""
    q, channels = quantiles(k), sets[0].shape[1]
    rows = [
        torch.quantile(rows, q, dim=0).flatten() if len(rows) else rows.new_zeros(k * channels)
        for rows in sets
    ]
    return torch.stack(rows)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_reads_the_quantiles_of_every_set(k):
    x = random(14, 3)
    out = SliceSortAggregation(k)(x, INDEX)
    torch.testing.assert_close(out, expected_output(list(x.split(LENGTHS)), k))


@pytest.mark.parametrize("index", [[0, 0, 2], [1, 1, 2], [0, 1, 1]])
def test_sets_without_elements_are_zeros_wherever_they_are(index):
    out = SliceSortAggregation(3)(torch.ones(3, 2), torch.tensor(index), dim_size=4)
    for b in range(4):
        assert out[b].tolist() == [1.0 if b in index else 0.0] * 6


@pytest.mark.parametrize("dim_size", [None, 0, 3])
def test_no_elements_at_all(dim_size):
    index = torch.empty(0, dtype=torch.int64)
    out = SliceSortAggregation(3)(torch.randn(0, 2), index, dim_size=dim_size)
    assert torch.equal(out, torch.zeros(dim_size or 0, 6))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ptr_means_the_same_as_index(dtype):
    x, aggregation = random(14, 3), SliceSortAggregation(4)
    ptr = torch.tensor([0, 4, 5, 5, 12, 14], dtype=dtype)
    expected = expected_output(list(x.split(LENGTHS)), 4)
    torch.testing.assert_close(aggregation(x, ptr=ptr), expected)
    torch.testing.assert_close(aggregation(x, INDEX, ptr=ptr), expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_index_need_not_be_sorted(dtype):
    x, perm = random(14, 3), torch.randperm(14, generator=torch.Generator().manual_seed(1))
    out = SliceSortAggregation(4)(x[perm], INDEX[perm].to(dtype))
    torch.testing.assert_close(out, expected_output(list(x.split(LENGTHS)), 4))


@pytest.mark.parametrize("k", [1, 3])
def test_leading_dimensions_are_kept(k):
    x = random(2, 14, 3)
    expected = torch.stack([expected_output(list(part.split(LENGTHS)), k) for part in x])
    torch.testing.assert_close(SliceSortAggregation(k)(x, INDEX), expected)


def test_the_elements_may_be_at_another_dimension():
    x = random(14, 2, 3)
    expected = expected_output(list(x.flatten(1).split(LENGTHS)), 1).view(5, 2, 3)
    torch.testing.assert_close(SliceSortAggregation(1)(x, INDEX, dim=0), expected)
    with pytest.raises(ValueError, match=r"k = 4 .* shape \[14, 2, 3\] at dim = 0: .* use k = 1"):
        SliceSortAggregation(4)(x, INDEX, dim=0)
    x = random(3, 14)
    expected = expected_output(list(x.T.split(LENGTHS)), 4).view(5, 4, 3).permute(2, 0, 1)
    torch.testing.assert_close(SliceSortAggregation(4)(x, INDEX, dim=-1), expected)


def test_ranks_of_large_sets_are_not_rounded():
    # In float32, 1 / 3 * 1000002 would lie between two rows.
    x = torch.arange(1000003.0).unsqueeze(-1)
    assert SliceSortAggregation(4)(x).tolist() == [[0.0, 333334.0, 666668.0, 1000002.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_is_kept(dtype):
    x = torch.tensor([[4.0], [1.0], [2.0], [8.0]], dtype=dtype)
    out = SliceSortAggregation(3)(x)
    assert out.dtype == dtype
    assert out.tolist() == [[1.0, 3.0, 8.0]]


@pytest.mark.parametrize("k", [1, 4])
def test_gradient_is_that_of_the_quantiles(k):
    x = random(14, 3).requires_grad_()
    perm = torch.randperm(14, generator=torch.Generator().manual_seed(1))
    weight = random(5, 3 * k)
    sets = list(x.split(LENGTHS))
    (expected,) = torch.autograd.grad(expected_output(sets, k), x, weight)
    (found,) = torch.autograd.grad(SliceSortAggregation(k)(x[perm], INDEX[perm]), x, weight)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("k", [1, 4])
def test_a_readout_depends_on_its_set_alone_and_not_on_the_order(k):
    aggregation = SliceSortAggregation(k)
    sets = [random(n, 3) for n in (4, 1, 7, 2)]

    def readout(x: Tensor, batch: Tensor) -> Tensor:
        return aggregation(x, batch)

    assert_padding_invariant(readout, sets, "packed", rtol=0, atol=0)
    assert_permutation_invariant(readout, sets, "packed", rtol=0, atol=0)


class Neighbours(MessagePassing):
    """Reads out the neighbours of every node."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


def test_aggregates_messages():
    x = random(4, 3)
    edge_index = torch.tensor([[0, 1, 2, 3, 0, 3], [1, 2, 1, 1, 2, 0]])
    neighbours = [x[[3]], x[[0, 2, 3]], x[[1, 0]], x[[]]]
    out = Neighbours(aggr=SliceSortAggregation(3))(x, edge_index)
    torch.testing.assert_close(out, expected_output(neighbours, 3))


EDGES = torch.tensor([[0, 1, 2, 3, 0, 3], [1, 2, 1, 1, 2, 0]])


@pytest.mark.parametrize("query", ["slicesort", "SliceSort", "slice_sort", "SliceSortAggregation"])
def test_a_string_names_it(query):
    found = aggregation_resolver(query, k=3)
    assert isinstance(found, SliceSortAggregation)
    assert found.k == 3
    assert aggregation_resolver(query).k == 1


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("in_channels", [4, -1])
def test_graphsage_has_room_for_every_k(k, in_channels):
    x = random(4, 4).float()
    conv = SAGEConv(in_channels, 2, aggr="slicesort", aggr_kwargs={"k": k}, root_weight=False)
    neighbours = [x[[3]], x[[0, 2, 3]], x[[1, 0]], x[[]]]
    found = conv(x, EDGES)
    assert conv.lin_l.weight.shape == (2, k * 4)
    torch.testing.assert_close(found, conv.lin_l(expected_output_of(neighbours, k)))


def expected_output_of(sets: list[Tensor], k: int) -> Tensor:
    return expected_output([rows.double() for rows in sets], k).float()


def test_layers_with_towers_and_heads_have_room_for_one():
    x, degrees = random(4, 4).float(), torch.tensor([1, 1, 1, 1])
    conv = PNAConv(4, 2, ["mean", "slicesort"], ["identity", "amplification"], degrees, towers=2)
    assert conv(x, EDGES).shape == (4, 2)
    conv = PNAConv(4, 2, [SliceSortAggregation(3)], ["identity"], degrees, towers=2)
    with pytest.raises(ValueError, match=r"k = 3 quantiles .* use k = 1"):
        conv(x, EDGES)
    conv = GATConv(4, 2, heads=2, aggr="slicesort", aggr_kwargs={"k": 3})
    with pytest.raises(ValueError, match=r"k = 3 quantiles .* use k = 1"):
        conv(x, EDGES)


def test_the_quantiles_are_those_of_pyg():
    perm = torch.randperm(14, generator=torch.Generator().manual_seed(1))
    x, levels = random(14, 3).float(), [0.0, 0.25, 0.5, 0.75, 1.0]
    expected = QuantileAggregation(levels)(x[perm], INDEX[perm], dim_size=5)
    torch.testing.assert_close(SliceSortAggregation(5)(x[perm], INDEX[perm], dim_size=5), expected)


def test_compiles_to_one_graph():
    torch._dynamo.reset()
    x, aggregation = random(14, 3), SliceSortAggregation(4)

    def readout(x: Tensor, index: Tensor) -> Tensor:
        return aggregation(x, index, dim_size=5)

    perm = torch.randperm(14, generator=torch.Generator().manual_seed(1))
    out = torch.compile(readout, fullgraph=True, backend="aot_eager")(x[perm], INDEX[perm])
    torch.testing.assert_close(out, expected_output(list(x.split(LENGTHS)), 4))


@pytest.mark.parametrize(
    ("index", "options", "error", "message"),
    [
        ([0, 1, 5], {"dim_size": 2}, ValueError, "invalid 'dim_size'"),  # of PyG
        ([0, -1, 1], {}, IndexError, r"index goes from -1 to 1, expected values in 0\.\.1"),
        ([0, 1], {}, ValueError, r"index has shape \[2\], expected \[3\]"),
    ],
)
def test_a_wrong_index_is_named(index, options, error, message):
    with pytest.raises(error, match=message):
        SliceSortAggregation(2)(torch.randn(3, 2), torch.tensor(index), **options)


def test_wrong_arguments_are_named():
    for k in (0, 1.5, "3"):
        with pytest.raises(ValueError, match=f"k = {k!r}, expected a number of at least 1"):
            SliceSortAggregation(k)
    with pytest.raises(TypeError, match=r"x is torch\.int64, expected floating point"):
        SliceSortAggregation(2)(torch.ones(3, 2).long(), torch.zeros(3).long())
    with pytest.raises(ValueError, match="GraphReadout: unknown readout 'max'"):
        GraphReadout(2, "max")
    with pytest.raises(ValueError, match="SequenceReadout: unknown readout 'sum'"):
        SequenceReadout(2, "sum")


# What each readout makes of one set that has rows.
READINGS = {
    "token": lambda x: x[0],
    "cls": lambda x: x[0],
    "mean": lambda x: x.mean(0),
    "sum": lambda x: x.sum(0),
    "max": lambda x: x.amax(0),
    "quantiles": lambda x: torch.quantile(x, quantiles(5), dim=0).flatten(),
}
READINGS["sum_mean"] = lambda x: torch.cat([x.sum(0), x.mean(0)])
READINGS["sum_quantiles"] = lambda x: torch.cat([x.sum(0), READINGS["quantiles"](x)])
READOUTS = [(kind, name) for kind in (GraphReadout, SequenceReadout) for name in kind.kinds]


@pytest.mark.parametrize(("kind", "name"), READOUTS)
def test_every_entry_of_the_tables(kind, name):
    module = kind(3, name)
    lengths = [n for n in LENGTHS if n or not kind.kinds[name].token]  # a token is a row
    ptr = torch.tensor([0, *lengths]).cumsum(0)
    x = random(14, 3).requires_grad_()
    out = module(x, ptr)
    assert out.shape == (len(lengths), module.out_channels)
    for one, found in zip(x.split(lengths), out, strict=True):
        expected = READINGS[name](one) if len(one) else torch.zeros_like(found)
        torch.testing.assert_close(found, expected)
        if len(one):
            alone = module(one, torch.tensor([0, len(one)]))
            torch.testing.assert_close(alone[0], found)
    assert torch.autograd.gradcheck(lambda x: module(x, ptr), x)
