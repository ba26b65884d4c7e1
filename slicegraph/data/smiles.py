"""From SMILES to the graph of a molecule, with OGB's features.

RDKit parses the text, OGB's own functions give the features. A feature row depends on a few
attributes of an atom or bond only, so it is computed once for each combination and then looked up.
"""

import os
import re
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from ogb.utils import features as ogb
from rdkit import Chem, rdBase
from torch_geometric.data import Data

from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS

MOST_ATOMS = 65_535  # atoms are numbered in 16 bits

_ATOM_ATTRIBUTES = (
    *(Chem.Atom.GetAtomicNum, Chem.Atom.GetTotalDegree, Chem.Atom.GetFormalCharge),
    *(Chem.Atom.GetTotalNumHs, Chem.Atom.GetNumRadicalElectrons, Chem.Atom.GetHybridization),
    *(Chem.Atom.GetIsAromatic, Chem.Atom.IsInRing),
)
_BOND_ATTRIBUTES = (Chem.Bond.GetBondType, Chem.Bond.GetIsConjugated)
_BOND_ENDS = (Chem.Bond.GetBeginAtomIdx, Chem.Bond.GetEndAtomIdx)
_CHIRAL_TAG, _BOND_STEREO = Chem.Atom.GetChiralTag, Chem.Bond.GetStereo
_NOT_CHIRAL, _NO_STEREO = Chem.ChiralType.CHI_UNSPECIFIED, Chem.BondStereo.STEREONONE
_CHIRAL, _STEREO = re.compile("[@|]"), re.compile(r"[/\\|]")

# RDKit writes a SMILES recursively, up to one level an atom: 20,000 atoms overrun a usual stack.
_SHALLOW = 500
_STACK_AN_ATOM = 4096

_LOCK = threading.Lock()  # RDKit has one log and Python one stack size for the whole process
if hasattr(os, "register_at_fork"):  # it is free in a forked process, whichever thread had it
    _free = {"after_in_parent": _LOCK.release, "after_in_child": _LOCK.release}
    os.register_at_fork(before=_LOCK.acquire, **_free)

_TEXT_SHOWN, _REASON_SHOWN = 80, 200
_TIME = re.compile(r"^\[\d\d:\d\d:\d\d\] ?", re.MULTILINE)
_SYNTAX = re.compile(r"SMILES Parse Error: (.*?)(?: while parsing:| for input:|$)")
_PLACE = re.compile(r"check for mistakes around position \d+")


class FeatureCode:
    r"""Code that packs a row of categorical features into one unsigned integer.

    Feature ``f`` takes the values 0 to ``vocabulary[f] - 1`` and as many bits as the largest needs;
    the first feature has the lowest bits:

    .. math:: code = \sum_f value_f \cdot 2^{w_0 + \ldots + w_{f - 1}},
        \quad w_f = \max(1, \lceil \log_2 vocabulary_f \rceil)

    Args:
        vocabulary: how many values each feature takes, each at least 1; together at most 64 bits.

    Example:
        >>> code = FeatureCode((5, 6, 2))
        >>> code.encode(np.array([[4, 5, 1], [0, 1, 0]]))
        array([108,   8], dtype=uint8)
        >>> code.decode(np.array([108, 8], dtype=np.uint8))
        array([[4, 5, 1],
               [0, 1, 0]], dtype=uint8)
    """

    def __init__(self, vocabulary: Sequence[int]) -> None:
        self.vocabulary = tuple(int(size) for size in vocabulary)
        if not self.vocabulary or min(self.vocabulary) < 1:
            raise ValueError(f"FeatureCode: vocabulary = {self.vocabulary}, expected sizes above 0")
        widths = [max(1, (size - 1).bit_length()) for size in self.vocabulary]
        self.bits = sum(widths)
        if self.bits > 64:
            raise ValueError(f"FeatureCode: {self.vocabulary} needs {self.bits} bits, at most 64")
        self.dtype = np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if 8 * size >= self.bits)}")
        self.value_dtype = np.min_scalar_type(max(self.vocabulary) - 1)
        starts = [sum(widths[:f]) for f in range(len(widths))]
        self._largest = np.array([size - 1 for size in self.vocabulary], dtype=np.uint64)
        self._shifts = np.array(starts, dtype=self.dtype)
        self._masks = np.array([(1 << width) - 1 for width in widths], dtype=self.dtype)

    def encode(self, features: np.ndarray) -> np.ndarray:
        """Pack ``[k, F]`` integers into ``[k]``; a `ValueError` if one is not in its vocabulary."""
        if features.ndim != 2 or features.shape[1] != len(self.vocabulary):
            found, expected = list(features.shape), f"[k, {len(self.vocabulary)}]"
            raise ValueError(f"FeatureCode: features have shape {found}, expected {expected}")
        if features.dtype.kind not in "iu":
            raise TypeError(f"FeatureCode: features are {features.dtype}, expected integers")
        outside = (features < 0) | (features > self._largest)
        if outside.any():
            row, column = np.unravel_index(outside.argmax(), outside.shape)
            raise ValueError(
                f"FeatureCode: features[{row}, {column}] = {features[row, column]} "
                f"is not in 0..{self.vocabulary[column] - 1}"
            )
        parts = features.astype(self.dtype) << self._shifts
        return np.bitwise_or.reduce(parts, axis=1, dtype=self.dtype)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Unpack ``[k]`` codes to ``[k, F]``: uint8, or wider if a vocabulary needs it."""
        parts = codes.astype(self.dtype, copy=False)[:, None] >> self._shifts
        parts &= self._masks
        return parts.astype(self.value_dtype)


OGB_ATOM_CODE = FeatureCode(OGB_ATOMS)  # 30 bits, uint32
OGB_BOND_CODE = FeatureCode(OGB_BONDS)  # 7 bits, uint8
OGB_CODES = (OGB_ATOM_CODE, OGB_BOND_CODE)


class SmilesError(ValueError):
    """A text that RDKit cannot read as a molecule.

    Attributes:
        smiles: the whole text.
        reason: RDKit's own, such as ``"unclosed ring"``.
    """

    def __init__(self, smiles: str, reason: str) -> None:
        super().__init__(smiles, reason)
        self.smiles, self.reason = smiles, reason

    def __str__(self) -> str:
        return f"featurize: cannot read {_shortened(self.smiles, _TEXT_SHOWN)!r} ({self.reason})"


class MoleculeGraph(NamedTuple):
    """Atoms and bonds of one molecule in OGB's features, as numpy arrays.

    Shapes:
        - atoms: ``[n, 9]``, uint8.
        - bonds: ``[m, 2]``, uint16, the two atoms of each bond, once.
        - bond_features: ``[m, 3]``, uint8.
    """

    atoms: np.ndarray
    bonds: np.ndarray
    bond_features: np.ndarray

    def directed(self) -> tuple[np.ndarray, np.ndarray]:
        """Return OGB's edges: every bond as ``(i, j)`` and then ``(j, i)``, its features twice.

        Shapes:
            - edge_index: ``[2, 2 * m]``, int64.
            - edge_attr: ``[2 * m, 3]``, uint8.

        Example:
            >>> edge_index, edge_attr = read_smiles("CCO", canonical=False).directed()
            >>> edge_index
            array([[0, 1, 1, 2],
                   [1, 0, 2, 1]])
        """
        edge_index = np.stack([self.bonds, self.bonds[:, ::-1]]).reshape(2, -1)
        return edge_index.astype(np.int64), self.bond_features.repeat(2, axis=0)


def featurize(smiles: str, canonical: bool = True, dtype: torch.dtype = torch.int64) -> Data:
    """Convert a SMILES to a PyG graph with the features of `ogb.utils.smiles2graph`.

    Args:
        smiles: the text. Blanks around it do not count; what follows a blank within it is an
            extension (CXSMILES) or a name, as RDKit has it. Atom map numbers (``[CH3:1]``) do not
            count in canonical order.
        canonical: whether the atoms and bonds are in the order of RDKit's canonical SMILES, so that
            every spelling of a molecule gives the same graph: that which OGB makes of the canonical
            SMILES. With ``False`` they keep the order of the text, and the arrays equal OGB's.
        dtype: of ``x`` and ``edge_attr``: uint8, int32 or int64.

    Shapes:
        - x: ``[n, 9]``, the features of the atoms.
        - edge_index: ``[2, 2 * m]``, int64: each bond as ``(i, j)`` and then as ``(j, i)``.
        - edge_attr: ``[2 * m, 3]``, the features of the bonds.

    Raises:
        SmilesError: RDKit cannot read the text, or there are no atoms or more than 65,535.

    A canonical SMILES is as unique as RDKit makes it. A few symmetric cages (adamantane, cubane)
    with chirality marks on otherwise equal atoms are known to be written in more than one way.

    Example:
        >>> featurize("OCC")
        Data(x=[3, 9], edge_index=[2, 4], edge_attr=[4, 3])
    """
    if dtype not in (torch.uint8, torch.int32, torch.int64):
        raise ValueError(
            f"featurize: dtype = {dtype} is not torch.uint8, torch.int32 or torch.int64"
        )
    graph = read_smiles(smiles, canonical)
    edge_index, edge_attr = graph.directed()
    return Data(
        x=torch.from_numpy(graph.atoms).to(dtype),
        edge_index=torch.from_numpy(edge_index),
        edge_attr=torch.from_numpy(edge_attr).to(dtype),
    )


def read_smiles(smiles: str, canonical: bool = True) -> MoleculeGraph:
    """Convert a SMILES to numpy arrays with each bond once; otherwise as :func:`featurize`.

    Example:
        >>> read_smiles("OCC").bonds.tolist()
        [[0, 1], [1, 2]]
    """
    mol, text = _canonical_molecule(smiles) if canonical else (_parse(smiles), smiles)
    atoms = list(map(mol.GetAtomWithIdx, range(mol.GetNumAtoms())))
    if (count := mol.GetNumBonds()) <= _SHALLOW:
        bonds = list(map(mol.GetBondWithIdx, range(count)))
    else:  # RDKit takes linear time for a bond by its number, and for each step of `GetBonds`
        found = {bond.GetIdx(): bond for atom in atoms for bond in atom.GetBonds()}
        bonds = list(map(found.__getitem__, range(count)))
    # A text without marks (CXSMILES has others, after "|") has no chirality and no stereo. To get
    # RDKit's enumerations takes as long as everything else.
    chiral = map(_CHIRAL_TAG, atoms) if _CHIRAL.search(text) else repeat(_NOT_CHIRAL)
    stereo = map(_BOND_STEREO, bonds) if _STEREO.search(text) else repeat(_NO_STEREO)
    atom_rows = map(_atom_row, chiral, *[map(get, atoms) for get in _ATOM_ATTRIBUTES])
    bond_rows = map(_bond_row, stereo, *[map(get, bonds) for get in _BOND_ATTRIBUTES])
    ends = chain.from_iterable(zip(*[map(get, bonds) for get in _BOND_ENDS], strict=True))
    return MoleculeGraph(
        np.frombuffer(bytearray().join(atom_rows), np.uint8).reshape(-1, 9),
        np.frombuffer(array("H", ends), np.uint16).reshape(-1, 2),
        np.frombuffer(bytearray().join(bond_rows), np.uint8).reshape(-1, 3),
    )


@lru_cache(1 << 16)
def _atom_row(*values: Any) -> bytes:
    """Return OGB's features of an atom with these values of `_CHIRAL_TAG, *_ATOM_ATTRIBUTES`."""
    return bytes(ogb.atom_to_feature_vector(_with((_CHIRAL_TAG, *_ATOM_ATTRIBUTES), values)))


@lru_cache(1 << 16)
def _bond_row(stereo: Chem.BondStereo, *values: Any) -> bytes:
    """Return OGB's features of a bond with these values of `_BOND_STEREO, *_BOND_ATTRIBUTES`."""
    if str(stereo) not in ogb.allowable_features["possible_bond_stereo_list"]:
        stereo = Chem.BondStereo.STEREOANY  # the nearest to an atropisomer, which OGB does not know
    bond = _with((_BOND_STEREO, *_BOND_ATTRIBUTES), (stereo, *values))
    return bytes(ogb.bond_to_feature_vector(bond))


def _with(getters: Iterable[Callable], values: Iterable[Any]) -> SimpleNamespace:
    """Return an object whose methods of these names return these values."""
    named = zip(getters, values, strict=True)
    return SimpleNamespace(**{get.__name__: lambda value=value: value for get, value in named})


def _canonical_molecule(smiles: str) -> tuple[Chem.Mol, str]:
    """Return the molecule in the order of its canonical SMILES, and this text."""
    mol = _parse(smiles)
    if ":" in smiles and (unnumbered := re.sub(r":\d+]", "]", smiles)) != smiles:
        mol = _parse(unnumbered)
    try:
        text = _canonical_text(mol)
        if text == smiles:
            return mol, text
        del mol  # RDKit is faster if it finds the memory that it has just used
        mol = _parse(text)
        if ">" in text or "<" in text:
            # RDKit does not always write dative bonds that it has just made in their final order.
            text = _canonical_text(mol)
            mol = _parse(text)
        return mol, text
    except (RuntimeError, ValueError) as error:
        reason = str(error)
        if isinstance(error, SmilesError):
            reason = f"RDKit writes {error.smiles!r} and cannot read it, {error.reason};"
        remedy = "canonical=False keeps the order of the text"
        raise SmilesError(smiles, f"no canonical order: {reason} {remedy}") from None


def _canonical_text(mol: Chem.Mol) -> str:
    if (count := mol.GetNumAtoms()) <= _SHALLOW:
        return Chem.MolToSmiles(mol)
    with ThreadPoolExecutor(1) as thread:
        with _LOCK:
            usual = threading.stack_size(_STACK_AN_ATOM * (count + _SHALLOW))
            try:
                text = thread.submit(Chem.MolToSmiles, mol)
            finally:
                threading.stack_size(usual)
        return text.result()


def _parse(smiles: str) -> Chem.Mol:
    """Return the sanitized molecule of a text; RDKit prints nothing."""
    if not isinstance(smiles, str):
        raise TypeError(f"featurize: smiles is {smiles!r}, not a str")
    try:
        with _LOCK, rdBase.BlockLogs():
            mol = Chem.MolFromSmiles(smiles)
    except UnicodeEncodeError as error:
        raise SmilesError(smiles, f"not Unicode text: {error.reason}") from None
    if mol is None:
        raise SmilesError(smiles, _reason(smiles))
    if not 0 < (count := mol.GetNumAtoms()) <= MOST_ATOMS:
        many = f"{count:,} atoms, more than {MOST_ATOMS:,}"
        raise SmilesError(smiles, many if count else "no atoms")
    return mol


def _reason(smiles: str) -> str:
    """Parse the text once more to learn why RDKit does not read it."""
    # RDKit quotes part of the text, and may cut it within a character of several bytes.
    text = smiles.encode("ascii", "replace").decode()
    with _LOCK, rdBase.BlockLogs():
        if hasattr(rdBase, "CaptureErrorLog"):
            with rdBase.CaptureErrorLog() as log:
                Chem.MolFromSmiles(text)
            logged = str(log.messages)
        else:  # an RDKit that cannot capture its log
            mol = Chem.MolFromSmiles(text, sanitize=False)
            problems = Chem.DetectChemistryProblems(mol) if mol else ()
            logged = problems[0].Message() if problems else "syntax error"
    lines = [line.strip() for line in _TIME.sub("", logged).splitlines() if line.strip("* ")]
    if not lines:
        return "its extension is not CXSMILES" if "|" in smiles else "RDKit gives no reason"
    if syntax := _SYNTAX.match(lines[0]):
        place = _PLACE.search(logged)
        return f"{syntax[1]}, {place[0]}" if place else syntax[1]
    broken = lines[0].endswith("Violation")  # an assertion in RDKit, whose text is the next line
    return _shortened(": ".join(lines[: 1 + broken]), _REASON_SHOWN)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"
