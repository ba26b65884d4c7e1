"""Numbers that RDKit computes for molecules: one by one as features, or for a whole store.

Those of a store are for pre-training without labels. They are computed once, in parallel, and are
memory-mapped arrays afterwards. Until then each part is a file: after an interruption the same call
goes on from there.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rdkit
import torch
from rdkit import Chem, rdBase
from rdkit.Chem import Descriptors, rdFingerprintGenerator, rdMolDescriptors, rdPartialCharges
from tqdm import tqdm

from slicegraph.data.molecules import molecule_keys
from slicegraph.data.pool import cores, ordered_map, run_halved
from slicegraph.data.smiles import JOINT, canonical_text, parse_smiles
from slicegraph.data.store import MoleculeStore
from slicegraph.files import folder_lock, write_atomically

MORGAN_BITS, MORGAN_RADIUS = 512, 2
MOST_ATOMS = 200  # a larger molecule has no numbers: some descriptors would take minutes
UNKNOWN = 255  # in place of a count or a ring size
MOST_COUNT = 15  # a larger count is not distinguished
MOST_RING = 9  # atoms of a ring, nor is a larger ring

_FUNCTIONS = {name: work for name, work in Descriptors.descList if name != "qed"}  # made of others
for _name in ("MaxAbsEStateIndex", "MaxEStateIndex", "MinAbsEStateIndex", "MinEStateIndex"):
    _FUNCTIONS[_name] = partial(_FUNCTIONS[_name], force=False)  # computed once for a molecule
_BINNED = {  # descriptors such as SMR_VSA3 and SMR_VSA4, all of a kind at once
    "PEOE_VSA": rdMolDescriptors.PEOE_VSA_,
    "SMR_VSA": rdMolDescriptors.SMR_VSA_,
    "SlogP_VSA": rdMolDescriptors.SlogP_VSA_,
}
FRAGMENTS = tuple(name for name in _FUNCTIONS if name.startswith("fr_"))
DESCRIPTORS = tuple(name for name in _FUNCTIONS if name not in FRAGMENTS)
MOLECULE = np.dtype(
    [
        ("key", "<u8"),  # the number of `molecule_keys`, the same for all salts and spellings
        ("descriptors", "<f4", (len(DESCRIPTORS),)),  # NaN where RDKit gives no finite number
        ("fragments", "u1", (len(FRAGMENTS),)),  # counts of functional groups
        ("morgan", "u1", (MORGAN_BITS,)),  # counts of the atoms' neighbourhoods, folded
    ]
)
ATOM = np.dtype(
    [
        ("ring", "u1"),  # atoms of its smallest ring, 0 if it is in none
        ("charge", "<f2"),  # Gasteiger's partial charge, NaN if it has no parameters for an atom
    ]
)
_ARRAYS = {"molecules": MOLECULE, "atoms": ATOM}
FEATURE_BITS = 2048  # of the Morgan counts as features
_PART = 1000  # molecules that are computed and written at a time
_PATIENCE = 3600.0  # seconds to wait for another process that computes the same
_MORGAN = rdFingerprintGenerator.GetMorganGenerator(radius=MORGAN_RADIUS, fpSize=MORGAN_BITS)
_MORGAN_FEATURES = rdFingerprintGenerator.GetMorganGenerator(MORGAN_RADIUS, fpSize=FEATURE_BITS)
FEATURES: dict[str, int] = {"rdkit": len(DESCRIPTORS) + len(FRAGMENTS), "morgan": FEATURE_BITS}
"""The kinds of `molecule_features`, and how many numbers each has."""


def molecule_features(text: str, kinds: Sequence[str]) -> np.ndarray:
    """Compute features of a molecule from its SMILES: ``[F]`` float32, kind after kind.

    They are the same for every spelling. A number that RDKit cannot compute is NaN, and so are
    all of ``"rdkit"`` above `MOST_ATOMS` atoms.

    Args:
        text: a SMILES.
        kinds: names of `FEATURES`: ``"rdkit"``, the 2D descriptors and the counts of functional
            groups; ``"morgan"``, the counts of atoms' neighbourhoods of radius 2, folded.

    Raises:
        SmilesError: RDKit cannot read the text.

    Example:
        >>> molecule_features("CCO", ["morgan"]).sum()
        6.0
    """
    for kind in kinds:
        if kind not in FEATURES:
            raise ValueError(f"features = {kind!r}, expected some of {', '.join(FEATURES)}")
    with rdBase.BlockLogs():
        mol = _canonical(text)
        found = [_FEATURE_FUNCTIONS[kind](mol) for kind in kinds]
    return np.concatenate([np.empty(0), *found]).astype(np.float32)


def _canonical(text: str) -> Chem.Mol:
    """Read a SMILES without atom map numbers; the atoms are in the order of the store."""
    return parse_smiles(canonical_text(parse_smiles(re.sub(r":\d+]", "]", text))))


def _descriptors_of(mol: Chem.Mol) -> np.ndarray:
    """Return the 2D descriptors and the counts of functional groups, NaN for what is not finite."""
    if mol.GetNumAtoms() > MOST_ATOMS:
        return np.full(FEATURES["rdkit"], np.nan)
    bins: dict[str, float] = {}
    for kind, work in _BINNED.items():
        with suppress(ValueError, RuntimeError):  # of RDKit; each is tried by itself then
            bins |= {f"{kind}{number}": value for number, value in enumerate(work(mol), start=1)}
    names = (*DESCRIPTORS, *FRAGMENTS)
    values = np.array([bins[name] if name in bins else _value(mol, name) for name in names])
    most = float(np.finfo(np.float32).max)
    return np.where(np.isfinite(values), values.clip(-most, most), np.nan)


def _morgan_of(mol: Chem.Mol) -> np.ndarray:
    return _MORGAN_FEATURES.GetCountFingerprintAsNumPy(mol)


def morgan_environments(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Find the neighbourhoods that the counts ``"morgan"`` of a molecule are made of.

    Shapes:
        - output: the number of each in the counts ``[E]``, and its atoms ``[E, atoms]`` as
          booleans, in the order of the store.
    """
    mol, found = _canonical(text), rdFingerprintGenerator.AdditionalOutput()
    found.AllocateBitInfoMap()
    _MORGAN_FEATURES.GetCountFingerprint(mol, additionalOutput=found)
    near = Chem.GetDistanceMatrix(mol)
    each = [(bit, *one) for bit, places in found.GetBitInfoMap().items() for one in places]
    bits, atoms, radii = np.array(each, dtype=np.int64).reshape(-1, 3).T
    return bits, near[atoms] <= radii[:, None]


def descriptor_changes(text: str, names: Sequence[str]) -> np.ndarray:
    """Compute how much each descriptor loses if hydrogens take the place of an atom.

    Args:
        text: a SMILES.
        names: names in `DESCRIPTORS` and `FRAGMENTS`.

    Shapes:
        - output: ``[atoms, len(names)]`` in the order of the store, NaN where it is not known.
    """
    with rdBase.BlockLogs():
        mol = Chem.RWMol(_canonical(text))
        wanted = [_PLACES[name] for name in names]
        whole, found = _descriptors_of(mol)[wanted], []
        Chem.Kekulize(mol, clearAromaticFlags=True)
        for atom in range(mol.GetNumAtoms()):
            part = Chem.RWMol(mol)
            part.RemoveAtom(atom)
            try:
                Chem.SanitizeMol(part)
                found.append(whole - _descriptors_of(part)[wanted])
            except (ValueError, RuntimeError):  # a valence that RDKit refuses
                found.append(np.full(len(wanted), np.nan))
    return np.stack(found)


_FEATURE_FUNCTIONS = {"rdkit": _descriptors_of, "morgan": _morgan_of}


def named_features(text: str, descriptors: Sequence[str], counts: int) -> np.ndarray:
    """Return the `molecule_features` that a model reads, by the names of its descriptors.

    Args:
        text: a SMILES; another text has NaN only. Of a row with M molecules, the descriptors of
            each follow one another, and then the counts of each.
        descriptors: names in `DESCRIPTORS` and `FRAGMENTS`, M times.
        counts: how many counts of neighbourhoods, M times `FEATURE_BITS`, or 0.

    Shapes:
        - output: ``[len(descriptors) + counts]`` float32.
    """
    if JOINT in text:
        texts = text.split(JOINT)
        size, own_counts = len(descriptors) // len(texts), counts // len(texts)
        parts = [named_features(one, descriptors[:size], own_counts) for one in texts]
        return np.concatenate([*(part[:size] for part in parts), *(part[size:] for part in parts)])
    wanted = [_PLACES.get(name, -1) for name in descriptors]
    if -1 in wanted or counts not in (0, FEATURE_BITS):
        missing = repr(descriptors[wanted.index(-1)]) if -1 in wanted else f"{counts} counts"
        problem = f"the model reads {missing}, which RDKit {rdkit.__version__} does not give here"
        raise ValueError(f"features: {problem}; install the RDKit of its training")
    kinds = [kind for kind, own in (("rdkit", descriptors), ("morgan", counts)) if own]
    found = np.full(sum(FEATURES[kind] for kind in kinds), np.nan, np.float32)
    with suppress(ValueError, RuntimeError):  # of RDKit
        found = molecule_features(text, kinds)
    own = found[: FEATURES["rdkit"]][wanted] if wanted else found[:0]
    return np.concatenate([own, found[len(found) - counts :]])


_PLACES = {name: place for place, name in enumerate((*DESCRIPTORS, *FRAGMENTS))}


def with_features(
    store: MoleculeStore,
    descriptors: Sequence[str],
    counts: int,
    workers: int | None = None,
    progress: bool = False,
) -> MoleculeStore:
    """Return the store with the `named_features` of each molecule.

    They are computed once for the folder of the store, in parallel and resumable, and kept next to
    it.
    """
    found: dict[str, np.ndarray] = {}
    running: Any = {"workers": workers, "progress": progress}
    if descriptors:
        found["descriptors"] = _kept(store, "descriptors", names=descriptors, counts=0, **running)
    if counts:
        found["counts"] = _kept(store, "counts", names=(), counts=counts, **running)
    return store.with_features(**found)


def _kept(
    store: MoleculeStore, kind: str, *, names: Sequence[str], counts: int, **running: Any
) -> np.ndarray:
    """Compute the numbers of one kind for all molecules of a folder, or open those of before."""
    smiles = store.meta["files"]["smiles.npy"]["sha256"]
    facts = json.dumps([smiles, rdkit.__version__, list(names), counts])
    name = f"{kind}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"
    path = store.folder.with_name(f"{store.folder.name}-{name}.npy")
    if not path.is_file():
        with folder_lock(path.with_suffix(".lock"), patience=_PATIENCE):
            if not path.is_file():
                _write_features(store.whole, path, names=names, counts=counts, **running)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _write_features(
    store: MoleculeStore,
    path: Path,
    *,
    names: Sequence[str],
    counts: int,
    workers: int | None,
    progress: bool,
) -> None:
    """Write the numbers to a draft, `_PART` molecules at a time; an interrupted one goes on."""
    shape, dtype = (len(store), len(names) + counts), "<f4" if names else "u1"
    draft, done = path.with_suffix(".part"), path.with_suffix(".done")
    first = int(done.read_text()) if draft.is_file() and done.is_file() else 0
    mode: Any = "r+" if first else "w+"
    array = np.lib.format.open_memmap(draft, mode, dtype, None if first else shape)
    starts = range(first, len(store), _PART)
    texts = (
        [store.smiles(i) for i in range(start, min(start + _PART, len(store)))] for start in starts
    )
    each = partial(_feature_rows, names=names, counts=counts)
    nothing = np.full(shape[1], np.nan, np.float32)
    alone = partial(run_halved, each, died=lambda text: nothing)
    what = "descriptors" if names else "neighbourhoods"
    bar = tqdm(desc=what, total=len(store), initial=first, unit="mol", disable=not progress)
    workers = workers or min(cores(), 8, len(starts))
    with bar, closing(ordered_map(each, texts, workers, alone)) as results:
        for start, rows in zip(starts, results, strict=True):
            block = np.stack(rows)
            array[start : start + len(rows)] = (
                block if names else np.nan_to_num(block).clip(max=255)
            )
            array.flush()
            write_atomically(done, [str(start + len(rows)).encode()])
            bar.update(len(rows))
    os.replace(draft, path)
    done.unlink(missing_ok=True)


def _feature_rows(texts: Sequence[str], names: Sequence[str], counts: int) -> list[np.ndarray]:
    return [named_features(text, names, counts) for text in texts]


class ComputedNumbers(NamedTuple):
    """The numbers of ``N`` molecules with ``T`` atoms in all."""

    molecules: np.ndarray  # [N] of `MOLECULE`
    atoms: np.ndarray  # [T] of `ATOM`, in the order of the atoms in the store


def compute_descriptors(
    store: MoleculeStore,
    folder: str | Path,
    *,
    workers: int | None = None,
    progress: bool = False,
) -> ComputedNumbers:
    """Compute the numbers of all molecules of a store, or open those that were computed before.

    A molecule that RDKit cannot process has no numbers (NaN and `UNKNOWN`), and so has one with
    more than `MOST_ATOMS` atoms; this changes nothing for the others.

    Args:
        store: all molecules of a store with SMILES, atoms in canonical order.
        folder: where the arrays are; new, or that of an interrupted call.
        workers: how many processes; by default one for each core, at most 8.
        progress: whether to show a progress bar on standard error.

    Example:
        >>> compute_descriptors(MoleculeStore("store"), "numbers").molecules["morgan"].shape
        (1000, 512)
    """
    if not store.meta["canonical"]:
        raise ValueError(f"descriptors: {store!r} was prepared with --keep-order; leave that out")
    folder, smiles = Path(folder), store.meta["files"]["smiles.npy"]["sha256"]
    facts = {"store": smiles, "rdkit": rdkit.__version__, "arrays": str(_ARRAYS)}
    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder / "descriptors.lock"):
        if not (path := folder / "facts.json").is_file():
            write_atomically(path, [json.dumps(facts).encode()])
        before = json.loads(path.read_bytes())
        for name in (name for name in facts if before.get(name) != facts[name]):
            problem = f"{folder} was computed with another {name} ({before.get(name)})"
            raise ValueError(f"descriptors: {problem}; choose another folder, or delete it")
        files = [folder / f"{name}.npy" for name in _ARRAYS]
        if not files[-1].is_file():
            _compute(store, folder, workers or min(cores(), 8), progress)
    return ComputedNumbers(*(np.load(file, mmap_mode="r") for file in files))


def _compute(store: MoleculeStore, folder: Path, workers: int, progress: bool) -> None:
    """Write the numbers of `_PART` molecules at a time to files, of those that have no file yet."""
    starts = range(0, len(store), _PART)
    waiting = [start for start in starts if not (folder / f"{start}.npz").is_file()]
    bar = tqdm(desc="descriptors", total=len(store), unit="mol", disable=not progress)
    alone = partial(run_halved, _numbers, died=_no_numbers)
    items = (_items(store, start) for start in waiting)
    with bar, closing(ordered_map(_numbers, items, workers, alone)) as results:
        bar.update(len(store) - sum(min(_PART, len(store) - start) for start in waiting))
        for start, found in zip(waiting, results, strict=True):
            file, parts = io.BytesIO(), map(np.concatenate, zip(*found, strict=True))
            arrays: Any = dict(zip(_ARRAYS, parts, strict=True))
            np.savez(file, **arrays)
            write_atomically(folder / f"{start}.npz", [file.getbuffer()])
            bar.update(len(found))
    for (name, kind), rows in zip(
        _ARRAYS.items(), (len(store), store.num_atoms.sum()), strict=True
    ):
        draft, at = folder / f"{name}.tmp", 0
        array = np.lib.format.open_memmap(draft, "w+", kind, (int(rows),))
        for start in starts:
            with np.load(folder / f"{start}.npz") as part:
                own = part[name]
            array[at : at + len(own)] = own
            at += len(own)
        array.flush()
        os.replace(draft, folder / f"{name}.npy")
    for start in starts:
        (folder / f"{start}.npz").unlink()


_Item = tuple[str, np.ndarray]  # a SMILES, and OGB's features of its atoms
_Found = tuple[np.ndarray, np.ndarray]  # [1] of MOLECULE, [n] of ATOM


def _items(store: MoleculeStore, start: int) -> list[_Item]:
    numbers = range(start, min(start + _PART, len(store)))
    arrays = store.batch(list(numbers))
    atoms = np.split(arrays.x, arrays.ptr[1:-1])
    return list(zip(map(store.smiles, numbers), atoms, strict=True))


def _numbers(items: Sequence[_Item]) -> list[_Found]:
    """Compute the numbers of some molecules; the work of one process."""
    found = []
    with rdBase.BlockLogs():
        for item in items:
            try:
                found.append(_numbers_of(*item))
            except Exception:  # RDKit raises errors of many kinds; the molecule is left out
                found.append(_no_numbers(item))
    return found


def _no_numbers(item: _Item) -> _Found:
    molecule, atoms = np.zeros(1, MOLECULE), np.zeros(len(item[1]), ATOM)
    molecule["descriptors"], atoms["charge"] = np.nan, np.nan
    molecule["fragments"], molecule["morgan"], atoms["ring"] = UNKNOWN, UNKNOWN, UNKNOWN
    return molecule, atoms


def _numbers_of(text: str, features: np.ndarray) -> _Found:
    found, atoms = _no_numbers((text, features))
    if len(features) > MOST_ATOMS:
        return found, atoms
    mol = _canonical(text)
    found["key"] = molecule_keys([text], 1)
    values, counts = np.split(_descriptors_of(mol), [len(DESCRIPTORS)])
    found["descriptors"] = values
    found["fragments"] = np.where(np.isnan(counts), UNKNOWN, counts.clip(max=MOST_COUNT))
    found["morgan"] = _MORGAN.GetCountFingerprintAsNumPy(mol).clip(max=MOST_COUNT)
    if np.array_equal(_elements(mol), features[:, 0]):
        rings, order = mol.GetRingInfo(), range(len(atoms))
        atoms["ring"] = [min(rings.MinAtomRingSize(i), MOST_RING) for i in order]
        rdPartialCharges.ComputeGasteigerCharges(mol)
        charges = [mol.GetAtomWithIdx(i).GetDoubleProp("_GasteigerCharge") for i in order]
        atoms["charge"] = [charge if abs(charge) <= 4 else np.nan for charge in charges]
    return found, atoms


def _value(mol: Chem.Mol, name: str) -> float:
    try:
        return float(_FUNCTIONS[name](mol))
    except Exception:  # such as ZeroDivisionError and RDKit's own; the others are still computed
        return np.nan


def _elements(mol: Chem.Mol) -> np.ndarray:
    """Return OGB's first feature of each atom: its number less 1; 118 if it is not an element."""
    numbers = np.array([atom.GetAtomicNum() for atom in mol.GetAtoms()])
    return np.where((numbers < 1) | (numbers > 118), 118, numbers - 1)


class NormalScores:
    r"""Maps each descriptor to the quantile of the normal distribution that has its rank.

    A descriptor that at least half of the training molecules have, and that is not the same for
    all of them, becomes :math:`\Phi^{-1}(\text{rank})`, scaled to mean 0 and deviation 1; equal
    values have the mean of their ranks, and values beyond those of the training are cut off.

    Args:
        values: ``[N, len(DESCRIPTORS)]``, of training molecules, NaN where there is none.

    Example:
        >>> scores = NormalScores(numbers.molecules["descriptors"][train])
        >>> scores(numbers.molecules["descriptors"][valid]).std()
        0.99
    """

    def __init__(self, values: np.ndarray, knots: int = 200) -> None:
        rank = (np.arange(knots) + 0.5) / knots
        normal = torch.special.ndtri(torch.from_numpy(rank)).numpy()
        self.columns: list[int] = []
        self._curves: list[tuple[np.ndarray, np.ndarray]] = []
        for number, column in enumerate(values.T.astype(np.float64)):
            known = column[~np.isnan(column)]
            if len(known) < len(column) / 2 or known.min() == known.max():
                continue
            # The first and last knots are the extremes, so that a rare value is not the usual one.
            at = np.quantile(known, (rank - rank[0]) / (rank[-1] - rank[0]))
            value, which = np.unique(at, return_inverse=True)
            score = np.bincount(which, normal) / np.bincount(which)
            own = np.interp(known, value, score)
            self.columns.append(number)
            self._curves.append((value, (score - own.mean()) / own.std()))
        self.names = tuple(DESCRIPTORS[number] for number in self.columns)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the scores ``[n, len(names)]`` of descriptors ``[n, len(DESCRIPTORS)]``."""
        each = [np.interp(values[:, i], *curve) for i, curve in self._items()]
        return np.stack(each, axis=1).astype(np.float32)

    def _items(self) -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray]]]:
        return zip(self.columns, self._curves, strict=True)
