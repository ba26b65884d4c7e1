"""The error against the time of training, a point a row."""

from pathlib import Path
from statistics import mean
from typing import NamedTuple

from matplotlib.axes import Axes

from benchmarks.accuracy_runs.rows import ROWS
from benchmarks.json_lines import Line
from slicegraph.report.plot import FONT, Plot, label, render
from slicegraph.report.theme import LIGHT, Theme

_SORTING = ("quantile", "sort", "attn_plus_sort")
_NEAR = (0.25, 0.07)
"""Names of points that are nearer, in shares of the axes, would lie on each other."""
_OFFSETS = (7, -9, -18, 16)
"""Where a name can be: above its point, below it, further below, further above."""


class Point(NamedTuple):
    seconds: float
    error: float
    low: float
    high: float
    name: str


def write_figure(runs: list[Line], file: Path) -> None:
    """A PNG of the finished runs of one data set."""
    points = points_of(runs)

    def draw(axes: Axes, theme: Theme) -> None:
        for point, place in zip(points, places_of_names(points), strict=True):
            _draw(axes, theme, point, _OFFSETS[place])
        axes.margins(x=0.16, y=0.14)
        label(axes, theme, "CPU seconds of training", "test MAE (eV)")

    plot = Plot("accuracy", "Error against time", "", draw, wide=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(render(plot, LIGHT))


def points_of(runs: list[Line]) -> list[Point]:
    """From the fastest row to the slowest, each with its best and its worst seed."""
    points = []
    for name in ROWS:
        if own := [run for run in runs if run["row"] == name]:
            errors = [run["test"] for run in own]
            seconds = mean(run["cpu_seconds"] for run in own)
            points.append(Point(seconds, mean(errors), min(errors), max(errors), name))
    return sorted(points)


def places_of_names(points: list[Point]) -> list[int]:
    """Which of the places around its point each name takes: the first that no near one has."""
    width = max(p.seconds for p in points) - min(p.seconds for p in points) or 1.0
    height = max(p.error for p in points) - min(p.error for p in points) or 1.0
    found: list[int] = []
    for point in points:
        taken = {
            place
            for other, place in zip(points, found, strict=False)
            if abs(point.seconds - other.seconds) < _NEAR[0] * width
            and abs(point.error - other.error) < _NEAR[1] * height
        }
        free = (place for place in range(len(_OFFSETS)) if place not in taken)
        found.append(next(free, 0))
    return found


def _draw(axes: Axes, theme: Theme, point: Point, offset: int) -> None:
    colour = theme.first if point.name.startswith(_SORTING) else theme.second
    bars = [[point.error - point.low], [point.high - point.error]]
    axes.errorbar(
        point.seconds, point.error, bars, fmt="o", color=colour, markersize=5, linewidth=1
    )
    axes.annotate(
        point.name,
        (point.seconds, point.error),
        (0, offset),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=FONT - 1.5,
        color=theme.text,
    )
