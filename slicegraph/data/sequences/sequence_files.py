"""The arrays of a folder of sequences, written a part at a time."""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from slicegraph.data.sequences.sequences import Sequences

ARRAYS = {"elements": "elements.npy", "ptr": "ptr.npy", "labels": "labels.npy"}
"""The file of each array of `Sequences`."""
_DTYPE = np.dtype(np.uint8)


def write_arrays(folder: Path, parts: Iterable[Sequences]) -> tuple[int, int]:
    """Writes the parts one after another; returns how many sequences and labels there are."""
    lengths, labels = [np.zeros(1, np.int64)], []
    dtype, count = _DTYPE, 0
    with open(folder / ARRAYS["elements"], "wb") as file:
        start = _write_head(file, dtype, 0)
        for part in parts:
            dtype, count = part.elements.dtype, count + len(part.elements)
            part.elements.tofile(file)
            lengths.append(part.lengths)
            labels.append(part.labels)
        file.seek(0)
        if _write_head(file, dtype, count) != start:
            raise RuntimeError(f"write_arrays: numpy {np.__version__} has heads of several sizes")
    joined = np.concatenate(labels) if labels else np.zeros(0, _DTYPE)
    ptr = np.cumsum(np.concatenate(lengths), dtype=np.int64)
    np.save(folder / ARRAYS["ptr"], ptr, allow_pickle=False)
    np.save(folder / ARRAYS["labels"], joined, allow_pickle=False)
    return len(ptr) - 1, len(joined)


def _write_head(file: BinaryIO, dtype: np.dtype, count: int) -> int:
    """What stands before the elements, which numpy makes large enough for any count; where it ends.

    It is written twice, as the count is known only once all elements are there.
    """
    head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, head)
    return file.tell()
