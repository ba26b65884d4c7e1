"""PCQM4Mv2 and PCQM4M of OGB-LSC: where their files are, and their splits."""

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from slicegraph.data.sets.ogb_download import Archive, download
from slicegraph.data.sets.source import Source, Summary, positions_of_rows
from slicegraph.data.sets.splits import Splits
from slicegraph.data.sets.task import Task
from slicegraph.data.sets.torch_files import read_pt
from slicegraph.data.store.molecule_store import MoleculeStore

TABLE, SPLITS, RELEASE = "raw/data.csv.gz", "split_dict.pt", "RELEASE_v1.txt"
_URL = "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC"


class LscFacts(NamedTuple):
    """What OGB's classes know of a data set, and of its size."""

    folder: str
    size: int
    splits: tuple[str, ...]

    @property
    def url(self) -> str:
        return f"{_URL}/{self.folder}.zip"


LSC = {
    "pcqm4m-v2": LscFacts("pcqm4m-v2", 3_746_620, ("train", "valid", "test-dev", "test-challenge")),
    "pcqm4m": LscFacts("pcqm4m_kddcup2021", 3_803_453, ("train", "valid", "test")),
}


class LscSource(Source):
    """PCQM4Mv2 or PCQM4M in the folder that OGB keeps it in."""

    smiles = "smiles"
    labels = ("homolumogap",)
    unlabelled = True  # the test molecules
    summary = Summary("regression, eV", "MAE")

    def __init__(self, name: str, root: str | Path) -> None:
        self.name, self.facts = name, LSC[name]
        self.folder = Path(root) / self.facts.folder
        self.path = self.folder / TABLE
        self.size, self.how = self.facts.size, f"downloaded from {self.facts.url}"

    def present(self) -> bool:
        return self.path.is_file() and (self.folder / SPLITS).is_file()

    def fetch(self) -> None:
        if not self.present():
            missing = SPLITS if self.path.is_file() else TABLE
            inner = self.facts.folder
            download(Archive(self.name, self.facts.url, inner, self.folder, missing))
        elif not (self.folder / RELEASE).is_file():
            warnings.warn(
                f"{self.folder} has no {RELEASE}: for OGB it is an older release; it is used as "
                "it is, delete the folder to have the current one downloaded",
                stacklevel=2,
            )

    def splits(self, store: MoleculeStore) -> Splits:
        return positions_of_rows(store, self.name, self.split_rows())

    def split_rows(self) -> Splits:
        """Rows of the table under OGB's names, as `get_idx_split` has them."""
        if not (self.folder / SPLITS).is_file():
            self.fetch()
        return checked_splits(self.folder / SPLITS, self.facts.splits)

    def task(self, store: MoleculeStore) -> Task:
        return Task("regression", self.labels, "mae", "eV")


def checked_splits(path: Path, names: tuple[str, ...]) -> Splits:
    """The arrays of a `split_dict.pt`, which must have these names and be rows of numbers."""
    found = read_pt(path)
    if not isinstance(found, dict) or set(found) != set(names):
        kind = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise ValueError(f"{path} has {kind}, expected the splits {', '.join(names)}")
    splits = {name: np.asarray(found[name]) for name in names}
    for name, rows in splits.items():
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(
                f"{path}: split {name!r} is {rows.dtype} {list(rows.shape)}, expected integers"
            )
    return {name: rows.astype(np.int64) for name, rows in splits.items()}
