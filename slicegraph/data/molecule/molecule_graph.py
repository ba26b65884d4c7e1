"""A molecule as small numpy arrays, each bond once."""

from typing import NamedTuple

import numpy as np


class MoleculeGraph(NamedTuple):
    """Atoms and bonds of one molecule in OGB's features.

    Shapes:
        - atoms: ``[n, 9]``, uint8.
        - bonds: ``[m, 2]``, uint16, the two atoms of each bond, once.
        - bond_features: ``[m, 3]``, uint8.
    """

    atoms: np.ndarray
    bonds: np.ndarray
    bond_features: np.ndarray


def directed(graph: MoleculeGraph) -> tuple[np.ndarray, np.ndarray]:
    """OGB's edges: every bond as ``(i, j)`` and then ``(j, i)``, and its features twice.

    Shapes:
        - edge_index: ``[2, 2 * m]``, int64.
        - edge_attr: ``[2 * m, 3]``, uint8.

    Example:
        >>> edge_index, edge_attr = directed(read_smiles("CCO", canonical=False))
        >>> edge_index
        array([[0, 1, 1, 2],
               [1, 0, 2, 1]])
    """
    edge_index = np.empty((2, len(graph.bonds), 2), dtype=np.int64)
    edge_index[0] = graph.bonds
    edge_index[1] = graph.bonds[:, ::-1]
    return edge_index.reshape(2, -1), graph.bond_features.repeat(2, axis=0)
