"""Makes a store of the molecules in a file: memory-mapped arrays, ready for training.

Every row is either in the store or in its rejected.csv, with its number (the first row is 0), its
text and the reason. Interrupted, the same command goes on where it was.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slicegraph.cli.run_data import columns

if TYPE_CHECKING:
    from slicegraph.data.preparation.prepare import PrepareResult

EPILOG = """\
examples:
  slicegraph prepare molecules.csv --out store
  slicegraph prepare molecules.csv.gz --out store --smiles mol --labels logS,logP
  slicegraph prepare pcqm4m-v2 --out store --unlabelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `slicegraph.data.preparation.prepare.prepare`."""
    add = parser.add_argument
    add(
        "source",
        metavar="SOURCE",
        help="a .csv, .tsv, .smi (each also .gz) or .parquet, or the name of an OGB data set",
    )
    add("--out", required=True, metavar="FOLDER", help="the folder of the store, new or empty")
    add("--smiles", metavar="COLUMN", help="the column of the SMILES; guessed by default")
    add(
        "--labels",
        metavar="COLUMN,COLUMN",
        type=columns,
        help="the columns of the labels, '' for none; all columns of numbers by default",
    )
    add(
        "--unlabelled",
        action="store_true",
        help="keep rows without any label, with NaN",
    )
    add("--strict", action="store_true", help="stop at the first bad row")
    add(
        "--keep-order",
        action="store_true",
        help="keep the atoms in the order of the SMILES; in canonical order by default",
    )
    add("--workers", type=int, metavar="N", help="processes; one a core by default, at most 8")
    add("--restart", action="store_true", help="discard what an interrupted run has done")
    add("--root", default="dataset", help="the folder of the OGB data sets (%(default)s)")
    add("--chunk-rows", type=int, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    """Prints what the store has; Ctrl-C ends with status 130."""
    from slicegraph.data.preparation.prepare import CHUNK_ROWS, prepare

    try:
        result = prepare(
            args.source,
            args.out,
            smiles=args.smiles,
            labels=args.labels,
            workers=args.workers,
            strict=args.strict,
            canonical=not args.keep_order,
            unlabelled=args.unlabelled,
            progress=True,
            restart=args.restart,
            root=args.root,
            chunk_rows=CHUNK_ROWS if args.chunk_rows is None else args.chunk_rows,
        )
    except KeyboardInterrupt:
        print(
            f"slicegraph: stopped; what is done is kept in {args.out!r}, and the same command goes "
            "on from there",
            file=sys.stderr,
        )
        raise SystemExit(130) from None
    _show(result)


def _show(result: "PrepareResult") -> None:
    if result.was_complete:
        print(f"{result.folder} is complete already: nothing to do")
    if result.kept_rows:
        print(f"{result.kept_rows:,} rows were done before")
    size = sum(path.stat().st_size for path in Path(result.folder).iterdir())
    each = size / result.molecules
    print(f"{result.molecules:,} molecules in {result.folder}, {each:.0f} bytes each")
    print(f"{result.duplicates:,} of them are duplicates, which are kept")
    where = f", see {result.folder / 'rejected.csv'}" if result.rejected else ""
    print(f"{result.rejected:,} rows rejected{where}")
