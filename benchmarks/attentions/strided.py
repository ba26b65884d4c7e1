"""Attention to near rows, and to rows at a multiple of the stride."""

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.attentions.multi_head import MultiHead


class StridedAttention(MultiHead):
    r"""The strided pattern of the `Generating Long Sequences with Sparse Transformers
    <https://arxiv.org/abs/1904.10509>`_ paper, in both directions.

    Row :math:`i` attends to the rows :math:`j` with :math:`|i - j| < s` in the first half of the
    heads, and to those with :math:`i - j` divisible by the stride :math:`s` in the second half.

    Args:
        channels, heads: as in :class:`~benchmarks.attentions.multi_head.MultiHead`.
        stride: the stride :math:`s`, which divides the length.
    """

    def __init__(self, channels: int, heads: int, stride: int = 64) -> None:
        super().__init__(channels, heads)
        self.stride = stride

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        near, far = zip(*(one.chunk(2, dim=1) for one in (query, key, value)), strict=True)
        return torch.cat([self._near(*near), self._far(*far)], dim=1)

    def _near(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention of every block of ``stride`` rows to itself and to the two adjacent blocks."""
        length, stride = query.shape[-2], self.stride
        rows = torch.arange(length, device=query.device).view(-1, stride, 1)
        first = rows[:, :1] - stride
        columns = first + torch.arange(3 * stride, device=query.device)
        mask = ((rows - columns).abs() < stride) & (columns >= 0) & (columns < length)
        blocks = query.unflatten(2, (-1, stride))
        out = _attention(blocks, self._around(key), self._around(value), mask.unsqueeze(0))
        return out.flatten(2, 3)

    def _around(self, x: Tensor) -> Tensor:
        """Convert ``[B, H, N, D]`` to ``[B, H, N / s, 3 s, D]``, with zeros beyond the ends."""
        padded = functional.pad(x, (0, 0, self.stride, self.stride))
        return padded.unfold(2, 3 * self.stride, self.stride).transpose(-2, -1)

    def _far(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention among the rows whose index has the same remainder modulo the stride."""
        columns = (
            one.unflatten(2, (-1, self.stride)).transpose(2, 3) for one in (query, key, value)
        )
        return _attention(*columns).transpose(2, 3).flatten(2, 3)


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention on ``[B, H, G, N, D]``; torch has a fused kernel for four dimensions only."""
    flat = (one.flatten(0, 1) for one in (query, key, value))
    out = functional.scaled_dot_product_attention(*flat, attn_mask=mask)
    return out.unflatten(0, query.shape[:2])
