"""Run a command in a separate process and measure its time."""

import os
import resource
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple


class ChildError(RuntimeError):
    """A command failed; the message has its output."""


class Child(NamedTuple):
    """The output of a command, its CPU time and its wall time from start to end."""

    output: str
    cpu_seconds: float
    seconds: float


def run_child(command: Sequence[str], threads: int) -> Child:
    """Run a command to its end; raise an error with its output if it fails.

    Example:
        >>> run_child(["echo", "done"], threads=1).output
        'done\\n'
    """
    start, before = time.perf_counter(), _cpu_seconds()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )
    if done.returncode:
        raise ChildError(f"{' '.join(command)} failed:\n{done.stderr or done.stdout}")
    return Child(done.stdout, _cpu_seconds() - before, time.perf_counter() - start)


def _cpu_seconds() -> float:
    """Return the CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
