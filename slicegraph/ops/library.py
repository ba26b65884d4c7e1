"""The operators as torch sees them: one schema, one fake and one gradient each.

A call costs microseconds, and small sets are sorted in fewer. So what nobody watches (no compiler,
no dispatch mode, no tensor subclass) goes straight to the backend, and gradients are
`torch.autograd.Function`s: the wrapper that `torch.library.register_autograd` builds costs
20 microseconds a call more.
"""

from collections.abc import Callable
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


def _watched(x: Tensor) -> bool:
    """Whether anything but autograd wants to see the operators that are called."""
    return (
        torch.compiler.is_compiling()
        or type(x) not in _PLAIN
        or x.is_neg()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def _differentiated(x: Tensor) -> bool:
    # In forward mode the Function, which has no jvp, says so instead of losing the tangent.
    return (torch.is_grad_enabled() and x.requires_grad) or forward_ad._current_level >= 0


class Operator:
    """One operator of torch's `slicegraph` namespace."""

    def __init__(self, name: str, arguments: str, returns: str, fake: Callable[..., Any]) -> None:
        self.name = name
        self.gradient: type[torch.autograd.Function]  # set below, where all operators are known
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
            return self.gradient.apply(x, *rest)
        return self._run(x, *rest)

    def below_autograd(self, x: Tensor, *rest: Any) -> Any:
        """The operator alone, with no record of how to differentiate it."""
        if not _watched(x):
            return implementation(self.name, x.device.type)(x, *rest)
        with torch._C._AutoDispatchBelowAutograd():
            return self.op(x, *rest)

    def _differentiate(self, x: Tensor, *rest: Any) -> Any:
        if _differentiated(x):
            return self.gradient.apply(x, *rest)
        return self.below_autograd(x, *rest)

    def _run(self, x: Tensor, *rest: Any) -> Any:
        return implementation(self.name, x.device.type)(x, *rest)


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
    # A size that is symbolic under torch.compile is not pinned down for the sake of a type.
    if statically_known_true(rows <= 1 << 8):
        return 1
    if statically_known_true(rows <= 1 << 15):
        return 2
    return 4 if statically_known_true(rows < 1 << 31) else 8


class _ColumnSort(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, lengths, ptr, mask, descending, index_bytes):
        values, indices = column_sort.below_autograd(x, lengths, ptr, mask, descending, index_bytes)
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices, lengths, ptr)
        return values, indices

    @staticmethod
    def backward(ctx: Any, g, _):
        return column_scatter(g, *ctx.saved_tensors), None, None, None, None, None


class _ColumnSortValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, lengths, ptr, mask, descending):
        index_bytes = _index_bytes(x, ptr)
        values, indices = column_sort.below_autograd(x, lengths, ptr, mask, descending, index_bytes)
        ctx.save_for_backward(indices, lengths, ptr)
        return values

    @staticmethod
    def backward(ctx: Any, g):
        return column_scatter(g, *ctx.saved_tensors), None, None, None, None


class _ColumnScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g, indices, lengths, ptr):
        ctx.save_for_backward(indices, lengths, ptr)
        return column_scatter.below_autograd(g, indices, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return column_gather(g, *ctx.saved_tensors), None, None, None


class _ColumnGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g, indices, lengths, ptr):
        ctx.save_for_backward(indices, lengths, ptr)
        return column_gather.below_autograd(g, indices, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return column_scatter(g, *ctx.saved_tensors), None, None, None


class _MaxExchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, lengths, ptr):
        values, where = max_exchange.below_autograd(x, lengths, ptr)
        ctx.mark_non_differentiable(where)
        ctx.save_for_backward(where, lengths, ptr)
        return values, where

    @staticmethod
    def backward(ctx: Any, g, _):
        return exchange_rows(g, *ctx.saved_tensors), None, None


class _ExchangeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, where, lengths, ptr):
        ctx.save_for_backward(where, lengths, ptr)
        return exchange_rows.below_autograd(x, where, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return exchange_rows(g, *ctx.saved_tensors), None, None, None


column_sort.gradient = _ColumnSort
column_sort_values.gradient = _ColumnSortValues
column_scatter.gradient = _ColumnScatter
column_gather.gradient = _ColumnGather
max_exchange.gradient = _MaxExchange
exchange_rows.gradient = _ExchangeRows
