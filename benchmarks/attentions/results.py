"""Cells with their outcomes, one JSON object per line, so that a run can be resumed."""

from dataclasses import asdict

from benchmarks.attentions.cell import Cell
from benchmarks.json_lines import JsonLines, Line

Outcome = Line
"""The figures of a cell: ``training``, ``inference`` (steps per second), ``memory`` (bytes); or
``outcome``, the reason why there are none."""

LIMITS = {"out of memory": "gigabytes", "too slow": "seconds"}
"""The outcomes without figures that are written to the file, and the limit that caused each."""


class Results(JsonLines):
    """The finished cells of a file, which need not exist yet.

    Example:
        >>> results = Results(Path("runs/attention.jsonl"))
        >>> results.find(Cell("slice_sort", "training", 1024, batch=8)) is None
        True
    """

    def find(self, cell: Cell) -> Outcome | None:
        """Return the last outcome of a cell, or None if the cell is not finished."""
        return next((line for line in reversed(self.lines) if _answers(line, cell)), None)

    def add(self, cell: Cell, outcome: Outcome) -> None:
        self.append(asdict(cell) | outcome)


def _answers(line: Outcome, cell: Cell) -> bool:
    """Return whether a line belongs to a cell; a stopped one must have had at least its limit."""
    asked = asdict(cell)
    same = all(line.get(name) == asked[name] for name in asked if name not in LIMITS.values())
    limit = LIMITS.get(line.get("outcome", ""))
    return same and (limit is None or line[limit] >= asked[limit])
