"""What a task is made of, before it is written to a folder."""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slicegraph.data.sequences.sequences import Sequences
from slicegraph.data.sets.splits import SPLIT_NAMES, permutation, random_split

FRACTIONS, SEED = (0.8, 0.1, 0.1), 0
"""How what has no splits of its own is split: these shares, at random by this seed."""

Sample = tuple[list[np.ndarray], int]
"""The sequences of a sample (two for a pair) and its label."""
Item = TypeVar("Item")
_PART = 2048
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error)
"""What Pillow raises for broken pictures, besides its own error for those that are too large."""


class TaskError(ValueError):
    """A task that cannot be had: what is missing, and what to do about it."""


@dataclass(frozen=True)
class Request:
    """What the user wants of a task.

    Args:
        task: its name.
        data: a file or folder of the user's own.
        examples: how many to generate.
        image_size: the height and width that pictures of different sizes are brought to.
        words: those that a model knows, in the order of their numbers, for a task of words.
    """

    task: str
    data: Path | None = None
    examples: int | None = None
    image_size: int | None = None
    words: tuple[str, ...] = ()

    def folder(self, what: str) -> Path:
        """The folder of the user; raises if there is none, and says what it holds."""
        if self.data is None:
            raise TaskError(
                f"task {self.task!r} has no data of its own; name {what} with --data, beside "
                f"--task {self.task}"
            )
        if not self.data.is_dir():
            problem = (
                f"{self.data} is no folder" if self.data.exists() else f"there is no {self.data}"
            )
            raise TaskError(f"{problem}; --data is {what}")
        return self.data


@dataclass(frozen=True)
class Contents:
    """The samples of a task, those of the first split first; as `write_sequences` takes them."""

    sequences: Iterable[Sequences]
    splits: dict[str, int]
    class_names: Sequence[str]
    vocabulary: int | None = 256
    towers: int = 1
    source: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, int, int] | None = None
    words: Sequence[str] = ()


def in_parts(samples: Iterable[Sample], dtype: Any = np.uint8) -> Iterator[Sequences]:
    """Samples one after another, some thousand at a time."""
    parts: list[np.ndarray] = []
    labels: list[int] = []
    for sequences, label in samples:
        parts += [np.asarray(sequence, dtype) for sequence in sequences]
        labels.append(label)
        if len(labels) == _PART:
            yield join(parts, labels)
            parts, labels = [], []
    if labels:
        yield join(parts, labels)


def readable(
    files: Sequence[tuple[Path, int]],
    read: Callable[[Path], np.ndarray],
    splits: dict[str, int],
    source: dict[str, Any],
) -> Iterator[Sample]:
    """The samples of labelled files, those of the first split first.

    A file that cannot be read is left out: once the last sample is there, it is not counted in
    ``splits`` any more, ``source["left_out"]`` names it, and ``source["left_out_because"]`` says
    what is wrong with the first.
    """
    from PIL.Image import DecompressionBombError

    left_out: list[str] = []
    reason = ""
    names = [name for name, count in splits.items() for _ in range(count)]
    for (path, label), split in zip(files, names, strict=True):
        try:
            elements = read(path)
        except (*_DAMAGE, DecompressionBombError) as error:
            splits[split] -= 1
            reason = reason or _reason(path, error)
            left_out.append(str(path))
        else:
            yield [elements], label
    if left_out:
        source |= {"left_out": left_out, "left_out_because": reason}
    if empty := [name for name, count in splits.items() if not count]:
        raise TaskError(
            f"no picture of the split {empty[0]!r} can be read: {reason or 'it has none'}"
        )


def _reason(path: Path, error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if str(path) in text else f"{path}: {text}"


def join(sequences: Sequence[np.ndarray], labels: Sequence[int] | np.ndarray) -> Sequences:
    """Arrays of any lengths in one."""
    ptr = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
    return Sequences(np.concatenate(sequences), ptr, np.asarray(labels, np.int64))


def random_order(count: int) -> tuple[np.ndarray, dict[str, int]]:
    """Which samples to write one after another, and how many of them each split has."""
    splits = random_split(count, FRACTIONS, SEED)
    order = np.concatenate([splits[name][permutation(len(splits[name]), 1)] for name in splits])
    return order, {name: len(splits[name]) for name in SPLIT_NAMES}


def with_valid(train: Sequence[Item], test: Sequence[Item]) -> tuple[list[Item], dict[str, int]]:
    """Shuffles train and takes the tenth of it for valid, where train and test are given."""
    order = permutation(len(train), SEED)
    cut = len(train) - max(1, len(train) // 10)
    sizes = (cut, len(train) - cut, len(test))
    return [*(train[i] for i in order), *test], dict(zip(SPLIT_NAMES, sizes, strict=True))


def needs(task: str, package: str, extra: str) -> TaskError:
    """The error of a package that is not installed."""
    return TaskError(
        f"task {task!r} needs the package {package}; pip install 'slicegraph[{extra}]'"
    )
