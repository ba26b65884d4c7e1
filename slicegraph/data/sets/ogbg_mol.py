"""The ogbg-mol* sets of OGB: MoleculeNet with scaffold splits, as `ogb.graphproppred` has them."""

import csv
import gzip
from pathlib import Path

import numpy as np
from ogb import graphproppred

from slicegraph.data.sets.lsc import checked_splits
from slicegraph.data.sets.ogb_download import Archive, download
from slicegraph.data.sets.source import Source, Summary, positions_of_rows
from slicegraph.data.sets.splits import SPLIT_NAMES, Splits
from slicegraph.data.sets.task import Task
from slicegraph.data.store.molecule_store import MoleculeStore
from slicegraph.metrics import evaluator

TABLE = "mapping/mol.csv.gz"
_NO_LABEL = ("smiles", "mol_id")
_UNITS = {"ogbg-molesol": "log mol/L", "ogbg-molfreesolv": "kcal/mol"}
SIZES = {
    "ogbg-molhiv": 41_127,
    "ogbg-molpcba": 437_929,
    "ogbg-moltox21": 7_831,
    "ogbg-molbace": 1_513,
    "ogbg-molbbbp": 2_039,
    "ogbg-molclintox": 1_477,
    "ogbg-molmuv": 93_087,
    "ogbg-molsider": 1_427,
    "ogbg-moltoxcast": 8_576,
    "ogbg-molesol": 1_128,
    "ogbg-molfreesolv": 642,
    "ogbg-mollipo": 4_200,
}
"""Molecules as in the paper of OGB, which does not have ogbg-molchembl."""


def master() -> dict[str, dict[str, str]]:
    """OGB's own table of its data sets of graphs, by name; those of molecules alone."""
    path = Path(graphproppred.__file__).parent / "master.csv"
    with open(path, newline="", encoding="utf-8") as file:
        (_, *names), *rows = csv.reader(file)
    sets = {name: {row[0]: row[column] for row in rows} for column, name in enumerate(names, 1)}
    return {name: meta for name, meta in sets.items() if meta["data type"] == "mol"}


class MolSource(Source):
    """An ogbg-mol* set in the folder that OGB keeps it in."""

    smiles = "smiles"
    unlabelled = True  # that a row stays the number of a molecule in OGB's splits

    def __init__(self, name: str, root: str | Path) -> None:
        sets = master()
        if name not in sets:
            raise ValueError(f"{name!r} is no set of molecules of OGB, expected {', '.join(sets)}")
        self.name, self.meta = name, sets[name]
        folder = Path(root) / name.replace("-", "_")
        older = folder.with_name(f"{folder.name}_pyg")
        self.folder = older if older.is_dir() else folder
        self.path = self.folder / TABLE
        self.size, self.how = SIZES.get(name), f"downloaded from {self.meta['url']}"
        self.num_tasks, self.metric = int(self.meta["num tasks"]), self.meta["eval metric"]

    def present(self) -> bool:
        return self.path.is_file() and (self.folder / "split" / self.meta["split"]).is_dir()

    def fetch(self) -> None:
        if not self.present():
            missing = "split" if self.path.is_file() else TABLE
            inner = self.meta["download_name"]
            download(Archive(self.name, self.meta["url"], inner, self.folder, missing))
        self.labels = self._label_columns()

    @property
    def summary(self) -> Summary:  # type: ignore[override]
        kind = "regression" if self.meta["task type"] == "regression" else "binary"
        tasks = f", {self.num_tasks} targets" if self.num_tasks > 1 else ""
        return Summary(kind + tasks, evaluator(self.name).name)

    def _label_columns(self) -> tuple[str, ...]:
        with gzip.open(self.path, "rt", newline="", encoding="utf-8") as file:
            columns = next(csv.reader(file), [])
        labels = tuple(column for column in columns if column not in _NO_LABEL)
        if len(labels) != self.num_tasks or "smiles" not in columns:
            raise ValueError(
                f"{self.path} has {len(labels)} columns beside {' and '.join(_NO_LABEL)}, expected "
                f"the {self.num_tasks} tasks of {self.name}"
            )
        return labels

    def splits(self, store: MoleculeStore) -> Splits:
        return positions_of_rows(store, self.name, self.split_rows())

    def split_rows(self, split_type: str | None = None) -> Splits:
        """Rows of the table under OGB's names, as `get_idx_split` has them."""
        folder = self.folder / "split" / (split_type or self.meta["split"])
        if (folder / "split_dict.pt").is_file():
            return checked_splits(folder / "split_dict.pt", SPLIT_NAMES)
        return {name: _numbers(folder / f"{name}.csv.gz") for name in SPLIT_NAMES}

    def task(self, store: MoleculeStore) -> Task:
        names = tuple(store.label_names)
        if self.meta["task type"] == "regression":
            return Task("regression", names, self.metric, _UNITS.get(self.name, ""))
        return Task("binary", names, self.metric, num_classes=2)


def _numbers(path: Path) -> np.ndarray:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return np.array(file.read().split(), dtype=np.int64)
