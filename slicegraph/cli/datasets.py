"""List the data sets that `slicegraph.data.load` accepts by name, and which are on this machine."""

import argparse
from pathlib import Path

from slicegraph.cli import print_aligned
from slicegraph.registry import TASK_PRESETS

_HEAD = ["name", "molecules", "task", "metric", "here", "how to get it"]
_FILE = "your own CSV, TSV, SMI or Parquet file, split at random or by scaffold"
_OWN = ["csv:PATH", "any", "as its labels", "", "", _FILE]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the data sets."""
    parser.add_argument(
        "--root", default="dataset", help="folder of the data sets (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    """Print the table; nothing is downloaded."""
    from slicegraph.data.datasets import table

    if Path(args.root).is_file():
        raise ValueError(f"--root {args.root} is a file, expected a folder")
    rows = [
        [name, "" if size is None else f"{size:,}", task, metric, here, how]
        for name, size, task, metric, here, how in table(args.root)
    ]
    print_aligned([_HEAD, *rows, _OWN], right=(1,))
    print(
        f"\nhere: in {args.root}, as files (yes) or with its molecules ready for training "
        "(prepared); a data set that is not here is downloaded when it is loaded"
    )
    print(f"tasks of sequences and images, for slicegraph train --task: {', '.join(TASK_PRESETS)}")
