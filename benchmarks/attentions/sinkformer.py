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
        iterations: how many normalisations, of the rows, of the columns, of the rows and so on;
            with one it is the softmax.
    """

    def __init__(self, channels: int, heads: int, iterations: int = 3) -> None:
        super().__init__(channels, heads)
        self.iterations = iterations

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.weights(query, key) @ value

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """``[..., N, N]``; rows and columns sum to one in the limit, and what was last normalised
        does so from the first."""
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        for step in range(self.iterations):
            scores = scores - scores.logsumexp(dim=-2 if step % 2 else -1, keepdim=True)
        return scores.exp()
