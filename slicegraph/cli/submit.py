"""Write predictions for a test split as the file that OGB's leaderboard takes.

Several models (seeds, presets, checkpoints) are averaged: their predictions have equal weights.
OGB's own writer makes the file; it is checked before and read back after. An older file of the
same name is replaced. The lines after the file are what the form of the leaderboard asks for.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli import add_model, check_fit, load_molecule_model

if TYPE_CHECKING:
    import numpy as np

    from slicegraph.data.datasets import MoleculeDataset
    from slicegraph.predict import MoleculePredictor

EPILOG = """\
examples:
  slicegraph submit runs/base --data pcqm4m-v2 --out submission
  slicegraph submit runs/base --data pcqm4m-v2 --split test-challenge --out submission
  slicegraph submit runs/seed0 runs/seed1 runs/seed2 --out submission
"""
SETS = ("pcqm4m-v2", "pcqm4m")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the models, the data set and the folder."""
    add_model(parser, several=True)
    add = parser.add_argument
    add("--data", default=SETS[0], choices=SETS, help="data set (default: %(default)s)")
    add("--split", help="test-dev or test-challenge; test for pcqm4m (default: the first of them)")
    add("--root", default="dataset", help="folder of the data sets (default: %(default)s)")
    add("--out", required=True, metavar="FOLDER", help="folder to write to")


def run(args: argparse.Namespace) -> None:
    """Print the path of the file, the parameters, the hardware and the valid score."""
    import numpy as np

    from slicegraph.data.datasets import load_dataset
    from slicegraph.train.machine import device_name

    if Path(args.out).exists() and not Path(args.out).is_dir():
        raise ValueError(f"--out {args.out} is a file, expected a folder")
    options = vars(args)
    models = [load_molecule_model(argparse.Namespace(**options, model=m)) for m in args.models]
    data = load_dataset(args.data, args.root)
    for model in models:
        check_fit(model.config, data)
    tests = [name for name in data.splits if name.startswith("test")]
    split = args.split or tests[0]
    if split not in tests:
        known = ", ".join(tests)
        raise ValueError(f"split {split!r} of {data.name} is not submitted, expected {known}")
    positions = data.splits[split]
    with tempfile.TemporaryDirectory() as folder:
        # Try the writer with zeros first: an error appears before hours of prediction.
        data.write_submission(split, np.zeros(len(positions), np.float32), positions, folder)
    began = time.perf_counter()
    y_pred = _mean(models, data, positions, args.batch_size)
    seconds = time.perf_counter() - began
    path = data.write_submission(split, y_pred, positions, args.out)
    print(f"{len(y_pred):,} predictions of {split} in {path}")
    sizes = [sum(weight.numel() for weight in model.parameters()) for model in models]
    each = f" ({' + '.join(f'{size:,}' for size in sizes)})" if len(sizes) > 1 else ""
    print(f"parameters  {sum(sizes):,}{each}")
    print(f"hardware    {_hardware(args.models)}")
    device = device_name(models[0].head.weight.device)
    print(f"inference   {seconds:,.1f} s on {device}, from prepared molecules")
    print(f"valid       {_valid_score(args, models, data)}")


def _mean(
    models: list["MoleculePredictor"], data: "MoleculeDataset", positions: "np.ndarray", size: int
) -> "np.ndarray":
    """The mean of the predictions ``[N]`` of the models, summed in double precision."""
    total: Any = 0.0
    for model in models:
        total = total + model.predict_store(data.store[positions], size)[:, 0].astype("float64")
    return (total / len(models)).astype("float32")


def _hardware(models: list[str]) -> str:
    """What the runs of the models were trained on, and for how long."""
    from slicegraph.train.run_folder import metrics_of_run

    texts = []
    for path in models:
        found = metrics_of_run(path)
        text = "not known, it is not in the folder of a finished run"
        if "device" in found:
            text = f"{found['device']}, {found.get('train_seconds', 0) / 3600:,.2f} h of training"
        texts.append(f"{path}: {text}" if len(models) > 1 else text)
    return "; ".join(texts)


def _valid_score(
    args: argparse.Namespace, models: list["MoleculePredictor"], data: "MoleculeDataset"
) -> str:
    """The score of the mean on the valid split, or why there is none."""
    from slicegraph.train.run_folder import settings_of_run

    for path in args.models:
        settings = settings_of_run(path)
        if settings is not None and settings.trains_on_valid:
            return f"no score: {path} was trained on it"
    positions = data.splits["valid"]
    y_pred = _mean(models, data, positions, args.batch_size)
    data.evaluator.update(data.labels(positions), y_pred)
    return f"{data.evaluator.name} {data.evaluator.compute():.4f} {data.task.unit}"
