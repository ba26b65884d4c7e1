"""CIFAR-10 and CIFAR-100, from their binary files or from those for Python."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.data.sequences.cifar_pickles import PIXELS, read_batch, read_dict
from slicegraph.data.sequences.contents import TaskError
from slicegraph.data.sequences.user_files import find_file

Row = tuple[np.ndarray, int]
_TEN = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))


@dataclass(frozen=True)
class Cifar:
    """CIFAR-10 or CIFAR-100: rows of 3,072 pixels, colour by colour, and the label of each."""

    name: str
    class_names: Sequence[str]
    train: list[Row]
    test: list[Row]


def read_cifar(folder: Path) -> Cifar | None:
    """What there is of CIFAR in a folder, or in a subfolder of the name that CIFAR comes with."""
    found = list(_found(folder))
    if len({form.name for _, form in found}) > 1:
        places = " and ".join(place.name for place, _ in found)
        raise TaskError(f"{folder} has {places}; name one of them with --data")
    if not found:
        return None
    place, form = found[0]
    names = form.class_names(place)
    train = [row for name in form.train for row in _rows(form, find_file(place, name), len(names))]
    test = _rows(form, find_file(place, form.test), len(names))
    return Cifar(form.name, names, train, test)


def _binary(path: Path, labels: int) -> tuple[list[int], np.ndarray]:
    """Rows of one or two labels, of which the last is the finest, and of pixels."""
    content, width = np.fromfile(path, np.uint8), labels + PIXELS
    if not len(content) or len(content) % width:
        raise TaskError(f"{path} has {len(content)} bytes, expected {width} for each image")
    rows = content.reshape(-1, width)
    return rows[:, labels - 1].tolist(), rows[:, labels:]


def _ten(folder: Path) -> Sequence[str]:
    return _TEN


def _hundred(folder: Path, name: str, read: Callable[[Path], Any]) -> Sequence[str]:
    """The names of CIFAR-100's classes; numbers if the file of this name is missing."""
    path = folder / name
    if not path.is_file():
        return [str(number) for number in range(100)]
    found = read(path)
    if not isinstance(found, list) or len(found) != 100 or {*map(type, found)} != {bytes}:
        raise TaskError(f"{path} does not have the names of 100 classes")
    return [one.decode(errors="replace") for one in found]


@dataclass(frozen=True)
class _Form:
    """A form in which CIFAR comes: its files, and how labels, pixels and names are read."""

    name: str
    train: tuple[str, ...]
    test: str
    read: Callable[[Path], tuple[list[int], np.ndarray]]
    class_names: Callable[[Path], Sequence[str]]


_FORMS = {
    "cifar-10-batches-bin": _Form(
        "CIFAR-10",
        tuple(f"{name}.bin" for name in _BATCHES),
        "test_batch.bin",
        partial(_binary, labels=1),
        _ten,
    ),
    "cifar-10-batches-py": _Form(
        "CIFAR-10", _BATCHES, "test_batch", partial(read_batch, labels="labels"), _ten
    ),
    "cifar-100-binary": _Form(
        "CIFAR-100",
        ("train.bin",),
        "test.bin",
        partial(_binary, labels=2),
        partial(_hundred, name="fine_label_names.txt", read=lambda path: path.read_bytes().split()),
    ),
    "cifar-100-python": _Form(
        "CIFAR-100",
        ("train",),
        "test",
        partial(read_batch, labels="fine_labels"),
        partial(_hundred, name="meta", read=lambda path: read_dict(path).get(b"fine_label_names")),
    ),
}


def _found(folder: Path) -> Iterator[tuple[Path, _Form]]:
    for name, form in _FORMS.items():
        if folder.name == name or (folder / form.train[0]).is_file():
            yield folder, form
        elif (folder / name).is_dir():
            yield folder / name, form


def _rows(form: _Form, path: Path, classes: int) -> list[Row]:
    labels, pixels = form.read(path)
    wrong = [label for label in labels if not 0 <= label < classes]
    if wrong:
        raise TaskError(f"{path} has the label {wrong[0]}, expected 0 to {classes - 1}")
    return list(zip(pixels, labels, strict=True))
