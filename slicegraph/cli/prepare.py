"""Make a store of the molecules in a file: memory-mapped arrays, ready for training.

Every row is either in the store or in its rejected.csv, with its number (the first row is 0), its
text and the reason. After an interruption the same command goes on from there.
"""

import argparse
import sys
from pathlib import Path

from slicegraph.cli import columns, when_stopped

EPILOG = """\
examples:
  slicegraph prepare molecules.csv --out store
  slicegraph prepare molecules.csv.gz --out store --smiles mol --labels logS,logP
  slicegraph prepare pcqm4m-v2 --out store --unlabelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `slicegraph.data.prepare`."""
    add = parser.add_argument
    add(
        "source",
        metavar="SOURCE",
        help="a .csv, .tsv, .smi (each also .gz) or .parquet, or the name of an OGB data set",
    )
    add(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder of the store: new, empty, or of an interrupted run",
    )
    add("--smiles", metavar="COLUMN", help="column of the SMILES (default: guessed)")
    add(
        "--labels",
        metavar="COLUMN,COLUMN",
        type=columns,
        help="label columns, '' for none (default: the only column that can be a target)",
    )
    add("--unlabelled", action="store_true", help="keep rows without any label, with NaN")
    add("--strict", action="store_true", help="stop at the first bad row")
    add(
        "--keep-order",
        action="store_true",
        help="keep the atoms in the order of the SMILES (default: canonical order)",
    )
    add("--workers", type=int, metavar="N", help="processes (default: one a core, at most 8)")
    add("--restart", action="store_true", help="discard the work of an interrupted run")
    add("--root", default="dataset", help="folder of the OGB data sets (default: %(default)s)")
    add("--chunk-rows", type=int, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    """Print the size of the store; Ctrl-C ends with status 130."""
    from slicegraph.data.datasets import prepare
    from slicegraph.data.prepare import label_formats
    from slicegraph.data.table import open_table

    formats = None
    if Path(args.source).is_file():
        if args.labels:
            formats = label_formats(args.source, args.smiles, args.labels)
        for warning in open_table(args.source, args.smiles, ()).warnings:
            print(f"slicegraph: warning: {warning}", file=sys.stderr)
    with when_stopped(
        f"finished work is kept in {args.out!r}; the same command goes on from there"
    ):
        names = ("smiles", "labels", "workers", "strict", "unlabelled", "restart", "root")
        options = {name: getattr(args, name) for name in names}
        options |= {"canonical": not args.keep_order, "progress": True, "formats": formats}
        if args.chunk_rows is not None:
            options["chunk_rows"] = args.chunk_rows
        result = prepare(args.source, args.out, **options)
    if result.was_complete:
        print(f"{result.folder} is complete already: nothing to do")
    if result.kept_rows:
        print(f"{result.kept_rows:,} rows were done before")
    size = sum(path.stat().st_size for path in Path(result.folder).iterdir())
    each = f"{size / result.molecules:.0f} bytes each"
    print(f"{result.molecules:,} molecules in {result.folder}, {each}")
    print(f"{result.duplicates:,} of them are duplicates, which are kept")
    where = f", see {result.folder / 'rejected.csv'}" if result.rejected else ""
    print(f"{result.rejected:,} rows rejected{where}")
