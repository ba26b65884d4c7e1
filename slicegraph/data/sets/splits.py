"""Which molecules to train on and which to keep for the test: at random, or by scaffold."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem.Scaffolds import MurckoScaffold

SPLIT_NAMES = ("train", "valid", "test")
Splits = dict[str, np.ndarray]


def permutation(count: int, seed: int) -> np.ndarray:
    """The numbers 0 to ``count - 1`` in an order that only ``seed`` decides.

    Made from the raw output of a generator, which NumPy promises never to change; its shuffling
    methods may.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def random_split(count: int, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0) -> Splits:
    """Splits ``count`` molecules at random into train, valid and test.

    Args:
        count: how many molecules there are.
        fractions: the share of each part; together 1.
        seed: the same seed gives the same parts on every machine.

    Shapes:
        - each part: ``[k]``, int64, positions in ascending order.

    Example:
        >>> {name: part.tolist() for name, part in random_split(6, (0.5, 0.25, 0.25)).items()}
        {'train': [1, 2, 3], 'valid': [0], 'test': [4, 5]}
    """
    first, second = _cuts(count, fractions)
    return split_by_size(count, (first, second - first), seed)


def split_by_size(count: int, sizes: tuple[int, int], seed: int) -> Splits:
    """As `random_split`, with the sizes of train and valid; what remains is test."""
    order = permutation(count, seed)
    parts = np.split(order, [sizes[0], sizes[0] + sizes[1]])
    return {name: np.sort(part) for name, part in zip(SPLIT_NAMES, parts, strict=True)}


def scaffold_split(smiles: Iterable[str], fractions: Sequence[float] = (0.8, 0.1, 0.1)) -> Splits:
    """Splits molecules so that those of one Bemis-Murcko scaffold stay together.

    The scaffold is the rings and what links them, without stereochemistry; all molecules without a
    ring share the empty one. The scaffolds are taken from the most frequent to the rarest, among
    equals by their first molecule: into train as long as the whole group fits there, else into
    valid, else into test. No chance is involved.

    Args:
        smiles: the text of every molecule.
        fractions: the share of each part; together 1. Groups are not divided, so that the parts
            are only about as large.

    Shapes:
        - each part: ``[k]``, int64, positions in ascending order.

    Example:
        >>> smiles = ["c1ccccc1C", "CCO", "Oc1ccccc1", "C1CC1N", "c1ccccc1"]
        >>> splits = scaffold_split(smiles, (0.6, 0.2, 0.2))
        >>> {name: part.tolist() for name, part in splits.items()}
        {'train': [0, 2, 4], 'valid': [1], 'test': [3]}
    """
    return split_groups(scaffold_groups(smiles), fractions)


def scaffold_groups(smiles: Iterable[str]) -> np.ndarray:
    """``[N]`` int64: which scaffold each molecule has, numbered as they appear."""
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(scaffold(text), len(numbers)) for text in smiles]
    return np.array(groups, dtype=np.int64)


def split_groups(groups: np.ndarray, fractions: Sequence[float]) -> Splits:
    """As `scaffold_split`, for any groups, numbered as they appear."""
    first, second = _cuts(len(groups), fractions)
    counts = np.bincount(groups)
    part_of_group, sizes = np.empty(len(counts), dtype=np.int64), [0, 0, 0]
    rooms = (first, second - first, len(groups))
    for group in np.argsort(-counts, kind="stable"):
        part = next(part for part in range(3) if sizes[part] + counts[group] <= rooms[part])
        part_of_group[group] = part
        sizes[part] += counts[group]
    return {
        name: np.flatnonzero(part_of_group[groups] == part) for part, name in enumerate(SPLIT_NAMES)
    }


def scaffold(smiles: str) -> str:
    """The Bemis-Murcko scaffold as SMILES; that of what RDKit cannot take apart is the text."""
    with rdBase.BlockLogs():
        molecule: Any = Chem.MolFromSmiles(smiles)
        if molecule is None:
            return smiles
        try:
            return MurckoScaffold.MurckoScaffoldSmiles(mol=molecule, includeChirality=False)
        except (ValueError, RuntimeError):
            return smiles


def _cuts(count: int, fractions: Sequence[float]) -> tuple[int, int]:
    """Where train ends and where valid ends."""
    shares = [float(share) for share in fractions]
    if len(shares) != 3 or not all(share >= 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(
            f"fractions = {tuple(fractions)}: expected three shares that add up to 1, "
            "of train, valid and test"
        )
    return round(count * shares[0]), round(count * (shares[0] + shares[1]))
