"""The results as a table in Markdown, one a data set."""

from collections.abc import Iterator
from statistics import mean, stdev

from benchmarks.accuracy_runs.rows import ROWS
from benchmarks.json_lines import Line
from benchmarks.markdown import row

BESIDE = "graphormer"
"""The row that ratios of time are to."""


def table(data: str, runs: list[Line]) -> str:
    """The finished runs of a data set, at least one.

    Args:
        data: its name.
        runs: the lines of the file that are about it.
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
    """Mean and standard deviation; one score has none."""
    spread = f" ± {stdev(scores):.4f}" if len(scores) > 1 else ""
    return f"{mean(scores):.4f}{spread}"
