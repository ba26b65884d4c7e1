"""Sums along edges and of rows of a table, against indexing and adding in torch."""

import pytest
import torch
from support.variants import running
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from slicegraph.ops import edge_sum, gather_sum, reference
from slicegraph.ops.operator import as_on_gpu


@pytest.fixture(params=["reference", "cpu"])
def backend(request):
    with running(request.param):
        yield request.param


def case(rows, edges, width, channels, dtype=torch.float64) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    x, table = torch.randn(rows, channels).to(dtype), torch.randn(7, channels).to(dtype)
    codes, index = torch.randint(7, (edges, width)), torch.randint(max(rows, 1), (2, edges))
    return x.requires_grad_(), table.requires_grad_(), codes, index


def formula(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    messages = torch.relu(x[index[0]] + table[codes].sum(1))
    return torch.zeros_like(x).index_add(0, index[1], messages)


CASES = [(1, 1, 1, 1), (5, 9, 0, 4), (5, 0, 3, 4), (0, 0, 3, 4), (40, 200, 3, 33), (3, 50, 1, 130)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_edge_sum_equals_the_formula(backend, sizes, dtype):
    x, table, *rest = arguments = case(*sizes, dtype=dtype)
    expected = formula(x.double(), table.double(), *rest)
    tolerance = 0.1 if dtype == torch.bfloat16 else 1e-5
    out = edge_sum(*arguments)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    if dtype == torch.float64:
        grad_out = torch.randn_like(x)
        # A table that no edge reads has a gradient too.
        whole = formula(*arguments) + 0 * table.sum()
        expected = grad(whole, (x, table), grad_out)
        torch.testing.assert_close(grad(out, (x, table), grad_out), expected)


def test_a_code_may_occur_twice_in_an_edge_and_in_edges_apart(backend):
    x, table, _, index = case(4, 5, 2, 3)
    codes = torch.tensor([[2, 2], [2, 2], [1, 2], [2, 1], [2, 2]])
    found, expected = (f(x, table, codes, index).square().sum() for f in (edge_sum, formula))
    torch.testing.assert_close(grad(found, table), grad(expected, table))


def test_zero_passes_no_gradient_and_nan_stays(backend):
    x = torch.tensor([[0.0, 1.0, -1.0]], requires_grad=True)
    table, codes = torch.zeros(1, 3), torch.zeros(1, 1, dtype=torch.int64)
    edge_sum(x, table, codes, torch.zeros(2, 1, dtype=torch.int64)).sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 0.0]]
    x, table, codes, _ = case(3, 4, 1, 2)
    index = torch.tensor([[0, 1, 2, 2], [1, 1, 0, 2]])
    with torch.no_grad():
        x[0, 1] = torch.nan
    out = edge_sum(x, table, codes, index)
    assert out.isnan().tolist() == [[False, False], [False, True], [False, False]]
    expected = grad(formula(x, table, codes, index).sum(), (x, table))
    torch.testing.assert_close(grad(out.sum(), (x, table)), expected)


def test_first_and_second_gradient_are_right(backend):
    x, table, codes, index = case(4, 9, 2, 3)
    assert gradcheck(lambda x, t: edge_sum(x, t, codes, index), (x, table))
    assert gradgradcheck(lambda x, t: edge_sum(x, t, codes, index).square(), (x, table))
    assert gradgradcheck(lambda x: edge_sum(x, table.detach(), codes, index).square(), x)
    assert gradcheck(lambda t: gather_sum(t, codes), table)
    assert gradgradcheck(lambda t: gather_sum(t, codes).square(), table)


def test_recomputed_layers_have_the_same_gradients(backend):
    x, table, codes, index = case(6, 9, 2, 4)
    again = checkpoint(edge_sum, x, table, codes, index, use_reentrant=False)
    expected = grad(edge_sum(x, table, codes, index).square().sum(), (x, table))
    assert all(map(torch.equal, grad(again.square().sum(), (x, table)), expected))


def test_any_layout_of_the_tensors(backend):
    arguments = case(6, 9, 2, 4)
    strided = [part.detach().t().contiguous().t() for part in arguments]
    assert not any(part.is_contiguous() for part in strided)
    torch.testing.assert_close(edge_sum(*strided), formula(*arguments))
    x, *rest = arguments
    torch.testing.assert_close(edge_sum(torch._neg_view(x), *rest), formula(-x, *rest))


def test_the_same_bits_with_any_number_of_threads():
    x, table, *rest = case(500, 4000, 3, 96, torch.float32)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            out = edge_sum(x, table, *rest)
            found.append((out, *grad(out.square().sum(), (x, table))))
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
    with pytest.raises(IndexError, match=rf"places\[3, 1\] = {place} is not in 0\.\.6, .* table"):
        gather_sum(table, codes)
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
        ("codes", torch.zeros(5, 1).long(), r"codes of shape \[5, 1\].* of shape \[4, K\]"),
        ("index", torch.zeros(3, 4).long(), r"index of shape \[3, 4\].* of shape \[2, 4\]"),
        ("index", torch.zeros(2, 4).int(), "index of .* type torch.int32, expected torch.int64"),
    ],
)
def test_wrong_shapes_and_types_are_named(name, value, message):
    names = ("x", "table", "codes", "index")
    right = dict(zip(names, case(5, 4, 1, 3, torch.float32), strict=True))
    with pytest.raises(ValueError, match=message):
        edge_sum(**{**right, name: value})
    with pytest.raises(ValueError, match=r"table of shape \[3\]"):
        gather_sum(torch.randn(3), right["codes"])
    with pytest.raises(ValueError, match=r"places of shape \[4, 1\] and type torch.int32"):
        gather_sum(right["table"], right["codes"].int())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (40, 500, 5, 8), (3, 0, 2, 4), (3, 5, 0, 4)])
def test_gather_sum_equals_the_sum_of_the_rows(sizes, dtype):
    rows, count, width, channels = sizes
    table = torch.randn(rows, channels).to(dtype).requires_grad_()
    places = torch.randint(rows, (count, width))
    exact = table.detach().double().requires_grad_()
    found, expected = gather_sum(table, places), exact[places].sum(1)
    grad_out = torch.randn(count, channels)
    both = (*grad(found, table, grad_out.to(dtype)), *grad(expected, exact, grad_out.double()))
    tolerance = 0.5 if dtype == torch.bfloat16 else 1e-4
    close = {"rtol": tolerance / 5, "atol": tolerance, "check_dtype": False}
    torch.testing.assert_close(found, expected, **close)
    torch.testing.assert_close(*both, **close)


def test_compiles_as_one_graph():
    def function(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
        return edge_sum(x, table, codes, index) + gather_sum(table, codes).sum(0)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
    for edges in (4, 7):
        arguments = case(5, edges, 2, 3)
        torch.testing.assert_close(compiled(*arguments), function(*arguments))


def test_the_kernel_is_used_where_it_is_built(monkeypatch):
    arguments, expected = case(5, 9, 2, 4), formula(*case(5, 9, 2, 4))
    monkeypatch.delattr(reference, "edge_sum")
    with running("cpu"):
        torch.testing.assert_close(edge_sum(*arguments), expected)


def test_the_gradient_of_a_small_table_on_a_gpu_is_a_product():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(13, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    x = torch.randn(9, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    codes = torch.randint(13, (40, 3), generator=generator)
    index = torch.randint(9, (2, 40), generator=generator)
    expected = torch.autograd.grad(edge_sum(x, table, codes, index).sin().sum(), (x, table))
    with as_on_gpu():
        assert gradcheck(lambda table: gather_sum(table, codes), table)
        assert gradgradcheck(lambda table: gather_sum(table, codes), table)
        out = edge_sum(x, table, codes, index)
        found = torch.autograd.grad(out.sin().sum(), (x, table))
        assert "SmallTable" in str(gather_sum(table, codes).grad_fn)
    torch.testing.assert_close(found, expected)
