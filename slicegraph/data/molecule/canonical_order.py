"""A molecule in the order of its canonical SMILES, as if that text had been read."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

from rdkit.Chem import Mol, MolToSmiles

from slicegraph.data.molecule.feature_rows import FeatureRows, OgbFeatures
from slicegraph.data.molecule.smiles_parser import SmilesError, lock_for_threads, parse_smiles
from slicegraph.data.molecule.text_order import in_text_order

_ATOM_ORDER, _BOND_ORDER = "_smilesAtomOutputOrder", "_smilesBondOutputOrder"
_MAP_NUMBER = re.compile(r":\d+]")
_DATIVE = re.compile("[<>]")

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
    orders = mol.GetProp(_ATOM_ORDER), mol.GetProp(_BOND_ORDER)
    if known := features.known(mol, *orders, text):
        return known
    rows = features(mol)
    del mol  # RDKit is faster if it finds the memory that it has just used
    chiral = "@" in smiles or "@" in text
    return in_text_order(rows, *orders, text, chiral) or features(_read_back(text))


def _read_back(text: str) -> Mol:
    mol = parse_smiles(text)
    if not _DATIVE.search(text):
        return mol
    # If RDKit has just made these bonds of others, it does not always write the last word at once.
    return parse_smiles(_canonical_text(mol, text))


def _canonical_text(mol: Mol, smiles: str) -> str:
    try:
        return MolToSmiles(mol) if len(smiles) <= _SHALLOW else _deep(mol)
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
