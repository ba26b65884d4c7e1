"""The operators that move rows: sort, exchange, and their gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from slicegraph.ops.operator import Gradient, Operator
from slicegraph.ops.sets import INDEX_DTYPES

_SETS = "Tensor? lengths, Tensor? ptr"


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


class _ColumnSort(Gradient):
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


class _ColumnSortValues(Gradient):
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


class _ColumnScatter(Gradient):
    operator = "column_scatter"

    @staticmethod
    def forward(ctx: Any, run, g, indices, lengths, ptr):
        ctx.save_for_backward(indices, lengths, ptr)
        return run(g, indices, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return None, column_gather(g, *ctx.saved_tensors), None, None, None


class _ColumnGather(Gradient):
    operator = "column_gather"

    @staticmethod
    def forward(ctx: Any, run, g, indices, lengths, ptr):
        ctx.save_for_backward(indices, lengths, ptr)
        return run(g, indices, lengths, ptr)

    @staticmethod
    def backward(ctx: Any, g):
        return None, column_scatter(g, *ctx.saved_tensors), None, None, None


class _MaxExchange(Gradient):
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


class _ExchangeRows(Gradient):
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
