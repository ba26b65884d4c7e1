"""A user's own table as a data set: `csv:PATH`, split at random or by scaffold."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slicegraph.data.sets.source import MissingDataSet, Source
from slicegraph.data.sets.splits import Splits, random_split, scaffold_groups, split_groups
from slicegraph.data.sets.task import Task, task_of_labels
from slicegraph.data.store.atomic_file import write_atomically
from slicegraph.data.store.layout import sha256_of
from slicegraph.data.store.molecule_store import MoleculeStore

PREFIX = "csv:"
SPLITS = ("random", "scaffold")


class FileSource(Source):
    """A CSV, TSV, SMI or Parquet file with its columns, its split and its task.

    Its prepared molecules are in a folder whose name has a checksum of the file and the columns: a
    file that has changed is prepared anew, beside the older.

    Args:
        name: "csv:" and the path.
        root: the folder of the data sets.
        smiles: the column of the SMILES; None to guess it.
        targets: the column or columns of the labels; None to guess them.
        split: "random" or "scaffold".
        seed: of the random split.
        fractions: the shares of train, valid and test.
        task: "regression", "binary" or "multiclass"; None for what the labels look like.
        metric: "mae", "rmse", "rocauc", "ap" or "acc"; None for the usual one of the task.
    """

    def __init__(
        self,
        name: str,
        root: str | Path,
        smiles: str | None = None,
        targets: str | Sequence[str] | None = None,
        split: str = "random",
        seed: int = 0,
        fractions: Sequence[float] = (0.8, 0.1, 0.1),
        task: str | None = None,
        metric: str | None = None,
    ) -> None:
        self.name, self.path = name, Path(name.removeprefix(PREFIX)).expanduser()
        if not self.path.is_file():
            if self.path.is_dir():
                raise MissingDataSet(f"{name}: {str(self.path)!r} is a folder, expected a file")
            raise MissingDataSet(f"{name}: there is no file {str(self.path)!r}")
        if split not in SPLITS:
            raise ValueError(f"split = {split!r}, expected {' or '.join(SPLITS)}")
        self.smiles = smiles
        if targets is not None:
            self.labels = (targets,) if isinstance(targets, str) else tuple(targets)
        self.folder = Path(root) / "csv" / f"{self.path.name.split('.')[0]}-{self._checksum()}"
        self._split, self._seed, self._fractions = split, seed, tuple(fractions)
        self._task, self._metric = task, metric

    def _checksum(self) -> str:
        identity = json.dumps([sha256_of(self.path), self.smiles, self.labels])
        return hashlib.sha256(identity.encode()).hexdigest()[:12]

    def fetch(self) -> None:
        """It is the user's."""

    def splits(self, store: MoleculeStore) -> Splits:
        if self._split == "random":
            parts = random_split(len(store), self._fractions, self._seed)
        else:
            parts = split_groups(self._scaffolds(store), self._fractions)
        for part, fraction in zip(parts, self._fractions, strict=True):
            if fraction and not len(parts[part]):
                raise ValueError(
                    f"{self.name}: the {self._split} split of {len(store)} molecules leaves "
                    f"{part!r} empty; choose other fractions than {self._fractions}"
                )
        return parts

    def _scaffolds(self, store: MoleculeStore) -> np.ndarray:
        """The groups of `scaffold_groups`, kept on disk: RDKit finds about 2,000 a second."""
        path = self.folder / "scaffolds.npy"
        if path.is_file():
            return np.load(path, allow_pickle=False)
        groups = scaffold_groups(map(store.smiles, range(len(store))))
        content = io.BytesIO()
        np.save(content, groups, allow_pickle=False)
        write_atomically(path, [content.getbuffer()])
        return groups

    def _check_source(self) -> None:
        """The folder has the checksum of the file in its name."""

    def task(self, store: MoleculeStore) -> Task:
        names = tuple(store.label_names)
        return task_of_labels(store.labels, names, self._task, self._metric)
