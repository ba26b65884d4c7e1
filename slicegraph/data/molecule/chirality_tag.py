"""The chirality tag of an atom: a byte of its row of features, and of its key.

The numbers of the two tags of a tetrahedron are the same to OGB and to RDKit.
"""

import sys

from ogb.utils.features import allowable_features, get_atom_feature_dims

_TAGS = allowable_features["possible_chirality_list"]
CLOCKWISE = _TAGS.index("CHI_TETRAHEDRAL_CW")
COUNTERCLOCKWISE = _TAGS.index("CHI_TETRAHEDRAL_CCW")

_NUM_FEATURES = len(get_atom_feature_dims())
_VALUES_AT, _FIRST_VALUE = 4, 8
_CHARGE, _CHIRALITY = 0b0000_0010, 0b0000_0100


def chirality_at(row: bytes) -> int:
    """Which byte of the row of an atom has its chirality, OGB's second feature; others are 0."""
    size = len(row) // _NUM_FEATURES
    return size if sys.byteorder == "little" else 2 * size - 1


def tag_at(key: bytes) -> int:
    """Which byte of the key of an atom is its tag (see `mol_records`); 0 if it has none."""
    values = key[_VALUES_AT]
    return _FIRST_VALUE + bool(values & _CHARGE) if values & _CHIRALITY else 0


def with_tag(values: bytes, at: int, tag: int) -> bytes:
    """A row or key with another tag, which is the byte `at`."""
    return values[:at] + bytes((tag,)) + values[at + 1 :]


def mirror_images(key: bytes, row: bytes) -> dict[bytes, bytes]:
    """The row of an atom by its key; if it is chiral, that of its mirror image too."""
    at, row_at = tag_at(key), chirality_at(row)
    tags = CLOCKWISE, COUNTERCLOCKWISE
    if not at or key[at] not in tags:
        return {key: row}
    return {with_tag(key, at, tag): with_tag(row, row_at, tag) for tag in tags}
