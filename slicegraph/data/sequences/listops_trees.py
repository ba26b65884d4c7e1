"""Trees of operations, many at once: level by level, and so without recursion."""

from typing import NamedTuple

import numpy as np

OPERATORS = ("MIN", "MAX", "MED", "SM")


class Level(NamedTuple):
    """The nodes of all trees at one depth, the children of a node side by side.

    ``symbol`` is the number of the operator, or the digit; ``parent`` and ``first_sibling`` are
    numbers of nodes in the level above and in this one; ``num_args`` is 0 for a digit.
    """

    symbol: np.ndarray
    num_args: np.ndarray
    parent: np.ndarray
    first_sibling: np.ndarray

    @property
    def is_operator(self) -> np.ndarray:
        return self.num_args > 0


def draw_trees(
    rng: np.random.Generator, count: int, max_depth: int, max_args: int, probability: float
) -> list[Level]:
    """The levels of ``count`` trees, from the roots downwards."""
    parent = first = np.arange(count)
    levels: list[Level] = []
    for depth in range(1, max_depth + 1):
        n = len(parent)
        grows = rng.random(n) < probability if depth < max_depth else np.zeros(n, bool)
        num_args = np.where(grows, rng.integers(2, max_args, n, endpoint=True), 0)
        symbol = np.where(grows, rng.integers(len(OPERATORS), size=n), rng.integers(10, size=n))
        levels.append(Level(symbol, num_args, parent, first))
        if not grows.any():
            break
        parent = np.repeat(np.arange(n), num_args)
        first = np.repeat(np.cumsum(num_args) - num_args, num_args)
    return levels


def sizes(levels: list[Level]) -> list[np.ndarray]:
    """The number of tokens of every node: 1 for a digit, and 2 around the arguments."""
    found: list[np.ndarray] = []
    for depth in range(len(levels) - 1, -1, -1):
        size = np.where(levels[depth].is_operator, 2, 1)
        if found:
            np.add.at(size, levels[depth + 1].parent, found[-1])
        found.append(size)
    return found[::-1]


def evaluate(levels: list[Level]) -> list[np.ndarray]:
    """The value of every node, a digit."""
    found: list[np.ndarray] = []
    for depth in range(len(levels) - 1, -1, -1):
        level = levels[depth]
        value = level.symbol.copy()
        if found:
            operators = np.flatnonzero(level.is_operator)
            results = _apply(found[-1], levels[depth + 1].parent, level.num_args[operators])
            value[operators] = results[level.symbol[operators], np.arange(len(operators))]
        found.append(value)
    return found[::-1]


def _apply(values: np.ndarray, parent: np.ndarray, num_args: np.ndarray) -> np.ndarray:
    """``[4, operators]``: what each operator would make of each group of arguments."""
    values = values[np.lexsort((values, parent))]
    first = np.cumsum(num_args) - num_args
    low, high = values[first + (num_args - 1) // 2], values[first + num_args // 2]
    total = np.add.reduceat(values, first)
    return np.stack([values[first], values[first + num_args - 1], (low + high) // 2, total % 10])
