"""From the parts of a store to its files, one part in memory at a time."""

import csv
import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.data.store.atomic_file import sync, sync_folder, write_atomically
from slicegraph.data.store.layout import FORMAT, META, REJECTED, VERSION, meta_bytes
from slicegraph.data.store.part import DIGESTS, StorePart, Vocabularies

_PTR = "_ptr.npy"
_AT_ONCE = 1 << 20  # digests that are sorted in memory


class HashedFile:
    """A file that is written from beginning to end, and its checksum."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb")  # noqa: SIM115
        self._digest = hashlib.sha256()
        self._bytes = 0

    def write(self, content: bytes | memoryview) -> None:
        self._file.write(content)
        self._digest.update(content)
        self._bytes += memoryview(content).nbytes

    def close(self) -> dict[str, Any]:
        """Brings it to the disk; its entry in `meta.json`."""
        with self._file:
            sync(self._file)
        return {"sha256": self._digest.hexdigest(), "bytes": self._bytes}


class NpyFile(HashedFile):
    """An array of known length, written a piece at a time; pointers are made of sizes."""

    def __init__(self, path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        super().__init__(path)
        header = io.BytesIO()
        description = np.lib.format.dtype_to_descr(dtype)
        np.lib.format.write_array_header_1_0(
            header, {"descr": description, "fortran_order": False, "shape": shape}
        )
        self.write(header.getvalue())

    def append(self, array: np.ndarray) -> None:
        self.write(array.tobytes())


class PointerFile(NpyFile):
    """Where each of `length` things begins, and where the last ends, from their sizes."""

    def __init__(self, path: Path, dtype: np.dtype, length: int) -> None:
        super().__init__(path, dtype, (length + 1,))
        self._end = np.zeros(1, dtype)
        self.write(self._end.tobytes())

    def append(self, array: np.ndarray) -> None:
        ends = self._end + array.cumsum(dtype=self._end.dtype)
        super().append(ends)
        self._end = ends[-1:] if len(ends) else self._end


class RejectedFile(HashedFile):
    """The table of the rows that are not in the store."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.append([("row", "text", "reason")])

    def append(self, rows: Iterable[tuple[Any, ...]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self.write(text.getvalue().encode())


def write_store(
    folder: Path,
    scratch: Path,
    parts: Iterable[StorePart],
    lengths: dict[str, int],
    vocabularies: Vocabularies,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Writes the files of a store, `meta.json` last; returns what is in it.

    Args:
        folder: the folder of the store.
        scratch: a folder beside its files, for files that are not finished.
        parts: all parts, in order.
        lengths: how long the arrays of all parts are together.
        vocabularies: of the parts.
        facts: what else `meta.json` says.
    """
    types = vocabularies.types()
    files = {name: _new_file(scratch / name, types[name], lengths[name]) for name in types}
    rejected, digests = RejectedFile(scratch / REJECTED), HashedFile(scratch / DIGESTS)
    rejections = 0
    for part in parts:
        for name, file in files.items():
            file.append(part.arrays[name])
        rejected.append(part.rejections)
        rejections += len(part.rejections)
        digests.write(part.arrays[DIGESTS].tobytes())
    digests.close()
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "molecules": lengths["rows.npy"],
        "atoms": lengths["atoms.npy"],
        "bonds": lengths["bonds.npy"],
        "rejected": rejections,
        "duplicates": count_duplicates(scratch / DIGESTS),
        "atom_vocabulary": vocabularies.atoms,
        "bond_vocabulary": vocabularies.bonds,
        **facts,
        "files": {name: file.close() for name, file in {**files, REJECTED: rejected}.items()},
    }
    for name in meta["files"]:
        (scratch / name).replace(folder / name)
    sync_folder(folder)
    write_atomically(scratch / META, [meta_bytes(meta)])
    (scratch / META).replace(folder / META)
    sync_folder(folder)
    return meta


def count_duplicates(path: Path, at_once: int = _AT_ONCE) -> int:
    """How many of the 8-byte digests in a file stand in it before, in bounded memory."""
    count = path.stat().st_size // 8
    if count == 0:
        return 0
    digests = np.memmap(path, "<u8", "r")
    groups = -(-count // at_once)
    return sum(_duplicates_in(digests, group, groups, at_once) for group in range(groups))


def _duplicates_in(digests: np.ndarray, group: int, groups: int, at_once: int) -> int:
    blocks = (digests[start : start + at_once] for start in range(0, len(digests), at_once))
    found = np.concatenate([block[block % np.uint64(groups) == group] for block in blocks])
    return len(found) - len(np.unique(found))


def _new_file(path: Path, kind: tuple[np.dtype, tuple[int, ...]], length: int) -> NpyFile:
    dtype, trailing = kind
    if path.name.endswith(_PTR):
        return PointerFile(path, dtype, length)
    return NpyFile(path, dtype, (length, *trailing))
