"""Predicts what a model was trained for, for SMILES or for the molecules in a file.

Of a file every row is kept, with all its columns: <target>_pred is added (a value, the probability
of class 1, or the class, with <target>_p0, <target>_p1 ... its probabilities) and, for a row that
is no molecule, the reason in the column "error". Files of any size are read, a part at a time.
"""

import argparse
import os
import sys
from pathlib import Path

from slicegraph.cli.model_arguments import add_model, load_molecule_model
from slicegraph.cli.predicted_file import predict_file

EPILOG = """\
exit status: 0 all rows have a prediction, 3 some have an error instead, 2 nothing was done

examples:
  slicegraph predict runs/mini "CCO" "c1ccccc1"
  slicegraph predict runs/mini molecules.csv --out predicted.csv
  slicegraph predict runs/mini molecules.smi.gz --out - | head
  torchrun --nproc-per-node 4 -m slicegraph predict runs/mini huge.parquet --out huge.csv.gz
"""
SOME_BAD, STOPPED, CUT_OFF = 3, 130, 141


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, what to predict, and where to write it."""
    add_model(parser)
    add = parser.add_argument
    add(
        "inputs",
        nargs="+",
        metavar="SMILES|FILE",
        help="SMILES; or a .csv, .tsv, .smi (each also .gz) or .parquet",
    )
    add("--out", metavar="FILE", help="a .csv or .tsv (also .gz) to write; - for standard output")
    add("--smiles", metavar="COLUMN", help="the column of the SMILES; guessed by default")
    add("--force", action="store_true", help="replace the file if it exists")
    add(
        "--workers",
        type=int,
        metavar="N",
        help="processes that read SMILES; on half the cores by default",
    )
    add("--chunk-rows", type=int, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    """Ends with status 3 if a row has no prediction, 130 after Ctrl-C."""
    file = _checked_file(args)
    try:
        bad = _predict_texts(args) if file is None else predict_file(file, args)
    except KeyboardInterrupt:
        print("slicegraph: stopped; no file was written", file=sys.stderr)
        raise SystemExit(STOPPED) from None
    except BrokenPipeError:  # the reader of the standard output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(CUT_OFF) from None
    if bad:
        raise SystemExit(SOME_BAD)


def _checked_file(args: argparse.Namespace) -> Path | None:
    """As `_file`; what is wrong for a model of something else than molecules is the model."""
    try:
        return _file(args)
    except (ValueError, OSError):
        load_molecule_model(args)
        raise


def _file(args: argparse.Namespace) -> Path | None:
    """The file to predict for, if the inputs are not SMILES; none of these ends like a file."""
    from slicegraph.data.table.table_source import SUFFIXES

    endings = (*SUFFIXES, *(f"{suffix}.gz" for suffix in SUFFIXES))
    files = [text for text in args.inputs if text.lower().endswith(endings)]
    if not files:
        for text in args.inputs:
            if os.path.exists(text):
                kind = "a folder" if os.path.isdir(text) else "a file of an unknown kind"
                raise ValueError(f"{text!r} is {kind}, expected SMILES or {', '.join(SUFFIXES)}")
        for option in ("out", "smiles", "force"):
            if getattr(args, option):
                raise ValueError(f"--{option} is for a file of molecules, not for SMILES")
        return None
    if len(args.inputs) > 1:
        raise ValueError(f"{files[0]!r} is a file, expected nothing else beside it")
    if not Path(files[0]).is_file():
        if Path(files[0]).is_dir():
            raise ValueError(f"{files[0]!r} is a folder, expected a file")
        raise FileNotFoundError(f"there is no file {files[0]!r}")
    if args.out is None:
        raise ValueError("--out is missing: a .csv or .tsv to write, or - for standard output")
    return Path(files[0])


def _predict_texts(args: argparse.Namespace) -> int:
    """Prints a table, and returns how many texts are no molecules."""
    from slicegraph.prediction_table import result_cells, value_columns

    model = load_molecule_model(args)
    values, errors = model.predict_rows(args.inputs, args.batch_size)
    unit = f" ({model.config.unit})" if model.config.unit else ""
    columns = [name.removesuffix("_pred") + unit for name in value_columns(model.config)]
    rows = []
    for text, row, error in zip(args.inputs, values, errors, strict=True):
        *cells, reason = result_cells(row, error, len(columns))
        rows.append([text, *(f"{float(cell):.6g}" if cell else "" for cell in cells), reason])
    _print_table([["SMILES", *columns, "error" if any(errors) else ""], *rows])
    return sum(error is not None for error in errors)


def _print_table(rows: list[list[str]]) -> None:
    """Texts to the left, numbers to the right; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for text, *numbers, error in rows:
        cells = [text.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True)]
        print("  ".join([*cells, error]).rstrip())
