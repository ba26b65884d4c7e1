"""Splits into train, valid and test, and the description of what a data set predicts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from rdkit import rdBase
from rdkit.Chem.Scaffolds import MurckoScaffold

from slicegraph.metrics import Evaluator

SPLIT_NAMES = ("train", "valid", "test")
Splits = dict[str, np.ndarray]  # int64 positions of molecules, ascending unless the split is OGB's
KINDS = {"regression": "mae", "binary": "rocauc", "multiclass": "acc"}  # with the default metrics


@dataclass(frozen=True)
class Task:
    """The targets of a data set and how they are scored.

    Args:
        kind: "regression", "binary" (labels 0 and 1) or "multiclass" (labels 0, 1, 2, ...).
        target_names: the columns of the labels.
        metric: "mae", "rmse", "rocauc", "ap" or "acc".
        unit: the unit of the labels, if they have one.
        num_classes: the number of classes; 0 for a regression.
    """

    kind: str
    target_names: tuple[str, ...]
    metric: str
    unit: str = ""
    num_classes: int = 0

    @property
    def num_targets(self) -> int:
        """The number of predicted targets of a molecule, whatever their number of classes."""
        return len(self.target_names)

    def evaluator(self) -> Evaluator:
        """Return a new evaluator with the metric of this task."""
        return Evaluator(self.metric, self.num_targets, self.unit)


def task_of_labels(
    labels: np.ndarray, names: tuple[str, ...], kind: str | None = None, metric: str | None = None
) -> Task:
    """Derive the task of ``[N, L]`` labels: binary if every known one is 0 or 1, else regression.

    Whole numbers may be counts or classes, which only the user knows: they are a regression unless
    ``kind="multiclass"``. The metric is that of the kind unless it is given.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"task = {kind!r}, expected {', '.join(KINDS)}")
    if not names:
        raise ValueError("there are no labels; name their columns (targets)")
    known = labels[~np.isnan(labels)]
    if not len(known):
        raise ValueError(f"no molecule has a label in {', '.join(names)}")
    kind = kind or ("binary" if np.isin(known, (0, 1)).all() else "regression")
    classes = {"regression": 0, "binary": 2}.get(kind, int(known.max()) + 1)
    for label in known[~np.isin(known, np.arange(classes))] if kind != "regression" else ():
        raise ValueError(f"label {label:g} in a {kind} task, expected 0 to {classes - 1}")
    return Task(kind, names, metric or KINDS[kind], num_classes=classes)


def permutation(count: int, seed: int) -> np.ndarray:
    """Return the numbers 0 to ``count - 1`` in an order that depends on ``seed`` alone."""
    # NumPy promises never to change the raw output of a generator, unlike its shuffling methods.
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def random_split(count: int, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0) -> Splits:
    """Split ``count`` molecules at random, with the same parts for a seed on every machine.

    Example:
        >>> {name: part.tolist() for name, part in random_split(6, (0.5, 0.25, 0.25)).items()}
        {'train': [1, 2, 3], 'valid': [0], 'test': [4, 5]}
    """
    parts = np.split(permutation(count, seed), _cuts(count, fractions))
    return {name: np.sort(part) for name, part in zip(SPLIT_NAMES, parts, strict=True)}


def scaffold_groups(smiles: Iterable[str]) -> np.ndarray:
    """Number the scaffolds in order of appearance; return that of each molecule, ``[N]`` int64."""
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(scaffold(text), len(numbers)) for text in smiles]
    return np.array(groups, dtype=np.int64)


def split_groups(groups: np.ndarray, fractions: Sequence[float]) -> Splits:
    """Split molecules so that those of one group, numbered by appearance, stay together.

    The groups are taken from the largest to the smallest, equally large ones by their first
    molecule: into train as long as the whole group fits there, else into valid, else into test. The
    split is deterministic, and the sizes are approximate.

    Example:
        >>> groups = scaffold_groups(["c1ccccc1C", "CCO", "Oc1ccccc1", "C1CC1N", "c1ccccc1"])
        >>> {name: part.tolist() for name, part in split_groups(groups, (0.6, 0.2, 0.2)).items()}
        {'train': [0, 2, 4], 'valid': [1], 'test': [3]}
    """
    first, second = _cuts(len(groups), fractions)
    free, counts = [first, second - first, len(groups)], np.bincount(groups)
    part_of_group = np.empty(len(counts), dtype=np.int64)
    for group in np.argsort(-counts, kind="stable"):
        part = part_of_group[group] = next(p for p in range(3) if counts[group] <= free[p])
        free[part] -= counts[group]
    parts = part_of_group[groups]
    return {name: np.flatnonzero(parts == part) for part, name in enumerate(SPLIT_NAMES)}


def scaffold(smiles: str) -> str:
    """Return the Bemis-Murcko scaffold, rings and linkers without stereochemistry, as SMILES.

    It is empty for a molecule without a ring, and the text itself if RDKit cannot read that.
    """
    with rdBase.BlockLogs():
        try:
            return MurckoScaffold.MurckoScaffoldSmiles(smiles, includeChirality=False)
        except (ValueError, RuntimeError):
            return smiles


def _cuts(count: int, fractions: Sequence[float]) -> tuple[int, int]:
    """Return where train ends and where valid ends."""
    if len(fractions) != 3 or not min(fractions) >= 0 or not abs(sum(fractions) - 1) <= 1e-6:
        expected = "three shares that add up to 1, of train, valid and test"
        raise ValueError(f"fractions = {tuple(fractions)}: expected {expected}")
    return round(count * fractions[0]), round(count * (fractions[0] + fractions[1]))
