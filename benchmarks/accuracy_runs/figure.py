"""Draw the error against the training time, one point per row of the table."""

from math import log
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from benchmarks.accuracy_runs.rows import ROWS
from benchmarks.json_lines import Line
from slicegraph.report.plots import FONT, LIGHT, Plot, Theme, label, render

_SORTING = ("quantile", "sort", "attn_plus_sort", "slicegraph")
_MARGIN = 0.16
_PLACES = (
    (0, 8, "center"),
    (0, -10, "center"),
    (7, 0, "left"),
    (-7, 0, "right"),
    (7, 10, "left"),
    (7, -10, "left"),
    (-7, -10, "right"),
    (-7, 10, "right"),
    (7, -20, "left"),
    (-7, -20, "right"),
    (-7, 20, "right"),
    (-7, 30, "right"),
    (-7, -30, "right"),
    (-20, 0, "right"),
)
"""Possible places of a name: offset from its data point, in typographic points, and alignment. The
first place that is free is used."""
_POINT = 0.0011, 0.0063
"""The size of a typographic point, as a fraction of the width and the height of the axes."""
_LETTER, _LINE = 0.0062, 0.042
"""The width of a letter and the height of a line, as fractions of the axes."""


_LEAST_SECONDS = 0.1  # the recorded time of a quick run may be rounded to 0
_LEADER = {"arrowstyle": "-", "lw": 0.6, "shrinkA": 1, "shrinkB": 3}
_ENDS = {"left": (0.0, 0.5), "center": (0.5, 0.5), "right": (1.0, 0.5)}
"""The style of the line from a name to its point, and where it begins."""


class Point(NamedTuple):
    seconds: float
    error: float
    low: float
    high: float
    name: str


def write_figure(runs: list[Line], file: Path) -> None:
    """Write a PNG of the finished runs of one data set."""
    points = points_of(runs)

    def draw(axes: Axes, theme: Theme) -> None:
        for point, place in zip(points, places_of_names(points), strict=True):
            _draw(axes, theme, point, *_PLACES[place])
        _draw_legend(axes, theme)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=[1, 2, 5]))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(x=_MARGIN, y=_MARGIN)
        label(axes, theme, "CPU seconds of training", "test MAE (eV)")

    plot = Plot("accuracy", "Error against time", "", draw, wide=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(render(plot, LIGHT))


def _draw_legend(axes: Axes, theme: Theme) -> None:
    """Draw the legend of the colours above the axes, where there are no points."""
    for name, colour in (("sorts in its layers", theme.first), ("does not", theme.second)):
        axes.plot([], [], "o", color=colour, markersize=5, label=name)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2,
        fontsize=FONT - 1.5,
        frameon=False,
        labelcolor=theme.text,
    )


def points_of(runs: list[Line]) -> list[Point]:
    """Return the points from the fastest row to the slowest, with the best and the worst seed."""
    points = []
    for name in ROWS:
        if own := [run for run in runs if run["row"] == name]:
            errors = [run["test"] for run in own]
            seconds = max(mean(run["cpu_seconds"] for run in own), _LEAST_SECONDS)
            points.append(Point(seconds, mean(errors), min(errors), max(errors), name))
    return sorted(points)


def places_of_names(points: list[Point]) -> list[int]:
    """Return the place of each name around its point: the first one without an overlap."""
    found: list[int] = []
    boxes = [_box(x, y, "", _PLACES[0]) for x, y in _shares(points)]
    for point, (x, y) in zip(points, _shares(points), strict=True):
        each = [_box(x, y, point.name, place) for place in _PLACES]
        free = (i for i, box in enumerate(each) if not any(_overlap(box, other) for other in boxes))
        found.append(next(free, 0))
        boxes.append(each[found[-1]])
    return found


def _shares(points: list[Point]) -> list[tuple[float, float]]:
    """Return the positions of the points, as fractions of the axes."""
    columns = [log(p.seconds) for p in points], [p.error for p in points]
    within = []
    for values in columns:
        size = max(values) - min(values) or 1.0
        within.append([((v - min(values)) / size + _MARGIN) / (1 + 2 * _MARGIN) for v in values])
    return list(zip(*within, strict=True))


_Box = tuple[float, float, float, float]


def _box(x: float, y: float, name: str, place: tuple[int, int, str]) -> _Box:
    """Return left, right, bottom and top of a name; without a name, of the point itself."""
    if not name:
        return x - 0.004, x + 0.004, y - 0.012, y + 0.012
    right, up, align = place
    width = _LETTER * len(name)
    start = {"center": width / 2, "left": 0.0, "right": width}[align]
    left, middle = x + right * _POINT[0] - start, y + up * _POINT[1]
    return left, left + width, middle - _LINE / 2, middle + _LINE / 2


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def _draw(axes: Axes, theme: Theme, point: Point, right: int, up: int, align: str) -> None:
    colour = theme.first if point.name.startswith(_SORTING) else theme.second
    bars = [[point.error - point.low], [point.high - point.error]]
    axes.errorbar(
        point.seconds, point.error, bars, fmt="o", color=colour, markersize=5, linewidth=1
    )
    axes.annotate(
        point.name,
        (point.seconds, point.error),
        (right, up),
        textcoords="offset points",
        ha=align,
        va="center",
        fontsize=FONT - 1.5,
        color=theme.text,
        arrowprops=_LEADER | {"color": theme.muted, "relpos": _ENDS[align]},
    )
