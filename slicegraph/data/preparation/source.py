"""What a store is prepared from: a file of one's own, or that of a data set known by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slicegraph.data.store.layout import sha256_of
from slicegraph.data.table.table_source import SUFFIXES, open_table


class PrepareSource:
    """A table and its identity: the file's name, SHA-256 and size."""

    def __init__(
        self,
        path: Path,
        smiles: str | None,
        labels: Sequence[str] | None,
        unlabelled: bool,
    ) -> None:
        self.name = path.name
        self._path = path
        self._stamp = self._stat()
        self._guessed = smiles is None, labels is None
        self.table = open_table(path, smiles, labels)
        self.unlabelled = unlabelled
        self.identity = {"name": path.name, "sha256": sha256_of(path), "bytes": self._stamp[0]}

    def settings(self) -> dict[str, Any]:
        """The columns, and which rows are kept."""
        return {
            "smiles": self.table.smiles,
            "labels": list(self.table.labels),
            "unlabelled": self.unlabelled,
        }

    def describe(self) -> str:
        """The columns in words, and whether they are guessed."""
        if self.table.smiles is None:
            return f"{self.name}: SMILES and names, no labels"
        how = [" (guessed)" if guessed else "" for guessed in self._guessed]
        labels = ", ".join(map(repr, self.table.labels)) or "none"
        return f"{self.name}: SMILES {self.table.smiles!r}{how[0]}, labels {labels}{how[1]}"

    def check_unchanged(self) -> None:
        """A `ValueError` if the file has been written to since it was opened."""
        if self._stat() != self._stamp:
            raise ValueError(f"{self.name!r} changed while it was read; restart it (--restart)")

    def _stat(self) -> tuple[int, int]:
        stat = self._path.stat()
        return stat.st_size, stat.st_mtime_ns


def find_source(
    source: str | Path,
    root: str | Path,
    smiles: str | None,
    labels: Sequence[str] | None,
    unlabelled: bool,
) -> PrepareSource:
    """The file, or that of the data set of this name; columns that are given come first."""
    path = Path(source)
    if path.is_file():
        return PrepareSource(path, smiles, labels, unlabelled)
    if path.is_dir():
        raise ValueError(f"{str(source)!r} is a folder, expected a file ({', '.join(SUFFIXES)})")
    if path.parent != Path() or path.suffix.lower() in (*SUFFIXES, ".gz"):
        raise ValueError(f"there is no file {str(source)!r}")
    known = _data_set(str(source), root)
    return PrepareSource(
        Path(known.path),
        smiles or known.smiles,
        known.labels if labels is None else labels,
        unlabelled or known.unlabelled,
    )


def _data_set(name: str, root: str | Path) -> Any:
    try:
        from slicegraph.data.sets.datasets import source_of
    except ImportError:
        raise ValueError(f"{name!r} is no file, and no data set that is known here") from None
    return source_of(name, root)
