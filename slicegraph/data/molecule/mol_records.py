"""What RDKit knows of the atoms and bonds of a molecule, in one call.

To ask every atom and bond through Python takes longer than to parse the SMILES. RDKit's binary form
of a molecule holds all the answers in one string of bytes. This module knows where in it the record
of each atom and bond begins and ends; what a record means is asked of RDKit, once for all equal
ones (`feature_rows`). For at most 255 atoms:

====================  ============================================================================
bytes                 meaning
====================  ============================================================================
20                    byte order, version
4, 4                  number of atoms, number of bonds
1, 1                  flags of the molecule, the tag of atoms
1, 1, 4, 1 each       an atom: element, flags, which values follow (one bit each), these values
1                     the tag of bonds
1, 1, 1, 1 each, ...  a bond: begin, end, flags, values other than the default, atoms of its stereo
1, 4                  the tag of rings, their number
1, 1 each             a ring: its size, its atoms
====================  ============================================================================

RDKit 2023.09 to 2026.09 write these parts so. A molecule with anything else in them, such as
isotopes, atom map numbers or queries, is recognised and not read. The C++ kernel reads the same
(`csrc/mol_records.h`).
"""

from typing import NamedTuple

from rdkit.Chem import Mol

from slicegraph.ops.backends.cpu_molecule import ATOM_KEY, BOND_KEY

_NO_PROPERTIES = 0
_MOST_ATOMS = 255
_ATOMS_AT, _BONDS_AT, _TAG_AT, _FIRST_ATOM = 20, 24, 28, 30
_ATOM_TAG, _BOND_TAG = b"\x80\x01", 0x0B
_RING_TAGS = (0x14, 0x42)
"""Up to 2023.09, and later."""

_ATOM_FLAGS = 0b0110_0000
"""Aromatic, no implicit hydrogens. Any other makes the record longer."""
_ATOM_VALUES = 0b1111_1110
"""Charge, chirality, hybridization, explicit hydrogens, two valences, radical electrons."""
_ATOM_SIZE = [6 + values.bit_count() for values in range(256)]

_BOND_FLAGS = 0b0110_1110
"""Aromatic, conjugated, and has a type, a direction, a stereo. Any other makes it longer."""
_BOND_SIZE = [3 + (flags & 0b1110).bit_count() for flags in range(256)]
_STEREO = 0b0000_0010
"""After the values follow the number of the atoms that the stereo refers to, and these."""


class Records(NamedTuple):
    """Atoms and bonds as RDKit writes them, in its order.

    Attributes:
        atoms: the record of each atom.
        ends: the two atoms of each bond, one bond after another.
        bonds: the record of each bond.
        rings: the atoms of each ring, one ring after another.
    """

    atoms: list[bytes]
    ends: bytes
    bonds: list[bytes]
    rings: bytes

    def atom_keys(self) -> list[bytes]:
        """Of each atom its number of bonds, whether it is in a ring, and its record, then zeros.

        OGB's features follow from these.
        """
        _, ends, _, rings = self
        return [
            (bytes((ends.count(i), i in rings)) + atom).ljust(ATOM_KEY, b"\0")
            for i, atom in enumerate(self.atoms)
        ]

    def bond_keys(self) -> list[bytes]:
        """The record of each bond, then zeros. OGB's features follow from these."""
        return [bond.ljust(BOND_KEY, b"\0") for bond in self.bonds]


def binary_of(mol: Mol) -> bytes | None:
    """RDKit's binary form of a molecule, without properties; None if it has too many atoms."""
    return mol.ToBinary(_NO_PROPERTIES) if mol.GetNumAtoms() <= _MOST_ATOMS else None


def records_of(mol: Mol) -> Records | None:
    """The records of a sanitized molecule; None if it has too many atoms or another form."""
    binary = binary_of(mol)
    try:
        return _split(binary) if binary else None
    except IndexError:
        return None


def is_plain_atom(record: bytes) -> bool:
    """Whether the length of an atom's record is as `records_of` takes it."""
    return not (record[1] & ~_ATOM_FLAGS or record[2] & ~_ATOM_VALUES or any(record[3:6]))


def is_plain_bond(record: bytes) -> bool:
    """Whether the length of a bond's record is as `records_of` takes it."""
    return not record[0] & ~_BOND_FLAGS


def _split(binary: bytes) -> Records | None:
    if binary[_TAG_AT:_FIRST_ATOM] != _ATOM_TAG:
        return None
    atoms, at = [], _FIRST_ATOM
    for _ in range(binary[_ATOMS_AT]):
        end = at + _ATOM_SIZE[binary[at + 2]]
        atoms.append(binary[at:end])
        at = end
    if binary[at] != _BOND_TAG:
        return None
    at += 1
    ends, bonds = b"", []
    for _ in range(int.from_bytes(binary[_BONDS_AT:_TAG_AT], "little")):
        flags = binary[at + 2]
        end = at + _BOND_SIZE[flags]
        ends += binary[at : at + 2]
        bonds.append(binary[at + 2 : end])
        at = end + 1 + binary[end] if flags & _STEREO else end
    if binary[at] not in _RING_TAGS:
        return None
    at, rings = at + 5, b""
    for _ in range(int.from_bytes(binary[at - 4 : at], "little")):
        end = at + 1 + binary[at]
        rings += binary[at + 1 : end]
        at = end
    return Records(atoms, ends, bonds, rings)
