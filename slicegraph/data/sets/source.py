"""A data set by name, before it is prepared: its table, its splits, its task."""

import sys
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from slicegraph.data.preparation.prepare import prepare
from slicegraph.data.sets.splits import Splits
from slicegraph.data.sets.task import Task
from slicegraph.data.store.layout import META, REJECTED, VERSION, StoreError, read_meta, sha256_of
from slicegraph.data.store.molecule_store import MoleculeStore

STORE_FOLDER = f"slicegraph-v{VERSION}"
"""The folder of the prepared molecules, in the folder of the data set."""


class MissingDataSet(FileNotFoundError):
    """A data set that is not here: what is missing, where it is to be had, where to put it."""


class Summary(NamedTuple):
    """The task of a data set in a few words, and the name of its metric."""

    task: str
    metric: str


class Source(ABC):
    """Where the molecules of a data set come from.

    Attributes:
        name: as `load` takes it.
        folder: everything of this data set is in it.
        path: the table of molecules, once `fetch` has been called.
        smiles: its column of SMILES; None to guess it.
        labels: its columns of labels; None to guess them.
        unlabelled: whether molecules without any label are kept.
        size: how many molecules there are, if that is known.
        summary: its task in words.
        how: how to get it, in words.
    """

    name: str
    folder: Path
    path: Path
    smiles: str | None = None
    labels: tuple[str, ...] | None = None
    unlabelled: bool = False
    size: int | None = None
    summary: Summary
    how: str

    @property
    def store_folder(self) -> Path:
        """Where the prepared molecules are."""
        return self.folder / STORE_FOLDER

    def present(self) -> bool:
        """Whether nothing has to be fetched."""
        return self.path.is_file()

    def prepared(self) -> bool:
        """Whether the molecules were prepared."""
        return (self.store_folder / META).is_file()

    @abstractmethod
    def fetch(self) -> None:
        """Gets what is missing; a `MissingDataSet` says what, where it is, and where to put it."""

    @abstractmethod
    def splits(self, store: MoleculeStore) -> Splits:
        """The positions in the store of each part."""

    @abstractmethod
    def task(self, store: MoleculeStore) -> Task:
        """What is to be predicted."""

    def store(self, workers: int | None = None, progress: bool = True) -> MoleculeStore:
        """The molecules; fetched and prepared when they are asked for the first time."""
        if self.prepared():
            self._check_source()
        else:
            self.fetch()
            if progress:
                place = f"preparing the molecules in {self.store_folder}, once"
                print(f"{self.name}: {place}", file=sys.stderr)
            self.prepare(workers, progress)
        return MoleculeStore(self.store_folder)

    def prepare(self, workers: int | None, progress: bool) -> None:
        """Writes the store from the table."""
        prepare(
            self.path,
            self.store_folder,
            smiles=self.smiles,
            labels=self.labels,
            unlabelled=self.unlabelled,
            workers=workers,
            progress=progress,
        )

    def _check_source(self) -> None:
        if self.path.is_file():
            made_from = read_meta(self.store_folder)["source"].get("sha256")
            if made_from != sha256_of(self.path):
                raise StoreError(
                    self.store_folder,
                    f"was prepared from another {self.path.name} than the one in "
                    f"{self.path.parent}; delete the folder to prepare it anew",
                )


def positions_of_rows(store: MoleculeStore, name: str, rows: Splits) -> Splits:
    """The rows of a table in each split as positions in the store that was prepared from it.

    A row that was rejected has no position: it is left out, with a warning that counts them.
    """
    total, rows_here = len(store) + store.meta["rejected"], store.rows
    positions = {}
    for split, wanted in rows.items():
        outside = wanted[(wanted < 0) | (wanted >= total)]
        if len(outside):
            raise ValueError(
                f"{name}: split {split!r} has row {outside[0]} and the table {total} rows; "
                "the splits are of another release"
            )
        here = np.isin(wanted, rows_here)
        positions[split] = np.searchsorted(rows_here, wanted[here])
        if not here.all():
            warnings.warn(
                f"{name}: {(~here).sum()} of {len(wanted)} molecules of split {split!r} were "
                f"rejected, see {store.folder / REJECTED}",
                stacklevel=2,
            )
    return positions
