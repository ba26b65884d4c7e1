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
from functools import lru_cache, partial
from itertools import chain, combinations, repeat
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from ogb.utils import features as ogb
from rdkit import Chem, rdBase
from torch_geometric.data import Data

from slicegraph.vocabulary import JOINT as JOINT
from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS

Result = TypeVar("Result")

MOST_ATOMS = 65_535  # atoms are numbered in 16 bits
NOT_TEXT = "holds bytes that are not UTF-8, or NUL"  # the problem of a text that fails `is_text`
ESCAPED = re.compile("[\udc00-\udcff]")  # how `data.table` reads such bytes

_KIND = (  # what an atom is, and then how it is bound
    *(Chem.Atom.GetAtomicNum, Chem.Atom.GetFormalCharge),
    *(Chem.Atom.GetNumRadicalElectrons, Chem.Atom.GetIsAromatic),
)
_AROUND = (
    *(Chem.Atom.GetTotalDegree, Chem.Atom.GetTotalNumHs),
    *(Chem.Atom.GetHybridization, Chem.Atom.IsInRing),
)
_BOND_TYPE, _CONJUGATED = Chem.Bond.GetBondType, Chem.Bond.GetIsConjugated
_BOND_ENDS = (Chem.Bond.GetBeginAtomIdx, Chem.Bond.GetEndAtomIdx)
_CHIRAL_TAG, _BOND_STEREO = Chem.Atom.GetChiralTag, Chem.Bond.GetStereo
_NOT_CHIRAL, _NO_STEREO = Chem.ChiralType.CHI_UNSPECIFIED, Chem.BondStereo.STEREONONE
_CHIRAL, _STEREO = re.compile("[@|]"), re.compile(r"[/\\|]")

# Usual texts: no hydrogen atoms, isotopes, metals, wildcards, extensions or dative bonds, at most
# nine open rings, and only carbon without charge is chiral.
_REST = r"[A-Za-z0-9()=#/\\.\-]*"
_USUAL = re.compile(rf"{_REST}(?:\[(?:C@@?H?|[CNOScnos]H?[23]?[+\-]?)]{_REST})*").fullmatch
_ATOM = re.compile(r"(\[[^]]*]|Br|Cl|[A-Za-z])")
_UNBRACKETED = {  # `_KIND` of an atom that is written without brackets
    text: (Chem.Atom(text.capitalize()).GetAtomicNum(), 0, 0, text.islower())
    for text in ("Br", "Cl", *"BCNOPSFIbcnops")
}
_TYPES = {  # by `GetBondTypeAsDouble`, which takes a quarter of the time of `GetBondType`
    **{1.0: Chem.BondType.SINGLE, 1.5: Chem.BondType.AROMATIC},
    **{2.0: Chem.BondType.DOUBLE, 3.0: Chem.BondType.TRIPLE},
}
_EITHER_ORDER = {_NO_STEREO, Chem.BondStereo.STEREOE, Chem.BondStereo.STEREOZ}
_TAGS = (Chem.ChiralType.CHI_TETRAHEDRAL_CCW, Chem.ChiralType.CHI_TETRAHEDRAL_CW)
_ORDER = "_smilesAtomOutputOrder"  # RDKit's property for the atoms in the order of a written text

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
_INVISIBLE = " \t\r\n\xa0\u200b\u200c\u200d\u2060\ufeff"
_NOT_ASCII = re.compile(r"^[!-~]*([^\0-\x7f])")  # before the first blank
_PLACE = re.compile(r"check for mistakes around position \d+")


class FeatureCode:
    r"""Code that packs a row of categorical features into one unsigned integer.

    Feature ``f`` takes the values 0 to ``vocabulary[f] - 1`` and as many bits as the largest needs;
    the first feature has the lowest bits:

    .. math:: code = \sum_f value_f \cdot 2^{w_0 + \ldots + w_{f - 1}},
        \quad w_f = \max(1, \lceil \log_2 vocabulary_f \rceil)

    Together these must be at most 64 bits.

    Example:
        >>> FeatureCode((5, 6, 2)).encode(np.array([[4, 5, 1], [0, 1, 0]]))
        array([108,   8], dtype=uint8)
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
            wrong = f"features[{row}, {column}] = {features[row, column]}"
            raise ValueError(f"FeatureCode: {wrong} is not in 0..{self.vocabulary[column] - 1}")
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

    The molecules of a row with several are one graph, one after the other; `sizes` are their
    numbers of atoms.
    """

    atoms: np.ndarray
    bonds: np.ndarray
    bond_features: np.ndarray
    sizes: tuple[int, ...] = ()

    def directed(self) -> tuple[np.ndarray, np.ndarray]:
        """Return OGB's edges: every bond as ``(i, j)`` and then ``(j, i)``, its features twice.

        Shapes:
            - edge_index: ``[2, 2 * m]``, int64.
            - edge_attr: ``[2 * m, 3]``, uint8.
        """
        edge_index = np.stack([self.bonds, self.bonds[:, ::-1]]).reshape(2, -1)
        return edge_index.astype(np.int64), self.bond_features.repeat(2, axis=0)


def join_texts(texts: Sequence[str]) -> str:
    """Return the text of a row with these molecules; that of a single one as it is."""
    return texts[0] if len(texts) == 1 else JOINT.join(text.strip() for text in texts)


def join_graphs(graphs: Sequence[MoleculeGraph]) -> MoleculeGraph:
    """Return the molecules of a row as one graph; a single molecule as it is."""
    if len(graphs) == 1:
        return graphs[0]
    sizes = [len(graph.atoms) for graph in graphs]
    if sum(sizes) > MOST_ATOMS:
        raise ValueError(f"{sum(sizes):,} atoms in all, more than {MOST_ATOMS:,}")
    starts = np.cumsum([0, *sizes[:-1]])
    bonds = [graph.bonds + start for graph, start in zip(graphs, starts, strict=True)]
    return MoleculeGraph(
        np.concatenate([graph.atoms for graph in graphs]),
        np.concatenate(bonds).astype(np.uint16),
        np.concatenate([graph.bond_features for graph in graphs]),
        tuple(sizes),
    )


def read_cells(
    read: Callable[[str], Result], texts: Sequence[str], columns: Sequence[str | None]
) -> list[Result]:
    """Read the molecules of a row; the error of a row with several names the column."""
    if len(columns) == 1:
        return [read(texts[0])]
    if len(texts) != len(columns):
        form = ">>".join(map(str, columns))
        raise ValueError(f"found {len(texts)}, expected {len(columns)} molecules: {form}")
    found = []
    for text, column in zip(texts, columns, strict=True):
        try:
            found.append(read(text))
        except (ValueError, RuntimeError) as error:  # RDKit raises both
            reason = error.reason if isinstance(error, SmilesError) else str(error)
            shown = _shortened(text, _TEXT_SHOWN)
            raise ValueError(f"{column} = {shown!r}: {reason}") from None
    return found


def featurize(smiles: str, canonical: bool = True, dtype: torch.dtype = torch.int64) -> Data:
    """Convert a SMILES to a PyG graph with the features of `ogb.utils.smiles2graph`.

    Args:
        smiles: a SMILES, or an InChI. Blanks around it do not count; what follows a blank within a
            SMILES is an extension (CXSMILES) or a name, as RDKit has it. Atom map numbers
            (``[CH3:1]``) do not count in canonical order.
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
        expected = "torch.uint8, torch.int32 or torch.int64"
        raise ValueError(f"featurize: dtype = {dtype} is not {expected}")
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
    if is_inchi(smiles):
        smiles = inchi_to_smiles(smiles)
    return _canonical_graph(smiles) if canonical else _graph(parse_smiles(smiles), smiles)


def _graph(mol: Chem.Mol, text: str) -> MoleculeGraph:
    """Return the graph of a molecule in the order of its atoms, which is that of the text."""
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
    ends = chain.from_iterable(zip(*[map(get, bonds) for get in _BOND_ENDS], strict=True))
    atom_rows = map(_atom_row, chiral, *[map(get, atoms) for get in (*_KIND, *_AROUND)])
    bond_rows = map(_bond_row, stereo, map(_BOND_TYPE, bonds), map(_CONJUGATED, bonds))
    return _arrays(atom_rows, ends, bond_rows)


def _arrays(
    atom_rows: Iterable[bytes], ends: Iterable[int], bond_rows: Iterable[bytes]
) -> MoleculeGraph:
    return MoleculeGraph(
        np.frombuffer(bytearray().join(atom_rows), np.uint8).reshape(-1, 9),
        np.frombuffer(array("H", ends), np.uint16).reshape(-1, 2),
        np.frombuffer(bytearray().join(bond_rows), np.uint8).reshape(-1, 3),
    )


def _graph_in_order(mol: Chem.Mol, text: str) -> MoleculeGraph | None:
    """Return the graph of a usual text that RDKit has just written of a molecule.

    To parse the text would take a fifth of the time. Its atoms and bonds have the features of the
    molecule's, except for the chiral tags, which depend on the order. None if it is not usual.
    """
    if not _USUAL(text) or not mol.HasProp(_ORDER) or (drawn := _draw(text)) is None:
        return None
    kinds, begins, ends, tags = drawn
    order = list(map(int, mol.GetProp(_ORDER).strip("[],").split(",")))
    atoms = list(map(mol.GetAtomWithIdx, order))
    sides = (map(order.__getitem__, side) for side in (begins, ends))
    bonds = list(map(mol.GetBondBetweenAtoms, *sides))
    if len(kinds) != len(atoms) or len(bonds) != mol.GetNumBonds() or not all(bonds):
        return None
    chiral: Iterable[Any] = repeat(_NOT_CHIRAL)
    if "[" in text:
        for i, kind in enumerate(kinds):
            if kind not in _UNBRACKETED:
                kinds[i] = tuple([get(atoms[i]) for get in _KIND])
        if tags:
            chiral = [tags.get(i, _NOT_CHIRAL) for i in range(len(atoms))]
    types = [_TYPES[order] for order in map(Chem.Bond.GetBondTypeAsDouble, bonds)]
    stereo: Iterable[Any] = repeat(_NO_STEREO)
    if _STEREO.search(text):
        double = Chem.BondType.DOUBLE
        pairs = zip(bonds, types, strict=True)
        stereo = [_BOND_STEREO(bond) if type_ is double else _NO_STEREO for bond, type_ in pairs]
        if not _EITHER_ORDER.issuperset(stereo):
            return None
    atom_rows = map(_usual_row, chiral, kinds, *[map(get, atoms) for get in _AROUND])
    bond_rows = map(_bond_row, stereo, types, map(_CONJUGATED, bonds))
    return _arrays(atom_rows, chain.from_iterable(zip(begins, ends, strict=True)), bond_rows)


def _draw(text: str) -> tuple[list, list[int], list[int], dict[int, Chem.ChiralType]] | None:
    """Return the texts of the atoms, the ends of the bonds and the chiral tags of a usual text.

    Atoms and bonds are numbered as by RDKit's parser: bonds that close a ring come last, sorted by
    the digit of the ring. A chiral tag is the mark (``@`` or ``@@``), inverted if the bonds of the
    atom have numbers that are an odd permutation in the order of the text. None if a chiral atom
    comes first or does not have four neighbours.
    """
    parts = _ATOM.split(text)
    kinds = parts[1::2]
    begins: list[int] = []
    ends: list[int] = []
    branches: list[int] = []
    opened: dict[str, list[int]] = {}  # the atom of an open ring, then the number of its bond
    closed: list[tuple[str, int, list[int]]] = []
    around: dict[int, list] = {}  # bonds of each chiral atom as in the text: number, or ring
    last = -1
    for i, (kind, marks) in enumerate(zip(kinds, parts[2::2], strict=True)):
        if last >= 0:
            if last in around:
                around[last].append(len(ends))
            begins.append(last)
            ends.append(i)
        if "@" in kind:
            if last < 0:
                return None
            around[i] = [len(ends) - 1]
        last = i
        for mark in marks:
            if mark == "(":
                branches.append(last)
            elif mark == ")":
                last = branches.pop()
            elif mark == ".":
                last = -1
            elif mark not in "-=#/\\":
                if ring := opened.pop(mark, None):
                    closed.append((mark, last, ring))
                else:
                    ring = opened[mark] = [last]
                if last in around:
                    around[last].append(ring)
    closed.sort(key=itemgetter(0))
    for _, atom, ring in closed:
        begins.append(atom)
        ends.append(ring[0])
        ring[0] = len(ends) - 1
    tags = {}
    for i, bonds in around.items():
        numbers = [bond if isinstance(bond, int) else bond[0] for bond in bonds]
        if len(numbers) + ("H" in kinds[i]) != 4:
            return None
        swaps = sum(first > second for first, second in combinations(numbers, 2))
        tags[i] = _TAGS[(swaps + ("@@" in kinds[i])) % 2]
        kinds[i] = "C"
    return kinds, begins, ends, tags


@lru_cache(1 << 16)
def _usual_row(chiral: Chem.ChiralType, kind: Any, *around: Any) -> bytes:
    """Return OGB's features of an atom: ``kind`` is its text without brackets, or its `_KIND`."""
    return _atom_row(chiral, *_UNBRACKETED.get(kind, kind), *around)


@lru_cache(1 << 16)
def _atom_row(*values: Any) -> bytes:
    """Return OGB's features of an atom with this chiral tag, `_KIND` and `_AROUND`."""
    return bytes(ogb.atom_to_feature_vector(_with((_CHIRAL_TAG, *_KIND, *_AROUND), values)))


@lru_cache(1 << 16)
def _bond_row(stereo: Chem.BondStereo, *values: Any) -> bytes:
    """Return OGB's features of a bond with this stereo, type and conjugation."""
    if str(stereo) not in ogb.allowable_features["possible_bond_stereo_list"]:
        stereo = Chem.BondStereo.STEREOANY  # the nearest to an atropisomer, which OGB does not know
    bond = _with((_BOND_STEREO, _BOND_TYPE, _CONJUGATED), (stereo, *values))
    return bytes(ogb.bond_to_feature_vector(bond))


def _with(getters: Iterable[Callable], values: Iterable[Any]) -> SimpleNamespace:
    """Return an object whose methods of these names return these values."""
    named = zip(getters, values, strict=True)
    return SimpleNamespace(**{get.__name__: lambda value=value: value for get, value in named})


def _canonical_graph(smiles: str) -> MoleculeGraph:
    """Return the graph in the order of the canonical SMILES."""
    mol = parse_smiles(smiles)
    if ":" in smiles and (unnumbered := re.sub(r":\d+]", "]", smiles)) != smiles:
        mol = parse_smiles(unnumbered)
    try:
        text = canonical_text(mol)
        if text == smiles:
            return _graph(mol, text)
        if _USUAL(smiles) and (graph := _graph_in_order(mol, text)) is not None:
            return graph
        del mol  # RDKit is faster if it finds the memory that it has just used
        mol = parse_smiles(text)
        if ">" in text or "<" in text:
            # RDKit does not always write dative bonds that it has just made in their final order.
            text = canonical_text(mol)
            mol = parse_smiles(text)
        return _graph(mol, text)
    except (RuntimeError, ValueError) as error:
        reason = str(error)
        if isinstance(error, SmilesError):
            reason = f"RDKit writes {error.smiles!r} and cannot read it, {error.reason};"
        remedy = "canonical=False keeps the order of the text"
        raise SmilesError(smiles, f"no canonical order: {reason} {remedy}") from None


def canonical_text(mol: Chem.Mol, **options: Any) -> str:
    """Return RDKit's canonical SMILES of a molecule of any size, with options of `MolToSmiles`."""
    return with_stack(mol.GetNumAtoms(), partial(Chem.MolToSmiles, mol, **options))


def with_stack(count: int, work: Callable[[], Result]) -> Result:
    """Return ``work()``, with a stack that a recursion of one level an atom does not overrun."""
    if count <= _SHALLOW:
        return work()
    with ThreadPoolExecutor(1) as thread:
        with _LOCK:
            usual = threading.stack_size(_STACK_AN_ATOM * (count + _SHALLOW))
            try:
                done = thread.submit(work)
            finally:
                threading.stack_size(usual)
        return done.result()


def parse_smiles(smiles: str) -> Chem.Mol:
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
    if not smiles.isascii() and (strange := _NOT_ASCII.search(smiles.strip(_INVISIBLE))):
        # RDKit ends at such a character without a word: "CC" of CC and a Cyrillic letter
        letter = f"{strange[1]!r} (U+{ord(strange[1]):04X})"
        raise SmilesError(smiles, f"{letter} is not a character of SMILES")
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


def is_text(field: str) -> bool:
    """Return whether the field holds neither a NUL nor bytes that are not UTF-8."""
    return field.isascii() or ESCAPED.search(field) is None


def is_inchi(text: str) -> bool:
    """Return whether the text is an InChI rather than a SMILES."""
    return isinstance(text, str) and text.lstrip().startswith("InChI=")


def inchi_to_smiles(text: str) -> str:
    """Return the SMILES of an InChI; a `SmilesError` if RDKit cannot read it."""
    with _LOCK, rdBase.BlockLogs():
        mol = Chem.MolFromInchi(text.strip().encode("ascii", "replace").decode())
    if mol is None or not mol.GetNumAtoms():
        raise SmilesError(text, "RDKit cannot read this InChI" if mol is None else "no atoms")
    return canonical_text(mol)


def molblock_to_smiles(block: str) -> str:
    """Return the SMILES of a molblock; a `SmilesError` if RDKit cannot read it."""
    text = block.encode("ascii", "replace").decode()
    with _LOCK, rdBase.BlockLogs():
        mol = Chem.MolFromMolBlock(text)
        raw = mol or Chem.MolFromMolBlock(text, sanitize=False)
        problems = Chem.DetectChemistryProblems(raw) if raw and not mol else ()
    if mol is None or not mol.GetNumAtoms():
        reason = problems[0].Message() if problems else "RDKit cannot read this molblock"
        raise SmilesError(block, reason if mol is None else "no atoms")
    return canonical_text(mol)
