"""ListOps, the nested lists of operations of the Long Range Arena, drawn by a seed."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from slicegraph.data.sequences.listops_trees import OPERATORS, Level, draw_trees, evaluate, sizes
from slicegraph.data.sequences.sequences import Sequences

PADDING, FIRST_DIGIT, FIRST_OPERATOR, END = 0, 1, 11, 15
TOKENS = ("<pad>", *map(str, range(10)), *(f"[{name}" for name in OPERATORS), "]")
"""The text of each token. 0 is free for padding, which no sequence contains."""

_ROUND, _PATIENCE = 4096, 30


def generate_listops(
    count: int,
    seed: int = 0,
    min_length: int = 500,
    max_length: int = 2000,
    max_depth: int = 10,
    max_args: int = 10,
    operator_probability: float = 0.25,
) -> Sequences:
    """Draws different expressions such as ``[MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]``, and what
    they come to: a digit.

    The grammar and the settings are those of `Long Range Arena
    <https://arxiv.org/abs/2011.04006>`_: MIN, MAX, MED (the median, rounded down) and SM (the sum
    modulo 10) of 2 to ``max_args`` arguments; an argument is an operation with
    ``operator_probability``, and otherwise, or at ``max_depth``, a digit.

    Args:
        count: how many expressions.
        seed: the same seed gives the same expressions; fewer of them are the first of more.
        min_length, max_length: an expression has more tokens than the one and fewer than the other.
        max_depth: the number of levels, of which the last has digits only.
        max_args: the largest number of arguments.
        operator_probability: which LRA's code calls the probability of a value.

    Example:
        >>> listops = generate_listops(2, min_length=2, max_length=9)
        >>> [decode(one) for one in listops], listops.labels
        (['[MIN 5 5 ]', '[MED 6 3 5 8 1 1 ]'], array([5, 4], dtype=uint8))
    """
    found: dict[bytes, int] = {}
    for number, trees in enumerate(_rounds(seed, max_depth, max_args, operator_probability)):
        if len(found) >= count:
            break
        if number == _PATIENCE * (1 + len(found)):
            raise ValueError(
                f"generate_listops: {number * _ROUND} draws gave {len(found)} expressions of "
                f"{min_length + 1} to {max_length - 1} tokens; allow for other lengths"
            )
        for text, value in _write(trees, min_length, max_length):
            found.setdefault(text, value)
    return _join(list(found)[:count], list(found.values())[:count])


def decode(tokens: np.ndarray) -> str:
    """The text of an expression."""
    return " ".join(TOKENS[token] for token in tokens)


def is_expression(tokens: np.ndarray) -> bool:
    """Whether the tokens are a digit, or one operation that ends where they do.

    Example:
        >>> is_expression(np.array([11, 4, 9, 15])), is_expression(np.array([11, 4, 9]))
        (True, False)
    """
    begins, ends = (tokens >= FIRST_OPERATOR) & (tokens < END), tokens == END
    depth = np.cumsum(begins.astype(np.int64) - ends)
    without_arguments = begins[:-1] & ends[1:]
    return bool(
        len(tokens) and depth[-1] == 0 and (depth[:-1] > 0).all() and not without_arguments.any()
    )


def _rounds(seed: int, *settings: Any) -> Iterator[list[Level]]:
    rng = np.random.default_rng(seed)
    while True:
        yield draw_trees(rng, _ROUND, *settings)


def _join(texts: list[bytes], values: list[int]) -> Sequences:
    ptr = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return Sequences(np.frombuffer(b"".join(texts), np.uint8), ptr, np.array(values, np.uint8))


def _write(levels: list[Level], min_length: int, max_length: int) -> Iterator[tuple[bytes, int]]:
    """The tokens and the value of every tree whose length is between the two."""
    lengths = sizes(levels)
    values = evaluate(levels)[0]
    ends = np.cumsum(lengths[0])
    text = np.empty(ends[-1], np.uint8)
    starts = ends - lengths[0]
    for depth, level in enumerate(levels):
        if depth:
            starts = _starts(level, lengths[depth], starts)
        text[starts] = np.where(level.is_operator, FIRST_OPERATOR, FIRST_DIGIT) + level.symbol
        text[(starts + lengths[depth] - 1)[level.is_operator]] = END
    for tree in np.flatnonzero((lengths[0] > min_length) & (lengths[0] < max_length)):
        yield text[ends[tree] - lengths[0][tree] : ends[tree]].tobytes(), int(values[tree])


def _starts(level: Level, lengths: np.ndarray, parent_starts: np.ndarray) -> np.ndarray:
    """Where each node of a level is written: after its parent and the siblings before it."""
    before = np.cumsum(lengths) - lengths
    return parent_starts[level.parent] + 1 + before - before[level.first_sibling]
