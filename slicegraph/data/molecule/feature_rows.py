"""OGB's features of the atoms and bonds of a molecule, learnt from OGB's own functions."""

from collections.abc import Iterable
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

from slicegraph.data.molecule.chirality_tag import mirror_images, tag_at
from slicegraph.data.molecule.mol_records import (
    Records,
    binary_of,
    is_plain_atom,
    is_plain_bond,
    records_of,
)
from slicegraph.ops.backends import cpu_molecule

NUM_ATOM_FEATURES = len(get_atom_feature_dims())
NUM_BOND_FEATURES = len(get_bond_feature_dims())

_MOST_REMEMBERED = 1 << 16


class FeatureRows(NamedTuple):
    """The features of each atom and of each bond as bytes, and the two atoms of each bond."""

    atoms: list[bytes]
    ends: list[int]
    bonds: list[bytes]


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
        self._atoms: dict[bytes, bytes] = {}
        self._bonds: dict[bytes, bytes] = {}

    def __call__(self, mol: Mol) -> FeatureRows:
        """The rows of a sanitized molecule, in its order of atoms and bonds."""
        if known := self.known(mol):
            return known
        records = records_of(mol)
        if records is None:
            return self._asked(mol)
        try:
            return self._remembered(records.atom_keys(), records.ends, records.bond_keys())
        except KeyError:
            return self._learnt(mol, records)

    def known(self, mol: Mol, *order: str) -> FeatureRows | None:
        """The rows, if the C++ kernel knows the form of the molecule and all are remembered.

        Args:
            mol: a sanitized molecule.
            order: nothing to keep its order. Else what `in_text_order` takes: the order of the
                atoms and that of the bonds in the canonical SMILES, and this text. The rows are
                those that RDKit would read it to.
        """
        binary = binary_of(mol) if cpu_molecule.available() else None
        keys = cpu_molecule.molecule_keys(binary, *map(str.encode, order)) if binary else None
        try:
            return self._remembered(*keys) if keys else None
        except KeyError:
            return None

    def _remembered(
        self, atoms: Iterable[bytes], ends: bytes, bonds: Iterable[bytes]
    ) -> FeatureRows:
        atom_row, bond_row = self._atoms.__getitem__, self._bonds.__getitem__
        return FeatureRows(list(map(atom_row, atoms)), list(ends), list(map(bond_row, bonds)))

    def _learnt(self, mol: Mol, records: Records) -> FeatureRows:
        rows = self._asked(mol)
        if len(self._atoms) < _MOST_REMEMBERED and _agree(mol, records):
            for key, row in zip(records.atom_keys(), rows.atoms, strict=True):
                self._atoms.update(mirror_images(key, row))
            self._bonds.update(zip(records.bond_keys(), rows.bonds, strict=True))
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
    said = [
        (atom.GetDegree(), atom.IsInRing(), atom.GetAtomicNum(), int(atom.GetChiralTag()))
        for atom in mol.GetAtoms()
    ]
    keys = [(*key[:3], key[at] if (at := tag_at(key)) else 0) for key in records.atom_keys()]
    return (
        all(map(is_plain_atom, records.atoms))
        and all(map(is_plain_bond, records.bonds))
        and keys == said
        and list(records.ends) == _ends(_bonds(mol))
    )
