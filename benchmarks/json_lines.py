"""Results in a file, one JSON object per line, so that a benchmark can be resumed."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class JsonLines:
    """The lines of a file, which need not exist yet.

    Example:
        >>> results = JsonLines(Path("runs/results.jsonl"))
        >>> results.append({"task": "digits", "test": 0.98})
        >>> results.last({"task": "digits"})
        {'task': 'digits', 'test': 0.98}
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines = list(_read(file)) if file.exists() else []

    def append(self, line: Line) -> None:
        self.lines.append(line)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def last(self, asked: Line) -> Line | None:
        """Return the last line that has all of these values."""
        return last_with(self.lines, asked)


def last_with(lines: Sequence[Line], asked: Line) -> Line | None:
    """Return the last of the lines that has all of these values."""
    found = (
        line
        for line in reversed(lines)
        if all(name in line and line[name] == value for name, value in asked.items())
    )
    return next(found, None)


def _read(file: Path) -> Iterator[Line]:
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"benchmarks: line {number} of {file}: {error}; delete it") from error
        if not isinstance(found, dict):
            raise ValueError(f"benchmarks: line {number} of {file} is not a JSON object; delete it")
        yield found
