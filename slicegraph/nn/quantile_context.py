"""What all rows of a set hear of its sorted channels."""

import torch
from torch import Tensor

from slicegraph.nn.aggregation import SliceSortAggregation
from slicegraph.ops.sets import set_of_row

_DEVIATION = 0.1


class QuantileContext(torch.nn.Module):
    r"""Adds to every row a learned mixture of the order statistics of its set.

    .. math:: y_{ic} = x_{ic} + \sum_{j=0}^{k-1} w_{jc} \, Q_{j/(k-1)}(x_{1c}, \ldots, x_{nc})

    Every channel is sorted, read at :math:`k` quantiles, and mixed by weights of its own. All rows
    hear the same, so permuting the rows permutes the output and nothing else, ties or not. It takes
    :math:`O(n \log n)` and :math:`k` parameters a channel.

    Args:
        channels: the size of each row.
        quantiles: the number :math:`k`.

    Shapes:
        - **x**: ``[T, channels]``, packed sets with **ptr** ``[B + 1]``.
        - **output**: ``[T, channels]``.

    Example:
        >>> context = QuantileContext(1, quantiles=3)
        >>> _ = torch.nn.init.constant_(context.weight, 10.0)
        >>> context(torch.tensor([[3.0], [1.0], [2.0], [5.0]]), torch.tensor([0, 3, 4])).T
        tensor([[ 63.,  61.,  62., 155.]], grad_fn=<PermuteBackward0>)
    """

    def __init__(self, channels: int, quantiles: int = 5) -> None:
        super().__init__()
        self.read = SliceSortAggregation(quantiles)
        self.weight = torch.nn.Parameter(torch.empty(quantiles, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        torch.nn.init.normal_(self.weight, std=_DEVIATION)

    def forward(self, x: Tensor, ptr: Tensor) -> Tensor:
        quantiles = self.read(x, ptr=ptr, dim=0).unflatten(1, self.weight.shape)
        context = (quantiles * self.weight.to(x.dtype)).sum(1)
        return x + context.index_select(0, set_of_row(ptr, x.shape[0]))

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, quantiles={self.weight.shape[0]}"
