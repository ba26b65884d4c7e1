"""From SMILES to the PyG graph of a molecule, with OGB's features."""

from array import array

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from slicegraph.data.molecule.feature_rows import NUM_ATOM_FEATURES, NUM_BOND_FEATURES, OgbFeatures
from slicegraph.data.molecule.graph_data import graph_data
from slicegraph.data.molecule.molecule_reader import as_array, read_rows, read_smiles
from slicegraph.data.molecule.smiles_parser import SmilesError

__all__ = ["SmilesError", "featurize", "read_smiles"]

# Rows of bonds hold their features twice, once for each direction.
_FEATURES = {
    torch.uint8: OgbFeatures(np.uint8, copies=2),
    torch.int32: OgbFeatures(np.int32, copies=2),
    torch.int64: OgbFeatures(np.int64, copies=2),
}


def featurize(smiles: str, canonical: bool = True, dtype: torch.dtype = torch.int64) -> Data:
    """The graph of a molecule, as `ogb.utils.smiles2graph` has it.

    Args:
        smiles: the text. Blanks around it do not count; what follows a blank within it is an
            extension (CXSMILES) or a name, as RDKit has it.
        canonical: whether the atoms and bonds are in the order of RDKit's canonical SMILES, so that
            every spelling of a molecule gives the same graph: that which OGB makes of the canonical
            SMILES. With ``False`` they keep the order of the text, and the arrays equal OGB's.
        dtype: of ``x`` and ``edge_attr``: uint8, int32 or int64.

    Shapes:
        - x: ``[n, 9]``, the features of the atoms.
        - edge_index: ``[2, 2 * m]``, int64: each bond as ``(i, j)`` and then as ``(j, i)``.
        - edge_attr: ``[2 * m, 3]``, the features of the bonds.

    Raises:
        SmilesError: RDKit cannot read the text, or there are no atoms or more than 65,535.

    A canonical SMILES is as unique as RDKit makes it. What is known to be written in more than one
    way are a few symmetric cages (adamantane, cubane) with chirality marks on atoms that cannot be
    told apart without them.

    Example:
        >>> featurize("OCC")
        Data(x=[3, 9], edge_index=[2, 4], edge_attr=[4, 3])
    """
    if dtype not in _FEATURES:
        raise ValueError(
            f"featurize: dtype = {dtype} is not torch.uint8, torch.int32 or torch.int64"
        )
    features = _FEATURES[dtype]
    rows = read_rows(smiles, canonical, features)
    return graph_data(
        x=_tensor(rows.atoms, NUM_ATOM_FEATURES, features.dtype),
        edge_index=_edge_index(rows.ends),
        edge_attr=_tensor(rows.bonds, NUM_BOND_FEATURES, features.dtype),
    )


def _tensor(rows: list[bytes], columns: int, dtype: np.dtype) -> Tensor:
    return torch.from_numpy(as_array(rows, columns, dtype))


def _edge_index(ends: list[int]) -> Tensor:
    backwards = ends.copy()
    backwards[::2], backwards[1::2] = ends[1::2], ends[::2]
    return torch.from_numpy(np.ndarray((2, len(ends)), np.int64, array("q", ends + backwards)))
