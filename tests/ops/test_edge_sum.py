"""Messages along edges, against indexing, ReLU and adding in torch."""

import pytest
import torch
from support.variants import running
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from slicegraph.ops import edge_sum, use_backend
from slicegraph.ops.edge_sum import has_kernel


@pytest.fixture(params=["reference", "cpu-baseline"])
def backend(request):
    with running(request.param):
        yield request.param


def case(rows, edges, width, channels, dtype=torch.float64) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    x, table = torch.randn(rows, channels).to(dtype), torch.randn(7, channels).to(dtype)
    codes, index = torch.randint(7, (edges, width)), torch.randint(max(rows, 1), (2, edges))
    return x.requires_grad_(), table.requires_grad_(), codes, index


def formula(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    said = torch.relu(x[index[0]] + table[codes].sum(1))
    return torch.zeros_like(x).index_add(0, index[1], said)


CASES = [
    (1, 1, 1, 1),
    (5, 9, 0, 4),
    (5, 0, 3, 4),
    (0, 0, 3, 4),
    (40, 200, 3, 33),
    (300, 1000, 5, 80),
    (3, 50, 1, 130),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_equals_the_formula(backend, sizes, dtype):
    arguments = case(*sizes, dtype=dtype)
    expected = formula(arguments[0].double(), arguments[1].double(), *arguments[2:])
    tolerance = 0.1 if dtype == torch.bfloat16 else 1e-5
    out = edge_sum(*arguments)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_gradients_equal_those_of_the_formula(backend, sizes):
    arguments = case(*sizes)
    g = torch.randn_like(arguments[0])
    found = torch.autograd.grad(edge_sum(*arguments), arguments[:2], g)
    # A table that no edge reads has a gradient too.
    expected = torch.autograd.grad(formula(*arguments) + 0 * arguments[1].sum(), arguments[:2], g)
    torch.testing.assert_close(found, expected)


def test_a_code_may_stand_twice_in_an_edge_and_in_edges_apart(backend):
    x, table, _, index = case(4, 5, 2, 3)
    codes = torch.tensor([[2, 2], [2, 2], [1, 2], [2, 1], [2, 2]])
    found = torch.autograd.grad(edge_sum(x, table, codes, index).square().sum(), table)
    expected = torch.autograd.grad(formula(x, table, codes, index).square().sum(), table)
    torch.testing.assert_close(found, expected)


def test_what_is_exactly_zero_passes_no_gradient(backend):
    x = torch.tensor([[0.0, 1.0, -1.0]], requires_grad=True)
    table, codes = torch.zeros(1, 3), torch.zeros(1, 1, dtype=torch.int64)
    edge_sum(x, table, codes, torch.zeros(2, 1, dtype=torch.int64)).sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 0.0]]


def test_what_is_not_a_number_stays_so(backend):
    x, table, codes, index = case(3, 4, 1, 2)
    with torch.no_grad():
        x[0, 1] = torch.nan
    index = torch.tensor([[0, 1, 2, 2], [1, 1, 0, 2]])
    out = edge_sum(x, table, codes, index)
    assert out.isnan().tolist() == [[False, False], [False, True], [False, False]]
    g = torch.ones_like(x)
    found = torch.autograd.grad(out, [x, table], g)
    torch.testing.assert_close(
        found, torch.autograd.grad(formula(x, table, codes, index), [x, table], g)
    )


def test_first_and_second_gradient_are_right(backend):
    x, table, codes, index = case(4, 9, 2, 3)
    assert gradcheck(lambda x, t: edge_sum(x, t, codes, index), (x, table))
    assert gradgradcheck(lambda x, t: edge_sum(x, t, codes, index).square(), (x, table))
    assert gradgradcheck(lambda x: edge_sum(x, table.detach(), codes, index).square(), x)


def test_any_layout_of_the_tensors(backend):
    x, table, codes, index = case(6, 9, 2, 4)
    expected = formula(x, table, codes, index)
    turned = [part.detach().t().contiguous().t() for part in (x, table, codes, index)]
    assert not any(part.is_contiguous() for part in turned)
    torch.testing.assert_close(edge_sum(*turned), expected)


def test_the_same_bits_with_any_number_of_threads():
    arguments = case(500, 4000, 3, 96, torch.float32)
    g, threads, found = torch.randn(500, 96), torch.get_num_threads(), []
    try:
        for count in (1, 2, 5, 1):
            torch.set_num_threads(count)
            out = edge_sum(*arguments)
            found.append((out, *torch.autograd.grad(out, arguments[:2], g)))
    finally:
        torch.set_num_threads(threads)
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(again, found[0], strict=True))


@pytest.mark.parametrize("place", [-1, 7, 2**40])
def test_a_place_outside_is_named(backend, place):
    x, table, codes, index = case(7, 4, 2, 3)
    codes[3, 1] = place
    with pytest.raises(IndexError, match=rf"codes\[3, 1\] = {place} is not in 0\.\.6, .* table"):
        edge_sum(x, table, codes, index)
    codes[3, 1], index[1, 2] = 0, place
    with pytest.raises(IndexError, match=rf"index\[1, 2\] = {place} is not in 0\.\.6, .* x"):
        edge_sum(x, table, codes, index)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x", torch.randn(3), r"x of shape \[3\]"),
        ("x", torch.ones(5, 3, dtype=torch.int64), "x of .* type torch.int64"),
        ("table", torch.randn(7, 2), r"table of shape \[7, 2\].* of shape \[R, 3\]"),
        ("table", torch.randn(7, 3).double(), "table of .* expected torch.float32"),
        ("codes", torch.zeros(4), r"codes of shape \[4\].* of shape \[4, K\]"),
        ("codes", torch.zeros(5, 1).long(), r"codes of shape \[5, 1\].* of shape \[4, 1\]"),
        ("index", torch.zeros(3, 4).long(), r"index of shape \[3, 4\].* of shape \[2, 4\]"),
        ("index", torch.zeros(2, 4).int(), "index of .* type torch.int32, expected torch.int64"),
    ],
)
def test_wrong_shapes_and_types_are_named(name, value, message):
    right = dict(
        zip(("x", "table", "codes", "index"), case(5, 4, 1, 3, torch.float32), strict=True)
    )
    with pytest.raises(ValueError, match=message):
        edge_sum(**{**right, name: value})


def test_the_operators_are_well_registered():
    arguments = case(5, 9, 2, 4)
    torch.library.opcheck(torch.ops.slicegraph.edge_sum.default, arguments)
    g = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.slicegraph.edge_sum_gradients.default, (g, *arguments))


def test_the_kernel_is_for_plain_floats_on_a_cpu():
    with running("cpu-baseline"):
        x, table = torch.randn(2, 3), torch.randn(4, 3)
        assert has_kernel(x, table)
        assert has_kernel(x.double(), table.double())
        assert not has_kernel(x, table.double())
        assert not has_kernel(x.bfloat16(), table.bfloat16())
        assert not has_kernel(x.to("meta"), table.to("meta"))
        with use_backend("reference"):
            assert not has_kernel(x, table)
