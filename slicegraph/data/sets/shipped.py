"""The data set that is installed with slicegraph: `mini`, 12,000 molecules of QM9."""

import csv
import gzip
from pathlib import Path

import numpy as np

import slicegraph
from slicegraph.data.sets.source import MissingDataSet, Source, Summary, positions_of_rows
from slicegraph.data.sets.splits import SPLIT_NAMES, Splits
from slicegraph.data.sets.task import Task
from slicegraph.data.store.molecule_store import MoleculeStore

MINI = "mini.csv.gz"


def shipped_folder(name: str) -> Path:
    """The folder of shipped data: in the package, or of an editable install in the repository."""
    package = Path(slicegraph.__file__).parent
    installed, repository = package / "data" / "embedded" / name, package.parent / "datasets" / name
    return repository if repository.is_dir() and not installed.is_dir() else installed


class MiniSource(Source):
    """The shipped table; the prepared molecules go below `root`, not beside it."""

    smiles = "smiles"
    labels = ("homolumogap",)
    size = 12_000
    summary = Summary("regression, eV", "MAE")
    how = "installed with slicegraph"

    def __init__(self, name: str, root: str | Path) -> None:
        self.name = name
        self.folder = Path(root) / name
        self.path = shipped_folder(name) / MINI

    def fetch(self) -> None:
        if not self.path.is_file():
            raise MissingDataSet(
                f"{self.name} is not here: slicegraph was installed without its {self.path}; "
                "install it from its wheel or its repository"
            )

    def splits(self, store: MoleculeStore) -> Splits:
        with gzip.open(self.path, "rt", newline="", encoding="utf-8") as file:
            parts = np.array([row["split"] for row in csv.DictReader(file)])
        rows = {name: np.flatnonzero(parts == name) for name in SPLIT_NAMES}
        return positions_of_rows(store, self.name, rows)

    def task(self, store: MoleculeStore) -> Task:
        return Task("regression", self.labels, "mae", "eV")
