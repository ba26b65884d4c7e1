"""Sequences and images: what every task is read with, packed arrays, a folder of them, and batches.

A store is a folder with memory-mapped arrays and a `meta.json`, without pickles. It is written with
the file functions of the molecule store, but has a format of its own: three arrays whose types the
task chooses, and the splits and classes in `meta.json`.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from slicegraph.data.splits import SPLIT_NAMES, Task, permutation, random_split
from slicegraph.data.store import META, StoreError
from slicegraph.files import sha256_of, write_atomically

FORMAT, VERSION = "slicegraph-sequences", 1
ARRAYS = ("elements.npy", "ptr.npy", "labels.npy")  # the files of the arrays of `Sequences`
Indices = Sequence[int] | np.ndarray


@dataclass(frozen=True)
class Sequences:
    """Sequences of different lengths in one array, with labels.

    Sequence ``i`` is ``elements[ptr[i] : ptr[i + 1]]``. A sample, which has a label, is one
    sequence, or a pair of them (two towers), as in retrieval.
    """

    elements: np.ndarray
    ptr: np.ndarray
    labels: np.ndarray
    towers: int = 1

    @property
    def lengths(self) -> np.ndarray:
        """The length of every sequence."""
        return np.diff(self.ptr)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.elements[a:b] for a, b in zip(self.ptr[:-1], self.ptr[1:], strict=True))

    def rows(self, samples: Indices) -> np.ndarray:
        """``[n, towers]``: the indices of the sequences of these samples."""
        return np.asarray(samples, np.int64)[:, None] * self.towers + np.arange(self.towers)

    def sizes(self, samples: Indices, max_length: int | None = None) -> np.ndarray:
        """The number of elements of each sample, cut as `pad` cuts them; of a pair, the sum."""
        lengths = self.lengths[self.rows(samples)]
        return (lengths if max_length is None else np.minimum(lengths, max_length)).sum(1)

    def cut_note(self, samples: Indices, max_length: int | None) -> str:
        """Describes how many sequences of these samples `pad` cuts; empty if there are none."""
        lengths = self.lengths[self.rows(samples).ravel()]
        longer = 0 if max_length is None else int((lengths > max_length).sum())
        if not longer:
            return ""
        return (
            f"{longer:,} of {len(lengths):,} sequences, the longest of {lengths.max():,}, are "
            f"longer than max_length = {max_length} and are cut after it"
        )


def join(sequences: Sequence[np.ndarray], labels: Indices) -> Sequences:
    """Packs arrays of any lengths into one."""
    ptr = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
    return Sequences(np.concatenate(sequences), ptr, np.asarray(labels, np.int64))


class PaddedBatch(NamedTuple):
    """``x`` ``[B, N]`` (pairs ``[B, 2, N]``), ``mask`` true at real elements, ``y`` ``[B]``."""

    x: np.ndarray
    mask: np.ndarray
    y: np.ndarray


def pad(sequences: Sequences, samples: Indices, max_length: int | None = None) -> PaddedBatch:
    """Stacks samples, with zeros after the end of each; longer sequences are cut.

    Example:
        >>> sequences = Sequences(np.array([5, 6, 7]), np.array([0, 2, 3]), np.array([1, 0]))
        >>> pad(sequences, [1, 0]).x
        array([[7, 0],
               [5, 6]])
    """
    rows = sequences.rows(samples)
    rows = rows[:, 0] if sequences.towers == 1 else rows
    starts = sequences.ptr[rows]
    lengths = sequences.ptr[rows + 1] - starts
    if max_length is not None:
        lengths = np.minimum(lengths, max_length)
    steps = np.arange(lengths.max(initial=0))
    mask = steps < lengths[..., None]
    x = np.zeros((*mask.shape, *sequences.elements.shape[1:]), sequences.elements.dtype)
    x[mask] = sequences.elements[(starts[..., None] + steps)[mask]]
    return PaddedBatch(x, mask, np.asarray(sequences.labels[np.asarray(samples, np.int64)]))


def write_sequences(
    folder: str | Path,
    sequences: Sequences | Iterable[Sequences],
    splits: dict[str, int],
    class_names: Sequence[str],
    *,
    vocabulary: int | None = 256,
    towers: int = 1,
    source: dict[str, Any] | None = None,
    shape: Sequence[int] | None = None,
    words: Sequence[str] = (),
) -> "SequenceStore":
    """Writes a store, `meta.json` last: a folder that has it is complete.

    The samples are in the order of the splits, whose sizes are read after the last part; of an
    iterable of parts one is in memory at a time. Elements are in ``0..vocabulary - 1``, or
    floating-point numbers if that is None; ``words`` is their meaning, if they are words. A sample
    has ``towers`` sequences. ``shape`` is channels, height and width of images, whose pixels are
    the elements, and ``source`` the origin of the samples, such as a generator's settings.
    """
    folder = Path(folder)
    if (folder / META).exists():
        raise StoreError(folder, "is written already; remove it, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    parts = [sequences] if isinstance(sequences, Sequences) else sequences
    paths = [folder / name for name in ARRAYS]
    count, num_samples = _write_arrays(paths, parts)
    if sum(splits.values()) != num_samples or count != num_samples * towers:
        raise ValueError(
            f"write_sequences: {count} sequences and {num_samples} labels for the splits "
            f"{splits} of {towers} sequences a sample"
        )
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "splits": splits,
        "class_names": list(class_names),
        "vocabulary": vocabulary,
        "towers": towers,
        "shape": None if shape is None else list(shape),
        "source": source or {},
        "words": list(words),
        "files": {p.name: {"sha256": sha256_of(p), "bytes": p.stat().st_size} for p in paths},
    }
    write_atomically(folder / META, [json.dumps(meta, indent=1).encode()])
    return SequenceStore(folder, verify=False)


def _write_arrays(paths: list[Path], parts: Iterable[Sequences]) -> tuple[int, int]:
    """Writes the parts one after another; returns the number of sequences and of labels."""
    lengths, labels = [np.zeros(1, np.int64)], [np.zeros(0, np.uint8)]
    dtype, count = np.dtype(np.uint8), 0
    with open(paths[0], "wb") as file:

        def write_header() -> int:
            """NumPy pads the header for any count, so it can be written again at the end."""
            descr = np.lib.format.dtype_to_descr(dtype)
            header = {"descr": descr, "fortran_order": False, "shape": (count,)}
            np.lib.format.write_array_header_1_0(file, header)
            return file.tell()

        start = write_header()
        for part in parts:
            dtype, count = part.elements.dtype, count + len(part.elements)
            part.elements.tofile(file)
            lengths.append(part.lengths)
            labels.append(part.labels)
        file.seek(0)
        if write_header() != start:
            raise RuntimeError(f"write_sequences: numpy {np.__version__} has headers of many sizes")
    ptr, all_labels = np.cumsum(np.concatenate(lengths)), np.concatenate(labels)
    np.save(paths[1], ptr, allow_pickle=False)
    np.save(paths[2], all_labels, allow_pickle=False)
    return len(ptr) - 1, len(all_labels)


class SequenceStore:
    """The sequences of a folder, compared with its checksums unless ``verify`` is false.

    Example:
        >>> sequences = generate_listops(10, min_length=2, max_length=50)
        >>> splits, digits = {"train": 8, "test": 2}, "0123456789"
        >>> store = write_sequences("listops", sequences, splits, digits, vocabulary=16)
        >>> store.batch(store.splits["test"]).x.shape[0]
        2
    """

    def __init__(self, folder: str | Path, verify: bool = True) -> None:
        self.folder = folder = Path(folder)
        try:
            self.meta = meta = json.loads((folder / META).read_bytes())
        except FileNotFoundError:
            raise StoreError(folder, f"has no {META}, so it was not written to the end") from None
        except ValueError as error:
            raise StoreError(folder, f"{META} is not JSON ({error}); write it again") from None
        found = (meta.get("format"), meta.get("version")) if isinstance(meta, dict) else None
        if found != (FORMAT, VERSION) or set(meta.get("files", ())) != set(ARRAYS):
            raise StoreError(folder, f"is {found}, expected {(FORMAT, VERSION)} with its files")
        for name, expected in meta["files"].items() if verify else ():
            if not (folder / name).is_file() or sha256_of(folder / name) != expected["sha256"]:
                raise StoreError(folder, f"{name} is damaged or missing; write it again")
        self.towers: int = meta["towers"]
        load = partial(np.load, mmap_mode="r", allow_pickle=False)
        elements, ptr, labels = (load(folder / name) for name in ARRAYS)
        self.sequences = Sequences(elements, ptr, labels, self.towers)
        self.vocabulary: int | None = meta["vocabulary"]
        shape = meta.get("shape")
        self.shape: tuple[int, ...] | None = None if shape is None else tuple(shape)
        self.words: tuple[str, ...] = tuple(meta.get("words", ()))
        ends = np.cumsum([0, *meta["splits"].values()])
        ranges = map(np.arange, ends[:-1], ends[1:])
        self.splits: dict[str, np.ndarray] = dict(zip(meta["splits"], ranges, strict=True))

    def __len__(self) -> int:
        return len(self.sequences.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray | list[np.ndarray], int]:
        """The elements of a sample (for a pair, a list of two) and its label."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"SequenceStore: sample {index} of {len(self)}")
        packed = self.sequences
        (rows,) = packed.rows([index % len(self)])
        found = [packed.elements[packed.ptr[i] : packed.ptr[i + 1]] for i in rows]
        return found[0] if self.towers == 1 else found, int(packed.labels[index])

    def __reduce__(self) -> tuple[type, tuple[Path, bool]]:
        return type(self), (self.folder, False)

    @property
    def lengths(self) -> np.ndarray:
        """The length of every sample; of a pair, the sum."""
        return self.sequences.sizes(np.arange(len(self)))

    def batch(self, samples: Indices, max_length: int | None = None) -> PaddedBatch:
        """Padded arrays of these samples, cut after ``max_length`` elements."""
        return pad(self.sequences, samples, max_length)

    def examples(self, samples: Indices, max_length: int | None = None) -> "ExampleBatch":
        """The tensors of these samples that a model takes, cut after ``max_length`` elements."""
        index = np.asarray(samples, np.int64)
        x, mask, labels = self.batch(index, max_length)
        y, at = torch.from_numpy(labels.astype(np.float32))[:, None], torch.from_numpy(index)
        if self.shape is not None:
            pixels = torch.from_numpy(x.astype(np.float32)) / 255
            return ExampleBatch(pixels.unflatten(1, self.shape), None, y, at)
        numbers = x.astype(np.float32)[..., None] if self.vocabulary is None else x.astype(np.int64)
        return ExampleBatch(torch.from_numpy(numbers), torch.from_numpy(mask), y, at)


@dataclass(frozen=True)
class ExampleBatch:
    """A batch of sequences or images."""

    x: Tensor  # tokens [B, N] (pairs [B, 2, N]), numbers [B, N, 1], or images [B, C, H, W] in 0..1
    mask: Tensor | None  # true at the real elements; None for images
    y: Tensor  # [B, 1]: the classes
    index: Tensor  # [B]: the positions of the samples in the store

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of a model: ``x``, and ``mask`` if there is one."""
        return (self.x,) if self.mask is None else (self.x, self.mask)

    @property
    def num_graphs(self) -> int:
        """The number of samples, by the name that batches of molecules have for it."""
        return len(self.index)

    @property
    def sizes(self) -> Tensor:
        """``[B]``: the number of elements of each sample."""
        if self.mask is None:
            return torch.full_like(self.index, self.x[0].numel())
        return self.mask.flatten(1).sum(1)

    def to(self, *args: Any, **kwargs: Any) -> "ExampleBatch":
        """Moves all tensors, as :meth:`torch.Tensor.to`."""
        return self._map(lambda tensor: tensor.to(*args, **kwargs))

    def pin_memory(self) -> "ExampleBatch":
        """Copies all tensors to page-locked memory."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "ExampleBatch":
        tensors = {name: one for name, one in vars(self).items() if one is not None}
        return replace(self, **{name: change(one) for name, one in tensors.items()})


class SequenceSet:
    """A task that is ready to use: sequences or images with a class each, splits and a metric.

    ``noun`` names the samples, in the plural.
    """

    columns = ("index", "length")  # that describe a sample in a table of predictions

    def __init__(self, name: str, store: SequenceStore, noun: str = "sequences") -> None:
        self.name, self.store, self.noun = name, store, noun
        self.source: dict[str, Any] = store.meta["source"]
        self.class_names: tuple[str, ...] = tuple(store.meta["class_names"])
        self.task = Task("multiclass", ("class",), "acc", num_classes=len(self.class_names))
        self.evaluator = self.task.evaluator()
        self.splits, self.words = store.splits, store.words

    def labels(self, positions: np.ndarray) -> np.ndarray:
        """The classes of these samples, ``[n, 1]``."""
        return np.asarray(self.store.sequences.labels[positions], np.float32)[:, None]

    def batch(self, positions: Indices, max_length: int | None = None) -> ExampleBatch:
        """The samples at these positions, as tensors that a model takes."""
        return self.store.examples(positions, max_length)

    def arrays(self, split: str, max_length: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """All images ``[n, C, H, W]`` (or padded sequences ``[n, N]``) of a split, and labels."""
        x, _, y = self.store.batch(self.splits[split], max_length)
        return x if self.store.shape is None else x.reshape(-1, *self.store.shape), y

    def rows(self, positions: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """The values of `columns` of each sample."""
        return zip(positions.tolist(), self.store.lengths[positions].tolist(), strict=True)


# What every task is read with: the request, the samples, the splits, the files of the user.

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
    """The options of a task; the arguments of :func:`slicegraph.tasks.load_task`."""

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
