"""Time the updates of all rows in turns, with the same code.

The runs of a study are made on different days, so their own times are not comparable.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.accuracy_runs.rows import COMMANDS, run_of
from benchmarks.accuracy_runs.training import ms_a_molecule
from benchmarks.json_lines import Line, last_with

PART = 4_000
"""The number of molecules of a timed epoch."""


def time_in_turns(
    data: str, rows: Sequence[str], threads: int, root: Path, repeats: int = 3
) -> list[Line]:
    """Return a line with the median time per molecule for each row that is not a command."""
    runs = [run_of(data, row, 0, threads, part=PART, epochs=1) for row in rows]
    runs = [run for run in runs if run.row not in COMMANDS]
    turns = [[ms_a_molecule(run, root) for run in runs] for _ in range(repeats)]
    return [
        {"timed": run.row, "data": data, "model": run.model, "threads": threads, "ms": median(ms)}
        for run, *ms in zip(runs, *turns, strict=True)
    ]


def retimed(runs: Sequence[Line], lines: Sequence[Line]) -> list[Line]:
    """Return the runs with the times of `time_in_turns`, where the lines contain them."""
    timed = [line for line in lines if "timed" in line]
    return [_retimed(run, timed) for run in runs]


def _retimed(run: Line, timed: Sequence[Line]) -> Line:
    asked = {"timed": run["row"], "data": run["data"], "model": run["model"]}
    asked["threads"] = run["settings"]["threads"]
    line = last_with(timed, asked)
    if line is None:
        return run
    molecules = run["molecules_per_second"] * run["cpu_seconds"]
    return run | {"cpu_seconds": line["ms"] * molecules / 1e3}
