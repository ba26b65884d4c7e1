"""Writes the predictions for a test split as the file that OGB's leaderboard takes.

OGB's own writer makes the file; it is checked before and read back after. An older file of the
same name is replaced.
"""

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from slicegraph.cli.evaluate import check_fit
from slicegraph.cli.model_arguments import add_model, load_molecule_model

if TYPE_CHECKING:
    import numpy as np

    from slicegraph.data.sets.datasets import DataSet

EPILOG = """\
examples:
  slicegraph submit runs/base --data pcqm4m-v2 --out submission
  slicegraph submit runs/base --data pcqm4m-v2 --split test-challenge --out submission
"""
SETS = ("pcqm4m-v2", "pcqm4m")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the data set and the folder."""
    add_model(parser)
    add = parser.add_argument
    add("--data", default=SETS[0], choices=SETS, help="the data set (%(default)s)")
    add("--split", help="test-dev (the default) or test-challenge; test of pcqm4m")
    add("--root", default="dataset", help="the folder of the data sets (%(default)s)")
    add("--out", required=True, metavar="FOLDER", help="where to write")


def run(args: argparse.Namespace) -> None:
    """Prints the path of the file."""
    import numpy as np

    from slicegraph.data.sets.datasets import load

    if Path(args.out).exists() and not Path(args.out).is_dir():
        raise ValueError(f"--out {args.out} is a file, expected a folder")
    model = load_molecule_model(args)
    data = load(args.data, args.root)
    check_fit(model.config, data)
    split = _split(args.split, data)
    positions = data.splits[split]
    _try_writer(data, split, np.zeros(len(positions), dtype=np.float32))
    y_pred = model.predict_store(data.store[positions], args.batch_size)[:, 0]
    path = data.write_submission(split, y_pred, positions, args.out)
    print(f"{len(y_pred):,} predictions of {split} in {path}")


def _split(asked: str | None, data: "DataSet") -> str:
    tests = [name for name in data.splits if name.startswith("test")]
    if asked is not None and asked not in tests:
        raise ValueError(
            f"split {asked!r} of {data.name} is not submitted, expected {', '.join(tests)}"
        )
    return asked or tests[0]


def _try_writer(data: "DataSet", split: str, zeros: "np.ndarray") -> None:
    """What would be refused after hours of work is refused now."""
    with tempfile.TemporaryDirectory() as folder:
        data.write_submission(split, zeros, data.splits[split], folder)
