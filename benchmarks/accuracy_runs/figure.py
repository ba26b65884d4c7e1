"""The error against the time of training, a point a row."""

from pathlib import Path
from statistics import mean

from matplotlib.axes import Axes

from benchmarks.accuracy_runs.rows import ROWS
from benchmarks.json_lines import Line
from slicegraph.report.plot import FONT, Plot, label, render
from slicegraph.report.theme import LIGHT, Theme

_SORTING = ("quantile", "sort", "attn_plus_sort")


def write_figure(runs: list[Line], file: Path) -> None:
    """A PNG of the runs of one data set, all finished."""

    def draw(axes: Axes, theme: Theme) -> None:
        for name in ROWS:
            if own := [run for run in runs if run["row"] == name]:
                _point(axes, theme, name, own)
        axes.margins(x=0.16, y=0.1)
        label(axes, theme, "CPU seconds of training", "test MAE (eV)")

    plot = Plot("accuracy", "Error against time", "", draw, wide=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(render(plot, LIGHT))


def _point(axes: Axes, theme: Theme, name: str, runs: list[Line]) -> None:
    errors, seconds = [run["test"] for run in runs], mean(run["cpu_seconds"] for run in runs)
    middle = mean(errors)
    colour = theme.first if name.startswith(_SORTING) else theme.second
    bars = [[middle - min(errors)], [max(errors) - middle]]
    axes.errorbar(seconds, middle, bars, fmt="o", color=colour, markersize=5, linewidth=1)
    axes.annotate(
        name,
        (seconds, middle),
        (6, 3),
        textcoords="offset points",
        fontsize=FONT - 1.5,
        color=theme.text,
    )
