"""The operators as torch sees them: one schema, one fake and one gradient each.

A call costs microseconds, and small sets are sorted in fewer. So what nobody watches (no compiler,
no dispatch mode, no tensor subclass) goes straight to the backend, and gradients are
`torch.autograd.Function`s: the wrapper that `torch.library.register_autograd` builds costs
20 microseconds a call more, and `Function.apply`, which looks for functorch once more, 2.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.symbolic_shapes import statically_known_true

from slicegraph.ops.backends import implementation
from slicegraph.ops.sets import INDEX_DTYPES

_library = torch.library.Library("slicegraph", "DEF")
_SETS = "Tensor? lengths, Tensor? ptr"
_PLAIN = (Tensor, torch.nn.Parameter)
_is_compiling = torch.compiler.is_compiling
_tracing_state = torch._C._get_tracing_state
_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_level = torch._C._functorch.peek_interpreter_stack


def _watched(x: Tensor) -> bool:
    """Whether anything but autograd wants to see the operators that are called."""
    return (
        _is_compiling()
        or type(x) not in _PLAIN
        or x.is_neg()
        or _tracing_state() is not None
        or _dispatch_modes() > 0
        or _functorch_level() is not None
    )


def _differentiated(x: Tensor) -> bool:
    # In forward mode the Function, which has no jvp, says so instead of losing the tangent.
    return (torch.is_grad_enabled() and x.requires_grad) or forward_ad._current_level >= 0


class Operator:
    """One operator of torch's `slicegraph` namespace."""

    def __init__(self, name: str, arguments: str, returns: str, fake: Callable[..., Any]) -> None:
        self.name = name
        _library.define(f"{name}({arguments}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
        for key in ("CPU", "CUDA"):
            _library.impl(name, self._run, key)
        _library.impl(name, self._differentiate, "Autograd")
        torch.library.register_fake(f"slicegraph::{name}", fake, lib=_library)
        self.op = getattr(torch.ops.slicegraph, name).default

    def __call__(self, x: Tensor, *rest: Any) -> Any:
        if _watched(x):
            return self.op(x, *rest)
        if _differentiated(x):
            return self.apply(implementation(self.gradient.operator, x), x, *rest)
        return implementation(self.name, x)(x, *rest)

    def differentiate_with(self, gradient: type["_Gradient"]) -> None:
        """Sets the function that records how to differentiate a call."""
        self.gradient = gradient
        self.apply = super(torch.autograd.Function, gradient).apply  # type: ignore[misc]

    def _differentiate(self, x: Tensor, *rest: Any) -> Any:
        if _differentiated(x):
            op = getattr(torch.ops.slicegraph, self.gradient.operator).default
            return self.gradient.apply(partial(_below_autograd, op), x, *rest)
        return _below_autograd(self.op, x, *rest)

    def _run(self, x: Tensor, *rest: Any) -> Any:
        return implementation(self.name, x)(x, *rest)


def _below_autograd(op: Callable[..., Any], *arguments: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op(*arguments)


def _like(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_column_sort(
    x: Tensor, lengths: Any, ptr: Any, mask: Any, descending: bool, index_bytes: int
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=INDEX_DTYPES[index_bytes])


def _fake_max_exchange(x: Tensor, lengths: Any, ptr: Tensor | None) -> tuple[Tensor, Tensor]:
    sets = x.shape[:-2] if ptr is None else (ptr.shape[0] - 1,)
    return x.new_empty(x.shape), x.new_empty((*sets, x.shape[-1]), dtype=torch.int64)


column_sort = Operator(
    "column_sort",
    f"Tensor x, {_SETS}, Tensor? mask, bool descending, int index_bytes",
    "(Tensor, Tensor)",
    _fake_column_sort,
)
column_sort_values = Operator(
    "column_sort_values", f"Tensor x, {_SETS}, Tensor? mask, bool descending", "Tensor", _like
)
column_scatter = Operator("column_scatter", f"Tensor g, Tensor indices, {_SETS}", "Tensor", _like)
column_gather = Operator("column_gather", f"Tensor g, Tensor indices, {_SETS}", "Tensor", _like)
max_exchange = Operator(
    "max_exchange", f"Tensor x, {_SETS}", "(Tensor, Tensor)", _fake_max_exchange
)
exchange_rows = Operator("exchange_rows", f"Tensor x, Tensor where, {_SETS}", "Tensor", _like)


def _index_bytes(x: Tensor, ptr: Tensor | None) -> int:
    """The narrowest integer that holds every row number of a set."""
    rows = x.shape[-2]
    if ptr is not None and not torch.compiler.is_compiling() and x.is_cpu and x.numel() > 1 << 15:
        rows = int(ptr.diff().max()) if ptr.numel() > 1 else 0
    if type(rows) is int and rows <= 1 << 8:
        return 1
    # A size that is symbolic under torch.compile is not pinned down for the sake of a type.
    if statically_known_true(rows <= 1 << 8):
        return 1
    if statically_known_true(rows <= 1 << 15):
        return 2
    return 4 if statically_known_true(rows < 1 << 31) else 8


class _Gradient(torch.autograd.Function):
    """Its forward pass takes `run`, a function of a backend or of torch: the operator itself."""

    operator: str


class _ColumnSort(_Gradient):
    operator = "column_sort"

    @staticmethod
    def forward(ctx: Any, run, x, lengths, ptr, mask, descending, index_bytes):
        values, indices = run(x, lengths, ptr, mask, descending, index_bytes)
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices, lengths, ptr)
        return values, indices

    @staticmethod
    def backward(ctx: Any, g, _):
        return None, column_scatter(g, *ctx.saved_tensors), None, None, None, None, None


class _ColumnSortValues(_Gradient):
    operator = "column_sort"

    @staticmethod
    def forward(ctx: Any, run, x, lengths, ptr, mask, descending):
        index_bytes = _index_bytes(x, ptr)
        values, indices = run(x, lengths, ptr, mask, descending, index_bytes)
        ctx.save_for_backward(indices, lengths, ptr)
        return values

    @staticmethod
    def backward(ctx: Any, g):
        return None, column_scatter(g, *ctx.saved_tensors), None, None, None, None


class _ColumnScatter(_Gradient):
    operator = "column_scatter"

    @staticmethod
    def forward(ctx: Any, run, g, indices, lengths, ptr):
        ctx.save_for_backward(indices, lengths, ptr)
        return run(g, indices, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return None, column_gather(g, *ctx.saved_tensors), None, None, None


class _ColumnGather(_Gradient):
    operator = "column_gather"

    @staticmethod
    def forward(ctx: Any, run, g, indices, lengths, ptr):
        ctx.save_for_backward(indices, lengths, ptr)
        return run(g, indices, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return None, column_scatter(g, *ctx.saved_tensors), None, None, None


class _MaxExchange(_Gradient):
    operator = "max_exchange"

    @staticmethod
    def forward(ctx: Any, run, x, lengths, ptr):
        values, where = run(x, lengths, ptr)
        ctx.mark_non_differentiable(where)
        ctx.save_for_backward(where, lengths, ptr)
        return values, where

    @staticmethod
    def backward(ctx: Any, g, _):
        return None, exchange_rows(g, *ctx.saved_tensors), None, None


class _ExchangeRows(_Gradient):
    operator = "exchange_rows"

    @staticmethod
    def forward(ctx: Any, run, x, where, lengths, ptr):
        ctx.save_for_backward(where, lengths, ptr)
        return run(x, where, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return None, exchange_rows(g, *ctx.saved_tensors), None, None, None


column_sort.differentiate_with(_ColumnSort)
column_sort_values.differentiate_with(_ColumnSortValues)
column_scatter.differentiate_with(_ColumnScatter)
column_gather.differentiate_with(_ColumnGather)
max_exchange.differentiate_with(_MaxExchange)
exchange_rows.differentiate_with(_ExchangeRows)
