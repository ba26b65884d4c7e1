"""The C++ kernel that reads RDKit's binary form of a molecule (see csrc/mol_records.h)."""

from ctypes import c_char_p, c_int64, create_string_buffer
from functools import lru_cache
from struct import Struct
from typing import Any

from slicegraph.ops.backends import cpu

ATOM_KEY, BOND_KEY = 16, 4
"""Bytes of a key."""

_ATOMS_AT, _BONDS_AT = 20, 24
_MOST_BONDS = 511
_molecule_keys: Any = getattr(cpu._library, "slicegraph_molecule_keys", None)
if _molecule_keys is not None:
    _molecule_keys.argtypes = (c_char_p, c_int64, c_char_p, c_char_p, c_char_p, c_char_p)


def available() -> bool:
    """Whether the library was built, with this kernel."""
    return _molecule_keys is not None


def molecule_keys(
    binary: bytes, *order: bytes
) -> tuple[tuple[bytes, ...], bytes, tuple[bytes, ...]] | None:
    """The key of each atom, the two atoms of each bond, its key; None if the form is another.

    Args:
        binary: the molecule, without properties.
        order: nothing to keep its order. Else of each atom in its canonical SMILES the number in
            the molecule, as RDKit notes it: ``[1,0]``; the same of each bond; and this text. The
            keys are those of the molecule that RDKit would read it to.
    """
    atom_order, bond_order, text = order or (None, None, None)
    num_bonds = int.from_bytes(binary[_BONDS_AT : _BONDS_AT + 4], "little")
    if num_bonds > _MOST_BONDS:
        return None
    atom_keys, bond_keys = _keys(binary[_ATOMS_AT], ATOM_KEY), _keys(num_bonds, BOND_KEY)
    bonds_at = atom_keys.size
    ends_at = bonds_at + bond_keys.size
    out = create_string_buffer(ends_at + 2 * num_bonds)
    if _molecule_keys(binary, len(binary), atom_order, bond_order, text, out):
        return None
    return atom_keys.unpack_from(out), out.raw[ends_at:], bond_keys.unpack_from(out, bonds_at)


@lru_cache(1024)
def _keys(count: int, size: int) -> Struct:
    return Struct(f"{size}s" * count)
