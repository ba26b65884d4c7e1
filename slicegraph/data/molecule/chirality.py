"""The chirality tags that RDKit's parser gives to the atoms of a SMILES.

A mark (``@``, ``@@``) in the text is relative to the order in which the text names the neighbours
of its atom: the one before it, a hydrogen, the ring closures by their labels, the ones after it.
The tag is relative to the order of the atom's bonds, which has the ring closures last. It is the
mark's own if an even number of swaps leads from one to the other, else the opposite.
"""

from itertools import combinations

from slicegraph.data.molecule.chirality_tag import (
    CLOCKWISE,
    COUNTERCLOCKWISE,
    chirality_at,
    with_tag,
)

Closure = tuple[int, int, int, str, int, int, bytes]
"""A ring closure: its label; where in the text this is closed, and where opened; the symbol of the
bond; its first and last atom in the text, and its features."""


def set_tags(
    atoms: list[bytes], marks: list[str], before: list[int], closures: list[Closure]
) -> bool:
    """Sets the tags in the features of atoms, if the text has the mark of each and they are known.

    Args:
        atoms: the features in the order of the text, with tags of another order.
        marks: ``@``, ``@@``, ``@H`` or ``@@H`` of each atom that has one in the text.
        before: of each atom the one before it, or -1.
        closures: in the order of the bonds.
    """
    at = chirality_at(atoms[0])
    tagged = [atom for atom, row in enumerate(atoms) if row[at]]
    if len(tagged) != len(marks):
        return False
    for atom, mark in zip(tagged, marks, strict=True):
        swaps = _swaps(atom, mark[-1] == "H", before, closures)
        if swaps is None:
            return False
        tag = CLOCKWISE if (mark[:2] == "@@") == (swaps % 2 == 0) else COUNTERCLOCKWISE
        if atoms[atom][at] != tag:
            atoms[atom] = with_tag(atoms[atom], at, tag)
    return True


def _swaps(atom: int, hydrogen: bool, before: list[int], closures: list[Closure]) -> int | None:
    """From the order of the text to that of the bonds; None without four neighbours."""
    labels = [
        opened if atom == first else closed
        for _, closed, opened, _, first, last, _ in closures
        if atom in (first, last)
    ]
    is_first, num_after = before[atom] < 0, before.count(atom)
    if num_after + len(labels) + hydrogen - is_first != 3:
        return None
    swaps = len(labels) * num_after + (is_first and hydrogen)
    if len(labels) > 1:
        swaps += sum(one > other for one, other in combinations(labels, 2))
    return swaps
