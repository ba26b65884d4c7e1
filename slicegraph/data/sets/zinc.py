"""ZINC as PyG has it: graphs of atom types and bond types, without SMILES."""

import io
import json
import pickle
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import torch
from torch._utils import _rebuild_tensor_v2

from slicegraph.data.molecule.molecule_graph import MoleculeGraph
from slicegraph.data.sets.source import MissingDataSet, Source, Summary
from slicegraph.data.sets.splits import Splits
from slicegraph.data.sets.task import Task
from slicegraph.data.store.atomic_file import write_atomically
from slicegraph.data.store.graph_writer import write_graphs
from slicegraph.data.store.molecule_store import MoleculeStore

ATOM_TYPES, BOND_TYPES = 28, 4
SPLIT_NAMES = ("train", "val", "test")
SIZES = {"zinc": 12_000, "zinc-full": 249_456}
_TARGET = "logP_SA_cycle_normalized"
_SECONDS = 30


class ZincSource(Source):
    """PyG's ZINC below `root/zinc`: "zinc" is its subset of 12,000 molecules, "zinc-full" all."""

    summary = Summary("regression", "MAE")

    def __init__(self, name: str, root: str | Path) -> None:
        self.name, self.subset = name, name == "zinc"
        self.raw = Path(root) / "zinc" / "raw"
        self.folder = Path(root) / "zinc" / ("subset" if self.subset else "full")
        self.path = self.raw / "train.pickle"
        self.size, self.how = SIZES[name], "downloaded by PyG"

    def present(self) -> bool:
        kinds = ("pickle", "index") if self.subset else ("pickle",)
        return all((self.raw / f"{s}.{kind}").is_file() for s in SPLIT_NAMES for kind in kinds)

    def fetch(self) -> None:
        if self.present():
            return
        from torch_geometric.datasets import ZINC  # a second, with all data sets of PyG

        try:
            with urlopen(ZINC.url, timeout=_SECONDS):
                pass  # fails at once where there is no network; PyG would wait
            self.raw.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.raw.parent) as temporary:
                downloader = ZINC.__new__(ZINC)  # not to process what it downloads
                downloader.root = temporary
                downloader.download()
                shutil.copytree(Path(temporary, "raw"), self.raw, dirs_exist_ok=True)
        except (OSError, RuntimeError) as error:
            raise MissingDataSet(
                f"{self.name} is not here: there is no {self.path}, and PyG's {ZINC.url} cannot be "
                f"fetched ({error}); unpack that, rename molecules to {self.raw}, and put "
                f"train.index, val.index and test.index of {ZINC.split_url} into it"
            ) from None

    def prepare(self, workers: int | None, progress: bool) -> None:
        vocabularies = (ATOM_TYPES,), (BOND_TYPES,)
        write_graphs(self.store_folder, self._graphs(), *vocabularies, (_TARGET,), self.name)

    def splits(self, store: MoleculeStore) -> Splits:
        sizes = json.loads(self._sizes.read_bytes())
        ends = np.cumsum([sizes[name] for name in SPLIT_NAMES])
        return dict(zip(SPLIT_NAMES, np.split(np.arange(len(store)), ends[:-1]), strict=True))

    def task(self, store: MoleculeStore) -> Task:
        return Task("regression", tuple(store.label_names), "mae")

    @property
    def _sizes(self) -> Path:
        return self.folder / "split_sizes.json"

    def _graphs(self) -> Iterator[tuple[MoleculeGraph, tuple[float]]]:
        sizes = {}
        for split in SPLIT_NAMES:
            molecules = read_pickle(self.raw / f"{split}.pickle")
            chosen: Sequence[int] = range(len(molecules))
            if self.subset:
                text = (self.raw / f"{split}.index").read_text()
                chosen = [int(number) for number in text.split(",")]
            for number in chosen:
                yield graph_of(molecules[number]), (float(molecules[number][_TARGET]),)
            sizes[split] = len(chosen)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._sizes, [json.dumps(sizes).encode()])

    def _check_source(self) -> None:
        """The graphs have no table to be compared with."""


def graph_of(molecule: dict[str, Any]) -> MoleculeGraph:
    """The graph of one entry: `atom_type` of ``[n]`` and the matrix `bond_type` of ``[n, n]``."""
    types = molecule["bond_type"].numpy()
    if not np.array_equal(types, types.T):
        raise ValueError("zinc: the bond types of a molecule are not symmetric")
    bonds = np.argwhere(np.triu(types))
    return MoleculeGraph(
        atoms=molecule["atom_type"].numpy().reshape(-1, 1).astype(np.uint8),
        bonds=bonds.astype(np.uint16),
        bond_features=types[bonds[:, 0], bonds[:, 1]].reshape(-1, 1).astype(np.uint8),
    )


def read_pickle(path: Path) -> list[dict[str, Any]]:
    """The molecules of one of ZINC's pickles: lists, dicts, numbers and tensors, no other class."""
    with open(path, "rb") as file:
        return _TensorUnpickler(file).load()


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        allowed: dict[str, Callable[..., Any]] = {
            "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
            "torch.storage._load_from_bytes": _load_from_bytes,
            "collections.OrderedDict": OrderedDict,
        }
        if f"{module}.{name}" not in allowed:
            raise ValueError(f"zinc: {module}.{name} in a pickle is not read, only tensors are")
        return allowed[f"{module}.{name}"]


def _load_from_bytes(content: bytes) -> Any:
    """As torch's function of this name, which would run code."""
    return torch.load(io.BytesIO(content), weights_only=True)
