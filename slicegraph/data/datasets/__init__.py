"""Data sets by name: OGB's, PyG's, QM9, the shipped one, and a user's own table."""

from pathlib import Path
from typing import Any

from slicegraph import metrics
from slicegraph.data.datasets import ogb
from slicegraph.data.datasets.csv import PREFIX, CsvSource
from slicegraph.data.datasets.source import MiniSource, MoleculeDataset, Qm9Source, Source
from slicegraph.data.prepare import PrepareResult
from slicegraph.data.prepare import prepare as prepare_file
from slicegraph.data.table import SUFFIXES
from slicegraph.registry import TASK_PRESETS

__all__ = ["DATASETS", "PREFIX", "MoleculeDataset", "load_dataset", "names", "prepare", "table"]

DATASETS: dict[str, type[Source]] = {
    "mini": MiniSource,
    "qm9-gap": Qm9Source,
    **dict.fromkeys(ogb.LSC, ogb.LscSource),
    **dict.fromkeys(ogb.MOL_SIZES, ogb.MolSource),
    **dict.fromkeys(ogb.ZINC_SIZES, ogb.ZincSource),
}


def load_dataset(
    name: str,
    root: str | Path | None = None,
    workers: int | None = None,
    progress: bool = True,
    **options: Any,
) -> MoleculeDataset:
    """Load a data set by name; the first call prepares its molecules.

    Args:
        name: one of `names()`, or "csv:" and the path of a CSV, TSV, SMI, SDF, Excel or Parquet
            file.
        root: the folder of the data sets (default: "dataset", for a file of your own the cache that
            ``slicegraph info`` names). Each has a folder in it, those of OGB the one that OGB uses;
            its subfolder ``slicegraph-v1`` has the prepared molecules.
        workers: the number of processes that prepare it (default: one per core, at most 8).
        progress: whether to show a progress bar while preparing.
        options: for "csv:PATH" only. ``smiles`` and ``targets``: the column of the SMILES (or
            several, for rows of several molecules) and the column or columns of the labels
            (default: guessed, an error if several are likely);
            ``split``: "random", "stratified", "scaffold", "cluster", "column:NAME", "time:NAME",
            "group:NAME", or "all" for no split (default: "random", for classes "stratified");
            ``seed`` of the split; ``fractions`` of train, valid and test; ``folds`` and ``fold``:
            the number of folds and the one that is test, from 1; ``task``: "regression",
            "binary" or "multiclass" (default: derived from the labels); ``metric``: "mae", "rmse",
            "rocauc", "ap" or "acc" (default: that of the task); ``standardize``: steps of
            :data:`slicegraph.data.molecules.STEPS`; ``replicates``: "keep", "mean" or "median";
            ``censored``: "drop", "value" or "loss" for values such as ">10" (default: an error);
            ``allow_rejected``: the share of rows that may be unusable; ``features``: columns of
            numbers that the head reads, too; ``weight_column``: that of the weights of the rows;
            ``class_names`` in the order of a trained model.

    Example:
        >>> mini = load_dataset("mini")
        >>> {name: len(positions) for name, positions in mini.splits.items()}
        {'train': 10000, 'valid': 1000, 'test': 1000}
        >>> mini.task.unit
        'eV'
    """
    return _find_source(name, root, options).dataset(workers, progress)


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


def _find_source(name: str, root: str | Path | None, options: dict[str, Any]) -> Source:
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
    return DATASETS[name](name, "dataset" if root is None else root)
