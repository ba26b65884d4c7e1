"""Molecules as chemists count them: standard forms, keys, scaffolds, clusters and remarks.

A key ignores salts, stereo and isotopes. Rows of a table with one key are one molecule; splits
keep these on one side. The text of a row with several molecules has `JOINT` between them; keys,
fingerprints and counts are those of the molecules in their order.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import cache, partial, reduce, wraps
from operator import add
from typing import Any

import numpy as np
from rdkit import Chem, DataStructs, rdBase
from rdkit.Chem import rdFingerprintGenerator
from rdkit.Chem.MolStandardize import rdMolStandardize
from rdkit.Chem.Scaffolds import MurckoScaffold

from slicegraph.data.pool import cores, ordered_map, run_halved
from slicegraph.data.smiles import (
    JOINT,
    MoleculeGraph,
    SmilesError,
    canonical_text,
    inchi_to_smiles,
    is_inchi,
    parse_smiles,
    with_stack,
)

MOST_CLUSTERED = 50_000  # molecules, which take a minute, or some if most are analogues
MANY_ATOMS = 300  # heavy atoms of a molecule that has a remark
_CHUNK_TEXTS, _FEW_TEXTS = 256, 2_000  # in a chunk of a worker; that this process reads alone

# Patterns, which RDKit finds faster than a loop in Python.
_MARKED = Chem.MolFromSmarts("[#1,!0*]")  # hydrogens that are atoms, and isotopes
_ISOTOPE = re.compile(r"\[(\d+(?:\*|[A-Za-z][a-z]?))")  # 13C in [13CH3]
_CHARGED = Chem.MolFromSmarts("[!+0]")
_SALT_BOND = Chem.MolFromSmarts("[Li,Na,K,Rb,Cs,Mg,Ca,Sr,Ba;X1,X2]-[#7,#8,F,#16,Cl,Br,I]")
_NOBLE_GASES = frozenset((2, 10, 18, 36, 54, 86, 118))
_NOT_METALS = _NOBLE_GASES | {0, 1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 32, 33, 34, 35, 51, 52, 53, 85}


def fold_hydrogens(mol: Chem.Mol) -> Chem.Mol:
    """Count explicit hydrogens, also 2H and 3H, at their atoms, and remove isotope marks."""
    if not mol.HasSubstructMatch(_MARKED):
        return mol
    mol = Chem.Mol(mol)
    for atom in mol.GetAtoms():
        atom.SetIsotope(0)
    folded = Chem.RemoveAllHs(mol)
    return folded if folded.GetNumAtoms() else mol


def largest_fragment(mol: Chem.Mol) -> Chem.Mol:
    """Return the largest organic fragment; metals of salts drawn as bonds are split off first."""
    if mol.HasSubstructMatch(_SALT_BOND):
        mol = _disconnector().Disconnect(mol)
    if len(Chem.GetMolFrags(mol)) < 2:
        return mol
    return rdMolStandardize.LargestFragmentChooser(True).choose(mol)


def neutralize(mol: Chem.Mol, force: bool = False) -> Chem.Mol:
    """Add and remove protons until the molecule is neutral, as far as that is possible.

    With `force` an inner salt (betaine) becomes its protonated form.
    """
    if not mol.HasSubstructMatch(_CHARGED):
        return mol
    # Without its charge a ring may not be aromatic any more, as that of cyclopentadienyl.
    mol = Chem.Mol(mol)
    Chem.Kekulize(mol, clearAromaticFlags=True)
    mol = rdMolStandardize.Uncharger(True, force).uncharge(mol)
    Chem.SanitizeMol(mol)
    return mol


def canonical_tautomer(mol: Chem.Mol) -> Chem.Mol:
    """Return RDKit's canonical tautomer."""
    # The enumeration ends at a limit, and where it ends depends on the order of the atoms.
    enumerator = rdMolStandardize.TautomerEnumerator()
    enumerator.SetRemoveSp3Stereo(False)  # or every amino acid would lose its stereocentre
    return enumerator.Canonicalize(_reread(mol))


RULES = 3  # the version of reading, keys and steps: tables are prepared again when it changes
STEPS: dict[str, Callable[[Chem.Mol], Chem.Mol]] = {
    "hydrogens": fold_hydrogens,
    "fragment": largest_fragment,
    "charge": neutralize,
    "tautomer": canonical_tautomer,
}


def check_steps(steps: Sequence[str]) -> tuple[str, ...]:
    """Return the steps in the order of `STEPS`, each once; ["all"] and ["none"] are allowed."""
    steps = {"all": tuple(STEPS), "none": ()}.get(",".join(steps), tuple(steps))
    for step in steps:
        if step not in STEPS:
            known = f"{', '.join(STEPS)}, all or none"
            raise ValueError(f"standardize = {step!r}, expected some of {known}")
    return tuple(step for step in STEPS if step in steps)


def for_each(work: Callable[..., str]) -> Callable[..., str]:
    """Apply a function of a molecule's text to each molecule of a row with several."""

    @wraps(work)
    def each(text: str, *arguments: Any) -> str:
        if not (isinstance(text, str) and JOINT in text):
            return work(text, *arguments)
        return JOINT.join(work(one, *arguments) for one in text.split(JOINT))

    return each


@for_each
def standardize(text: str, steps: Sequence[str]) -> str:
    """Return the canonical SMILES after these `STEPS`, in their order there; without, the text.

    Each molecule of a row with several is standardised by itself.

    Raises:
        SmilesError: RDKit cannot read the text, or a step fails.

    Example:
        >>> standardize("CC(=O)[O-].[Na+]", ["fragment", "charge"])
        'CC(=O)O'
    """
    steps = check_steps(steps)
    return _after(text, [(step, STEPS[step]) for step in steps]) if steps else text


def isotopologue(text: str, steps: Sequence[str]) -> str:
    """Return the standard SMILES with the isotope marks that ``hydrogens`` removes; "" for none.

    The canonical tautomer is not taken, as it would move a hydrogen from an atom with 2H.

    Example:
        >>> isotopologue("[Na+].[2H]C([2H])([2H])[O-]", ["hydrogens", "fragment", "charge"])
        '[2H]C([2H])([2H])O'
    """
    if "hydrogens" not in steps or not isotopes(text):
        return ""
    others = [(step, STEPS[step]) for step in check_steps(steps) if step in ("fragment", "charge")]
    try:
        return _after(text, [("hydrogens", Chem.RemoveHs), *others])
    except SmilesError:
        return canonical_text(_read(text))


def standard_texts(text: str, steps: Sequence[str]) -> tuple[str, str]:
    """Return the SMILES of a molecule after these steps as its graph is made of, and as it is kept:
    with the isotope marks that ``hydrogens`` removes."""
    text = inchi_to_smiles(text) if is_inchi(text) else text
    drawn = standardize(text, steps)
    return drawn, isotopologue(text, steps) or drawn


def isotopes(text: str) -> list[str]:
    """Return the isotopes that a SMILES or InChI names, such as 13C, each once.

    Example:
        >>> isotopes("[2H]C([2H])[13cH3]")
        ['2H', '13C']
    """
    if JOINT in text:
        return list(dict.fromkeys(mark for one in text.split(JOINT) for mark in isotopes(one)))
    if is_inchi(text):
        text = inchi_to_smiles(text) if "/i" in text else ""
    return list(dict.fromkeys(mark.title() for mark in _ISOTOPE.findall(text)))


def _after(text: str, steps: Sequence[tuple[str, Callable[[Chem.Mol], Chem.Mol]]]) -> str:
    """Return the canonical SMILES of a molecule after these steps."""
    mol = _read(text)

    def work() -> str:
        nonlocal mol
        for name, step in steps:
            try:
                mol = step(mol)
            except (ValueError, RuntimeError) as error:
                reason = (str(error).strip() or "no reason").splitlines()[0].strip()
                raise SmilesError(text, f"the step {name!r} fails: {reason}") from None
        return Chem.MolToSmiles(_reread(mol))

    with rdBase.BlockLogs():
        return with_stack(mol.GetNumAtoms(), work)


@for_each
def molecule_key(text: str) -> str:
    """Return a text that is the same for all salts, stereoisomers and isotopes of a molecule.

    It is the canonical SMILES of the largest organic fragment, neutral, without stereo, isotopes
    and explicit hydrogens; or the text itself if RDKit cannot read it.

    Example:
        >>> molecule_key("C[C@H](N)C(=O)O.Cl") == molecule_key("[Na+].[O-]C(=O)C(N)C")
        True
    """
    try:
        mol = _read(text)
        with rdBase.BlockLogs():
            return with_stack(mol.GetNumAtoms(), partial(_key, mol))
    except (ValueError, RuntimeError):
        return text


def molecule_keys(texts: Iterable[str], workers: int | None = None) -> np.ndarray:
    """Hash the `molecule_key` of each text: ``[N]`` uint64, by default with all cores if many."""
    return _hashes(map_texts(molecule_key, texts, workers))


def exact_keys(texts: Iterable[str]) -> np.ndarray:
    """Hash canonical SMILES: texts with the same number, ``[N]`` uint64, are of one substance."""
    return _hashes(map_texts(_exact_key, texts))


def map_texts(
    work: Callable[[str], str], texts: Iterable[str], workers: int | None = None
) -> list[str]:
    """Return ``[work(text) for text in texts]``, computed in processes if there are many texts.

    A text that ends its process, because RDKit crashes or memory runs out, gives the text itself.
    """
    texts = list(texts)
    if workers is None:
        workers = 1 if len(texts) <= _FEW_TEXTS else min(8, cores())
    chunks = (texts[i : i + _CHUNK_TEXTS] for i in range(0, len(texts), _CHUNK_TEXTS))
    each = partial(_each, work)
    alone = partial(run_halved, each, died=str)
    with closing(ordered_map(each, chunks, workers, alone)) as results:
        return [result for chunk in results for result in chunk]


def scaffold(smiles: str) -> str:
    """Return the Bemis-Murcko scaffold, rings and linkers without stereochemistry, as SMILES.

    It is empty for a molecule without a ring, and the text itself if RDKit cannot read that.
    """
    with rdBase.BlockLogs():
        try:
            return MurckoScaffold.MurckoScaffoldSmiles(smiles, includeChirality=False)
        except (ValueError, RuntimeError):
            return smiles


def scaffolds(texts: Iterable[str]) -> list[str]:
    """Return the scaffolds of the keys: all salts of a molecule have the same."""
    return map_texts(scaffold, map_texts(molecule_key, texts))


def fingerprints(texts: Iterable[str]) -> list[Any]:
    """Return the Morgan fingerprint of each SMILES, of 2,048 bits and radius 2; None for others.

    Those of the molecules of a row are joined to one: their Tanimoto similarity counts the bits of
    all of them.
    """
    get = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048).GetFingerprint
    with rdBase.BlockLogs():
        rows = ([*map(Chem.MolFromSmiles, text.split(JOINT))] for text in texts)
        whole = ((mols, all(mol and mol.GetNumAtoms() for mol in mols)) for mols in rows)
        return [reduce(add, map(get, mols)) if good else None for mols, good in whole]


def morgan_counts(texts: Iterable[str]) -> np.ndarray:
    """Return counted Morgan fragments of radius 2 in 1,024 columns, ``[N, 1024]`` float32.

    A text that is not a molecule has zeros. Those of the M molecules of a row are joined,
    ``[N, M * 1024]``.
    """
    get = rdFingerprintGenerator.GetMorganGenerator(
        radius=2, fpSize=1024
    ).GetCountFingerprintAsNumPy
    with rdBase.BlockLogs():
        mols = ([*map(Chem.MolFromSmiles, text.split(JOINT))] for text in texts)
        rows = [[get(mol) if mol else np.zeros(1024) for mol in own] for own in mols]
    return np.array(rows, dtype=np.float32).reshape(len(rows), -1 if rows else 1024)


def nearest(vectors: Sequence[Any], training: Sequence[Any]) -> list[tuple[float, int]]:
    """Return the largest Tanimoto similarity of each fingerprint, and which one has it.

    NaN and -1 if there is no fingerprint, or none of this length to compare with.
    """
    found = []
    size = training[0].GetNumBits() if len(training) else 0
    for vector in vectors:
        if vector is None or vector.GetNumBits() != size:
            found.append((math.nan, -1))
            continue
        similar = np.array(DataStructs.BulkTanimotoSimilarity(vector, training))
        best = int(similar.argmax())
        found.append((float(similar[best]), best))
    return found


def clusters(texts: Sequence[str]) -> np.ndarray:
    """Number the clusters of similar molecules, ``[N]``, by the method of Butina (1999).

    Two molecules are neighbours if the `fingerprints` of their keys have a Tanimoto similarity of
    at least 0.4. The molecule with the most neighbours takes them all as its cluster, then the next
    that is still free.
    """
    count = len(texts)
    if count > MOST_CLUSTERED:
        limit = f"{count:,} molecules, at most {MOST_CLUSTERED:,} can be clustered"
        raise ValueError(f"{limit}, as the time is quadratic; use --split scaffold")
    found = fingerprints(map_texts(molecule_key, texts))
    bits = [[] if one is None else list(one.GetOnBits()) for one in found]
    having: list[list[int]] = [[] for _ in range(2048)]
    for number, own in enumerate(bits):
        for bit in own:
            having[bit].append(number)
    members = [np.array(own, dtype=np.int32) for own in having]
    sizes = np.array(list(map(len, bits)))

    def neighbours(number: int) -> np.ndarray:
        own = bits[number]
        found = np.concatenate([members[bit] for bit in own]) if own else np.empty(0, np.int32)
        shared = np.bincount(found, minlength=count)
        return np.flatnonzero(5 * shared >= 2 * (sizes[number] + sizes - shared))

    # They are counted, and found again where a cluster begins: all of them are up to N^2 numbers.
    counts = [len(neighbours(number)) for number in range(count)]
    groups = np.full(count, -1)
    for number in sorted(range(count), key=lambda i: (-counts[i], i)):
        if groups[number] < 0:
            near = neighbours(number) if counts[number] > 1 else np.array([number])
            groups[near[groups[near] < 0]] = number
    return groups


def remarks(molecule: str | Chem.Mol | MoleculeGraph) -> str:
    """Return what is unusual in a molecule, as a reason to doubt a prediction; "" for nothing.

    Example:
        >>> remarks("[Fe].CCO"), remarks("[He]"), remarks("CCO")
        ('metal (Fe)', 'noble gas (He); no carbon', '')
    """
    if isinstance(molecule, MoleculeGraph):
        numbers = molecule.atoms[:, 0].astype(np.int64) + 1  # OGB's first feature, 118 if unknown
        numbers[numbers > 118] = 0
    else:
        mol = _read(molecule) if isinstance(molecule, str) else molecule
        numbers = np.array([atom.GetAtomicNum() for atom in mol.GetAtoms()], dtype=np.int64)
    counts = np.bincount(numbers, minlength=119)
    found = np.flatnonzero(counts)
    heavy = int(counts.sum() - counts[1])
    symbol = Chem.GetPeriodicTable().GetElementSymbol
    metals = [symbol(int(number)) for number in found if number not in _NOT_METALS]
    gases = [symbol(int(number)) for number in found if number in _NOBLE_GASES]
    hydrogens = int(counts[1]) if heavy else 0
    said = {
        f"metal ({', '.join(metals)})": metals,
        "wildcard atom": counts[0],
        f"noble gas ({', '.join(gases)})": gases,
        f"{heavy:,} heavy atoms": heavy > MANY_ATOMS,
        f"{hydrogens} explicit hydrogen atom{'s' if hydrogens > 1 else ''}": hydrogens,
        "no carbon": not counts[6],
    }
    return "; ".join(text for text, holds in said.items() if holds)


def _key(mol: Chem.Mol) -> str:
    Chem.RemoveStereochemistry(mol)
    mol = largest_fragment(_normalizer().normalize(fold_hydrogens(mol)))
    if mol.HasSubstructMatch(_CHARGED):
        mol = _reread(neutralize(mol, force=True))
    return Chem.MolToSmiles(mol, isomericSmiles=False)


@for_each
def _exact_key(text: str) -> str:
    try:
        return canonical_text(_read(text))
    except (ValueError, RuntimeError):
        return text


def _read(text: str) -> Chem.Mol:
    """Return the molecule of a SMILES, without atom map numbers (``[CH3:1]``), or of an InChI."""
    if is_inchi(text):
        text = inchi_to_smiles(text)
    return parse_smiles(re.sub(r":\d+]", "]", text) if ":" in text else text)


def _reread(mol: Chem.Mol) -> Chem.Mol:
    """Return the molecule as it is read from its canonical SMILES.

    Its marks are then consistent: an atom may have lost the isotope that made it a stereocentre.
    """
    return parse_smiles(Chem.MolToSmiles(mol))


def _each(work: Callable[[str], str], texts: Sequence[str]) -> list[str]:
    return list(map(work, texts))


def _hashes(keys: Iterable[str]) -> np.ndarray:
    contents = (key.encode("utf-8", "surrogatepass") for key in keys)
    digests = (hashlib.blake2b(content, digest_size=8).digest() for content in contents)
    return np.frombuffer(bytearray().join(digests), dtype="<u8").astype(np.uint64)


_normalizer = cache(rdMolStandardize.Normalizer)


@cache
def _disconnector() -> rdMolStandardize.MetalDisconnector:
    """A disconnector of salts; complexes of other metals stay as they are drawn."""
    found = rdMolStandardize.MetalDisconnector()
    found.SetMetalNof(_SALT_BOND)
    found.SetMetalNon(_SALT_BOND)
    return found
