"""Molecules in: from SMILES, a table or an OGB data set to batches."""

from slicegraph.extras import import_ogb, needs

with needs(__name__, "mol"):
    import_ogb()  # before any file of this folder imports it

    from slicegraph.data.batch import SizeGroupedBatchSampler, collate, molecule_loader
    from slicegraph.data.datasets import MoleculeDataset, prepare
    from slicegraph.data.datasets import load_dataset as load
    from slicegraph.data.datasets.ogb import open_ogb
    from slicegraph.data.prepare import PrepareError, PrepareResult, write_graphs
    from slicegraph.data.smiles import MoleculeGraph, SmilesError, featurize, read_smiles
    from slicegraph.data.splits import Task
    from slicegraph.data.store import MoleculeArrays, MoleculeStore, StoreError

DataSet = MoleculeDataset  # the former name

__all__ = [
    "DataSet",
    "MoleculeArrays",
    "MoleculeDataset",
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
