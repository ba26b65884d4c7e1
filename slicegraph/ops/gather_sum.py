"""Sums of rows of a table: what an embedding of several features is made of."""

from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.operator import Gradient, Operator


def gather_sum(table: Tensor, places: Tensor) -> Tensor:
    r"""Adds up the rows of a table that each entry names.

    .. math:: y_p = \sum_k t_{\mathrm{places}_{pk}}

    ``torch.nn.functional.embedding_bag`` with ``mode="sum"``; its gradient, which torch computes by
    sorting the places, is a plain sum in the order of the entries, several times faster on a CPU.

    Args:
        table: ``[R, C]``, floating point.
        places: ``[P, K]``, int64, each in ``0..R - 1``.

    Shapes:
        output: ``[P, C]``.

    Example:
        >>> gather_sum(torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([[0, 1], [2, 2]]))
        tensor([[ 11.],
                [200.]])
    """
    if table.dim() != 2 or not table.is_floating_point():
        raise ValueError(
            f"gather_sum: table of shape {list(table.shape)} and type {table.dtype}, "
            "expected floating point of shape [R, C]"
        )
    if places.dim() != 2 or places.dtype != torch.int64:
        raise ValueError(
            f"gather_sum: places of shape {list(places.shape)} and type {places.dtype}, "
            "expected int64 of shape [P, K]"
        )
    return _gather_sum(table, places)


def _fake_gather_sum(table: Tensor, places: Tensor) -> Tensor:
    return table.new_empty(places.shape[0], table.shape[1])


def _fake_scatter_sum(g: Tensor, places: Tensor, rows: int) -> Tensor:
    return g.new_empty(rows, g.shape[1])


_gather_sum = Operator("gather_sum", "Tensor table, Tensor places", "Tensor", _fake_gather_sum)
_scatter_sum = Operator(
    "scatter_sum", "Tensor g, Tensor places, SymInt rows", "Tensor", _fake_scatter_sum
)


class _GatherSum(Gradient):
    operator = "gather_sum"

    @staticmethod
    def forward(ctx: Any, run, table, places):
        ctx.save_for_backward(places)
        ctx.rows = table.shape[0]
        return run(table, places)

    @staticmethod
    def backward(ctx: Any, g):
        return None, _scatter_sum(g, *ctx.saved_tensors, ctx.rows), None


class _ScatterSum(Gradient):
    operator = "scatter_sum"

    @staticmethod
    def forward(ctx: Any, run, g, places, rows):
        ctx.save_for_backward(places)
        return run(g, places, rows)

    @staticmethod
    def backward(ctx: Any, g):
        return None, _gather_sum(g, *ctx.saved_tensors), None, None


_gather_sum.differentiate_with(_GatherSum)
_scatter_sum.differentiate_with(_ScatterSum)
