"""How much a dashed path turns between two dashes."""

import numpy as np


def draw_turns(
    rng: np.random.Generator, shape: tuple[int, ...], continuity: float = 1.0
) -> np.ndarray:
    """Angles of density ``cos(min(continuity * abs(angle), pi / 2)) ** 2``, up to a factor.

    With ``x = 2 * continuity * angle`` that is ``1 + cos(x)`` for ``abs(x) < pi``. Of a uniform
    ``x`` and its opposite, whose weights add up to 2, one is taken by its weight.
    """
    x = rng.uniform(-np.pi, np.pi, shape)
    stays = rng.uniform(0, 2, shape) < 1 + np.cos(x)
    return np.where(stays, x, x - np.copysign(np.pi, x)) / (2 * continuity)
