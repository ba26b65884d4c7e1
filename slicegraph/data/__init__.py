"""Molecules in: from SMILES, a table or an OGB data set to batches."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slicegraph.data.batch.batch_sampler import SizeGroupedBatchSampler
from slicegraph.data.batch.collate import collate
from slicegraph.data.batch.loader import molecule_loader
from slicegraph.data.molecule.featurize import SmilesError, featurize, read_smiles
from slicegraph.data.molecule.molecule_graph import MoleculeGraph
from slicegraph.data.preparation.prepare import PrepareError, PrepareResult, prepare, write_graphs
from slicegraph.data.store.layout import StoreError
from slicegraph.data.store.molecule_store import MoleculeArrays, MoleculeStore

if TYPE_CHECKING:
    from slicegraph.data.sets.datasets import DataSet, load
    from slicegraph.data.sets.ogb_pyg import open_ogb
    from slicegraph.data.sets.task import Task

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
_LATE = {
    "DataSet": "sets.datasets",
    "load": "sets.datasets",
    "open_ogb": "sets.ogb_pyg",
    "Task": "sets.task",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
