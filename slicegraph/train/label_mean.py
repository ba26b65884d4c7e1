"""The loss of an update: the mean over all its known labels, however they are shared out."""

from collections.abc import Iterable

import torch
from torch import Tensor


class LabelMean:
    r"""Weights for the sums of the losses of the ranks and parts of an update.

    With sums :math:`s_{rk}` and :math:`c_k` labels on all ranks :math:`r` in part :math:`k`, the
    gradient is that of :math:`\sum_{rk} s_{rk} / \sum_k c_k`: the ranks are averaged by DDP, the
    parts by Lightning, and how many labels are still to come is not known. So all parts are divided
    by :math:`c_1`, and the gradient by :math:`\sum_k c_k / c_1` before the update.

    Args:
        world: the number of ranks.
        parts: how many batches of a rank make an update.
    """

    def __init__(self, world: int, parts: int) -> None:
        self.world, self.parts = world, parts
        self._first: Tensor | None = None
        self._total: Tensor | float = 0.0

    def weight(self, count: Tensor) -> Tensor:
        """The factor for the sum of one rank in a part with `count` labels on all ranks."""
        if self._first is None:
            self._first = count.clamp(min=1)
        self._total = self._total + count
        return self.world * self.parts / self._first

    @torch.no_grad()
    def finish(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Makes the gradient that of the mean; the next part is the first of an update."""
        first, total = self._first, self._total
        self._first, self._total = None, 0.0
        if self.parts == 1 or first is None or not isinstance(total, Tensor):
            return
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_((first / total.clamp(min=1)).to(parameter.grad.dtype))
