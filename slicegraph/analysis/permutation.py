"""The permutation that a sort applies to a channel."""

import torch
from torch import Tensor

from slicegraph.nn.order import Order
from slicegraph.ops import column_sort, library


def implicit_permutation(order: Order, x: Tensor, channel: int) -> Tensor:
    r"""Which row of a set each row of the result has its value from, in one channel.

    .. math:: \mathrm{Order}(x)_{jc} = x_{p(j) c}

    Attention has a matrix of weights in the place of this permutation.

    Args:
        order: the order of the layer.
        x: what it was given, one set.
        channel: the number of the channel, from 0.

    Shapes:
        x: ``[N, C]``; output: ``[N]``, int64.

    Example:
        >>> order = Order("ascending", channels=1)
        >>> implicit_permutation(order, torch.tensor([[3.0], [1.0], [2.0]]), channel=0)
        tensor([1, 2, 0])
    """
    if not 0 <= channel < x.shape[1]:
        raise ValueError(
            f"implicit_permutation: there is no channel {channel}, they are 0..{x.shape[1] - 1}"
        )
    if not order.exchanges:
        return column_sort(x, descending=order.descending)[1][:, channel]
    sources = torch.arange(x.shape[0], device=x.device)
    top = library.max_exchange(x[:, channel : channel + 1].contiguous(), None, None)[1].flatten()
    sources[top], sources[:1] = 0, top
    return sources
