"""How a softmax loses its grip as there is more to choose from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

COUNTS = tuple(round(10 ** (half / 2)) for half in range(2, 13))
"""10, 32, 100 ... 1,000,000."""


@dataclass(frozen=True)
class Smoothing:
    """A row of attention weights :math:`w = softmax(s)` over ``counts`` random scores, the mean of
    some draws. A row of a permutation matrix has 1 in all three.

    Args:
        counts: ``[K]``, how many scores there are.
        largest: ``[K]``, the largest weight.
        sharpness: ``[K]``, exp(-entropy), one over the number of rows that are read in effect.
        spread: ``[K]``, the length of ``w``: the deviation of the mean of independent values of
            deviation 1 with these weights, that is, how much is left of differences of rows.
    """

    counts: np.ndarray
    largest: np.ndarray
    sharpness: np.ndarray
    spread: np.ndarray


def softmax_smoothing(
    counts: Sequence[int] = COUNTS, draws: int = 16, deviation: float = 1.0, seed: int = 0
) -> Smoothing:
    r"""Measures a softmax of :math:`N` scores :math:`s_i \sim \mathcal{N}(0, \sigma^2)`, the scores
    :math:`q^T k / \sqrt{D}` of independent queries and keys of variance 1 (:math:`\sigma = 1`).

    For large :math:`N` every weight goes to zero like :math:`1/N`, up to factors:

    .. math::
        \max_i w_i \approx e^{\sigma \sqrt{2 \ln N} - \sigma^2/2} / N, \quad
        e^{-H(w)} \to e^{\sigma^2/2} / N, \quad
        \Vert w \Vert \to e^{\sigma^2/2} / \sqrt{N}

    so the output of an attention layer tends to the mean of the values, the same for every row.

    Args:
        counts: the values of :math:`N`.
        draws: how many softmaxes to average for each.
        deviation: :math:`\sigma`.
        seed: the same seed gives the same numbers.

    Example:
        >>> softmax_smoothing([10, 1000]).largest.round(2)
        array([0.34, 0.01])
    """
    random = torch.Generator().manual_seed(seed)
    found = []
    for count in counts:
        rows = [_measure(deviation * torch.randn(count, generator=random)) for _ in range(draws)]
        found.append(np.mean(rows, axis=0))
    return Smoothing(np.asarray(counts), *np.stack(found, axis=1))


def _measure(scores: torch.Tensor) -> list[float]:
    weights = scores.double().softmax(0)
    entropy = torch.special.entr(weights).sum()
    return [float(weights.max()), float((-entropy).exp()), float(weights.norm())]
