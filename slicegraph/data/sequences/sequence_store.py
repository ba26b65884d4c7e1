"""Sequences in a folder: memory-mapped arrays and a `meta.json`, and no pickle."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.data.sequences.sequence_files import ARRAYS, write_arrays
from slicegraph.data.sequences.sequences import PaddedBatch, Sequences, cut_note, pad
from slicegraph.data.store.atomic_file import write_atomically
from slicegraph.data.store.layout import META, StoreError, sha256_of

FORMAT, VERSION = "slicegraph-sequences", 1


def write_sequences(
    folder: str | Path,
    sequences: Sequences | Iterable[Sequences],
    splits: dict[str, int],
    class_names: Sequence[str],
    vocabulary: int | None,
    towers: int = 1,
    source: dict[str, Any] | None = None,
    shape: Sequence[int] | None = None,
    words: Sequence[str] = (),
) -> "SequenceStore":
    """Writes sequences once, `meta.json` last: a folder that has it is complete.

    Args:
        folder: the folder to write to; created if it does not exist.
        sequences: the samples, those of the first split first; in parts, of which only one is in
            memory at a time, or all of them.
        splits: how many samples each split has.
        class_names: what the labels 0, 1, ... mean.
        vocabulary: elements are in ``0..vocabulary - 1``; none if they are floating-point numbers.
        towers: 2 if a sample is a pair of sequences.
        source: where the samples are from, such as a generator's settings.
        shape: channels, height and width, if the elements of a sample are the pixels of an image.
        words: what the elements mean, if they are words.
    """
    folder = Path(folder)
    if (folder / META).exists():
        raise StoreError(folder, "is written already; remove it, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    parts = [sequences] if isinstance(sequences, Sequences) else sequences
    count, num_samples = write_arrays(folder, parts)
    if sum(splits.values()) != num_samples or count != num_samples * towers:
        raise ValueError(
            f"write_sequences: {count} sequences and {num_samples} labels for the splits "
            f"{splits} of {towers} sequences a sample"
        )
    paths = [folder / name for name in ARRAYS.values()]
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


class SequenceStore:
    """The sequences of a folder that :func:`write_sequences` wrote.

    Args:
        folder: the folder.
        verify: whether to compare the files with the checksums of `meta.json`.

    Example:
        >>> sequences = generate_listops(10, min_length=2, max_length=50)
        >>> store = write_sequences("listops", sequences, {"train": 8, "test": 2}, range(10), 16)
        >>> store.batch(store.splits["test"]).x.shape[0]
        2
    """

    def __init__(self, folder: str | Path, verify: bool = True) -> None:
        self.folder = Path(folder)
        self.meta = _read_meta(self.folder)
        if verify:
            self._verify()
        arrays = {part: self._map(name) for part, name in ARRAYS.items()}
        self.sequences = Sequences(**arrays)

    def __len__(self) -> int:
        return len(self.sequences.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray | list[np.ndarray], int]:
        """The elements of a sample (for a pair, both of them) and its label."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"SequenceStore: sample {index} of {len(self)}")
        first = index % len(self) * self.towers
        ptr, elements = self.sequences.ptr, self.sequences.elements
        found = [elements[ptr[i] : ptr[i + 1]] for i in range(first, first + self.towers)]
        return found[0] if self.towers == 1 else found, int(self.sequences.labels[index])

    def batch(
        self, indices: Sequence[int] | np.ndarray, max_length: int | None = None
    ) -> PaddedBatch:
        """The samples with these numbers, padded, and cut after ``max_length`` elements."""
        return pad(self.sequences, indices, self.towers, max_length)

    def cut_note(self, indices: Sequence[int] | np.ndarray, max_length: int | None) -> str:
        """How many sequences of these samples are longer than that, in words; nothing if none."""
        return cut_note(self._each_length(indices).ravel(), max_length)

    def lengths_read(
        self, indices: Sequence[int] | np.ndarray, max_length: int | None
    ) -> np.ndarray:
        """The lengths of these samples, cut as `batch` cuts them; of a pair, of both together."""
        lengths = self._each_length(indices)
        return (lengths if max_length is None else np.minimum(lengths, max_length)).sum(1)

    @property
    def towers(self) -> int:
        return self.meta["towers"]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Channels, height and width, if the samples are images."""
        shape = self.meta.get("shape")
        return None if shape is None else tuple(shape)

    @property
    def lengths(self) -> np.ndarray:
        """The length of every sample; of a pair, of both together."""
        return (
            self.sequences.ptr[self.towers :: self.towers]
            - self.sequences.ptr[: -self.towers : self.towers]
        )

    @property
    def splits(self) -> dict[str, np.ndarray]:
        """The numbers of the samples of each split."""
        ends = np.cumsum([0, *self.meta["splits"].values()])
        ranges = map(np.arange, ends[:-1], ends[1:])
        return dict(zip(self.meta["splits"], ranges, strict=True))

    def __reduce__(self) -> tuple[type, tuple[Path, bool]]:
        return type(self), (self.folder, False)

    def _each_length(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """``[n, towers]``"""
        return self.sequences.lengths.reshape(-1, self.towers)[np.asarray(indices, np.int64)]

    def _map(self, name: str) -> np.ndarray:
        return np.load(self.folder / name, mmap_mode="r", allow_pickle=False)

    def _verify(self) -> None:
        for name, expected in self.meta["files"].items():
            path = self.folder / name
            if not path.is_file() or sha256_of(path) != expected["sha256"]:
                raise StoreError(self.folder, f"{name} is damaged or missing; write it again")


def _read_meta(folder: Path) -> dict[str, Any]:
    try:
        meta = json.loads((folder / META).read_bytes())
    except FileNotFoundError:
        raise StoreError(folder, f"has no {META}, so it was not written to the end") from None
    except ValueError as error:
        raise StoreError(folder, f"{META} is not JSON ({error}); write it again") from None
    found = (meta.get("format"), meta.get("version")) if isinstance(meta, dict) else None
    if found != (FORMAT, VERSION) or set(meta.get("files", ())) != set(ARRAYS.values()):
        raise StoreError(folder, f"is {found}, expected {(FORMAT, VERSION)} with its files")
    return meta
