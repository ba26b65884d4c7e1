"""The operators as torch sees them: one schema, one fake and one gradient each.

Autograd is a `torch.autograd.Function` at the Autograd key: the wrapper that
`torch.library.register_autograd` builds costs 20 microseconds a call more.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import implementation
from slicegraph.ops.sets import INDEX_DTYPES

_library = torch.library.Library("slicegraph", "DEF")
_SETS = "Tensor? lengths, Tensor? ptr"


def _define(name: str, arguments: str, returns: str, fake: Callable[..., Any]) -> Any:
    def run(x: Tensor, *rest: Any) -> Any:
        return implementation(name, x.device.type)(x, *rest)

    _library.define(f"{name}({arguments}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(name, run, key)
    torch.library.register_fake(f"slicegraph::{name}", fake, lib=_library)
    return getattr(torch.ops.slicegraph, name).default


def _register_gradient(name: str, function: type[torch.autograd.Function]) -> None:
    _library.impl(name, lambda *arguments: function.apply(*arguments), "Autograd")


def _like(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_column_sort(
    x: Tensor, lengths: Any, ptr: Any, mask: Any, descending: bool, index_bytes: int
) -> tuple[Tensor, Tensor]:
    shape = x.shape if index_bytes else (0,)
    return x.new_empty(x.shape), x.new_empty(shape, dtype=INDEX_DTYPES[index_bytes])


def _fake_max_exchange(x: Tensor, lengths: Any, ptr: Tensor | None) -> tuple[Tensor, Tensor]:
    sets = x.shape[:-2] if ptr is None else (ptr.shape[0] - 1,)
    return x.new_empty(x.shape), x.new_empty((*sets, x.shape[-1]), dtype=torch.int64)


sort_op = _define(
    "column_sort",
    f"Tensor x, {_SETS}, Tensor? mask, bool descending, int index_bytes",
    "(Tensor, Tensor)",
    _fake_column_sort,
)
scatter_op = _define("column_scatter", f"Tensor g, Tensor indices, {_SETS}", "Tensor", _like)
gather_op = _define("column_gather", f"Tensor g, Tensor indices, {_SETS}", "Tensor", _like)
exchange_op = _define("max_exchange", f"Tensor x, {_SETS}", "(Tensor, Tensor)", _fake_max_exchange)
swap_op = _define("exchange_rows", f"Tensor x, Tensor where, {_SETS}", "Tensor", _like)


class _ColumnSort(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, lengths, ptr, mask, descending, index_bytes):
        with torch._C._AutoDispatchBelowAutograd():
            values, indices = sort_op(x, lengths, ptr, mask, descending, index_bytes)
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices, lengths, ptr)
        return values, indices

    @staticmethod
    def backward(ctx: Any, g, _):
        indices, lengths, ptr = ctx.saved_tensors
        if indices.shape != g.shape:
            raise RuntimeError("column_sort: no permutation was saved, index_bytes = 0 has no gradient")
        return scatter_op(g, indices, lengths, ptr), None, None, None, None, None


class _ColumnScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g, indices, lengths, ptr):
        ctx.save_for_backward(indices, lengths, ptr)
        with torch._C._AutoDispatchBelowAutograd():
            return scatter_op(g, indices, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return gather_op(g, *ctx.saved_tensors), None, None, None


class _ColumnGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g, indices, lengths, ptr):
        ctx.save_for_backward(indices, lengths, ptr)
        with torch._C._AutoDispatchBelowAutograd():
            return gather_op(g, indices, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return scatter_op(g, *ctx.saved_tensors), None, None, None


class _MaxExchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, lengths, ptr):
        with torch._C._AutoDispatchBelowAutograd():
            values, where = exchange_op(x, lengths, ptr)
        ctx.mark_non_differentiable(where)
        ctx.save_for_backward(where, lengths, ptr)
        return values, where

    @staticmethod
    def backward(ctx: Any, g, _):
        return swap_op(g, *ctx.saved_tensors), None, None


class _ExchangeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, where, lengths, ptr):
        ctx.save_for_backward(where, lengths, ptr)
        with torch._C._AutoDispatchBelowAutograd():
            return swap_op(x, where, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return swap_op(g, *ctx.saved_tensors), None, None, None


_register_gradient("column_sort", _ColumnSort)
_register_gradient("column_scatter", _ColumnScatter)
_register_gradient("column_gather", _ColumnGather)
_register_gradient("max_exchange", _MaxExchange)
_register_gradient("exchange_rows", _ExchangeRows)
