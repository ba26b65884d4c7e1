"""Cells and what came out, one JSON object a line, so that a run can be taken up again."""

from dataclasses import asdict

from benchmarks.attentions.cell import Cell
from benchmarks.json_lines import JsonLines, Line

Outcome = Line
"""The figures of a cell: ``training``, ``inference`` (steps a second), ``memory`` (bytes); or
``outcome``, why there are none."""

LIMITS = {"out of memory": "gigabytes", "too slow": "seconds"}
"""The outcomes that stand in the file, and the limit that another run may raise."""


class Results(JsonLines):
    """The finished cells of a file, which need not exist yet.

    Example:
        >>> results = Results(Path("runs/attention.jsonl"))
        >>> results.find(Cell("slice_sort", "training", 1024, batch=8)) is None
        True
    """

    def find(self, cell: Cell) -> Outcome | None:
        """What came out of this cell, if it is finished; the last one counts."""
        return next((line for line in reversed(self.lines) if _answers(line, cell)), None)

    def add(self, cell: Cell, outcome: Outcome) -> None:
        self.append(asdict(cell) | outcome)


def _answers(line: Outcome, cell: Cell) -> bool:
    """Whether the line is of this cell; one that was stopped must have had as much room."""
    asked = asdict(cell)
    same = all(line.get(name) == asked[name] for name in asked if name not in LIMITS.values())
    limit = LIMITS.get(line.get("outcome", ""))
    return same and (limit is None or line[limit] >= asked[limit])
