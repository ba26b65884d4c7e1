"""Sums along the edges of graphs, and sums of rows of a table."""

import torch
from torch import Tensor

from slicegraph.ops import reference
from slicegraph.ops.layout import can_read, check_index, check_tensor, plain
from slicegraph.ops.operator import fused


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
    return reference.gather_sum(table, places)
