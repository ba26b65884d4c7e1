"""Draw the scores of `benchmarks.published` against CPU hours and parameters, and their curves."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.json_lines import Line
from benchmarks.published_data import Task
from slicegraph.report.plots import LIGHT

FONT = 8.5
Groups = dict[tuple[str, int], list[Line]]
"""The runs of each row and number of epochs."""


def grouped(lines: list[Line]) -> Groups:
    found: Groups = {}
    for line in lines:
        found.setdefault((line["row"], line["epochs"]), []).append(line)
    return found


def write_figure(lines: list[Line], task: Task, published: dict[str, float], file: Path) -> None:
    """Write a PNG of the tested runs of one data set.

    Args:
        lines: the runs; those without a test score are left out.
        task: the data set.
        published: scores by name, drawn as horizontal lines.
        file: where to write it.
    """
    groups = grouped([line for line in lines if "test" in line])
    figure = Figure(figsize=(12, 4.2), dpi=150, facecolor=LIGHT.background, layout="constrained")
    FigureCanvasAgg(figure)
    hours, sizes, curves = figure.subplots(1, 3)
    _draw_points(hours, groups, lambda line: line["cpu_hours"], published)
    _dress(hours, "CPU hours of training", f"test {task.metric_name}")
    hours.set_xlim(left=0)
    _draw_points(sizes, groups, lambda line: line["parameters"] / 1000, published)
    _dress(sizes, "thousand parameters", f"test {task.metric_name}")
    for colour, ((name, _), runs) in enumerate(groups.items()):
        for line in runs:
            curve = line.get("curve", [])
            best = [task.best(curve[: epoch + 1]) for epoch in range(len(curve))]
            named = {"label": name} if line is runs[0] else {}
            curves.plot(range(1, len(best) + 1), best, color=f"C{colour % 10}", lw=1.2, **named)
    _dress(curves, "epoch", f"valid {task.metric_name}, best so far")
    if groups:
        curves.legend(fontsize=FONT - 1.5, frameon=False, labelcolor=LIGHT.text)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Software": None})


def _draw_points(
    axes: Axes, groups: Groups, x: Callable[[Line], float], published: dict[str, float]
) -> None:
    for name, score in published.items():
        axes.axhline(score, color=LIGHT.muted, linewidth=0.8, linestyle=":")
        place = {"xy": (0.01, score), "xycoords": ("axes fraction", "data")}
        axes.annotate(name, **place, va="bottom", fontsize=FONT - 1.5, color=LIGHT.muted)
    places = [mean(x(line) for line in runs) for runs in groups.values()]
    for colour, ((name, _), runs) in enumerate(groups.items()):
        scores, place = [line["test"] for line in runs], places[colour]
        middle, right = mean(scores), place > (min(places) + max(places)) / 2
        bars = [[middle - min(scores)], [max(scores) - middle]]
        axes.errorbar(place, middle, bars, fmt="o", color=f"C{colour % 10}", markersize=5)
        axes.annotate(
            *(name, (place, middle), (-6 if right else 6, 0)),
            textcoords="offset points",
            ha="right" if right else "left",
            va="center",
            fontsize=FONT - 1.5,
            color=LIGHT.text,
        )


def _dress(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=FONT, color=LIGHT.muted)
    axes.set_ylabel(y, fontsize=FONT, color=LIGHT.muted)
    axes.margins(x=0.18, y=0.12)
    axes.grid(color=LIGHT.line, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=LIGHT.muted, labelsize=FONT - 0.5, length=0)
    for spine in axes.spines.values():
        spine.set_color(LIGHT.line)
