"""Data sets by name: the molecules, the splits, the task and the evaluator."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from slicegraph import metrics
from slicegraph.data.sets import ogbg_mol, qm9, zinc
from slicegraph.data.sets.file_source import PREFIX, FileSource
from slicegraph.data.sets.lsc import LSC, LscSource
from slicegraph.data.sets.shipped import MiniSource
from slicegraph.data.sets.source import Source
from slicegraph.data.sets.task import Task
from slicegraph.data.store.molecule_store import MoleculeStore

_NOT_MOLECULES = ("ogbg-ppa", "ogbg-code2", "ogbg-code")


@dataclass(frozen=True)
class DataSet:
    """A data set, ready to be used.

    Args:
        name: as `load` took it.
        store: all its molecules.
        splits: for each split the positions of its molecules in the store, int64; under OGB's
            names, and in OGB's order.
        task: what is to be predicted.
        evaluator: how it is scored, with no predictions yet.
    """

    name: str
    store: MoleculeStore
    splits: dict[str, np.ndarray]
    task: Task
    evaluator: metrics.Evaluator

    noun = "molecules"
    columns = ("index", "row", "smiles", "num_atoms")
    """What a table of predictions says of a molecule."""

    @property
    def source(self) -> dict[str, Any]:
        """Where the molecules are from."""
        return self.store.meta["source"]

    def labels(self, positions: np.ndarray) -> np.ndarray:
        """``[n, targets]``: the labels of these molecules, NaN where there is none."""
        return np.array(self.store[positions].labels)

    def rows(self, positions: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """The values of `columns` of these molecules."""
        store = self.store[positions]
        sizes = zip(store.positions, store.rows, store.num_atoms, strict=True)
        for number, (index, row, atoms) in enumerate(sizes):
            yield int(index), int(row), store.smiles(number), int(atoms)

    def write_submission(
        self, split: str, y_pred: Tensor | np.ndarray, index: Tensor | ArrayLike, folder: str | Path
    ) -> Path:
        """Writes OGB's leaderboard file, as :func:`slicegraph.metrics.write_submission` does.

        Args:
            split: "test-dev" or "test-challenge" of PCQM4Mv2, "test" of PCQM4M.
            y_pred: ``[n]``, the predictions in the order of the split.
            index: ``[n]``, the position in the store of each, as the batches have it.
            folder: where to write.
        """
        expected = self.splits.get(split, np.empty(0, dtype=np.int64))
        return metrics.write_submission(self.name, split, y_pred, index, expected, folder)


def load(
    name: str,
    root: str | Path = "dataset",
    workers: int | None = None,
    progress: bool = True,
    **options: Any,
) -> DataSet:
    """A data set by name; prepared when it is loaded for the first time.

    Args:
        name: one of `names()`, or "csv:" and the path of a CSV, TSV, SMI or Parquet file.
        root: the folder of the data sets; each has a folder in it, those of OGB the one that OGB
            uses, and in that ``slicegraph-v1`` with the prepared molecules.
        workers: how many processes prepare it.
        progress: whether to say so, with a bar.
        options: for a file of one's own: ``smiles`` and ``targets`` (the columns), ``split``
            ("random" or "scaffold"), ``seed``, ``fractions``, ``task`` and ``metric``; as
            :class:`slicegraph.data.sets.file_source.FileSource` has them.

    Example:
        >>> mini = load("mini")
        >>> {name: len(positions) for name, positions in mini.splits.items()}
        {'train': 10000, 'valid': 1000, 'test': 1000}
        >>> mini.task.unit
        'eV'
    """
    source = _source(name, root, options)
    store = source.store(workers, progress)
    task = source.task(store)
    official = name in LSC or isinstance(source, ogbg_mol.MolSource)
    evaluator = metrics.evaluator(name) if official else task.evaluator()
    return DataSet(name, store, source.splits(store), task, evaluator)


def source_of(name: str, root: str | Path = "dataset", **options: Any) -> Source:
    """Where the molecules of a data set are: ``path``, ``smiles``, ``labels``, ``unlabelled``.

    What is not here is fetched.

    Args:
        name: as `load` takes it.
        root: the folder of the data sets.
        options: as `load` takes them.
    """
    source = _source(name, root, options)
    if isinstance(source, zinc.ZincSource):
        raise ValueError(f"{name} has no SMILES to prepare; slicegraph.data.load({name!r}) does it")
    source.fetch()
    return source


def names() -> list[str]:
    """Every data set that `load` knows by name; "csv:PATH" is a file of one's own."""
    return list(_factories())


class Row(NamedTuple):
    """A data set in the table of `slicegraph datasets`."""

    name: str
    size: int | None
    task: str
    metric: str
    here: str
    how: str


def table(root: str | Path = "dataset") -> list[Row]:
    """What there is, and whether it is in `root`: nothing is fetched or read."""
    return [_row(make(name, root)) for name, make in _factories().items()]


def _row(source: Source) -> Row:
    here = "prepared" if source.prepared() else "yes" if source.present() else "no"
    return Row(source.name, source.size, *source.summary, here, source.how)


def _factories() -> dict[str, Callable[[str, str | Path], Source]]:
    return {
        "mini": MiniSource,
        "qm9-gap": qm9.Qm9Source,
        **dict.fromkeys(LSC, LscSource),
        **dict.fromkeys(sorted(ogbg_mol.master(), key=_order), ogbg_mol.MolSource),
        **dict.fromkeys(zinc.SIZES, zinc.ZincSource),
    }


def _order(name: str) -> tuple[bool, str]:
    return name not in ("ogbg-molhiv", "ogbg-molpcba"), name


def _source(name: str, root: str | Path, options: dict[str, Any]) -> Source:
    from slicegraph.data.sequences.tasks import TASKS

    if name.startswith(PREFIX):
        return FileSource(name, root, **options)
    known = _factories()
    if name in _NOT_MOLECULES:
        raise ValueError(f"{name} is a data set of OGB, but not of molecules")
    if name not in known:
        if Path(name).is_file():
            raise ValueError(f"{name!r} is a file; say {PREFIX}{name}")
        if name in TASKS:
            raise ValueError(
                f"{name!r} is a task, not a data set of molecules; slicegraph train --task {name}"
            )
        raise ValueError(
            f"there is no data set {name!r}; there are {', '.join(known)}, and {PREFIX}PATH for a "
            "file of your own"
        )
    if options:
        raise ValueError(f"{name} takes no {', '.join(options)}: these are for {PREFIX}PATH")
    return known[name](name, root)
