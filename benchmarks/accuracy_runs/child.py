"""A command in a process of its own, and the time it took."""

import os
import resource
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple


class ChildError(RuntimeError):
    """A command failed; the message has what it wrote."""


class Child(NamedTuple):
    """What it printed, and the time from its start to its end: of its cores, and on the wall."""

    output: str
    cpu_seconds: float
    seconds: float


def run_child(command: Sequence[str], threads: int) -> Child:
    """Runs a command to its end; raises if it fails, with what it wrote.

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
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
