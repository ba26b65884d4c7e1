"""Write predictions for a test split as the file that OGB's leaderboard takes.

OGB's own writer makes the file; it is checked before and read back after. An older file of the
same name is replaced.
"""

import argparse
import tempfile
from pathlib import Path

from slicegraph.cli.arguments import add_model, check_fit, load_molecule_model

EPILOG = """\
examples:
  slicegraph submit runs/base --data pcqm4m-v2 --out submission
  slicegraph submit runs/base --data pcqm4m-v2 --split test-challenge --out submission
"""
SETS = ("pcqm4m-v2", "pcqm4m")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the data set and the folder."""
    add_model(parser)
    add = parser.add_argument
    add("--data", default=SETS[0], choices=SETS, help="data set (%(default)s)")
    add("--split", help="test-dev or test-challenge; test for pcqm4m (default: the first of them)")
    add("--root", default="dataset", help="folder of the data sets (%(default)s)")
    add("--out", required=True, metavar="FOLDER", help="folder to write to")


def run(args: argparse.Namespace) -> None:
    """Print the path of the file."""
    import numpy as np

    from slicegraph.data.datasets import load_dataset

    if Path(args.out).exists() and not Path(args.out).is_dir():
        raise ValueError(f"--out {args.out} is a file, expected a folder")
    model = load_molecule_model(args)
    data = load_dataset(args.data, args.root)
    check_fit(model.config, data)
    tests = [name for name in data.splits if name.startswith("test")]
    split = args.split or tests[0]
    if split not in tests:
        raise ValueError(
            f"split {split!r} of {data.name} is not submitted, expected {', '.join(tests)}"
        )
    positions = data.splits[split]
    with tempfile.TemporaryDirectory() as folder:
        # Try the writer with zeros first: an error appears before hours of prediction.
        data.write_submission(split, np.zeros(len(positions), np.float32), positions, folder)
    y_pred = model.predict_store(data.store[positions], args.batch_size)[:, 0]
    path = data.write_submission(split, y_pred, positions, args.out)
    print(f"{len(y_pred):,} predictions of {split} in {path}")
