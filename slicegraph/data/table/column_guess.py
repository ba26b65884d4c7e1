"""Which column has the SMILES and which have labels, from their names and first values."""

from collections.abc import Sequence
from itertools import pairwise

from slicegraph.data.molecule.molecule_reader import read_smiles
from slicegraph.data.molecule.smiles_parser import SmilesError
from slicegraph.data.table.label_text import is_gap, is_number
from slicegraph.data.table.text_rows import is_text

_SMILES_NAMES = ("smiles", "canonical_smiles", "isomeric_smiles", "can_smiles", "smi")
_MOLECULE_NAMES = ("mol", "molecule", "structure", "compound")  # may be drawings, names, numbers
_NUMBERING = ("", "#", "id", "idx", "index", "row", "mol_id", "molid", "cid", "unnamed:_0")
_ENOUGH = 20  # values that tell whether a column has SMILES


def guess_smiles(file: str, names: Sequence[str], sample: Sequence[Sequence[str]]) -> str:
    """The column with a usual name; else the one whose values are molecules.

    Of several, the one with the longest texts. A column of which the name is a molecule, too, is
    no column: then the file has no header.
    """
    plain = [_plain(name) for name in names]
    for usual in (*_SMILES_NAMES, *(name for name in plain if "smiles" in name)):
        if plain.count(usual) == 1:
            return names[plain.index(usual)]
    found = [k for k in range(len(names)) if _has_molecules(_values(sample, k))]
    for k in found:
        if plain[k] in _MOLECULE_NAMES:
            return names[k]
    if not found:
        raise ValueError(
            f"{file!r} has no column that looks like SMILES; name it, its columns are "
            f"{', '.join(names)}"
        )
    best = max(found, key=lambda k: sum(map(len, _values(sample, k))))
    if _is_molecule(names[best]):
        raise ValueError(
            f"{file!r} has no header: its first line has {names[best]!r}, a molecule, where a "
            "column name is expected; add a header, or name the SMILES column"
        )
    return names[best]


def guess_labels(names: Sequence[str], sample: Sequence[Sequence[str]], smiles: str) -> list[str]:
    """The columns with numbers, but for those that number the rows."""
    return [
        name
        for k, name in enumerate(names)
        if name != smiles and names.count(name) == 1 and _has_labels(name, [r[k] for r in sample])
    ]


def _plain(name: str) -> str:
    return name.casefold().replace(" ", "_").replace("-", "_")


def _values(sample: Sequence[Sequence[str]], column: int) -> list[str]:
    return [row[column] for row in sample if row[column].strip()][:_ENOUGH]


def _has_molecules(values: Sequence[str]) -> bool:
    return 2 * sum(map(_is_molecule, values)) > len(values)


def _is_molecule(text: str) -> bool:
    if not (text.strip() and is_text(text)):
        return False
    try:
        read_smiles(text, canonical=False)
    except SmilesError:
        return False
    return True


def _has_labels(name: str, values: Sequence[str]) -> bool:
    values = [value for value in values if not is_gap(value)]
    numbers = [float(value) for value in values if is_number(value)]
    if _plain(name) in _NUMBERING or 2 * len(numbers) <= len(values):
        return False
    steps = {after - before for before, after in pairwise(numbers)}
    return len(numbers) < 3 or steps != {1.0}
