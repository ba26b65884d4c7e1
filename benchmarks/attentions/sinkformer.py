"""Attention whose weights are doubly stochastic."""

import math

from torch import Tensor

from benchmarks.attentions.multi_head import MultiHead


class Sinkformer(MultiHead):
    r"""The attention of the `Sinkformers: Transformers with Doubly Stochastic Attention
    <https://arxiv.org/abs/2110.11773>`_ paper.

    The softmax normalises the rows of :math:`\exp(Q K^T / \sqrt{D})`; Sinkhorn's algorithm
    normalises rows and columns in turns, here in logarithms.

    Args:
        channels, heads: as in :class:`~benchmarks.attentions.multi_head.MultiHead`.
        iterations: how often the rows, and then the columns, are normalised.
    """

    def __init__(self, channels: int, heads: int, iterations: int = 3) -> None:
        super().__init__(channels, heads)
        self.iterations = iterations

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.weights(query, key) @ value

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """``[..., N, N]``; the columns sum to one, and the rows too, in the limit."""
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        for _ in range(self.iterations):
            scores = scores - scores.logsumexp(dim=-1, keepdim=True)
            scores = scores - scores.logsumexp(dim=-2, keepdim=True)
        return scores.exp()
