"""Train chemprop by its command line, with its defaults, on our molecules and splits."""

import csv
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy_runs.child import run_child
from benchmarks.accuracy_runs.data import dataset_of
from benchmarks.accuracy_runs.rows import Run
from slicegraph.data.datasets import MoleculeDataset
from slicegraph.train.module import score

_SPLITS = {"train": "train", "valid": "val", "test": "test"}


def train(run: Run, root: Path, command: str) -> dict[str, Any]:
    """Train and return the results of :func:`benchmarks.accuracy_runs.training.train`.

    The time is that of the whole command, as in :func:`benchmarks.accuracy_runs.command.train`.

    Args:
        run: the data, the seed and the epochs; all other settings are chemprop's defaults.
        root: the folder of the data sets.
        command: the path of the command `chemprop`.
    """
    dataset, threads = dataset_of(run.data, run.part, root), run.settings["threads"]
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder, "molecules.csv"), Path(folder, "out")
        _write(dataset, table)
        arguments = ["--splits-column", "split", "--epochs", str(run.settings["epochs"])]
        arguments += ["--smiles-columns", "smiles", "--target-columns", "target"]
        arguments += ["--data-seed", str(run.seed), "--pytorch-seed", str(run.seed)]
        arguments += ["--accelerator", "cpu", "--data-path", str(table), "--output-dir", str(out)]
        child = run_child([command, "train", *arguments], threads)
        found = _predictions(next(out.rglob("test_predictions.csv")), dataset)
    molecules = run.settings["epochs"] * len(dataset.splits["train"])
    return {
        "test": found,
        "parameters": _parameters(child.output),
        "cpu_seconds": round(child.cpu_seconds, 1),
        "seconds": round(child.seconds, 1),
        "molecules_per_second": round(molecules / child.cpu_seconds, 1),
        "version": run_child([command, "--version"], threads).output.strip(),
    }


def _parameters(output: str) -> int | None:
    """Return the number of parameters that Lightning prints, rounded to three digits."""
    found = re.search(r"Trainable params\D*([\d.]+) *([KM]?)", output)
    if found is None:
        return None
    return round(float(found[1]) * {"": 1, "K": 1e3, "M": 1e6}[found[2]])


def _write(dataset: MoleculeDataset, file: Path) -> None:
    with file.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(("smiles", "target", "split"))
        for split, name in _SPLITS.items():
            store = dataset.store[dataset.splits[split]]
            for number, label in enumerate(store.labels[:, 0]):
                table.writerow((store.smiles(number), float(label), name))


def _predictions(file: Path, dataset: MoleculeDataset) -> float:
    with file.open(newline="") as stream:
        values = np.array([[float(row["target"])] for row in csv.DictReader(stream)])
    return score(dataset, dataset.labels(dataset.splits["test"]), values)
