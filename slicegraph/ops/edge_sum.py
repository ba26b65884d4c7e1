"""Messages along the edges of graphs, added up where they arrive."""

from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import choose, cpu, cpu_edges
from slicegraph.ops.gather_sum import gather_sum
from slicegraph.ops.operator import Gradient, Operator, _watched


def edge_sum(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    r"""Adds up what the neighbours of each row say.

    .. math:: y_i = \sum_{e: j \to i} \mathrm{ReLU} \Big( x_j + \sum_k t_{\mathrm{codes}_{ek}}
        \Big)

    On a CPU, in float32 and float64, nothing of the size of the edges is made, forwards or
    backwards, and the sums do not depend on the number of threads.

    Args:
        x: ``[T, C]``, floating point.
        table: ``[R, C]``, of the same type.
        codes: ``[E, K]``, int64, each in ``0..R - 1``. An edge is the sum of these rows; with
            ``K = 0`` it is 0.
        index: ``[2, E]``, int64, from and to, each in ``0..T - 1``.

    Shapes:
        output: like ``x``.

    Example:
        >>> x, table = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0], [-2.5]])
        >>> edge_sum(x, table, torch.tensor([[0], [1], [1]]), torch.tensor([[0, 1, 2], [2, 2, 2]]))
        tensor([[ 0.0000],
                [ 0.0000],
                [11.5000]])
    """
    _check(x, table, codes, index)
    return _edge_sum(x, table, codes, index)


def has_kernel(x: Tensor, table: Tensor) -> bool:
    """Whether :func:`edge_sum` of these is more than a few functions of torch."""
    return (
        x.is_cpu
        and x.dtype == table.dtype
        and x.dtype in cpu_edges.DTYPES
        and not _watched(x)
        and cpu_edges.kernel is not None
        and choose("cpu") is cpu
    )


def _check(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> None:
    if x.dim() != 2 or not x.is_floating_point():
        raise ValueError(
            f"edge_sum: x of shape {list(x.shape)} and type {x.dtype}, expected floating point of "
            "shape [T, C]"
        )
    width = codes.shape[-1] if codes.dim() == 2 else "K"
    expected = (
        ("table", table, x.dtype, ["R", x.shape[1]]),
        ("codes", codes, torch.int64, [index.shape[-1], width]),
        ("index", index, torch.int64, [2, index.shape[-1]]),
    )
    for name, value, dtype, shape in expected:
        fits = value.dim() == 2 and value.shape[1] == shape[1] and shape[0] in ("R", value.shape[0])
        if not fits or value.dtype != dtype:
            raise ValueError(
                f"edge_sum: {name} of shape {list(value.shape)} and type {value.dtype}, expected "
                f"{dtype} of shape [{shape[0]}, {shape[1]}]"
            )


def _fake_sum(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _fake_gradients(
    g: Tensor, x: Tensor, table: Tensor, codes: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), table.new_empty(table.shape)


_ARGUMENTS = "Tensor x, Tensor table, Tensor codes, Tensor index"
_edge_sum = Operator("edge_sum", _ARGUMENTS, "Tensor", _fake_sum, two=True)
_edge_sum_gradients = Operator(
    "edge_sum_gradients", f"Tensor g, {_ARGUMENTS}", "(Tensor, Tensor)", _fake_gradients, two=True
)


class _EdgeSum(Gradient):
    operator = "edge_sum"

    @staticmethod
    def forward(ctx: Any, run, x, table, codes, index):
        ctx.save_for_backward(x, table, codes, index)
        return run(x, table, codes, index)

    @staticmethod
    def backward(ctx: Any, g):
        return None, *_edge_sum_gradients(g, *ctx.saved_tensors), None, None


class _EdgeSumGradients(Gradient):
    """ReLU is straight on either side: `x` and `table` choose the side and have no gradient."""

    operator = "edge_sum_gradients"

    @staticmethod
    def forward(ctx: Any, run, g, x, table, codes, index):
        ctx.save_for_backward(x, table, codes, index)
        return run(g, x, table, codes, index)

    @staticmethod
    def backward(ctx: Any, of_x, of_table):
        x, table, codes, index = ctx.saved_tensors
        silent = x.index_select(0, index[0]) + gather_sum(table, codes) <= 0
        said = of_x.index_select(0, index[0]) + gather_sum(of_table, codes)
        of_g = torch.zeros_like(of_x).index_add(0, index[1], said.masked_fill(silent, 0))
        return None, of_g, None, None, None, None


_edge_sum.differentiate_with(_EdgeSum)
_edge_sum_gradients.differentiate_with(_EdgeSumGradients)
