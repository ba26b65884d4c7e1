"""Sequences of different lengths in one array, with a label each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Sequences:
    """Sequence ``i`` is ``elements[ptr[i] : ptr[i + 1]]`` and has the label ``labels[i]``.

    With pairs of sequences, as in retrieval, ``ptr`` has two sequences for a label.
    """

    elements: np.ndarray
    ptr: np.ndarray
    labels: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """The length of every sequence."""
        return np.diff(self.ptr)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        """The sequences, one after another."""
        return (self.elements[a:b] for a, b in zip(self.ptr[:-1], self.ptr[1:], strict=True))


class PaddedBatch(NamedTuple):
    """``x`` ``[B, N]`` (pairs ``[B, 2, N]``), ``mask`` true at what is real, ``y`` ``[B]``."""

    x: np.ndarray
    mask: np.ndarray
    y: np.ndarray


def pad(
    sequences: Sequences,
    indices: Sequence[int] | np.ndarray,
    towers: int = 1,
    max_length: int | None = None,
) -> PaddedBatch:
    """The samples with these numbers, side by side, zeros after the end of each.

    Of a longer sequence the first ``max_length`` elements are taken.

    Example:
        >>> sequences = Sequences(np.array([5, 6, 7]), np.array([0, 2, 3]), np.array([1, 0]))
        >>> pad(sequences, [1, 0]).x
        array([[7, 0],
               [5, 6]])
    """
    samples = np.asarray(indices, np.int64)
    rows = (samples[:, None] * towers + np.arange(towers)).ravel()
    starts = sequences.ptr[rows]
    lengths = sequences.ptr[rows + 1] - starts
    if max_length is not None:
        lengths = np.minimum(lengths, max_length)
    steps = np.arange(lengths.max(initial=0))
    mask = steps < lengths[:, None]
    x = np.zeros(mask.shape, sequences.elements.dtype)
    x[mask] = sequences.elements[(starts[:, None] + steps)[mask]]
    shape = (len(samples), *([towers] if towers > 1 else []), len(steps))
    return PaddedBatch(x.reshape(shape), mask.reshape(shape), np.asarray(sequences.labels[samples]))


def cut_note(lengths: np.ndarray, max_length: int | None) -> str:
    """How many sequences of these lengths `pad` cuts, in words; nothing if there are none.

    Example:
        >>> cut_note(np.array([3, 7, 5]), 4)
        '2 of 3 sequences, the longest of 7, are longer than max_length = 4 and are cut after it'
    """
    longer = 0 if max_length is None else int((lengths > max_length).sum())
    if not longer:
        return ""
    return (
        f"{longer:,} of {len(lengths):,} sequences, the longest of {lengths.max():,}, are longer "
        f"than max_length = {max_length} and are cut after it"
    )
