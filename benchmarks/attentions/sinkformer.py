"""Attention whose weights are doubly stochastic."""

import math

from torch import Tensor

from benchmarks.attentions.multi_head import MultiHead


class Sinkformer(MultiHead):
    r"""The attention of the `Sinkformers: Transformers with Doubly Stochastic Attention
    <https://arxiv.org/abs/2110.11773>`_ paper.

    The softmax normalises the rows of :math:`\exp(Q K^T / \sqrt{D})`; Sinkhorn's algorithm
    normalises rows and columns alternately, here in logarithms.

    Args:
        channels, heads: as in :class:`~benchmarks.attentions.multi_head.MultiHead`.
        iterations: the number of normalisations, alternately of the rows and of the columns; one
            iteration gives the softmax.
    """

    def __init__(self, channels: int, heads: int, iterations: int = 3) -> None:
        super().__init__(channels, heads)
        self.iterations = iterations

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.weights(query, key) @ value

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the weights, ``[..., N, N]``.

        Rows and columns both sum to one in the limit; those that were normalised last always do.
        """
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        for step in range(self.iterations):
            scores = scores - scores.logsumexp(dim=-2 if step % 2 else -1, keepdim=True)
        return scores.exp()
