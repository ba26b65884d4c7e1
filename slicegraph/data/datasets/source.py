"""A data set: prepared, and before that its files, its splits and its task."""

import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from slicegraph import metrics
from slicegraph.data.prepare import prepare as prepare_file
from slicegraph.data.splits import Splits, Task
from slicegraph.data.store import CHECKSUMS, META, REJECTED, VERSION, MoleculeStore, StoreError
from slicegraph.files import Checksums, sha256_of


class MissingDataset(FileNotFoundError):
    """A data set that is not here; the message names the missing file and how to get it."""


@dataclass(frozen=True)
class MoleculeDataset:
    """A data set with prepared molecules.

    Args:
        name: the name that `load_dataset` was given.
        store: all molecules.
        splits: the positions in the store of the molecules of each split, int64; for a data set of
            OGB with OGB's names and in OGB's order.
        task: the description of the labels.
        evaluator: the evaluator, without predictions.
        keys: a number for each molecule of the store, the same for all its salts, stereoisomers and
            spellings; None for a data set with splits of its own.
        standardize: the steps by which the molecules were standardised.
        split: how the splits were made.
        summary: the facts about a user's table, as of :func:`slicegraph.data.summary.summarize`.
    """

    name: str
    store: MoleculeStore
    splits: dict[str, np.ndarray]
    task: Task
    evaluator: metrics.Evaluator
    keys: np.ndarray | None = None
    standardize: tuple[str, ...] = ()
    split: str = ""
    summary: dict[str, Any] | None = None

    noun = "molecules"
    columns = ("index", "row", "smiles", "num_atoms")  # of a molecule in a table of predictions

    @property
    def source(self) -> dict[str, Any]:
        """The name, checksum and size of the file that the molecules come from."""
        return self.store.meta["source"]

    def labels(self, positions: np.ndarray) -> np.ndarray:
        """Return the labels of these molecules, ``[n, targets]``, NaN for a gap or a limit."""
        store = self.store[positions]
        labels = np.array(store.labels)
        if store.bounds is not None:
            labels[store.bounds != 0] = np.nan
        return labels

    def rows(self, positions: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """Iterate over the values of `columns` of these molecules."""
        store = self.store[positions]
        smiles, atoms = map(store.smiles, range(len(store))), store.num_atoms.tolist()
        return zip(store.positions.tolist(), store.rows.tolist(), smiles, atoms, strict=True)

    def write_submission(
        self, split: str, y_pred: Tensor | np.ndarray, index: Tensor | ArrayLike, folder: str | Path
    ) -> Path:
        """Write OGB's leaderboard file, with the arguments of `metrics.write_submission`."""
        expected = self.splits.get(split, np.empty(0, dtype=np.int64))
        return metrics.write_submission(self.name, split, y_pred, index, expected, folder)


class Source:
    """Files of a data set, from which its molecules are prepared.

    The task, `kind` to `num_targets`, is that of :class:`slicegraph.data.splits.Task`.
    """

    path: Path  # the table of molecules, which exists after `fetch`
    has_smiles = True  # whether `path` is a table of SMILES
    smiles: str | None = None  # its column of SMILES; None to guess it
    labels: tuple[str, ...] | None = None  # its columns of labels; None to guess them
    unlabelled: bool = False  # whether molecules without any label are kept
    kind: str = "regression"
    metric: str = "mae"
    unit: str = ""
    num_targets: int = 1
    size: int | None = None  # the number of molecules, if known
    how: str  # where the data set comes from, for the list of data sets

    def __init__(self, name: str, root: str | Path) -> None:
        self.name, self.folder = name, Path(root) / name
        self.path = self.folder / f"{name}.csv.gz"

    @property
    def store_folder(self) -> Path:
        """The folder of the prepared molecules."""
        return self.folder / f"slicegraph-v{VERSION}"

    def files(self) -> list[Path]:
        """Return the files and folders that `fetch` gets."""
        return [self.path]

    def present(self) -> bool:
        """Whether nothing has to be fetched."""
        return all(path.exists() for path in self.files())

    def prepared(self) -> bool:
        """Whether the molecules are prepared."""
        return (self.store_folder / META).is_file()

    def fetch(self) -> None:
        """Get the missing files, or raise a `MissingDataset` that tells how to get them."""

    @contextmanager
    def fetching(self, folder: Path, url: str, remedy: str, online: bool = True) -> Iterator[str]:
        """Yield a temporary folder in `folder`; a failure is a `MissingDataset` with the remedy."""
        try:
            if online:  # a missing network is reported at once, where a download would wait
                with urlopen(url, timeout=30):
                    pass
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=f".{self.name}-") as temporary:
                yield temporary
        except (OSError, RuntimeError) as error:
            missing = next((path for path in self.files() if not path.exists()), self.path)
            raise MissingDataset(
                f"{self.name} is not here: there is no {missing}, and {url} cannot be fetched "
                f"({error}); unpack that and {remedy}"
            ) from None

    def splits(self, store: MoleculeStore) -> Splits:
        """Return the positions in the store of each split."""
        raise NotImplementedError

    def task(self, store: MoleculeStore) -> Task:
        """Return the description of the labels."""
        classes = 2 if self.kind == "binary" else 0
        return Task(self.kind, tuple(store.label_names), self.metric, self.unit, classes)

    def evaluator(self, task: Task) -> metrics.Evaluator:
        """Return the evaluator of the data set."""
        return task.evaluator()

    def dataset(self, workers: int | None = None, progress: bool = True) -> MoleculeDataset:
        """Return the data set; the first call fetches and prepares its molecules."""
        store = self.store(workers, progress)
        task = self.task(store)
        return MoleculeDataset(self.name, store, self.splits(store), task, self.evaluator(task))

    def store(self, workers: int | None = None, progress: bool = True) -> MoleculeStore:
        """Return the molecules; the first call fetches and prepares them."""
        folder = self.store_folder
        if not self.prepared():
            self.fetch()
            if progress:
                print(f"{self.name}: preparing the molecules in {folder}, once", file=sys.stderr)
            self.prepare(workers, progress)
        store = MoleculeStore(folder)
        if self.has_smiles and self.path.is_file():
            checksums = Checksums(folder / CHECKSUMS)
            if store.meta["source"].get("sha256") != checksums.of(self.path):
                other = f"another {self.path.name} than the one in {self.path.parent}"
                remedy = "delete the folder to prepare it again"
                raise StoreError(folder, f"was prepared from {other}; {remedy}")
            checksums.save()
        return store

    def prepare(self, workers: int | None, progress: bool) -> None:
        """Write the store from the table."""
        options = {"workers": workers, "progress": progress, **self.columns()}
        prepare_file(self.path, self.store_folder, **options)

    def columns(self) -> dict[str, Any]:
        """Return the options of `prepare` that tell how to read the table."""
        return {"smiles": self.smiles, "labels": self.labels, "unlabelled": self.unlabelled}

    @cached_property
    def sha256(self) -> str:
        """The checksum of the table."""
        return sha256_of(self.path)

    def positions(self, store: MoleculeStore, rows: Splits) -> Splits:
        """Convert the table's rows of each split to positions in the store.

        A rejected row has no position: it is left out, with a warning that counts them.
        """
        total, positions = len(store) + store.meta["rejected"], {}
        for split, wanted in rows.items():
            for row in wanted[(wanted < 0) | (wanted >= total)]:
                problem = f"split {split!r} has row {row} and the table {total} rows"
                raise ValueError(f"{self.name}: {problem}; the splits are of another release")
            here = np.isin(wanted, store.rows)
            positions[split] = np.searchsorted(store.rows, wanted[here])
            if not here.all():
                lost = f"{(~here).sum()} of {len(wanted)} molecules of split {split!r}"
                reasons = f"were rejected, see {store.folder / REJECTED}"
                warnings.warn(f"{self.name}: {lost} {reasons}", stacklevel=2)
        return positions
