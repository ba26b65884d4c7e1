"""Parts that every task is read with: the request, the samples, the splits, the user's files."""

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slicegraph.data.splits import SPLIT_NAMES, permutation, random_split
from slicegraph.tasks.store import Sequences, join

FRACTIONS, SEED = (0.8, 0.1, 0.1), 0  # of the random split of data without splits of its own
PART = 2048  # the number of samples in memory at a time
DIGITS = "0123456789"

Sample = tuple[list[np.ndarray], int]
"""The sequences of a sample (two for a pair) and its label."""
Item = TypeVar("Item")


class TaskError(ValueError):
    """A task that cannot be loaded; the message names what is missing and the remedy."""


@dataclass(frozen=True)
class Request:
    """What the user wants of a task; the arguments of :func:`slicegraph.tasks.load_task`."""

    task: str
    data: Path | None = None
    examples: int | None = None
    image_size: int | None = None
    words: tuple[str, ...] = ()

    def folder(self, what: str) -> Path:
        """The user's folder; raises an error that describes it if there is none."""
        if self.data is None:
            raise TaskError(
                f"task {self.task!r} has no data of its own; name {what} with --data and "
                f"--task {self.task}"
            )
        if not self.data.is_dir():
            missing = f"there is no {self.data}"
            problem = f"{self.data} is not a folder" if self.data.exists() else missing
            raise TaskError(f"{problem}; --data is {what}")
        return self.data


def in_parts(samples: Iterable[Sample], dtype: Any = np.uint8) -> Iterator[Sequences]:
    """Packs samples, some thousand at a time."""
    rows = iter(samples)
    while part := list(itertools.islice(rows, PART)):
        arrays = [np.asarray(one, dtype) for sequences, _ in part for one in sequences]
        yield join(arrays, [label for _, label in part])


def random_order(count: int) -> tuple[np.ndarray, dict[str, int]]:
    """The order in which to write samples, and the size of each split."""
    splits = random_split(count, FRACTIONS, SEED)
    order = np.concatenate([part[permutation(len(part), 1)] for part in splits.values()])
    return order, {name: len(part) for name, part in splits.items()}


def shuffled(rows: Sequence[Item]) -> tuple[list[Item], dict[str, int]]:
    """The samples in the order of `random_order`, and the size of each split."""
    order, splits = random_order(len(rows))
    return [rows[i] for i in order], splits


def with_valid(train: Sequence[Item], test: Sequence[Item]) -> tuple[list[Item], dict[str, int]]:
    """Shuffles train and takes a tenth of it for valid, where train and test are given."""
    order = permutation(len(train), SEED)
    valid = max(1, len(train) // 10)
    sizes = (len(train) - valid, valid, len(test))
    return [*(train[i] for i in order), *test], dict(zip(SPLIT_NAMES, sizes, strict=True))


def file_splits(paths: list[Path], counts: Iterable[int]) -> dict[str, int]:
    """The sizes of the splits, one file each; raises for a file without samples."""
    sizes = list(counts)
    if 0 in sizes:
        raise TaskError(f"{paths[sizes.index(0)]} has no samples, expected at least one")
    return dict(zip(SPLIT_NAMES, sizes, strict=True))


def missing_package(task: str, package: str, extra: str) -> TaskError:
    """The error of a package that is not installed."""
    return TaskError(f"task {task!r} needs {package}; pip install 'slicegraph[{extra}]'")


def paths_below(folder: Path, above: frozenset[str] = frozenset()) -> Iterator[Path]:
    """All files and folders in the order of their names, behind links too, without hidden ones."""
    above |= {os.path.realpath(folder)}
    for path in visible(folder):
        yield path
        if path.is_dir() and os.path.realpath(path) not in above:  # a link may lead back
            yield from paths_below(path, above)


def visible(folder: Path) -> list[Path]:
    """The files and folders in a folder by name, without hidden ones."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def find_file(folder: Path, name: str) -> Path:
    """The file or folder of this name in a folder or below it, the nearest one."""
    if (folder / name).exists():
        return folder / name
    found = [path for path in paths_below(folder) if path.name == name and path.exists()]
    if not found:
        raise TaskError(f"there is no {name} in {folder} or below it; see --data")
    return min(found, key=lambda path: len(path.parts))


def find_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """The first of these files in a folder or below it, and the others in the same folder."""
    first = find_file(folder, names[0])
    return [find_file(first.parent, name) for name in names]


def state_of(places: Iterable[Path]) -> str:
    """A hash of the names, sizes and times of files, and of all files below folders."""
    digest = hashlib.sha256()
    for place in map(Path.resolve, places):
        for path in paths_below(place) if place.is_dir() else [place]:
            if path.is_file():
                state = path.stat()
                digest.update(os.fsencode(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\0"))
    return digest.hexdigest()


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The number and the text of every line, without blank lines at the end."""
    blank: list[tuple[int, str]] = []
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for number, line in enumerate(file, 1):
            blank.append((number, line.rstrip("\r\n")))
            if line.strip(" \r\n"):
                yield from blank
                blank.clear()


def fields(path: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    """The number and the fields between tabs of every line."""
    for number, line in lines(path):
        parts = line.split("\t")
        if len(parts) != count:
            raise ValueError(
                f"{path} line {number}: {len(parts)} fields between tabs, expected {count}"
            )
        yield number, parts


def label(path: Path, number: int, text: str, classes: int) -> int:
    """The class in a line of a file."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value.is_integer() or not 0 <= value < classes:
        raise ValueError(
            f"{path} line {number}: {text!r} is not a label, expected 0 to {classes - 1}"
        )
    return int(value)
