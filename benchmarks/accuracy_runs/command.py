"""Train by the command `slicegraph train`, for the comparison with the command of chemprop."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.accuracy_runs.child import run_child
from benchmarks.accuracy_runs.rows import Run


def train(run: Run, root: Path) -> dict[str, Any]:
    """Run the command and return its results.

    The time is that of the whole command: start, data, training, the choice of the best epoch, test
    and report.

    Args:
        run: the data, the seed and the epochs; all other settings are the defaults.
        root: the folder of the data sets.
    """
    epochs, threads = run.settings["epochs"], run.settings["threads"]
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "slicegraph", "train", "--data", run.data, "--root", root]
        words += ["--epochs", epochs, "--seed", run.seed, "--threads", threads]
        words += ["--optimizer", "adamw"]  # which all rows have
        child = run_child([*map(str, words), "--out", f"{folder}/run"], threads)
        found = json.loads(Path(folder, "run", "metrics.json").read_text())
        data = json.loads(Path(folder, "run", "data.json").read_text())
    molecules = epochs * data["splits"]["train"]
    return {
        **{name: found[name] for name in ("test", "valid", "parameters")},
        "cpu_seconds": round(child.cpu_seconds, 1),
        "seconds": round(child.seconds, 1),
        "molecules_per_second": round(molecules / child.cpu_seconds, 1),
    }
