"""The arrays of a folder of sequences, written a part at a time."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from slicegraph.data.sequences.sequences import Sequences

ARRAYS = {"elements": "elements.npy", "ptr": "ptr.npy", "labels": "labels.npy"}
"""The file of each array of `Sequences`."""


def write_arrays(folder: Path, parts: Iterable[Sequences]) -> tuple[int, int]:
    """Writes the parts one after another; returns how many sequences and labels there are.

    The elements go to a draft as they come, for what is before them in their file says how many
    there are.
    """
    draft = folder / "elements.draft"
    lengths, labels = [np.zeros(1, np.int64)], []
    dtype = np.dtype(np.uint8)
    try:
        with open(draft, "wb") as file:
            for part in parts:
                dtype = part.elements.dtype
                part.elements.tofile(file)
                lengths.append(part.lengths)
                labels.append(part.labels)
        ptr = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        _finish(draft, folder / ARRAYS["elements"], dtype, int(ptr[-1]))
    finally:
        draft.unlink(missing_ok=True)
    joined = np.concatenate(labels) if labels else np.zeros(0, np.uint8)
    np.save(folder / ARRAYS["ptr"], ptr, allow_pickle=False)
    np.save(folder / ARRAYS["labels"], joined, allow_pickle=False)
    return len(ptr) - 1, len(joined)


def _finish(draft: Path, path: Path, dtype: np.dtype, count: int) -> None:
    """The elements of the draft as an array file."""
    head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    with open(path, "wb") as file, open(draft, "rb") as elements:
        np.lib.format.write_array_header_1_0(file, head)
        shutil.copyfileobj(elements, file, 1 << 20)
