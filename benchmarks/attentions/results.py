"""Cells and what came out, one JSON object a line, so that a run can be taken up again."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.attentions.cell import Cell

Outcome = dict[str, Any]
"""``training``, ``inference`` (steps a second) and ``memory`` (bytes); or ``outcome``, why not."""

LIMITS = {"out of memory": "gigabytes", "too slow": "seconds"}
"""The outcomes that stand in the file, and the limit that another run may raise."""


class Results:
    """The finished cells of a file, which need not exist yet.

    Example:
        >>> results = Results(Path("runs/attention.jsonl"))
        >>> results.find(Cell("slice_sort", 1024, batch=8)) is None
        True
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines = list(_read(file)) if file.exists() else []

    def find(self, cell: Cell) -> Outcome | None:
        """What came out of this cell, if it is finished; the last one counts."""
        return next((line for line in reversed(self.lines) if _answers(line, cell)), None)

    def add(self, cell: Cell, outcome: Outcome) -> None:
        line = asdict(cell) | outcome
        self.lines.append(line)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _answers(line: Outcome, cell: Cell) -> bool:
    """Whether the line is of this cell; one that was stopped must have had as much room."""
    asked = asdict(cell)
    same = all(line[name] == asked[name] for name in asked if name not in LIMITS.values())
    limit = LIMITS.get(line.get("outcome", ""))
    return same and (limit is None or line[limit] >= asked[limit])


def _read(file: Path) -> Iterator[Outcome]:
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"attention: line {number} of {file}: {error}; delete it") from error
