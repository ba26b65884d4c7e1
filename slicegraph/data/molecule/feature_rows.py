"""OGB's features of the atoms and bonds of a molecule, learnt from OGB's own functions."""

import sys
from typing import NamedTuple

import numpy as np
from ogb.utils.features import (
    allowable_features,
    atom_to_feature_vector,
    bond_to_feature_vector,
    get_atom_feature_dims,
    get_bond_feature_dims,
    safe_index,
)
from rdkit.Chem import Bond, Mol

from slicegraph.data.molecule.mol_records import Records, is_plain_atom, is_plain_bond, records_of

NUM_ATOM_FEATURES = len(get_atom_feature_dims())
NUM_BOND_FEATURES = len(get_bond_feature_dims())

_MOST_REMEMBERED = 1 << 16


class FeatureRows(NamedTuple):
    """The features of each atom and of each bond as bytes, and the two atoms of each bond."""

    atoms: list[bytes]
    ends: list[int]
    bonds: list[bytes]


def chirality_at(atom: bytes) -> int:
    """Which byte of the row of an atom has its chirality, OGB's second feature; others are 0."""
    size = len(atom) // NUM_ATOM_FEATURES
    return size if sys.byteorder == "little" else 2 * size - 1


class OgbFeatures:
    """The features of molecules, remembered for all atoms and bonds with equal records.

    Args:
        dtype: of the numbers in a row; all of OGB's fit a byte.
        copies: how many times the row of a bond has its features.

    Example:
        >>> rows = OgbFeatures(np.uint8)(MolFromSmiles("CO"))
        >>> [list(row) for row in rows.atoms]
        [[5, 0, 4, 5, 3, 0, 2, 0, 0], [7, 0, 2, 5, 1, 0, 2, 0, 0]]
    """

    def __init__(self, dtype: type[np.integer], copies: int = 1) -> None:
        self.dtype = np.dtype(dtype)
        self.copies = copies
        self._atoms: dict[tuple[bytes, int, bool], bytes] = {}
        self._bonds: dict[bytes, bytes] = {}

    def __call__(self, mol: Mol) -> FeatureRows:
        """The rows of a sanitized molecule, in its order of atoms and bonds."""
        records = records_of(mol)
        if records is None:
            return self._asked(mol)
        try:
            return self._remembered(records)
        except KeyError:
            return self._learnt(mol, records)

    def _remembered(self, records: Records) -> FeatureRows:
        atoms, bonds = self._atoms, self._bonds
        return FeatureRows(
            [atoms[key] for key in records.atom_keys()],
            list(records.ends),
            [bonds[record] for record in records.bonds],
        )

    def _learnt(self, mol: Mol, records: Records) -> FeatureRows:
        rows = self._asked(mol)
        if len(self._atoms) < _MOST_REMEMBERED and _agree(mol, records):
            self._atoms.update(zip(records.atom_keys(), rows.atoms, strict=True))
            self._bonds.update(zip(records.bonds, rows.bonds, strict=True))
        return rows

    def _asked(self, mol: Mol) -> FeatureRows:
        bonds = _bonds(mol)
        return FeatureRows(
            [self._row(atom_to_feature_vector(atom)) for atom in mol.GetAtoms()],
            _ends(bonds),
            [self._row(_bond_features(bond) * self.copies) for bond in bonds],
        )

    def _row(self, features: list[int]) -> bytes:
        return np.array(features, dtype=self.dtype).tobytes()


def _bond_features(bond: Bond) -> list[int]:
    try:
        return list(bond_to_feature_vector(bond))
    except ValueError:
        # OGB has no word for atropisomers, which only CXSMILES can write. STEREOANY is nearest.
        kind = safe_index(allowable_features["possible_bond_type_list"], str(bond.GetBondType()))
        stereo = allowable_features["possible_bond_stereo_list"].index("STEREOANY")
        return [kind, stereo, int(bond.GetIsConjugated())]


def _bonds(mol: Mol) -> list[Bond]:
    """The bonds in their order. To go through `GetBonds` takes time with their number squared."""
    bonds = {bond.GetIdx(): bond for atom in mol.GetAtoms() for bond in atom.GetBonds()}
    return [bonds[i] for i in range(len(bonds))]


def _ends(bonds: list[Bond]) -> list[int]:
    return [end for bond in bonds for end in (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())]


def _agree(mol: Mol, records: Records) -> bool:
    """Whether the records are of the form that is understood, and say what RDKit says."""
    said = [(atom.GetAtomicNum(), atom.GetDegree(), atom.IsInRing()) for atom in mol.GetAtoms()]
    return (
        all(map(is_plain_atom, records.atoms))
        and all(map(is_plain_bond, records.bonds))
        and [(record[0], degree, ring) for record, degree, ring in records.atom_keys()] == said
        and list(records.ends) == _ends(_bonds(mol))
    )
