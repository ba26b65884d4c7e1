"""Every order of the table: in rows, behind a mask, and by a pivot."""

import pytest
import torch
from torch import Tensor

from slicegraph.nn import Order
from slicegraph.nn.slice_sort import ORDERS

PTR = torch.tensor([0, 4, 4, 5, 11])
SIZES = PTR.diff().tolist()
CHANNELS = 6


def rows() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(11, CHANNELS, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", ORDERS)
def test_every_entry_of_the_table(name):
    order, x, ptr = Order(name, CHANNELS, 1, 2), rows(), PTR
    out, pivoted = order(x, ptr=ptr), order.pivoted(x, ptr)
    for result in (out, pivoted):
        assert result.shape == x.shape
        for one, found in zip(x.split(SIZES), result.split(SIZES), strict=True):
            assert torch.equal(found.sort(0).values, one.sort(0).values)  # moved, not changed
    for one, found in zip(x.split(SIZES), out.split(SIZES), strict=True):
        assert torch.equal(order(one), found)  # a set alone
    padded = torch.cat([x[5:], x.new_full((2, CHANNELS), torch.nan)])
    mask = torch.tensor([True] * 6 + [False] * 2)
    for places in (torch.arange(8), torch.tensor([6, 0, 1, 2, 7, 3, 4, 5])):  # with holes
        found = order.masked(padded[places], mask[places])
        assert torch.equal(found[mask[places]], out[5:])
        assert not bool(found[~mask[places]].any())
    assert torch.equal(pivoted[:, 0], x[:, 0])
    perm, one = torch.tensor([3, 0, 5, 1, 4, 2]), torch.tensor([0, 6])
    assert torch.equal(order.pivoted(x[5:][perm], one), order.pivoted(x[5:], one)[perm])
    inputs = x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: order(x, ptr=ptr), inputs)
    assert torch.autograd.gradcheck(lambda x: order.pivoted(x, ptr), inputs)


def test_pivot_gives_the_rth_node_every_rth_value():
    x = rows()[:6]
    out = Order("ascending", CHANNELS).pivoted(x, torch.tensor([0, 6]))
    for r, node in enumerate(x[:, 0].argsort().tolist()):
        assert torch.equal(out[node], x.sort(0).values[r])


def test_pivot_max_exchange_is_between_the_maxima_and_the_top_node():
    x = torch.tensor([[1.0, 5.0, 9.0], [7.0, 6.0, 2.0], [3.0, 8.0, 4.0]])
    out = Order("max_exchange", 3).pivoted(x, torch.tensor([0, 3]))
    assert out.tolist() == [[1.0, 5.0, 2.0], [7.0, 8.0, 9.0], [3.0, 6.0, 4.0]]


def test_pivot_ranks_ties_in_row_order():
    x = torch.tensor([[1.0, 5.0], [1.0, 4.0]])
    out = Order("ascending", 2).pivoted(x, torch.tensor([0, 2]))
    assert out.tolist() == [[1.0, 4.0], [1.0, 5.0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("random", 3), "unknown order 'random'"), (("interleave", 3, 4, 3), r"layer = 4 .* 1\.\.3")],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Order(*arguments)
