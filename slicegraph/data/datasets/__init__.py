"""Data sets by name: OGB's, PyG's, QM9, the shipped one, and a user's own table."""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from slicegraph import metrics
from slicegraph.data.datasets import ogb, qm9
from slicegraph.data.datasets.source import MissingDataset, Source
from slicegraph.data.prepare import PrepareResult
from slicegraph.data.prepare import prepare as prepare_file
from slicegraph.data.splits import Task, random_split, scaffold_groups, split_groups, task_of_labels
from slicegraph.data.store import MoleculeStore
from slicegraph.data.table import SUFFIXES
from slicegraph.files import write_atomically
from slicegraph.registry import TASK_PRESETS

PREFIX = "csv:"


class CsvSource(Source):
    """A CSV, TSV, SMI or Parquet file with the options of :func:`slicegraph.data.load`.

    The name of the folder of its prepared molecules has a checksum of the file and the columns: a
    file that has changed is prepared again, in another folder.
    """

    def __init__(
        self,
        name: str,
        root: str | Path,
        *,
        smiles: str | None = None,
        targets: str | Sequence[str] | None = None,
        split: str = "random",
        seed: int = 0,
        fractions: Sequence[float] = (0.8, 0.1, 0.1),
        task: str | None = None,
        metric: str | None = None,
    ) -> None:
        self.name, self.path = name, Path(name.removeprefix(PREFIX)).expanduser()
        if self.path.is_dir():
            raise MissingDataset(f"{name}: {str(self.path)!r} is a folder, expected a file")
        if not self.path.is_file():
            raise MissingDataset(f"{name}: there is no file {str(self.path)!r}")
        splitters = {"random": self._random_split, "scaffold": self._scaffold_split}
        if split not in splitters:
            raise ValueError(f"split = {split!r}, expected {' or '.join(splitters)}")
        self.smiles = smiles
        if targets is not None:
            self.labels = (targets,) if isinstance(targets, str) else tuple(targets)
        identity = json.dumps([self.sha256, self.smiles, self.labels]).encode()
        checksum = hashlib.sha256(identity).hexdigest()[:12]
        self.folder = Path(root) / "csv" / f"{self.path.name.split('.')[0]}-{checksum}"
        self._split, self._splitter = split, splitters[split]
        self._seed, self._fractions = seed, tuple(fractions)
        self._task_options = task, metric

    def splits(self, store: MoleculeStore) -> dict[str, np.ndarray]:
        parts = self._splitter(store)
        for part, fraction in zip(parts, self._fractions, strict=True):
            if fraction and not len(parts[part]):
                problem = f"the {self._split} split of {len(store)} molecules leaves {part!r} empty"
                remedy = f"choose other fractions than {self._fractions}"
                raise ValueError(f"{self.name}: {problem}; {remedy}")
        return parts

    def task(self, store: MoleculeStore) -> Task:
        return task_of_labels(store.labels, tuple(store.label_names), *self._task_options)

    def _random_split(self, store: MoleculeStore) -> dict[str, np.ndarray]:
        return random_split(len(store), self._fractions, self._seed)

    def _scaffold_split(self, store: MoleculeStore) -> dict[str, np.ndarray]:
        """Split by scaffold; the groups are kept on disk, as RDKit finds about 2,000 a second."""
        path = self.folder / "scaffolds.npy"
        if not path.is_file():
            content = io.BytesIO()
            np.save(content, scaffold_groups(map(store.smiles, range(len(store)))))
            write_atomically(path, [content.getbuffer()])
        return split_groups(np.load(path, allow_pickle=False), self._fractions)


DATASETS: dict[str, type[Source]] = {
    "mini": qm9.MiniSource,
    "qm9-gap": qm9.Qm9Source,
    **dict.fromkeys(ogb.LSC, ogb.LscSource),
    **dict.fromkeys(ogb.MOL_SIZES, ogb.MolSource),
    **dict.fromkeys(ogb.ZINC_SIZES, ogb.ZincSource),
}


@dataclass(frozen=True)
class MoleculeDataset:
    """A data set with prepared molecules.

    Args:
        name: the name that `load_dataset` was given.
        store: all molecules.
        splits: the positions in the store of the molecules of each split, int64; for a data set of
            OGB with OGB's names and in OGB's order.
        task: the description of the labels.
        evaluator: the evaluator, without predictions.
    """

    name: str
    store: MoleculeStore
    splits: dict[str, np.ndarray]
    task: Task
    evaluator: metrics.Evaluator

    noun = "molecules"
    columns = ("index", "row", "smiles", "num_atoms")  # of a molecule in a table of predictions

    @property
    def source(self) -> dict[str, Any]:
        """The name, checksum and size of the file that the molecules come from."""
        return self.store.meta["source"]

    def labels(self, positions: np.ndarray) -> np.ndarray:
        """Return the labels of these molecules, ``[n, targets]``, NaN for a missing one."""
        return np.array(self.store[positions].labels)

    def rows(self, positions: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """Iterate over the values of `columns` of these molecules."""
        store = self.store[positions]
        smiles, atoms = map(store.smiles, range(len(store))), store.num_atoms.tolist()
        return zip(store.positions.tolist(), store.rows.tolist(), smiles, atoms, strict=True)

    def write_submission(
        self, split: str, y_pred: Tensor | np.ndarray, index: Tensor | ArrayLike, folder: str | Path
    ) -> Path:
        """Write OGB's leaderboard file, with the arguments of `metrics.write_submission`."""
        expected = self.splits.get(split, np.empty(0, dtype=np.int64))
        return metrics.write_submission(self.name, split, y_pred, index, expected, folder)


def load_dataset(
    name: str,
    root: str | Path = "dataset",
    workers: int | None = None,
    progress: bool = True,
    **options: Any,
) -> MoleculeDataset:
    """Load a data set by name; the first call prepares its molecules.

    Args:
        name: one of `names()`, or "csv:" and the path of a CSV, TSV, SMI or Parquet file.
        root: the folder of the data sets. Each has a folder in it, those of OGB the one that OGB
            uses; its subfolder ``slicegraph-v1`` has the prepared molecules.
        workers: the number of processes that prepare it (default: one per core, at most 8).
        progress: whether to show a progress bar while preparing.
        options: for "csv:PATH" only. ``smiles`` and ``targets``: the column of the SMILES and the
            column or columns of the labels (default: guessed); ``split``: "random" or "scaffold";
            ``seed`` of the random split; ``fractions`` of train, valid and test; ``task``:
            "regression", "binary" or "multiclass" (default: derived from the labels); ``metric``:
            "mae", "rmse", "rocauc", "ap" or "acc" (default: that of the task).

    Example:
        >>> mini = load_dataset("mini")
        >>> {name: len(positions) for name, positions in mini.splits.items()}
        {'train': 10000, 'valid': 1000, 'test': 1000}
        >>> mini.task.unit
        'eV'
    """
    source = _find_source(name, root, options)
    store = source.store(workers, progress)
    task = source.task(store)
    return MoleculeDataset(name, store, source.splits(store), task, source.evaluator(task))


def prepare(
    source: str | Path, folder: str | Path, *, root: str | Path = "dataset", **options: Any
) -> PrepareResult:
    """Prepare a store from a file or from a data set by name, whose missing files are fetched.

    Args:
        source: a file, or the name of a data set below `root`.
        folder: the folder of the store; new, empty, or that of an interrupted call.
        root: the folder of the data sets.
        options: all options of :func:`slicegraph.data.prepare.prepare`.
    """
    path = Path(source)
    like_a_file = path.parent != Path() or path.suffix.lower() in (*SUFFIXES, ".gz")
    if path.exists() or like_a_file:
        return prepare_file(path, folder, **options)
    known = _find_source(str(source), root, {})
    if not known.has_smiles:
        raise ValueError(f"{source} has no SMILES to prepare; slicegraph.data.load prepares it")
    known.fetch()
    for option, value in known.columns().items():
        if options.get(option) in (None, False):
            options[option] = value
    return prepare_file(known.path, folder, **options)


def names() -> list[str]:
    """Return the names in `DATASETS`."""
    return list(DATASETS)


def table(root: str | Path = "dataset") -> list[tuple[str, int | None, str, str, str, str]]:
    """List all data sets: name, size, task, metric, whether it is in `root`, and its origin.

    Nothing is fetched or read.
    """
    rows = []
    for source in (make(name, root) for name, make in DATASETS.items()):
        task = source.kind + (f", {source.unit}" if source.unit else "")
        task += f", {source.num_targets} targets" if source.num_targets > 1 else ""
        here = "prepared" if source.prepared() else "yes" if source.present() else "no"
        metric = metrics.METRICS[source.metric].title
        rows.append((source.name, source.size, task, metric, here, source.how))
    return rows


def _find_source(name: str, root: str | Path, options: dict[str, Any]) -> Source:
    if name.startswith(PREFIX):
        return CsvSource(name, root, **options)
    if name not in DATASETS:
        if Path(name).is_file():
            raise ValueError(f"{name!r} is a file; use {PREFIX}{name}")
        if name in TASK_PRESETS:
            remedy = f"slicegraph train --task {name}"
            raise ValueError(f"{name!r} is a task, not a data set of molecules; {remedy}")
        known = f"{', '.join(DATASETS)}, and {PREFIX}PATH for a file of your own"
        raise ValueError(f"there is no data set {name!r}; there are {known}")
    if options:
        raise ValueError(f"{name} takes no {', '.join(options)}: these are for {PREFIX}PATH")
    return DATASETS[name](name, root)
