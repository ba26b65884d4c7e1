"""Predict with a trained model, for SMILES or for the molecules in a file.

Every row of a file is kept, with all its columns. The columns that are added are <target>_pred (a
value, the probability of class 1, or the class followed by the probabilities <target>_p0,
<target>_p1, ..., with the names of the classes if they have some), <target>_std (a standard
deviation, of several models and of a kernel head for numbers), "warning" (what is unusual in the
molecule, such as a metal) and "error" (why a row has no prediction). Molecules are standardised as
they were for the training. Files of any size are read in parts. For a folder of .parquet files,
--out is a folder with a file of the same name for each; the same command goes on after an
interruption.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slicegraph.cli import (
    SOME_BAD,
    add_features,
    add_model,
    add_smiles,
    check_feature_numbers,
    check_new_file,
    feature_numbers,
    file_among,
    load_molecule_model,
    print_aligned,
    when_stopped,
)

EPILOG = """\
exit status: 0 all rows have a prediction, 3 some have an error instead, 2 nothing was done

examples:
  slicegraph predict runs/mini "CCO" "c1ccccc1"
  slicegraph predict runs/mini molecules.csv --out predicted.csv
  slicegraph predict runs/mini molecules.smi.gz --out - | head
  slicegraph predict runs/mini molecules --engine ray --out predicted
  torchrun --nproc-per-node 4 -m slicegraph predict runs/mini huge.parquet --out huge.csv.gz
"""
ENGINES = ("local", "ray")
CUT_OFF = 141  # the exit status if the reader of standard output closes it
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the molecules and the output file."""
    add_model(parser)
    add = parser.add_argument
    add(
        "inputs",
        nargs="+",
        metavar="SMILES|FILE|FOLDER",
        help="SMILES or InChI, A>>B for a row of several molecules; or a file: .csv, .tsv, .txt, "
        ".smi, .sdf (each also .gz), .xlsx or "
        ".parquet; or a folder of .parquet files",
    )
    add("--out", metavar="FILE", help="a .csv or .tsv (also .gz) to write; - for standard output")
    add("--engine", choices=ENGINES, help="what predicts the files of a folder (default: local)")
    add_smiles(parser)
    add_features(parser)
    add("--force", action="store_true", help="replace the file if it exists")
    add(
        "--workers",
        type=int,
        metavar="N",
        help="processes that read SMILES (default: half the cores, 2 to 8); for ray, models "
        "(default: one a GPU, or one a core)",
    )
    add(
        "--interval",
        type=float,
        metavar="P",
        help="add intervals that have the true value with this probability, such as 0.9; for "
        "classes calibrated probabilities and sets of classes",
    )
    add("--nearest", action="store_true", help="add the most similar training molecule")
    add("--chunk-rows", type=int, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    """Predict; exit with status 3 if a row has no prediction, 130 after Ctrl-C."""
    if len(args.inputs) == 1 and any(Path(args.inputs[0]).glob("*.parquet")):
        if _predict_folder(Path(args.inputs[0]), args):
            raise SystemExit(SOME_BAD)
        return
    if args.engine:
        raise ValueError(f"--engine {args.engine} is for a folder of .parquet files")
    try:
        file = _file(args)
    except (ValueError, OSError):
        load_molecule_model(args)  # a model of another kind is the first thing to report
        raise
    try:
        with when_stopped("no file was written"):
            bad = _predict_texts(args) if file is None else _predict_file(file, args)
    except BrokenPipeError:  # the reader of standard output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(CUT_OFF) from None
    if bad:
        raise SystemExit(SOME_BAD)


def _file(args: argparse.Namespace) -> Path | None:
    """Return the file to predict for, or None if the inputs are SMILES."""
    file = file_among(args.inputs)
    for option in ("out", "smiles", "force") if file is None else ():
        if getattr(args, option):
            raise ValueError(f"--{option} is for a file of molecules, not for SMILES")
    if file is not None and args.out is None:
        raise ValueError("--out is missing: a .csv or .tsv to write, or - for standard output")
    return file


def _predict_texts(args: argparse.Namespace) -> int:
    """Print a table; return the number of texts that are not molecules."""
    from slicegraph.predict.table import more_cells, value_cells, value_columns

    model = load_molecule_model(args)
    features = feature_numbers(args.features)
    check_feature_numbers(model.config, features)
    options: dict[str, Any] = {"interval": args.interval, "near": args.nearest}
    options["features"] = features or None
    values, errors, warnings, more = model.predict_rows(args.inputs, args.batch_size, **options)
    form = "{:.6g}".format
    others = more_cells(list(more.values()), len(errors), form)
    unit = f" ({model.config.unit})" if model.config.unit else ""
    columns = [name.removesuffix("_pred") + unit for name in value_columns(model.config)]
    said = {name: own for name, own in (("warning", warnings), ("error", errors)) if any(own)}
    rows = [["SMILES", *columns, *more, *said]]
    for number, text in enumerate(args.inputs):
        cells = [*value_cells(values[number], model.config, form), *others[number]]
        rows.append([text, *cells, *(own[number] or "" for own in said.values())])
    print_aligned(rows, right=range(1, len(columns) + len(more) + 1))
    return sum(error is not None for error in errors)


def _predict_file(file: Path, args: argparse.Namespace) -> int:
    """Write the table; return the number of rows with an error, 0 except in the first process."""
    from slicegraph.data.pool import cores
    from slicegraph.files import write_atomically
    from slicegraph.metrics import counted
    from slicegraph.predict import table as tables
    from slicegraph.predict.predictor import more_columns
    from slicegraph.predict.table import process_group

    ending = _check_out(file, args)
    with process_group() as rank:
        if rank.first and args.out != "-":
            check_new_file(Path(args.out), args.force)
        model = load_molecule_model(args)
        table = tables.open_whole(file, args.smiles, model.config)
        if args.workers is not None and args.workers < 1:
            raise ValueError(f"--workers {args.workers}, expected at least 1")
        workers = args.workers or max(2, min(8, cores() // rank.world // 2))
        names, given = model.config.feature_columns, feature_numbers(args.features)
        numbers = tables.RowNumbers(table, file, names, given) if names or given else None
        sizes = {"batch_size": args.batch_size, "chunk_rows": args.chunk_rows or tables.CHUNK_ROWS}
        asked = {"interval": args.interval, "near": args.nearest}
        added = more_columns(model.config, len(model.members), **asked)
        if asked["interval"] is not None or asked["near"]:
            model.check_extras(**asked)  # what cannot be computed is found before the start
        options = {"numbers": numbers, "workers": workers, "rank": rank, **sizes, **asked}
        predicted = tables.predicted_rows(model, table, **options)
        with _cores_left_to(workers, cores()):
            if not rank.first:
                list(predicted)
                return 0
            for note in table.source.notes:
                print(f"{file.name}: {note}", file=sys.stderr)
            delimiter = _DELIMITERS[ending.removesuffix(".gz")]
            written = tables.PredictedTable(model.config, table, delimiter, more=added)
            blocks = written.blocks(tables.with_bar(table.source, file.name, predicted))
            if ending.endswith(".gz"):
                blocks = tables.compressed(blocks)
            if args.out == "-":
                sys.stdout.buffer.writelines(blocks)
                sys.stdout.buffer.flush()
            else:
                write_atomically(Path(args.out), blocks)
    where = "standard output" if args.out == "-" else args.out
    counts = f"{written.errors:,} with an error, {written.warnings:,} with a warning"
    print(f"{counted(written.rows, 'rows')} in {where}, {counts}", file=sys.stderr)
    return written.errors


def _predict_folder(folder: Path, args: argparse.Namespace) -> int:
    """Predict every part; return the number of rows with an error."""
    from slicegraph.predict.batches import BatchPredictor, predict_parts
    from slicegraph.predict.table import open_whole

    if args.out is None:
        raise ValueError("--out is missing: a folder to write to")
    for option in ("interval", "nearest"):
        if getattr(args, option):
            raise ValueError(f"--{option} is for SMILES or a file, not for a folder")
    if args.workers is not None and args.workers < 1:
        raise ValueError(f"--workers {args.workers}, expected at least 1")
    smiles, config = args.smiles, load_molecule_model(args).config
    for part in sorted(folder.glob("*.parquet"))[:1]:
        smiles = tuple(map(str, open_whole(part, smiles, config).molecules))
    device = None if args.device == "auto" else args.device
    options: dict[str, Any] = {"features": feature_numbers(args.features)}
    predictor = BatchPredictor(args.model, smiles or "smiles", args.batch_size, device, **options)
    began = time.perf_counter()
    options = {"engine": args.engine or ENGINES[0], "workers": args.workers}
    done, now = predict_parts(predictor, folder, Path(args.out), **options)
    seconds = time.perf_counter() - began
    counts = f"{done.errors:,} with an error, {done.warnings:,} with a warning"
    rate = f"{now:,} now in {seconds:,.1f} s, {now / seconds:,.0f} a second"
    print(f"{done.rows:,} rows in {args.out} ({rate}), {counts}", file=sys.stderr)
    return done.errors


def _check_out(file: Path, args: argparse.Namespace) -> str:
    """Return the ending of the file to write."""
    if args.out == "-":
        return ".csv"
    path = Path(args.out)
    for ending in (*_DELIMITERS, *(f"{suffix}.gz" for suffix in _DELIMITERS)):
        if path.name.lower().endswith(ending):
            if path.exists() and path.samefile(file):
                raise ValueError(f"--out {path} is the file that is read")
            return ending
    raise ValueError(f"--out {path} has no known ending, expected .csv, .tsv, .csv.gz or .tsv.gz")


@contextmanager
def _cores_left_to(workers: int, cores: int) -> Iterator[None]:
    """Give the workers cores of their own: waiting threads of torch keep their cores busy."""
    import torch

    before = torch.get_num_threads()
    if workers > 1:
        torch.set_num_threads(max(1, min(before, cores - workers)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
