"""CIFAR's files for Python, which are pickles, and nothing but data from them.

A pickle may name any function, to be called when it is read. Here it may name those that make
arrays of NumPy, and not even these are called: what the file says of an array is kept, checked, and
its bytes are read.
"""

import pickle
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from slicegraph.data.sequences.contents import TaskError
from slicegraph.torch_damage import DAMAGE

PIXELS = 3 * 32 * 32
"""How many a row has: red ones, green ones, blue ones."""
_ALLOWED = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *(("numpy", "ndarray"), ("numpy", "dtype")),
}


def read_batch(path: Path, labels: str) -> tuple[list[int], np.ndarray]:
    """The labels of this name, and the pixels.

    Shapes:
        - pixels: ``[n, 3072]``, uint8.
    """
    found = read_dict(path)
    pixels = _pixels(found.get(b"data"))
    numbers: Any = found.get(labels.encode())
    if pixels is None:
        raise TaskError(f"{path} has no data of bytes [n, {PIXELS}]")
    whole = isinstance(numbers, list) and all(type(number) is int for number in numbers)
    if not whole or len(numbers) != len(pixels):
        raise TaskError(f"{path} has no {labels} for each of {len(pixels)} images")
    return numbers, pixels


def read_dict(path: Path) -> dict[Any, Any]:
    """What a file has, by names that are bytes; an array is a stand-in for it."""
    try:
        with open(path, "rb") as file:
            found = _Unpickler(file).load()
    except TaskError:
        raise
    except DAMAGE as error:
        raise TaskError(f"{path} is damaged, or no file of CIFAR: {error}") from error
    if not isinstance(found, dict):
        raise TaskError(f"{path} has a {type(found).__name__}, expected a dict")
    return found


class _Part:
    """Stands for an array, or for the type of its numbers: keeps what a pickle says of it."""

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Reads numbers, texts, lists and arrays; a file that names anything else is refused."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, encoding="bytes")
        self._path = file.name

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise TaskError(
                f"{self._path} is not read: it has {module}.{name} in it, which may run "
                "code; only arrays of numbers are read. CIFAR's binary version has no pickles"
            )
        return _Part


def _pixels(part: Any) -> np.ndarray | None:
    """The state of an array is version, shape, type, whether columns come first, and bytes."""
    match part:
        case _Part(
            state=(_, (int(count), int(width)), _Part(args=(b"u1" | "u1", *_)), turned, bytes(raw))
        ) if width == PIXELS and len(raw) == count * width > 0:
            pixels = np.frombuffer(raw, np.uint8)
            return pixels.reshape((count, width), order="F" if turned else "C")
    return None
