"""Gradients, and what torch's own machinery makes of the operators."""

import pytest
import torch
from support.sorting import sort_dense
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from slicegraph.ops import column_sort, library, max_exchange

LENGTHS = torch.tensor([5, 0, 3])
PTR = torch.tensor([0, 4, 4, 9])
MASK = torch.tensor([True, False, False, True])

FUNCTIONS = {
    "ascending": lambda x: column_sort(x, return_indices=False),
    "with_indices": lambda x: column_sort(x)[0],
    "mask_and_lengths": lambda x: column_sort(
        x, lengths=LENGTHS, descending=MASK, return_indices=False
    ),
    "packed": lambda x: column_sort(_pack(x), ptr=PTR)[0],
    "exchange": lambda x: max_exchange(x),
    "exchange_lengths": lambda x: max_exchange(x, lengths=LENGTHS),
    "exchange_packed": lambda x: max_exchange(_pack(x), ptr=PTR),
}


def _pack(x: Tensor) -> Tensor:
    return x.reshape(-1, 4)[:9]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck_and_gradgradcheck(backend: str, name: str) -> None:
    x = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(FUNCTIONS[name], x)
    assert gradgradcheck(FUNCTIONS[name], x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("rows", "channels"), [(1, 3), (20, 3), (300, 40), (1000, 1), (40000, 2)])
def test_gradient_equals_torch_scatter(
    backend: str, rows: int, channels: int, dtype: torch.dtype
) -> None:
    if backend == "triton" and rows > 300:
        pytest.skip("sets this long are torch's")
    x = torch.randn(2, rows, channels).to(dtype).requires_grad_()
    g = torch.randn(2, rows, channels).to(dtype)
    lengths = torch.tensor([rows, rows // 2])
    values = column_sort(x, lengths=lengths, return_indices=False)
    (actual,) = torch.autograd.grad(values, x, g)
    _, indices = sort_dense(x.detach(), lengths.tolist(), False)
    g[1, rows // 2 :] = 0
    assert torch.equal(actual, torch.zeros_like(g).scatter_(1, indices, g))


def test_packed_permutation_of_long_batches_is_saved_narrow() -> None:
    x = torch.randn(40_000, 2, requires_grad=True)
    ptr = torch.arange(0, 40_001, 20)
    saved: list[torch.dtype] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t.dtype) or t, lambda t: t
    ):
        values = column_sort(x, ptr=ptr, return_indices=False)
    assert torch.uint8 in saved
    values.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize(
    ("rows", "dtype"), [(256, torch.uint8), (257, torch.int16), (32769, torch.int32)]
)
def test_permutation_is_saved_in_the_narrowest_integer(rows: int, dtype: torch.dtype) -> None:
    x = torch.randn(rows, 1, requires_grad=True)
    saved: list[torch.dtype] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t.dtype) or t, lambda t: t
    ):
        column_sort(x, return_indices=False)
    assert saved == [dtype]


def test_nothing_is_saved_without_gradients() -> None:
    x = torch.randn(4, 5, 6, requires_grad=True)
    with torch.no_grad():
        assert column_sort(x, return_indices=False).grad_fn is None


SORT_ARGUMENTS = {
    "dense": (torch.randn(3, 5, 4), None, None, None, False),
    "gradient": (torch.randn(3, 5, 4, requires_grad=True), None, None, None, True),
    "lengths_and_mask": (torch.randn(3, 5, 4, requires_grad=True), LENGTHS, None, MASK, False),
    "packed": (torch.randn(9, 4, requires_grad=True), None, PTR, None, False),
    "strided": (torch.randn(5, 3, 4).transpose(0, 1), LENGTHS, None, None, True),
    "bfloat16": (torch.randn(3, 5, 4).bfloat16(), LENGTHS, None, MASK, False),
}


@pytest.mark.parametrize("name", SORT_ARGUMENTS)
def test_opcheck_sort(backend: str, name: str) -> None:
    arguments = SORT_ARGUMENTS[name]
    torch.library.opcheck(library.column_sort_values.op, arguments)
    for index_bytes in (1, 8):
        torch.library.opcheck(library.column_sort.op, (*arguments, index_bytes))


@pytest.mark.parametrize("operator", ["column_scatter", "column_gather"])
def test_opcheck_permute(backend: str, operator: str) -> None:
    op = getattr(library, operator).op
    x = torch.randn(3, 5, 4)
    _, indices = column_sort(x, lengths=LENGTHS)
    g = torch.randn(3, 5, 4, requires_grad=True)
    torch.library.opcheck(op, (g, indices, LENGTHS, None))
    _, indices = column_sort(_pack(x), ptr=PTR)
    torch.library.opcheck(op, (torch.randn(9, 4, requires_grad=True), indices, None, PTR))


def test_opcheck_exchange(backend: str) -> None:
    x = torch.randn(3, 5, 4, requires_grad=True)
    torch.library.opcheck(library.max_exchange.op, (x, LENGTHS, None))
    packed = torch.randn(9, 4, requires_grad=True)
    torch.library.opcheck(library.max_exchange.op, (packed, None, PTR))
    where = library.max_exchange(x.detach(), LENGTHS, None)[1]
    torch.library.opcheck(library.exchange_rows.op, (x, where, LENGTHS, None))


def _model(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.tensor([True, False, True, False], device=x.device)
    sorted_, indices = column_sort(x * 2, lengths=lengths)
    other = column_sort(x, lengths=lengths, descending=mask, return_indices=False)
    return sorted_ + other + max_exchange(x, lengths=lengths) + indices


@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_compiles_to_one_graph_with_gradients(compiler: str) -> None:
    compiled = torch.compile(_model, fullgraph=True, backend=compiler, dynamic=True)
    for rows in (5, 9, 300):
        x = torch.randn(3, rows, 4, requires_grad=True)
        lengths = torch.tensor([rows, 0, 3])
        expected = _model(x, lengths)
        actual = compiled(x, lengths)
        assert torch.equal(actual, expected)
        g = torch.randn_like(x)
        assert torch.equal(
            torch.autograd.grad(actual, x, g)[0], torch.autograd.grad(expected, x, g)[0]
        )


def test_exports_with_dynamic_sizes() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            return _model(x, lengths)

    batch, rows = torch.export.Dim("batch"), torch.export.Dim("rows")
    program = torch.export.export(
        Model(),
        (torch.randn(3, 5, 4), torch.tensor([5, 0, 3])),
        dynamic_shapes={"x": {0: batch, 1: rows}, "lengths": {0: batch}},
    )
    x, lengths = torch.randn(2, 700, 4), torch.tensor([700, 31])
    assert torch.equal(program.module()(x, lengths), _model(x, lengths))


def test_jit_trace_records_the_operators() -> None:
    def function(x: Tensor) -> Tensor:
        return column_sort(x, return_indices=False) + max_exchange(x)

    traced = torch.jit.trace(function, (torch.randn(4, 5),), check_trace=False)
    x = torch.randn(4, 5)
    assert torch.equal(traced(x), function(x))


@pytest.mark.parametrize("function", [lambda x: column_sort(x)[0], max_exchange])
def test_forward_mode_is_refused_and_not_silently_wrong(function) -> None:
    x = torch.randn(4, 5)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(RuntimeError, match="jvp"):
            function(dual)


def test_negative_views_are_resolved() -> None:
    x = torch.randn(4, 5)
    assert torch.equal(column_sort(torch._neg_view(x))[0], column_sort(-x)[0])


def test_wrong_shapes_of_the_operators_are_named() -> None:
    x = torch.randn(4, 32)
    with pytest.raises(ValueError, match=r"indices has shape \[2, 32\], expected \[4, 32\]"):
        library.column_scatter.op(x, torch.zeros(2, 32, dtype=torch.int64), None, None)
