"""The features that RDKit would read a canonical SMILES to, without reading it."""

import re

from slicegraph.data.molecule.chirality import Closure, set_tags
from slicegraph.data.molecule.feature_rows import FeatureRows

# An atom in brackets: its mark if it is tetrahedral; or a ring closure: the symbol of its bond, its
# label.
_TOKEN = re.compile(r"\[[^]@]*(@@?H?(?![@A-Z\d]))?[^]]*]|([-=#:]?)[/\\]?(%\(\d+\)|%\d\d|\d)")

_Bond = tuple[int, int, bytes]
"""Two atoms in the order of the text, and the features."""


def in_text_order(
    rows: FeatureRows, atom_order: str, bond_order: str, text: str, chiral: bool
) -> FeatureRows | None:
    """The features of a molecule in the order of its canonical SMILES; None if they are not known.

    RDKit's parser makes each atom's bond to the one before it, then the ring closures.

    Args:
        rows: the features in another order.
        atom_order: of each atom in the text its number in `rows`, as RDKit notes it: ``[1,0]``.
        bond_order: the same of each bond.
        text: the canonical SMILES.
        chiral: whether atoms may have a chirality tag, which depends on the order of their bonds.
    """
    if ">" in text or "<" in text:
        return None
    order = _numbers(atom_order)
    atoms = [rows.atoms[old] for old in order]
    before, ends, bonds, closing = _walk(rows, order, _numbers(bond_order) if rows.bonds else [])
    if closing or chiral:
        closures, marks = _closures(text, closing)
        for _, _, _, symbol, first, last, row in closures:
            ends += (first, last) if symbol else (last, first)
            bonds.append(row)
        if chiral and not set_tags(atoms, marks, before, closures):
            return None
    return FeatureRows(atoms, ends, bonds)


def _numbers(noted: str) -> list[int]:
    return list(map(int, noted.strip("[],").split(",")))


def _walk(
    rows: FeatureRows, order: list[int], bond_order: list[int]
) -> tuple[list[int], list[int], list[bytes], list[_Bond]]:
    """Of each atom the one that the text reaches it from, or -1; these bonds; the other bonds."""
    rank = [0] * len(order)
    for new, old in enumerate(order):
        rank[old] = new
    _, old_ends, old_bonds = rows
    before, reached = [-1] * len(order), 0
    ends: list[int] = []
    bonds: list[bytes] = []
    closing: list[_Bond] = []
    for bond in bond_order:
        i, j = rank[old_ends[2 * bond]], rank[old_ends[2 * bond + 1]]
        if i > j:
            i, j = j, i
        if j > reached:
            before[j] = i
            reached = j
            ends += i, j
            bonds.append(old_bonds[bond])
        else:
            closing.append((i, j, old_bonds[bond]))
    return before, ends, bonds, closing


def _closures(text: str, closing: list[_Bond]) -> tuple[list[Closure], list[str]]:
    """The ring closures of a text in the parser's order, which is by label; and its marks."""
    opened: dict[str, tuple[int, str]] = {}
    closures: list[Closure] = []
    marks = []
    for place, (mark, symbol, label) in enumerate(_TOKEN.findall(text)):
        if not label:
            if mark:
                marks.append(mark)
        elif label in opened:
            bond = closing[len(closures)]
            closures.append((int(label.strip("%()")), place, *opened.pop(label), *bond))
        else:
            opened[label] = place, symbol
    closures.sort()
    return closures, marks
