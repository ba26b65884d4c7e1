"""The HOMO-LUMO gaps of QM9, `qm9-gap`, from the PyPI package `qm9pack`."""

import csv
import gzip
import importlib.util
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from slicegraph.data.sets.source import MissingDataSet, Source, Summary, positions_of_rows
from slicegraph.data.sets.splits import Splits, split_by_size
from slicegraph.data.sets.task import Task
from slicegraph.data.store.atomic_file import write_atomically
from slicegraph.data.store.molecule_store import MoleculeStore

HARTREE_IN_EV = 27.2114
PARTS = ("qm9_part1.csv", "qm9_part2.csv", "qm9_part3.csv")
SIZE, TRAIN, VALID = 130_831, 110_000, 10_000
SEED = 0
_COLUMNS = ("smiles", "homolumogap")


class Qm9Molecule(NamedTuple):
    """One molecule: its number in QM9 (from 1), its SMILES and its gap in hartree."""

    number: int
    smiles: str
    gap_hartree: float


class Qm9Source(Source):
    """All of QM9 with the gap in eV; 110,000 to train, 10,000 to validate, 10,831 to test."""

    smiles = _COLUMNS[0]
    labels = _COLUMNS[1:]
    size = SIZE
    summary = Summary("regression, eV", "MAE")
    how = "pip install 'slicegraph[qm9]'"

    def __init__(self, name: str, root: str | Path) -> None:
        self.name = name
        self.folder = Path(root) / name
        self.path = self.folder / f"{name}.csv.gz"

    def present(self) -> bool:
        return super().present() or qm9_folder() is not None

    def fetch(self) -> None:
        if self.path.is_file():
            return
        folder = qm9_folder()
        if folder is None:
            raise MissingDataSet(
                f"{self.name} is not here: there is no {self.path}, and the package qm9pack that "
                "it is made from is not installed; pip install 'slicegraph[qm9]' (100 MB of PyPI)"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, [_table(folder)])

    def splits(self, store: MoleculeStore) -> Splits:
        rows = len(store) + store.meta["rejected"]
        if rows != SIZE:
            raise ValueError(f"{self.name}: {self.path} has {rows} rows, expected {SIZE}")
        return positions_of_rows(store, self.name, split_by_size(rows, (TRAIN, VALID), SEED))

    def task(self, store: MoleculeStore) -> Task:
        return Task("regression", self.labels, "mae", "eV")


def qm9_folder() -> Path | None:
    """The folder of qm9pack's CSV files, or None where it is not installed.

    The package itself is not imported: it needs `pkg_resources`, which setuptools has removed.
    """
    found = importlib.util.find_spec("qm9pack")
    for place in (found and found.submodule_search_locations) or ():
        folder = Path(place) / "data"
        if all((folder / part).is_file() for part in PARTS):
            return folder
    return None


def read_qm9(folder: Path) -> Iterator[Qm9Molecule]:
    """Every molecule of the CSV files, in the order of QM9."""
    for part in PARTS:
        with open(folder / part, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                gap = float(row["HOMO_LUMO_gap_au"])
                yield Qm9Molecule(int(row["Index"]), row["SMILES"], gap)


def _table(folder: Path) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for molecule in read_qm9(folder):
        writer.writerow((molecule.smiles, f"{molecule.gap_hartree * HARTREE_IN_EV:.6f}"))
    return gzip.compress(text.getvalue().encode(), mtime=0)
