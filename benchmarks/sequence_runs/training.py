"""Train one row of the table with the training code of `slicegraph train`."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import slicegraph
from benchmarks.sequence_runs.budgets import Run, with_mixer
from slicegraph.tasks.domain import load_set
from slicegraph.tasks.store import SequenceSet
from slicegraph.train import TrainConfig


def train(run: Run, root: Path) -> dict[str, Any]:
    """Train and return the accuracy on valid and test, examples per second and parameters.

    Args:
        run: the run to train.
        root: the folder of the data sets.
    """
    settings = with_mixer(run.settings, run.mixer) | {"root": str(root), "seed": run.seed}
    dataset = load_set(TrainConfig(**settings).resolved())
    with tempfile.TemporaryDirectory() as folder:
        settings["out"] = str(Path(folder, "run"))
        metrics = slicegraph.train(settings, progress=False).metrics
    return {
        "test": metrics["test"],
        "valid": metrics["valid"],
        "examples_per_second": metrics[f"{dataset.noun}_per_second"],
        "train_seconds": metrics["train_seconds"],
        "parameters": metrics["parameters"],
        "steps": metrics["steps"],
        "best_epoch": metrics["best_epoch"],
        "data": about(dataset),
        "versions": metrics["versions"],
    }


def about(dataset: SequenceSet) -> dict[str, Any]:
    """Return the sizes of the splits, and the test accuracy of train's most frequent class."""
    train, test = (dataset.labels(dataset.splits[name]).astype(int) for name in ("train", "test"))
    most_frequent = np.bincount(train[:, 0]).argmax()
    return {
        "noun": dataset.noun,
        "splits": {name: len(positions) for name, positions in dataset.splits.items()},
        "classes": len(dataset.class_names),
        "most_frequent": float((test == most_frequent).mean()),
    }
