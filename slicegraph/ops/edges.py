"""Sums along the edges of graphs, and sums of rows of a table."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from slicegraph.ops import reference
from slicegraph.ops.layout import can_read, check_index, check_tensor, on_cpu, plain
from slicegraph.ops.operator import fused, is_transformed


def edge_sum(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    r"""Adds up the messages that each row receives along its edges.

    .. math:: y_i = \sum_{e: j \to i} \mathrm{ReLU} \Big( x_j + \sum_k t_{\mathrm{codes}_{ek}}
        \Big)

    On a CPU, in float32 and float64, nothing of the size of the edges is stored, forward or
    backward, and the sums do not depend on the number of threads.

    Args:
        x: ``[T, C]``, floating point.
        table: ``[R, C]``, of the same type.
        codes: ``[E, K]``, int64, each in ``0..R - 1``. An edge is the sum of these rows; with
            ``K = 0`` it is 0.
        index: ``[2, E]``, int64, source and target, each in ``0..T - 1``.

    Shapes:
        output: like ``x``.

    Example:
        >>> x, table = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0], [-2.5]])
        >>> edge_sum(x, table, torch.tensor([[0], [1], [1]]), torch.tensor([[0, 1, 2], [2, 2, 2]]))
        tensor([[ 0.0000],
                [ 0.0000],
                [11.5000]])
    """
    codes, index = plain(codes), plain(index)
    edges = index.shape[-1]
    check_tensor("edge_sum", "x", x, None, ["T", "C"])
    check_tensor("edge_sum", "table", table, x.dtype, ["R", x.shape[1]])
    check_tensor("edge_sum", "codes", codes, torch.int64, [edges, "K"])
    check_tensor("edge_sum", "index", index, torch.int64, [2, edges])
    if _sums_by_product(table):
        return reference.edge_sum(x, table, codes, index, _SmallTable.apply)
    return fused("edge_sum", (x, table, codes, index))


def gather_sum(table: Tensor, places: Tensor) -> Tensor:
    r"""Adds up the rows of a table that each entry names.

    .. math:: y_p = \sum_k t_{\mathrm{places}_{pk}}

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
    check_tensor("gather_sum", "table", table, None, ["R", "C"])
    check_tensor("gather_sum", "places", places, torch.int64, ["P", "K"])
    if can_read(places):
        check_index("gather_sum", "places", places, table.shape[0], "the table")
    return (_SmallTable.apply if _sums_by_product(table) else reference.gather_sum)(table, places)


SMALL_TABLE = 64  # rows up to which the gradient of a table on a GPU is a matrix product


def _sums_by_product(table: Tensor) -> bool:
    return not on_cpu(table) and table.shape[0] <= SMALL_TABLE and not is_transformed()


class _SmallTable(Function):
    """`gather_sum` of a small table, such as that of the 13 categories of OGB's bonds.

    Its gradient is the product of the counts of each row with the gradient of the output. Torch
    would sort all places, or add them up by atomics, in an order that changes from run to run.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = table.shape[0]
        return reference.gather_sum(table, places)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        rows = torch.arange(ctx.rows, device=places.device)
        counts = (places.unsqueeze(-1) == rows).sum(1).to(grad_out.dtype)
        return counts.T @ grad_out, None
