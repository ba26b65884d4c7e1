"""The tiny run in a process of its own, which ends by a signal, and what it has saved."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "train" / "die_at_step.py"


def run_and_die(folder: Path, step: int, kind: str, ranks: int = 1) -> subprocess.CompletedProcess:
    """Begins the run in `folder`, on this many ranks, and ends it by a signal after an update."""
    return in_process([str(SCRIPT), str(folder), str(step), kind, str(ranks)])


def in_process(arguments: list[str], timeout: int = 240) -> subprocess.CompletedProcess:
    """Runs Python with these arguments, this package and the tests' support at hand."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def assert_stopped(died: subprocess.CompletedProcess, run: Path, steps: tuple[int, ...]) -> dict:
    """It ended as SIGTERM asks for, after one of these updates; gives the checkpoint."""
    assert died.returncode == 128 + signal.SIGTERM, died.stderr
    assert died.stderr.count("stopped by SIGTERM") == 1
    assert json.loads((run / "status.json").read_text())["state"] == "stopped"
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] in steps
    return saved


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Of the last checkpoint."""
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def same_weights(run: Path, other: Path) -> bool:
    """Whether two runs have the same weights to the bit."""
    first, second = weights(run), weights(other)
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )
