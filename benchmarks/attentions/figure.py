"""Draw the figure: training speed, inference speed and memory of each method."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from benchmarks.attentions.methods import METHODS
from benchmarks.attentions.table import MEASURES, OURS, Figures, Outcomes, has, size
from slicegraph.report.plots import LIGHT

FONT = 8.5
AREA_OF_LARGEST = 900.0
LEADER = {"arrowstyle": "-", "alpha": 0.35, "lw": 0.7, "relpos": (0, 0.5)}
HERE = "here"
NAMED = (OURS, "attention")
"""The methods whose lines are labelled."""


def draw(outcomes: Outcomes, batches: dict[int, int], file: Path) -> None:
    """Write a PNG with one length as bubbles and all lengths as lines."""
    figure = Figure(figsize=(11, 5), dpi=160, facecolor=LIGHT.background, layout="constrained")
    FigureCanvasAgg(figure)
    bubbles, lines = figure.subplots(1, 2, width_ratios=(1.25, 1))
    length = bubble_length(outcomes, batches)
    draw_bubbles(bubbles, outcomes, length, batches[length])
    draw_lines(lines, outcomes, batches)
    figure.savefig(file, metadata={"Software": None})


def bubble_length(outcomes: Outcomes, batches: dict[int, int]) -> int:
    """Return the length at which the most methods have figures; among equals the longest."""
    counts = {
        n: sum(_complete(outcomes.get((method, n), {})) for method in METHODS) for n in batches
    }
    return max(counts, key=lambda n: (counts[n], n))


def _complete(found: Figures) -> bool:
    return all(has(measure, found) for measure in MEASURES)


def colour(method: str) -> str:
    if method == OURS:
        return LIGHT.first
    return LIGHT.muted if METHODS[method].source == HERE else LIGHT.second


def draw_bubbles(axes: Axes, outcomes: Outcomes, length: int, batch: int) -> None:
    """Draw inference speed against training speed; the area of a bubble is the memory."""
    found = {m: o for (m, n), o in outcomes.items() if n == length and _complete(o)}
    largest = max((o["memory"] for o in found.values()), default=1)
    for method, o in found.items():
        area = AREA_OF_LARGEST * o["memory"] / largest
        axes.scatter(
            o["training"], o["inference"], s=area, color=colour(method), alpha=0.55, linewidth=0
        )
    _dress(axes, "Training, steps a second", "Inference, steps a second")
    axes.set_title(
        f"Length {size(length)}, batch {batch}; the area of a bubble is its memory",
        fontsize=FONT + 1,
        color=LIGHT.text,
        loc="left",
    )
    _name_bubbles(axes, found)


def _name_bubbles(axes: Axes, found: Outcomes) -> None:
    """Write the names in a column right of the axes, each with a line to its bubble."""
    ranked = sorted(found, key=lambda m: found[m]["inference"], reverse=True)
    for place, method in enumerate(ranked):
        o = found[method]
        axes.annotate(
            f"{METHODS[method].label}, {o['memory'] / 1e6:,.0f} MB",
            xy=(o["training"], o["inference"]),
            xytext=(1.06, 1 - (place + 0.5) / len(ranked)),
            textcoords="axes fraction",
            va="center",
            fontsize=FONT,
            color=colour(method),
            fontweight="bold" if method == OURS else "normal",
            arrowprops=LEADER | {"color": colour(method)},
        )


def draw_lines(axes: Axes, outcomes: Outcomes, batches: dict[int, int]) -> None:
    """Draw the rows per second in training against the length."""
    for method in sorted(dict.fromkeys(m for m, _ in outcomes), key=lambda m: m == OURS):
        lengths = [n for n in batches if has("training", outcomes.get((method, n), {}))]
        speeds = [outcomes[method, n]["training"] * n * batches[n] for n in lengths]
        ours = method == OURS
        axes.plot(
            lengths,
            speeds,
            "o-",
            ms=3.5,
            lw=2.2 if ours else 1,
            color=colour(method),
            alpha=1 if ours else 0.6,
            label=_group(method),
        )
        if method in NAMED and lengths:
            _name_line(axes, method, lengths[-1], speeds[-1])
    _dress(axes, "Length", "Training, rows a second")
    axes.set_xticks(list(batches), [size(n) for n in batches], minor=False)
    axes.xaxis.set_minor_locator(LogLocator(subs=[]))
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(
        handles.values(),
        handles.keys(),
        fontsize=FONT,
        frameon=False,
        labelcolor=LIGHT.text,
        loc="lower left",
    )
    axes.set_title("All lengths", fontsize=FONT + 1, color=LIGHT.text, loc="left")


def _name_line(axes: Axes, method: str, length: int, speed: float) -> None:
    """Write the name of a method at the end of its line: SliceSort above it, others below."""
    axes.annotate(
        METHODS[method].label,
        (length, speed),
        (0, 7 if method == OURS else -14),
        textcoords="offset points",
        ha="right",
        fontsize=FONT,
        color=colour(method),
        fontweight="bold" if method == OURS else "normal",
    )


def _group(method: str) -> str:
    if method == OURS:
        return METHODS[OURS].label
    return "written for this table" if METHODS[method].source == HERE else "from packages"


def _dress(axes: Axes, x: str, y: str) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel(x, fontsize=FONT, color=LIGHT.muted)
    axes.set_ylabel(y, fontsize=FONT, color=LIGHT.muted)
    axes.margins(0.12)
    axes.grid(color=LIGHT.line, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=LIGHT.muted, labelsize=FONT - 0.5, length=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=[1, 2, 5]))
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(NullFormatter())
    for spine in axes.spines.values():
        spine.set_color(LIGHT.line)
