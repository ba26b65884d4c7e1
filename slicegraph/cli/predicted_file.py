"""`slicegraph predict` for a file: read, predicted and written a part at a time."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slicegraph.cli.model_arguments import check_new_file, load_molecule_model

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def predict_file(file: Path, args: argparse.Namespace) -> int:
    """Writes the table, and returns how many rows have an error; 0 but in the first process."""
    from slicegraph import prediction_table, ranks

    ending = _check_out(file, args)
    with ranks.process_group() as rank:
        if rank.first and args.out != "-":
            check_new_file(Path(args.out), args.force)
        model = load_molecule_model(args)
        table = prediction_table.open_whole(file, args.smiles)
        chunk_rows = args.chunk_rows or prediction_table.CHUNK_ROWS
        workers = _workers(args, rank.world)
        predicted = prediction_table.predicted_rows(
            model, table, args.batch_size, workers, rank, chunk_rows
        )
        if not rank.first:
            with _threads_beside(workers):
                list(predicted)
            return 0
        tally = prediction_table.Tally()
        predicted = prediction_table.with_bar(table.source, file.name, predicted)
        blocks = prediction_table.csv_blocks(
            model, table, predicted, tally, _DELIMITERS[ending.removesuffix(".gz")]
        )
        if ending.endswith(".gz"):
            blocks = prediction_table.compressed(blocks)
        with _threads_beside(workers):
            _write(args.out, blocks)
    where = "standard output" if args.out == "-" else args.out
    print(f"{tally.rows:,} rows in {where}, {tally.errors:,} with an error", file=sys.stderr)
    return tally.errors


def _check_out(file: Path, args: argparse.Namespace) -> str:
    """The ending of the file to write."""
    if args.out == "-":
        return ".csv"
    path = Path(args.out)
    for ending in (*_DELIMITERS, *(f"{suffix}.gz" for suffix in _DELIMITERS)):
        if path.name.lower().endswith(ending):
            if path.exists() and path.samefile(file):
                raise ValueError(f"--out {path} is the file that is read")
            return ending
    raise ValueError(f"--out {path} has no known ending, expected .csv, .tsv, .csv.gz or .tsv.gz")


def _workers(args: argparse.Namespace, world: int) -> int:
    if args.workers is not None and args.workers < 1:
        raise ValueError(f"--workers {args.workers}, expected at least 1")
    return args.workers or max(1, min(8, _cores() // world // 2))


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextmanager
def _threads_beside(workers: int) -> Iterator[None]:
    """Leaves cores to the workers: threads of torch that wait for one another do it busily."""
    import torch

    before = torch.get_num_threads()
    if workers > 1:
        torch.set_num_threads(max(1, min(before, _cores() - workers)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _write(out: str, blocks: Iterator[bytes]) -> None:
    from slicegraph.data.store.atomic_file import write_atomically

    if out == "-":
        sys.stdout.buffer.writelines(blocks)
        sys.stdout.buffer.flush()
    else:
        write_atomically(Path(out), blocks)
