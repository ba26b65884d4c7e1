"""Molecules in: from SMILES, a table or an OGB data set to batches."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slicegraph.data.batch_sampler import SizeGroupedBatchSampler
from slicegraph.data.collate import collate
from slicegraph.data.featurize import SmilesError, featurize, read_smiles
from slicegraph.data.loader import molecule_loader
from slicegraph.data.molecule_graph import MoleculeGraph
from slicegraph.data.prepare import PrepareError, PrepareResult, prepare, write_graphs
from slicegraph.data.store import MoleculeArrays, MoleculeStore
from slicegraph.data.store_layout import StoreError

if TYPE_CHECKING:
    from slicegraph.data.datasets import DataSet, load
    from slicegraph.data.ogb_pyg import open_ogb
    from slicegraph.data.task import Task

__all__ = [
    "DataSet",
    "MoleculeArrays",
    "MoleculeGraph",
    "MoleculeStore",
    "PrepareError",
    "PrepareResult",
    "SizeGroupedBatchSampler",
    "SmilesError",
    "StoreError",
    "Task",
    "collate",
    "featurize",
    "load",
    "molecule_loader",
    "open_ogb",
    "prepare",
    "read_smiles",
    "write_graphs",
]

# OGB's data sets take more than a second to import: only when they are asked for.
_LATE = {"DataSet": "datasets", "load": "datasets", "open_ogb": "ogb_pyg", "Task": "task"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
