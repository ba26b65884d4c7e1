"""Attention whose weights do not depend on the input."""

import torch
from torch import Tensor

from benchmarks.attentions.multi_head import MultiHead


class Synthesizer(MultiHead):
    r"""The factorised random Synthesizer of the `Synthesizer: Rethinking Self-Attention in
    Transformer Models <https://arxiv.org/abs/2005.00743>`_ paper, the cheapest of its variants.

    .. math:: Y = \mathrm{softmax}(R_1 R_2^T) \, V

    with learned :math:`R_1, R_2`, :math:`N \times K` for every head.

    Args:
        channels, heads: as in :class:`~benchmarks.attentions.multi_head.MultiHead`.
        length: the length :math:`N` of all sequences.
        rank: the size :math:`K`, 8 as in the paper.
    """

    def __init__(self, channels: int, heads: int, length: int, rank: int = 8) -> None:
        super().__init__(channels, heads, inputs=1)
        self.left = torch.nn.Parameter(torch.randn(heads, length, rank))
        self.right = torch.nn.Parameter(torch.randn(heads, length, rank))

    def attend(self, value: Tensor) -> Tensor:
        weights = (self.left @ self.right.transpose(-2, -1)).softmax(dim=-1)
        # One matrix is shared by the batch, so the sequences are placed side by side as columns.
        columns = value.permute(1, 2, 0, 3).flatten(2)
        return (weights @ columns).unflatten(-1, (value.shape[0], -1)).permute(2, 0, 1, 3)
