"""A molecule in the order of its canonical SMILES, as if that text had been read."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

from rdkit.Chem import Mol, MolToSmiles

from slicegraph.data.molecule.feature_rows import FeatureRows, OgbFeatures
from slicegraph.data.molecule.smiles_parser import SmilesError, lock_for_threads, parse_smiles

_OUTPUT_ORDER = "_smilesAtomOutputOrder"
_MAP_NUMBER = re.compile(r":\d+]")
_DATIVE = re.compile("[<>]")
# Chirality tags depend on the order of the bonds (and some are not written), dative bonds have a
# direction.
_MUST_BE_READ = re.compile("[@<>]")
# An atom; or a ring closure: the symbol of its bond, and its label.
_TOKEN = re.compile(r"(\[[^]]*]|Cl|Br|[A-Za-z*])|([-=#:]?)[/\\]?(%\(\d+\)|%\d\d|\d)")

# RDKit writes a SMILES recursively, up to one level an atom: 20,000 atoms overrun a usual stack.
_SHALLOW = 500
_STACK_AN_ATOM = 4096
_STACK_SIZE = lock_for_threads()


def canonical_rows(smiles: str, features: OgbFeatures) -> FeatureRows:
    """The features of the molecule of a text, in the order of its canonical SMILES.

    Args:
        smiles: the text. Atom map numbers (``[CH3:1]``) do not count.
        features: makes the rows.
    """
    mol = parse_smiles(smiles)
    if ":" in smiles and (unnumbered := _MAP_NUMBER.sub("]", smiles)) != smiles:
        mol = parse_smiles(unnumbered)
    text = _canonical_text(mol, smiles)
    if text == smiles:
        return features(mol)
    if "@" not in smiles and not _MUST_BE_READ.search(text):
        return _reordered(features(mol), mol.GetProp(_OUTPUT_ORDER), text)
    del mol  # RDKit is faster if it finds the memory that it has just used
    return features(_read_back(text))


def _read_back(text: str) -> Mol:
    mol = parse_smiles(text)
    if not _DATIVE.search(text):
        return mol
    # If RDKit has just made these bonds of others, it does not always write the last word at once.
    return parse_smiles(_canonical_text(mol, text))


def _canonical_text(mol: Mol, smiles: str) -> str:
    try:
        return _deep(mol) if mol.GetNumAtoms() > _SHALLOW else MolToSmiles(mol)
    except (RuntimeError, ValueError) as error:
        remedy = "canonical=False keeps the order of the text"
        raise SmilesError(smiles, f"no canonical order: {error} {remedy}") from None


def _deep(mol: Mol) -> str:
    with _STACK_SIZE, ThreadPoolExecutor(1) as thread:
        usual = threading.stack_size(_STACK_AN_ATOM * (mol.GetNumAtoms() + _SHALLOW))
        try:
            text = thread.submit(MolToSmiles, mol)
        finally:
            threading.stack_size(usual)
        return text.result()


def _reordered(rows: FeatureRows, output_order: str, text: str) -> FeatureRows:
    """What `text` would be read to: each atom's bond to the one before it, then ring closures."""
    order = list(map(int, output_order.strip("[],").split(",")))
    rank = sorted(range(len(order)), key=order.__getitem__)
    ends = [rank[atom] for atom in rows.ends]
    bonds = {}
    # A text is a depth-first walk: of the atoms before it, the last is the one it was reached from.
    before = [-1] * len(order)
    for i, j, row in zip(ends[::2], ends[1::2], rows.bonds, strict=True):
        if i > j:
            i, j = j, i
        bonds[i, j] = bonds[j, i] = row
        if i > before[j]:
            before[j] = i
    pairs = [(i, j) for j, i in enumerate(before) if i >= 0]
    if len(pairs) < len(rows.bonds):
        pairs += _ring_closures(text)
    return FeatureRows(
        [rows.atoms[old] for old in order],
        [atom for pair in pairs for atom in pair],
        [bonds[pair] for pair in pairs],
    )


def _ring_closures(text: str) -> list[tuple[int, int]]:
    """The bonds that RDKit's parser makes of the labels of a text, in its order and direction."""
    atom, opened, closed = -1, {}, []
    for name, symbol, label in _TOKEN.findall(text):
        if name:
            atom += 1
        elif label not in opened:
            opened[label] = atom, symbol
        else:
            first, first_symbol = opened.pop(label)
            bond = (first, atom) if first_symbol else (atom, first)
            closed.append((int(label.strip("%()")), bond))
    closed.sort(key=lambda labelled: labelled[0])
    return [bond for _, bond in closed]
