"""Lists the data sets that `slicegraph.data.load` knows by name, and which of them are here."""

import argparse
from pathlib import Path

from slicegraph.data.sequences.tasks import TASKS
from slicegraph.data.sets.datasets import table

_HEAD = ("name", "molecules", "task", "metric", "here", "how to get it")
_OWN = (
    "csv:PATH",
    "any",
    "as its labels",
    "",
    "",
    "your own CSV, TSV, SMI or Parquet file, split at random or by scaffold",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`slicegraph datasets --root FOLDER`."""
    parser.add_argument(
        "--root", default="dataset", help="the folder of the data sets (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    """Prints the table; nothing is downloaded."""
    if Path(args.root).is_file():
        raise ValueError(f"--root {args.root} is a file, expected a folder")
    rows = [
        (name, "" if size is None else f"{size:,}", task, metric, here, how)
        for name, size, task, metric, here, how in table(args.root)
    ]
    rows = [_HEAD, *rows, _OWN]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if column == 1 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print(
        f"\nhere: in {args.root}, as files (yes) or with its molecules ready for training "
        "(prepared); what is not here is downloaded when it is loaded"
    )
    print(f"tasks of sequences and images, for slicegraph train --task: {', '.join(TASKS)}")
