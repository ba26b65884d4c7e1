"""From a file of SMILES to a store: streamed, in parallel, and resumed where it was interrupted."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from slicegraph.data.preparation.folder import PrepareFolder
from slicegraph.data.preparation.job import PrepareError, PrepareJob, PrepareResult
from slicegraph.data.preparation.source import find_source
from slicegraph.data.store.graph_writer import write_graphs

__all__ = ["CHUNK_ROWS", "PrepareError", "PrepareResult", "prepare", "write_graphs"]

CHUNK_ROWS = 2000
_MOST_WORKERS = 8  # unless more are asked for


def prepare(
    source: str | Path,
    folder: str | Path,
    *,
    smiles: str | None = None,
    labels: Sequence[str] | None = None,
    workers: int | None = None,
    strict: bool = False,
    canonical: bool = True,
    unlabelled: bool = False,
    progress: bool = False,
    restart: bool = False,
    root: str | Path = "dataset",
    chunk_rows: int = CHUNK_ROWS,
) -> PrepareResult:
    """Makes a store of the molecules in a file.

    The source is streamed, and memory does not grow with it. Every row is either in the store or in
    its ``rejected.csv``, with the reason. Interrupted at any point, the same call goes on where it
    was, and the files are the same to the byte; so they are for any number of workers.

    Args:
        source: a file as :func:`open_table` takes it, or the name of an OGB data set.
        folder: where the store is made; new, empty, or that of an interrupted call.
        smiles: the column of the SMILES; guessed by default.
        labels: the columns of the labels, ``[]`` for none; by default all columns of numbers.
        workers: how many processes; by default one for each core, at most 8. 1 means none beside
            this one.
        strict: whether the first bad row is an error.
        canonical: whether atoms are put in canonical order, so that a molecule has one graph
            however it is spelt; otherwise they keep the order of the SMILES.
        unlabelled: whether rows without any label are kept, their labels being NaN.
        progress: whether to show the columns and a progress bar on standard error.
        restart: whether to discard what an interrupted call with other settings has done.
        root: the folder of the OGB data sets.
        chunk_rows: how many rows are done at a time.

    Example:
        >>> prepare("solubility.csv", "solubility", labels=["logS"]).molecules
        1128
    """
    if chunk_rows < 1 or (workers is not None and workers < 1):
        raise PrepareError(
            f"workers = {workers} and chunk_rows = {chunk_rows} must be 1 at the least"
        )
    found = find_source(source, root, smiles, labels, unlabelled)
    if progress:
        print(found.describe(), file=sys.stderr)
    job = PrepareJob(
        found,
        PrepareFolder(folder),
        canonical=canonical,
        workers=workers or min(_cores(), _MOST_WORKERS),
        strict=strict,
        progress=progress,
        chunk_rows=chunk_rows,
    )
    return job.run(restart)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
