"""The molecule data sets of OGB (PCQM4Mv2, PCQM4M, ogbg-mol*), and ZINC as PyG distributes it.

Those of OGB are in the folders and files that OGB itself uses, and are downloaded without a prompt.
`open_ogb` imports OGB's classes when it is called, as they import scikit-learn. `pyg_classes` has
the private names of PyG; each may be missing.
"""

import io
import json
import pickle
import shutil
import threading
import warnings
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import ogb
import pandas as pd
import torch
import torch_geometric.data
from ogb.utils import smiles2graph
from ogb.utils.url import download_url, extract_zip
from torch import Tensor
from torch.serialization import get_safe_globals, get_unsafe_globals_in_checkpoint, safe_globals
from torch_geometric.data import InMemoryDataset

from slicegraph.data.datasets.source import MissingDataset, Source
from slicegraph.data.prepare import write_graphs
from slicegraph.data.smiles import MoleculeGraph
from slicegraph.data.splits import SPLIT_NAMES, Splits, Task
from slicegraph.data.store import MoleculeStore
from slicegraph.files import DAMAGE, write_atomically
from slicegraph.metrics import Evaluator, evaluator

LSC = {  # folder, number of molecules and splits of the data sets of OGB-LSC
    "pcqm4m-v2": ("pcqm4m-v2", 3_746_620, ("train", "valid", "test-dev", "test-challenge")),
    "pcqm4m": ("pcqm4m_kddcup2021", 3_803_453, ("train", "valid", "test")),
}
MOL_SIZES = {  # the ogbg-mol* sets and their numbers of molecules in the paper of OGB
    "ogbg-molhiv": 41_127,
    "ogbg-molpcba": 437_929,
    "ogbg-molbace": 1_513,
    "ogbg-molbbbp": 2_039,
    "ogbg-molchembl": None,
    "ogbg-molclintox": 1_477,
    "ogbg-molesol": 1_128,
    "ogbg-molfreesolv": 642,
    "ogbg-mollipo": 4_200,
    "ogbg-molmuv": 93_087,
    "ogbg-molsider": 1_427,
    "ogbg-moltox21": 7_831,
    "ogbg-moltoxcast": 8_576,
}
_MOL_UNITS = {"ogbg-molesol": "log mol/L", "ogbg-molfreesolv": "kcal/mol"}
_LSC_URL = "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC"
_RELEASE, _SPLIT_FILE = "RELEASE_v1.txt", "split_dict.pt"
_NOT_LABELS = ("smiles", "mol_id")
ZINC_SIZES = {"zinc": 12_000, "zinc-full": 249_456}
ZINC_SPLITS = ("train", "val", "test")
_ZINC_TYPES = (28,), (4,)  # the numbers of atom types and of bond types
_ZINC_TARGET = "logP_SA_cycle_normalized"


class OgbSource(Source):
    """A data set in the folder where OGB keeps it."""

    smiles = "smiles"
    unlabelled = True  # a row keeps the number that OGB's splits refer to
    url: str  # of the zip file
    inner: str  # the folder in the zip file
    split_path: Path  # the file or folder of the splits
    split_rows: Callable[..., Splits]  # the rows of the table of each split, like `get_idx_split`
    describe: Callable[..., None]  # sets the attributes that the constructor of OGB's class sets

    def files(self) -> list[Path]:
        return [self.path, self.split_path]

    def fetch(self) -> None:
        """Download and unpack the zip file, or unpack the one that is in `root`."""
        if self.present():
            return
        given = self.folder.with_name(self.url.rpartition("/")[2])
        here, remedy = given.is_file(), f"rename {self.inner} to {self.folder}"
        try:
            with self.fetching(given.parent, self.url, remedy, online=not here) as temporary:
                extract_zip(given if here else download_url(self.url, temporary), temporary)
                inner = Path(temporary, self.inner)
                shutil.copytree(inner, self.folder, dirs_exist_ok=True, copy_function=shutil.move)
        except zipfile.BadZipFile as error:
            raise MissingDataset(f"{self.name}: {given} is damaged ({error}); delete it") from None

    def evaluator(self, task: Task) -> Evaluator:
        return evaluator(self.name)

    def splits(self, store: MoleculeStore) -> Splits:
        return self.positions(store, self.split_rows())


class LscSource(OgbSource):
    """PCQM4Mv2 or PCQM4M."""

    labels, unit = ("homolumogap",), "eV"

    def __init__(self, name: str, root: str | Path) -> None:
        self.inner, self.size, self.split_names = LSC[name]
        self.name, self.folder = name, Path(root) / self.inner
        self.path, self.split_path = self.folder / "raw" / "data.csv.gz", self.folder / _SPLIT_FILE
        self.url = f"{_LSC_URL}/{self.inner}.zip"
        self.how = f"downloaded from {self.url}"

    def fetch(self) -> None:
        if self.present() and not (self.folder / _RELEASE).is_file():
            remedy = "delete the folder to download the current one"
            older = f"{self.folder} has no {_RELEASE}, so it is an older release; {remedy}"
            warnings.warn(older, stacklevel=2)
        super().fetch()

    def split_rows(self, split_type: str | None = None) -> Splits:
        if not self.split_path.is_file():
            self.fetch()
        return _read_splits(self.split_path, self.split_names)

    def describe(self, dataset: Any, smiles2graph: Callable = smiles2graph) -> None:
        dataset.smiles2graph, dataset.url = smiles2graph, self.url
        dataset.folder, dataset.version = str(self.folder), 1


@cache
def _mol_facts() -> dict[str, dict[str, str]]:
    """Return OGB's own table of graph data sets, those of molecules alone."""
    path = Path(ogb.__file__).parent / "graphproppred" / "master.csv"
    sets = pd.read_csv(path, index_col=0, keep_default_na=False).to_dict()
    return {str(name): meta for name, meta in sets.items() if meta["data type"] == "mol"}


class MolSource(OgbSource):
    """An ogbg-mol* set: one of MoleculeNet's, with a scaffold split."""

    def __init__(self, name: str, root: str | Path) -> None:
        facts = _mol_facts()
        if name not in facts:
            raise ValueError(f"{name!r} is not a molecule set of OGB, expected {', '.join(facts)}")
        self.name, self.meta = name, facts[name]
        folder = Path(root) / name.replace("-", "_")
        older = folder.with_name(f"{folder.name}_pyg")
        self.folder = older if older.is_dir() else folder
        self.path = self.folder / "mapping" / "mol.csv.gz"
        self.split_path = self.folder / "split" / self.meta["split"]
        self.url, self.inner = self.meta["url"], self.meta["download_name"]
        self.size, self.how = MOL_SIZES.get(name), f"downloaded from {self.url}"
        self.kind = "regression" if self.meta["task type"] == "regression" else "binary"
        self.num_targets, self.metric = int(self.meta["num tasks"]), self.meta["eval metric"]

    def fetch(self) -> None:
        super().fetch()
        columns = pd.read_csv(self.path, nrows=0).columns
        self.labels = tuple(column for column in columns if column not in _NOT_LABELS)
        if len(self.labels) != self.num_targets or "smiles" not in columns:
            found = f"{len(self.labels)} columns besides {' and '.join(_NOT_LABELS)}"
            raise ValueError(f"{self.path} has {found}, expected the {self.num_targets} tasks")

    def task(self, store: MoleculeStore) -> Task:
        return replace(super().task(store), unit=_MOL_UNITS.get(self.name, ""))

    def split_rows(self, split_type: str | None = None) -> Splits:
        folder = self.split_path.with_name(split_type or self.split_path.name)
        if (folder / _SPLIT_FILE).is_file():
            return _read_splits(folder / _SPLIT_FILE, SPLIT_NAMES)
        return {
            name: np.array(pd.read_csv(folder / f"{name}.csv.gz", header=None, dtype=np.int64)[0])
            for name in SPLIT_NAMES
        }

    def describe(self, dataset: Any) -> None:
        dataset.name, dataset.meta_info, dataset.dir_name = self.name, self.meta, self.folder.name
        dataset.download_name, dataset.eval_metric = self.inner, self.metric
        dataset.num_tasks, dataset.task_type = self.num_targets, self.meta["task type"]
        dataset.__num_classes__ = int(self.meta["num classes"])
        dataset.binary = self.meta["binary"] == "True"


def _read_splits(path: Path, names: tuple[str, ...]) -> Splits:
    """Read a `split_dict.pt`, which must have these names and vectors of integers."""
    found = read_pt(path)
    if not isinstance(found, dict) or set(found) != set(names):
        kind = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise ValueError(f"{path} has {kind}, expected the splits {', '.join(names)}")
    splits = {name: np.asarray(found[name]) for name in names}
    for name, rows in splits.items():
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            kind = f"{rows.dtype} {list(rows.shape)}"
            raise ValueError(f"{path}: split {name!r} is {kind}, expected integers")
    return {name: rows.astype(np.int64) for name, rows in splits.items()}


def pyg_classes() -> Iterator[Any]:
    """Yield the classes that PyG's files contain, less those that PyG has removed."""
    for name in ("Data", "data.DataEdgeAttr", "data.DataTensorAttr", "storage.GlobalStorage"):
        with suppress(AttributeError):
            yield attrgetter(name)(torch_geometric.data)


# The function that begins a pickled NumPy array; NumPy 1 knew it by the second name.
_RECONSTRUCT: Any = np.empty(0).__reduce__()[0]
_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")
_ALLOWED: list[Any] = [
    *pyg_classes(),
    *(defaultdict, dict, list, set, np.ndarray, np.dtype),
    *((_RECONSTRUCT, f"numpy.{core}.multiarray._reconstruct") for core in ("_core", "core")),
    *(type(np.dtype(name)) for name in _NUMBERS),
]
_one_at_a_time = threading.Lock()


def read_pt(path: str | Path) -> Any:
    """Read a file of `torch.save` that holds tensors, arrays of numbers and PyG graphs.

    Since torch 2.6 `torch.load` refuses the last two, as in OGB's files. They are allowed for one
    call; everything else is refused as before, and no code of the file is run.
    """
    with _one_at_a_time:
        # Leaving safe_globals() removes its classes, including those that were allowed before.
        known = set(get_safe_globals())
        with safe_globals([entry for entry in _ALLOWED if entry not in known]):
            try:
                return torch.load(path, map_location="cpu", weights_only=True)
            except DAMAGE as error:
                problem = "it is damaged, or was not written by torch.save"
                with suppress(*DAMAGE):
                    if others := ", ".join(sorted(get_unsafe_globals_in_checkpoint(str(path)))):
                        problem = f"it has {others} in it; only tensors, arrays and graphs are read"
                raise ValueError(f"{path} is not read: {problem}") from error


class _SafeFiles(InMemoryDataset):
    """Reads OGB's files by `read_pt`, not a plain `torch.load`, and downloads without a prompt."""

    def __init__(self, source: OgbSource, **options: Any) -> None:
        transforms = {name: options.pop(name, None) for name in ("transform", "pre_transform")}
        self.source, self.original_root = source, str(source.folder.parent)
        source.describe(self, **options)
        source.fetch()
        for name in ("pre_transform.pt", "pre_filter.pt"):  # PyG would run code in these two
            if (source.folder / "processed" / name).is_file():
                read_pt(source.folder / "processed" / name)
        InMemoryDataset.__init__(self, str(source.folder), **transforms)
        self.data, self.slices = read_pt(self.processed_paths[0])

    def download(self) -> None:
        self.source.fetch()

    def get_idx_split(self, split_type: str | None = None) -> dict[str, Tensor]:
        rows = self.source.split_rows(split_type)
        return {split: torch.from_numpy(found) for split, found in rows.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return _new_dataset, (self.source.name,), vars(self)


@cache
def _safe_class(name: str) -> type[_SafeFiles]:
    """Return OGB's class of a data set, with the methods of `_SafeFiles` instead of its own."""
    from ogb import graphproppred, lsc  # both import scikit-learn

    challenges = {"pcqm4m-v2": lsc.PygPCQM4Mv2Dataset, "pcqm4m": lsc.PygPCQM4MDataset}
    theirs = challenges.get(name, graphproppred.PygGraphPropPredDataset)
    return type(theirs.__name__, (_SafeFiles, theirs), {})


def _new_dataset(name: str) -> _SafeFiles:
    """Return an object to unpickle into, as pickle does not find a class made by a function."""
    return _safe_class(name).__new__(_safe_class(name))


def open_ogb(name: str, root: str | Path = "dataset", **options: Any) -> InMemoryDataset:
    """Open a data set of OGB as OGB's own PyG object, from OGB's folder.

    Args:
        name: "pcqm4m-v2", "pcqm4m" or an ogbg-mol* set.
        root: the folder of OGB's folders.
        options: arguments of OGB's class: ``transform``, ``pre_transform``, ``smiles2graph``.

    Example:
        >>> open_ogb("pcqm4m-v2")[0]
        Data(edge_index=[2, 40], edge_attr=[40, 3], x=[18, 9], y=[1], num_nodes=18)
    """
    source = LscSource(name, root) if name in LSC else MolSource(name, root)
    return _safe_class(name)(source, **options)


class ZincSource(Source):
    """PyG's ZINC below `root/zinc`: "zinc" is its subset of 12,000 molecules, "zinc-full" all."""

    has_smiles = False
    how = "downloaded by PyG"

    def __init__(self, name: str, root: str | Path) -> None:
        self.name, self.size, self.subset = name, ZINC_SIZES[name], name == "zinc"
        self.raw = Path(root) / "zinc" / "raw"
        self.folder = Path(root) / "zinc" / ("subset" if self.subset else "full")
        self.path, self._sizes = self.raw / "train.pickle", self.folder / "split_sizes.json"

    def files(self) -> list[Path]:
        kinds = ("pickle", "index") if self.subset else ("pickle",)
        return [self.raw / f"{split}.{kind}" for kind in kinds for split in ZINC_SPLITS]

    def fetch(self) -> None:
        if self.present():
            return
        from torch_geometric.datasets import ZINC  # takes a second, with all data sets of PyG

        indices = f"put train.index, val.index and test.index of {ZINC.split_url} into it"
        remedy = f"rename molecules to {self.raw}, and {indices}"
        with self.fetching(self.raw.parent, ZINC.url, remedy) as temporary:
            downloader = ZINC.__new__(ZINC)  # its constructor would also process the files
            downloader.root = temporary
            downloader.download()
            shutil.copytree(Path(temporary, "raw"), self.raw, dirs_exist_ok=True)

    def prepare(self, workers: int | None, progress: bool) -> None:
        names: Any = {"label_names": (_ZINC_TARGET,), "source_name": self.name}
        write_graphs(self.store_folder, self._graphs(), *_ZINC_TYPES, **names)

    def splits(self, store: MoleculeStore) -> Splits:
        sizes = json.loads(self._sizes.read_bytes())
        ends = np.cumsum([sizes[name] for name in ZINC_SPLITS])
        return dict(zip(ZINC_SPLITS, np.split(np.arange(len(store)), ends[:-1]), strict=True))

    def _graphs(self) -> Iterator[tuple[MoleculeGraph, tuple[float]]]:
        sizes = {}
        for split in ZINC_SPLITS:
            with open(self.raw / f"{split}.pickle", "rb") as file:
                molecules = _TensorUnpickler(file).load()
            chosen: Sequence[int] = range(len(molecules))
            if self.subset:
                chosen = [int(i) for i in (self.raw / f"{split}.index").read_text().split(",")]
            for number in chosen:
                yield _graph(molecules[number]), (float(molecules[number][_ZINC_TARGET]),)
            sizes[split] = len(chosen)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._sizes, [json.dumps(sizes).encode()])


def _graph(molecule: dict[str, Any]) -> MoleculeGraph:
    """Convert one entry: `atom_type` of ``[n]`` and the matrix `bond_type` of ``[n, n]``."""
    types = molecule["bond_type"].numpy()
    if not np.array_equal(types, types.T):
        raise ValueError("zinc: the bond types of a molecule are not symmetric")
    bonds = np.argwhere(np.triu(types))
    return MoleculeGraph(
        atoms=molecule["atom_type"].numpy().reshape(-1, 1).astype(np.uint8),
        bonds=bonds.astype(np.uint16),
        bond_features=types[bonds[:, 0], bonds[:, 1]].reshape(-1, 1).astype(np.uint8),
    )


# Names in a pickle of tensors, and a function for each that runs no code of the file.
_UNPICKLED: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": lambda storage, offset, size, stride, *_: torch.empty(
        0, dtype=storage.dtype
    ).set_(storage, offset, size, stride),
    "torch.storage._load_from_bytes": lambda content: torch.load(
        io.BytesIO(content), weights_only=True
    ),
    "collections.OrderedDict": OrderedDict,
}


class _TensorUnpickler(pickle.Unpickler):
    """Reads lists, dicts, numbers and tensors; refuses every other class."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if f"{module}.{name}" not in _UNPICKLED:
            raise ValueError(f"zinc: {module}.{name} in a pickle is not read, only tensors are")
        return _UNPICKLED[f"{module}.{name}"]
