"""Packed sets of rows, laid out side by side for the products that need it."""

from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.sets import set_of_row


class PaddedSets:
    """Where the rows of packed sets go when every set is given the room of the largest.

    Args:
        ptr: ``[B + 1]``: set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]`` of ``[T, C]``.

    Example:
        >>> sets = PaddedSets(torch.tensor([0, 2, 3]))
        >>> sets.pad(torch.tensor([[1.0], [2.0], [3.0]])).squeeze(-1)
        tensor([[1., 2.],
                [3., 0.]])
    """

    def __init__(self, ptr: Tensor) -> None:
        self.ptr = ptr.long()
        self.sizes = self.ptr.diff()
        self.num_sets = self.sizes.numel()
        self.length = int(self.sizes.max()) if self.num_sets else 0
        self.num_rows = int(self.ptr[-1])
        self.full = self.num_rows == self.num_sets * self.length
        sets = set_of_row(self.ptr, self.num_rows)
        rows = torch.arange(self.num_rows, device=ptr.device)
        self.slots = sets * self.length + rows - self.ptr[sets]

    @property
    def real(self) -> Tensor:
        """``[B, length]`` bool, true where a set has a row."""
        return torch.arange(self.length, device=self.ptr.device) < self.sizes.unsqueeze(-1)

    def pad(self, rows: Tensor) -> Tensor:
        """``[T, C]`` to ``[B, length, C]``, with zeros in the places that no row takes."""
        if not self.full:
            rows = _Spread.apply(rows, self.slots, self.num_sets * self.length)
        return rows.view(self.num_sets, self.length, rows.shape[1])

    def unpad(self, x: Tensor) -> Tensor:
        """``[B, length, C]`` to ``[T, C]``."""
        rows = x.reshape(self.num_sets * self.length, x.shape[2])
        return rows if self.full else _Collect.apply(rows, self.slots)


class _Spread(torch.autograd.Function):
    """Rows to different places among zeros."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, num_places: int) -> Tensor:
        ctx.save_for_backward(places)
        return rows.new_zeros(num_places, rows.shape[1]).index_copy_(0, places, rows)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return _Collect.apply(g, *ctx.saved_tensors), None, None


class _Collect(torch.autograd.Function):
    """Rows from different places. `index_select` does not know that none is taken twice, so its
    gradient adds row by row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.num_places = x.shape[0]
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return _Spread.apply(g, *ctx.saved_tensors, ctx.num_places), None


def spread_rows(rows: Tensor, places: Tensor, num_places: int) -> Tensor:
    """``[num_places, C]``: every row at its place, all of them different, among zeros."""
    return _Spread.apply(rows, places, num_places)


def collect_rows(x: Tensor, places: Tensor) -> Tensor:
    """``x[places]`` for places that are all different."""
    return _Collect.apply(x, places)
