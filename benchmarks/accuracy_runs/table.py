"""Format the results as tables in Markdown, one per data set."""

from collections.abc import Iterator
from statistics import mean, stdev

from benchmarks.accuracy_runs.rows import ROWS
from benchmarks.json_lines import Line
from benchmarks.markdown import row

BESIDE = "graphormer"
"""The reference row for ratios of time."""


def table(data: str, runs: list[Line]) -> str:
    """Format the table of the finished runs of a data set.

    Args:
        data: the name of the data set.
        runs: its lines of the file, at least one.
    """
    first = runs[0]
    part = f"{first['part']:,} molecules of train" if first["part"] else "all of train"
    title = f"### {data}: {part}, {first['settings']['epochs']} epochs"
    return "\n".join([title, "", *_rows(runs)])


def _rows(runs: list[Line]) -> Iterator[str]:
    yield row("Row", "Parameters", "Test MAE, eV", "Seeds", "CPU seconds", f"over {BESIDE}")
    yield row("---", *["---:"] * 5)
    beside = _seconds([run for run in runs if run["row"] == BESIDE])
    for name in ROWS:
        if own := [run for run in runs if run["row"] == name]:
            seconds = _seconds(own)
            parameters = own[0].get("parameters")
            yield row(
                name,
                f"{parameters:,}" if parameters else "",
                error([run["test"] for run in own]),
                str(len(own)),
                f"{seconds:,.0f}",
                f"{seconds / beside:.2f}x" if beside else "",
            )


def _seconds(runs: list[Line]) -> float:
    return mean(run["cpu_seconds"] for run in runs) if runs else 0.0


def error(scores: list[float]) -> str:
    """Format the mean and the standard deviation, which a single score does not have."""
    spread = f" ± {stdev(scores):.4f}" if len(scores) > 1 else ""
    return f"{mean(scores):.4f}{spread}"
