"""Sums of rows of a table, against indexing and adding in torch."""

import pytest
import torch
from support.variants import running
from torch.autograd import gradcheck, gradgradcheck

from slicegraph.ops import gather_sum


@pytest.fixture(params=["reference", "cpu-baseline"])
def backend(request):
    with running(request.param):
        yield request.param


CASES = [
    (1, 1, 1, 1),
    (5, 7, 3, 4),
    (40, 2000, 5, 8),
    (300, 1000, 9, 80),
    (3, 0, 2, 4),
    (3, 5, 0, 4),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("rows", "count", "width", "channels"), CASES)
def test_equals_the_sum_of_the_rows(backend, rows, count, width, channels, dtype):
    table = torch.randn(rows, channels).to(dtype)
    places = torch.randint(rows, (count, width))
    expected = table.double()[places].sum(1)
    tolerance = 0.1 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(
        gather_sum(table, places).double(), expected, rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(("rows", "count", "width", "channels"), CASES)
def test_gradient_counts_every_use_of_a_row(backend, rows, count, width, channels):
    table = torch.randn(rows, channels, dtype=torch.float64, requires_grad=True)
    places = torch.randint(rows, (count, width))
    g = torch.randn(count, channels, dtype=torch.float64)
    (ours,) = torch.autograd.grad(gather_sum(table, places), table, g)
    (expected,) = torch.autograd.grad(table[places].sum(1), table, g)
    torch.testing.assert_close(ours, expected)


def test_first_and_second_gradient_are_right(backend):
    table = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    places = torch.randint(6, (4, 5))
    assert gradcheck(lambda t: gather_sum(t, places), table)
    assert gradgradcheck(lambda t: gather_sum(t, places).square(), table)


def test_gradient_does_not_depend_on_the_number_of_threads():
    places, g = torch.randint(500, (4000, 5)), torch.randn(4000, 16)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            table = torch.zeros(500, 16, requires_grad=True)
            found += torch.autograd.grad(gather_sum(table, places), table, g)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("place", [-1, 6, 2**40])
def test_a_place_outside_the_table_is_named(backend, place):
    places = torch.zeros(3, 2, dtype=torch.int64)
    places[2, 1] = place
    with pytest.raises(IndexError, match=rf"places\[2, 1\] = {place} is not in 0\.\.5"):
        gather_sum(torch.randn(6, 3), places)


def test_wrong_shapes_and_types_are_named():
    with pytest.raises(ValueError, match=r"table of shape \[3\]"):
        gather_sum(torch.randn(3), torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"places of shape \[2, 2\] and type torch.int32"):
        gather_sum(torch.randn(3, 1), torch.zeros(2, 2, dtype=torch.int32))


def test_the_operator_is_well_registered():
    table = torch.randn(6, 3, requires_grad=True)
    places = torch.randint(6, (4, 5))
    torch.library.opcheck(torch.ops.slicegraph.gather_sum.default, (table, places))
    g = torch.randn(4, 3, requires_grad=True)
    torch.library.opcheck(torch.ops.slicegraph.scatter_sum.default, (g, places, 6))


def test_compiles_as_one_graph():
    table = torch.randn(6, 3, requires_grad=True)
    compiled = torch.compile(lambda t, p: gather_sum(t, p).relu(), fullgraph=True, dynamic=True)
    for count in (4, 7):
        places = torch.randint(6, (count, 5))
        torch.testing.assert_close(compiled(table, places), gather_sum(table, places).relu())
