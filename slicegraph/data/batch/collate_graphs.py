"""From graphs in memory to the batch that a model takes."""

from collections.abc import Sequence

import numpy as np
import torch
from torch_geometric.data import Data

from slicegraph.data.molecule.molecule_graph import MoleculeGraph, directed


def collate_graphs(graphs: Sequence[MoleculeGraph]) -> Data:
    """One graph of all atoms and bonds, molecule after molecule, as a batch has them.

    It has what a model reads of a ``Batch`` and no more: it does not separate.

    Args:
        graphs: at least one.

    Shapes:
        For ``B`` molecules with ``T`` atoms and ``E`` directed bonds in all:

        - x: ``[T, F]``, edge_attr: ``[E, G]``, uint8; edge_index: ``[2, E]``, int64.
        - ptr: ``[B + 1]``, int64, the first atom of each molecule.

    Example:
        >>> collate_graphs([read_smiles("CCO"), read_smiles("C")])
        Data(x=[4, 9], edge_index=[2, 4], edge_attr=[4, 3], ptr=[3])
    """
    if not graphs:
        raise ValueError("collate_graphs: there are no graphs, expected at least one")
    ptr = np.concatenate([[0], np.cumsum([len(graph.atoms) for graph in graphs])])
    edges = [directed(graph) for graph in graphs]
    numbered = [index + first for (index, _), first in zip(edges, ptr[:-1], strict=True)]
    return Data(
        x=torch.from_numpy(np.concatenate([graph.atoms for graph in graphs])),
        edge_index=torch.from_numpy(np.concatenate(numbered, axis=1)),
        edge_attr=torch.from_numpy(np.concatenate([features for _, features in edges])),
        ptr=torch.from_numpy(ptr),
    )
