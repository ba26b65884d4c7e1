"""Run a cell in a separate process with limits of time and memory."""

import json
import signal
import subprocess
import sys
from dataclasses import asdict

from benchmarks.attentions.cell import Cell
from benchmarks.attentions.methods import METHODS
from benchmarks.attentions.results import Outcome

COMMAND = (sys.executable, "-m", "benchmarks.attentions.cell")


def run(cell: Cell, command: tuple[str, ...] = COMMAND) -> Outcome:
    """Return the figures of a cell, or ``{"outcome": ...}``, with ``"why"`` if it failed."""
    if not METHODS[cell.method].installed:
        return {"outcome": "not installed"}
    try:
        done = subprocess.run(
            command,
            input=json.dumps(asdict(cell)),
            capture_output=True,
            text=True,
            timeout=cell.seconds,
        )
    except subprocess.TimeoutExpired:
        return {"outcome": "too slow"}
    if done.returncode == -signal.SIGKILL:
        return {"outcome": "out of memory"}
    if done.returncode:
        return {"outcome": "failed", "why": _reason(done)}
    return json.loads(done.stdout.splitlines()[-1])


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"ended by {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
