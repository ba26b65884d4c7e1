"""From SMILES to the graph of a molecule in numpy arrays, with OGB's features."""

import numpy as np

from slicegraph.data.molecule.canonical_order import canonical_rows
from slicegraph.data.molecule.feature_rows import (
    NUM_ATOM_FEATURES,
    NUM_BOND_FEATURES,
    FeatureRows,
    OgbFeatures,
)
from slicegraph.data.molecule.molecule_graph import MoleculeGraph
from slicegraph.data.molecule.smiles_parser import parse_smiles

_FEATURES = OgbFeatures(np.uint8)


def read_smiles(smiles: str, canonical: bool = True) -> MoleculeGraph:
    """The graph of a molecule in numpy arrays, each bond once; as :func:`featurize`.

    Example:
        >>> read_smiles("OCC").bonds.tolist()
        [[0, 1], [1, 2]]
    """
    rows = read_rows(smiles, canonical, _FEATURES)
    return MoleculeGraph(
        as_array(rows.atoms, NUM_ATOM_FEATURES, _FEATURES.dtype),
        np.array(rows.ends, dtype=np.uint16).reshape(-1, 2),
        as_array(rows.bonds, NUM_BOND_FEATURES, _FEATURES.dtype),
    )


def read_rows(smiles: str, canonical: bool, features: OgbFeatures) -> FeatureRows:
    """The features of a molecule as `features` makes them, in the order that is asked for."""
    return canonical_rows(smiles, features) if canonical else features(parse_smiles(smiles))


def as_array(rows: list[bytes], columns: int, dtype: np.dtype) -> np.ndarray:
    """Rows in bytes as an array that may be written to."""
    values = bytearray().join(rows)
    return np.ndarray((len(values) // (columns * dtype.itemsize), columns), dtype, values)
