"""Orders whose values follow the nodes instead of the rows."""

import torch
from torch import Tensor

from slicegraph.nn.order import Order
from slicegraph.nn.padded_sets import collect_rows, spread_rows
from slicegraph.ops import library
from slicegraph.ops.column_sort import sort_columns
from slicegraph.ops.sets import set_of_row


def pivot_order(order: Order, x: Tensor, ptr: Tensor) -> Tensor:
    r"""Orders packed sets, and hands the result to the nodes by their rank in channel 0.

    .. math:: y = P_0^{-1} \, \mathrm{Order}(x), \quad P_0 x_{\cdot 0} = \mathrm{Order}(x)_{\cdot 0}

    The node that ranks r-th in channel 0 receives every channel's r-th value; channel 0 itself
    stays as it is. For ``max_exchange`` the node with the largest value in channel 0 exchanges with
    the maximum of every channel. As long as no two values tie (in channel 0; for
    ``max_exchange``, for the maximum of any channel), permuting the rows permutes the output and
    nothing else. Tied nodes, such as the symmetric ones of a graph, are ranked in row order.

    Shapes:
        x and output: ``[T, C]``, set ``b`` being the rows ``ptr[b]`` to ``ptr[b + 1]``.

    Example:
        >>> x = torch.tensor([[3.0, 10.0], [1.0, 30.0], [2.0, 20.0]])
        >>> pivot_order(Order("ascending", channels=2), x, torch.tensor([0, 3]))
        tensor([[ 3., 30.],
                [ 1., 10.],
                [ 2., 20.]])
    """
    pivot = x.detach()[:, :1].contiguous()
    first = ptr[set_of_row(ptr, x.shape[0])].long()
    if order.exchanges:
        swap = _top_to_front(pivot, first, ptr)
        return collect_rows(order(collect_rows(x, swap), ptr=ptr), swap)
    down = order.descending
    ranks = sort_columns(pivot, None, ptr, down[:1] if isinstance(down, Tensor) else down, True)[1]
    return spread_rows(order(x, ptr=ptr), ranks.flatten() + first, x.shape[0])


def _top_to_front(pivot: Tensor, first: Tensor, ptr: Tensor) -> Tensor:
    """The permutation that swaps the largest row of each set with the first one."""
    where = library.max_exchange(pivot, None, ptr)[1].flatten()
    top = first + where[set_of_row(ptr, pivot.shape[0])]
    rows = torch.arange(pivot.shape[0], device=pivot.device)
    return torch.where(rows == first, top, torch.where(rows == top, first, rows))
