"""The figures of a page: colours, drawing tools, and the figures of a training run.

Figures use matplotlib's objects and its Agg canvas; pyplot and its settings are not used.
"""

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import (
    LogLocator,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
    StrMethodFormatter,
)
from sklearn.metrics import roc_curve

from slicegraph.metrics import counted, number
from slicegraph.report.read import Curve, RunRecord, TargetPredictions, confusion_matrix

DPI = 200
HALF = (4.5, 3.3)
WIDE = (9.2, 2.9)
FONT = 8.5
MOST_DOTS = 3000  # more molecules are drawn as a density
MOST_COUNTS = 12  # a confusion matrix of more classes has no numbers in its cells
MOST_BINS = 20  # of molecule sizes
_DASHED = (0, (2, 3))


@dataclass(frozen=True)
class Theme:
    """One set of colours."""

    background: str  # of figures and of the cards they are on
    page: str  # around the cards
    text: str  # headings and values
    muted: str  # axes and labels
    line: str  # borders and grids
    first: str  # main colour of figures
    second: str

    def ramp(self, *colours: str) -> LinearSegmentedColormap:
        """A colour map through these colours, by default from the background to the main one."""
        return LinearSegmentedColormap.from_list("", colours or (self.background, self.first))


LIGHT = Theme("#ffffff", "#f6f7f9", "#1c2128", "#5f6875", "#e2e5ea", "#2b6cb0", "#d9772b")
DARK = Theme("#191d23", "#111418", "#e8eaed", "#9aa3af", "#2e343d", "#6cabe8", "#f0a35e")

Draw = Callable[[Axes, Theme], None]


@dataclass(frozen=True)
class Plot:
    """A figure that is drawn when it is rendered, once for each theme."""

    name: str  # of the file, without suffix
    title: str
    note: str  # a sentence with its numbers, also for screen readers
    draw: Draw
    wide: bool = False  # the whole width of the page instead of half of it

    @property
    def inches(self) -> tuple[float, float]:
        """Width and height."""
        return WIDE if self.wide else HALF


def render(plot: Plot, theme: Theme) -> bytes:
    """Return the PNG of a plot, 900 x 660 pixels, or 1840 x 580 if it is wide."""
    figure = Figure(figsize=plot.inches, dpi=DPI, facecolor=theme.background, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_facecolor(theme.background)
    axes.set_axisbelow(True)
    axes.grid(color=theme.line, linewidth=0.6)
    axes.tick_params(which="both", colors=theme.muted, labelsize=FONT - 0.5, length=0, pad=4)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.line)
    plot.draw(axes, theme)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Names come from the user, and the font may lack one of their letters.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def label(
    axes: Axes, theme: Theme, x: str, y: str, *, grid: str = "both", legend: Any = None
) -> None:
    """Name the axes, choose the grid ("both", "y" or "none") and add a legend with these options.

    A dollar sign in a user's name is not mathematics.
    """
    if grid != "both":
        axes.grid(visible=False, axis="x" if grid == "y" else "both")
    for text, set_label in ((x, axes.set_xlabel), (y, axes.set_ylabel)):
        text = "".join(letter if letter.isprintable() else " " for letter in text)
        short = text if len(text) <= 48 else f"{text[:47]}…"
        set_label(short, fontsize=FONT, color=theme.muted, parse_math=False)
    if legend is not None:
        style = {"fontsize": FONT, "labelcolor": theme.text, "handlelength": 1.2, "framealpha": 0.9}
        style |= {"facecolor": theme.background, "edgecolor": "none", "loc": "upper right"}
        axes.legend(**(style | legend)).set_zorder(5)


def write(axes: Axes, theme: Theme, text: str, place: tuple[Any, Any], **options: Any) -> None:
    """Write a text into the axes; options such as xycoords are those of `Axes.annotate`."""
    style = {"fontsize": FONT, "color": theme.text, "textcoords": "offset points"}
    axes.annotate(text, place, **{"xytext": (0, 0), **style, **options}, parse_math=False)


def in_unit(name: str, unit: str) -> str:
    """Return the name of an axis with its unit, if it has one."""
    return f"{name} ({unit})" if unit else name


def learning_plots(run: RunRecord) -> Iterator[Plot]:
    """The losses and the validation metric by epoch, if the log has them."""
    if run.logs:
        yield from _several_curves(run)
        return
    losses = {name: run.curve(f"{name}_loss") for name in ("train", "valid")}
    losses = {name: curve for name, curve in losses.items() if len(curve[0])}
    if losses:
        last = ", ".join(f"{name} {number(values[-1])}" for name, (_, values) in losses.items())
        draw = _curves(losses, "loss", run.best_epoch)
        yield Plot("loss", "Loss by epoch", f"In the last epoch: {last}.", draw)
    columns = [name for name in run.log if name.startswith("valid_") and name != "valid_loss"]
    epochs, values = curve = run.curve(columns[0] if columns else "")
    if len(epochs):
        draw = _curves({"valid": curve}, in_unit(f"valid {run.metric}", run.unit), run.best_epoch)
        note = f"In the last epoch: {number(values[-1], run.unit)}."
        for best in values[epochs == run.best_epoch]:
            value = number(best, run.unit)
            note = f"The saved model is from epoch {run.best_epoch:g}: {value}."
        yield Plot("metric", f"Validation {run.metric} by epoch", note, draw)


def _several_curves(run: RunRecord) -> Iterator[Plot]:
    """The training loss and the validation metric of several models."""
    scored = [name for name in next(iter(run.logs.values())) if name.startswith("valid_")]
    metric = next((name for name in scored if name != "valid_loss"), "")
    for name, title, column in (
        ("loss", "Training loss by epoch", "train_loss"),
        ("metric", f"Validation {run.metric} by epoch", metric),
    ):
        each = {own: run.curve(column, log) for own, log in run.logs.items()}
        each = {own: curve for own, curve in each.items() if len(curve[0])}
        if not each:
            continue
        last = [float(values[-1]) for _, values in each.values()]
        ends = f"{number(min(last))} to {number(max(last))}"
        axis = in_unit(f"valid {run.metric}", run.unit) if name == "metric" else "loss"

        def draw(axes: Axes, theme: Theme, each: Any = each, axis: str = axis) -> None:
            for place, (epochs, values) in enumerate(each.values()):
                colour = theme.ramp(theme.first, theme.second)(place / max(len(each) - 1, 1))
                axes.plot(epochs, values, color=colour, linewidth=1.1, alpha=0.8)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            label(axes, theme, "epoch", axis)

        yield Plot(name, title, f"A line for each of {len(each)} models; the last: {ends}.", draw)


def uncertainty_plots(facts: Mapping[str, Any], unit: str, prefix: str = "") -> Iterator[Plot]:
    """Coverage by level, and the deviation against the error or the reliability of classes.

    The facts are those of one target in metrics.json, of
    :func:`slicegraph.predict.uncertainty.assess`.
    """
    pairs = zip(facts["levels"], facts["coverage"], strict=True)
    levels, covered = np.array([(x, y) for x, y in pairs if y is not None]).reshape(-1, 2).T
    if len(levels):
        half = 1.96 * np.sqrt(levels * (1 - levels) / facts["n"])

        def draw_coverage(axes: Axes, theme: Theme) -> None:
            axes.fill_between(levels, levels - half, levels + half, color=theme.first, alpha=0.15)
            axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=0.8, linestyle=_DASHED)
            axes.plot(levels, covered, "o-", color=theme.first, linewidth=1.4, markersize=4.5)
            axes.set(xlim=(levels[0] - 0.05, 1), ylim=(min(levels[0], *covered) - 0.05, 1.02))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(PercentFormatter(1))
            label(axes, theme, "asked for", "held-out labels covered")

        far = np.abs(covered - levels).max()
        note = f"Largest distance {100 * far:.1f} points; band: 95 % of samples of {facts['n']:,}."
        yield Plot(f"{prefix}coverage", "Coverage of the intervals", note, draw_coverage)
    if bins := facts.get("bins"):
        deviation, errors, _ = np.array(bins, dtype=float).T

        def draw_bins(axes: Axes, theme: Theme) -> None:
            axes.plot(deviation, errors, "o-", color=theme.first, linewidth=1.2, markersize=4.5)
            axes.set(xlim=(0, None), ylim=(0, None))
            x = in_unit("deviation of the prediction", unit)
            label(axes, theme, x, in_unit("root mean squared error", unit))

        rank = facts.get("spearman")
        note = "Ten groups of equal size, by deviation."
        note += f" Spearman correlation with the absolute error: {rank:.2f}." if rank else ""
        yield Plot(f"{prefix}deviation", "Error by deviation", note, draw_bins)
    if curves := facts.get("reliability"):

        def draw_reliability(axes: Axes, theme: Theme) -> None:
            axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=0.8, linestyle=_DASHED)
            named = zip(curves, ("as trained", "calibrated"), strict=True)
            for (points, title), colour in zip(named, (theme.second, theme.first), strict=True):
                predicted, share, _ = np.array(points, dtype=float).T
                axes.plot(predicted, share, "o-", color=colour, markersize=4, label=title)
            axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
            corner = {"loc": "upper left"}
            label(axes, theme, "predicted probability", "share of the class", legend=corner)

        before, after = facts["ece"]
        note = f"Expected calibration error {before:.3f} as trained, {after:.3f} calibrated."
        yield Plot(
            f"{prefix}reliability", "Reliability of the probabilities", note, draw_reliability
        )


def _curves(curves: dict[str, Curve], name: str, best_epoch: Any) -> Draw:
    def draw(axes: Axes, theme: Theme) -> None:
        for split, (epochs, values) in curves.items():
            colour = theme.first if split == "valid" else theme.second
            marker = "o" if len(epochs) == 1 else None
            axes.plot(epochs, values, color=colour, linewidth=1.6, label=split, marker=marker)
        epochs, values = curves.get("valid", (np.empty(0), np.empty(0)))
        for value in values[epochs == best_epoch]:
            axes.axvline(best_epoch, color=theme.muted, linewidth=0.8, linestyle=_DASHED)
            axes.plot([best_epoch], [value], "o", color=theme.first, markersize=5)
            share = (best_epoch - epochs[0]) / max(epochs[-1] - epochs[0], 1)
            side = "left" if share < 0.1 else "right" if share > 0.9 else "center"
            above = {"xycoords": ("data", "axes fraction"), "xytext": (0, 3), "ha": side}
            write(axes, theme, f"best {number(value)}", (best_epoch, 1), **above)
        values = np.concatenate([values for _, values in curves.values()])
        if values.min() > 0 and values.max() > 10 * values.min():
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        label(axes, theme, "epoch", name, legend={} if len(curves) > 1 else None)

    return draw


def summary_plots(summary: Mapping[str, Any], most: int) -> Iterator[Plot]:
    """The labels of the first targets by split, and the similarity of test to train."""
    for place, target in enumerate(summary["targets"][:most], start=1):
        several = len(summary["targets"]) > 1
        name, shown = target["name"], _class_shares if target["classes"] else _label_histogram
        counts = ", ".join(f"{split} {p['count']:,}" for split, p in target["splits"].items())
        title = f"{name} by split" if several else "Labels by split"
        note = f"Labels of {name}: {counts}. Shares of each split, in the same bins."
        if target["classes"]:
            note = f"Labels of {name}: {counts}. Bars: share of the labels of a split."
        yield Plot(f"labels-{place}" if several else "labels", title, note, shown(target))
    if near := summary["similarity"]:
        bars, median = np.array(near["histogram"], dtype=float), float(near["median"])
        below = f"{float(near['share_below_0.4']):.0%} are below 0.4"
        note = f"Tanimoto similarity of Morgan fingerprints: median {median:.2f}; {below}."

        def draw(axes: Axes, theme: Theme) -> None:
            edges = np.linspace(0, 1, len(bars) + 1)
            axes.bar(edges[:-1], bars, 0.9 * edges[1], align="edge", color=theme.first)
            axes.axvline(median, color=theme.second, linewidth=1.2, zorder=3)
            side = "right" if median > 0.7 else "left"
            above = {"xycoords": ("data", "axes fraction"), "ha": side, "va": "bottom"}
            write(axes, theme, f"median {median:.2f}", (median, 1), xytext=(0, 3), **above)
            axes.set_xlim(0, 1)
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            nearest = "similarity to the nearest training molecule"
            label(axes, theme, nearest, "test molecules", grid="y")

        yield Plot("similarity", "Similarity of test to train", note, draw)


def _split_styles(names: Iterable[str], theme: Theme) -> Iterator[tuple[str, str, str]]:
    """Each split with its colour and its name for the legend."""
    colours = {"train": theme.muted, "valid": theme.second, "test": theme.first}
    for name in names:
        yield name, colours.get(name, theme.text), name.replace("$", r"\$")


def _label_histogram(target: Mapping[str, Any]) -> Draw:
    edges = np.array(target["edges"], dtype=float)
    counts = {n: np.array(p["histogram"], dtype=float) for n, p in target["splits"].items()}

    def draw(axes: Axes, theme: Theme) -> None:
        for name, colour, title in _split_styles(counts, theme):
            if total := counts[name].sum():
                _draw_steps(axes, counts[name] / total, edges, colour, title)
        if target.get("log"):
            axes.set_xscale("log")
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        name = in_unit(target["name"], target["unit"])
        label(axes, theme, name, "share of the split", grid="y", legend={})

    return draw


def _draw_steps(axes: Axes, share: Any, edges: np.ndarray, colour: str, title: str) -> None:
    axes.stairs(share, edges, fill=True, color=colour, alpha=0.2)
    axes.stairs(share, edges, color=colour, linewidth=1.4, label=title)


def _class_shares(target: Mapping[str, Any]) -> Draw:
    counts = {n: np.array(p["classes"], dtype=float) for n, p in target["splits"].items()}
    names = [str(name) for name in target["classes"]]

    def draw(axes: Axes, theme: Theme) -> None:
        width = 0.8 / max(len(counts), 1)
        for place, (name, colour, title) in enumerate(_split_styles(counts, theme)):
            share = counts[name] / max(counts[name].sum(), 1)
            left = np.arange(len(names)) - 0.4 + width * (place + 0.5)
            axes.bar(left, share, 0.92 * width, color=colour, label=title)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        if len(names) <= MOST_COUNTS:
            _name_ticks(axes, names, np.arange(len(names)))
        name = f"class of {target['name']}"
        label(axes, theme, name, "share of the split", grid="y", legend={})

    return draw


def target_plots(table: TargetPredictions, prefix: str = "") -> list[Plot]:
    """The figures of one target; ``prefix`` begins the names of their files."""
    if table.problem:
        return []
    plots = [*_PLOTS[table.kind](table), *_size_plots(table)]
    return [replace(plot, name=f"{prefix}{plot.name}") for plot in plots]


def _regression_plots(table: TargetPredictions) -> Iterator[Plot]:
    """Predictions against labels, and the distribution of the errors."""
    unit = table.unit
    units = dict.fromkeys(table.scores, unit) | {"R²": ""}
    scores = [f"{key} {number(value, units[key])}" for key, value in table.scores.items()]
    values = np.concatenate([table.true, table.predicted])
    margin = 0.03 * float(np.ptp(values)) or 1.0
    low, high = float(values.min()) - margin, float(values.max()) + margin

    def draw_dots(axes: Axes, theme: Theme) -> None:
        axes.plot([low, high], [low, high], color=theme.muted, linewidth=0.8, zorder=3)
        if len(table) > MOST_DOTS:
            cells: Any = {"gridsize": (55, 32), "extent": (low, high, low, high), "bins": "log"}
            ramp = theme.ramp(to_hex(theme.ramp()(0.2)), theme.first, theme.text)
            axes.hexbin(table.true, table.predicted, **cells, mincnt=1, cmap=ramp, linewidths=0)
        else:
            dots: Any = {"s": 9, "color": theme.first, "alpha": 0.45, "linewidths": 0}
            axes.scatter(table.true, table.predicted, **dots)
        axes.set(xlim=(low, high), ylim=(low, high))
        label(axes, theme, in_unit(f"true {table.target}", unit), in_unit("predicted", unit))
        box = {"facecolor": theme.background, "edgecolor": "none", "alpha": 0.8, "pad": 2}
        corner = {"xycoords": "axes fraction", "va": "top", "linespacing": 1.5, "bbox": box}
        write(axes, theme, "\n".join(scores), (0.03, 0.97), **corner)

    note = f"{counted(len(table), table.noun)}: {', '.join(scores)}."
    yield Plot("predicted", "Predicted against true", note, draw_dots)

    size = np.abs(table.error)
    reach = float(np.quantile(size, 0.995)) or 1.0
    outside = int((size > reach).sum())
    summary = (table.error.mean(), *np.quantile(size, (0.5, 0.95)))
    mean, half, most = (number(value, unit) for value in summary)
    note = f"Mean error {mean}. Absolute error: median {half}, 95th percentile {most}"
    note += f"; {outside:,} larger errors are not shown." if outside else "."

    def draw_errors(axes: Axes, theme: Theme) -> None:
        axes.hist(table.error, 41, range=(-reach, reach), color=theme.first, rwidth=0.9)
        axes.axvline(0, color=theme.second, linewidth=1, zorder=3)
        label(axes, theme, in_unit("predicted - true", unit), table.noun, grid="y")

    yield Plot("errors", "Distribution of the errors", note, draw_errors)


def _binary_plots(table: TargetPredictions) -> Iterator[Plot]:
    """The ROC curve, if both classes occur, and the distribution of the scores."""
    area = number(table.scores.get("ROC-AUC", np.nan))
    ones = int(table.true.sum())

    def draw_curve(axes: Axes, theme: Theme) -> None:
        axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=0.8, linestyle=_DASHED)
        false_rate, true_rate, _ = roc_curve(table.true, table.predicted)
        axes.plot(false_rate, true_rate, color=theme.first, linewidth=1.6)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        label(axes, theme, "false positive rate", "true positive rate")
        write(axes, theme, f"ROC-AUC {area}", (0.6, 0.1))

    if "ROC-AUC" in table.scores:
        classes = f"{counted(ones, table.noun)} of class 1 and {len(table) - ones:,} of class 0"
        yield Plot("roc", "ROC curve", f"ROC-AUC {area}; {classes}.", draw_curve)

    def draw_scores(axes: Axes, theme: Theme) -> None:
        for value, colour in ((0, theme.second), (1, theme.first)):
            found = table.predicted[table.true == value]
            if len(found):
                count, edges = np.histogram(found, 30, (0, 1))
                title = f"class {table.class_name(value)}"
                _draw_steps(axes, count / len(found), edges, colour, title)
        name = f"predicted probability of {table.target}"
        label(axes, theme, name, "share of the class", grid="y", legend={})

    accuracy = f"at the threshold 0.5, {table.scores['accuracy']:.1%} are correct"
    note = f"Predicted probabilities by true class; {accuracy}."
    yield Plot("scores", "Distribution of the scores", note, draw_scores)


def _class_plots(table: TargetPredictions) -> Iterator[Plot]:
    """The confusion matrix and the recall of each class."""
    counts = confusion_matrix(table.true, table.predicted, len(table.class_names))
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)

    def draw_matrix(axes: Axes, theme: Theme) -> None:
        axes.imshow(share, cmap=theme.ramp(), vmin=0, vmax=1, aspect="auto")
        if len(counts) <= MOST_COUNTS:
            places = np.arange(len(counts))
            axes.set_yticks(places, _class_ticks(axes, table, places), parse_math=False)
            for row, column in np.ndindex(counts.shape):
                colour = theme.background if share[row, column] > 0.55 else theme.text
                text = f"{counts[row, column]:,}"
                axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
        label(axes, theme, "predicted class", "true class", grid="none")

    note = f"Accuracy {number(table.scores['accuracy'])}. Shade: share of the true class."
    yield Plot("confusion", "Confusion matrix", note, draw_matrix)

    classes = np.flatnonzero(counts.sum(1))
    recall = counts[classes, classes] / counts.sum(1)[classes]

    def draw_recall(axes: Axes, theme: Theme) -> None:
        axes.bar(classes, recall, width=0.6, color=theme.first)
        axes.set_ylim(0, 1)
        if len(counts) <= MOST_COUNTS:
            _class_ticks(axes, table, classes)
        label(axes, theme, "true class", "recall", grid="y")

    worst = table.class_name(int(classes[np.argmin(recall)]))
    note = f"Class {worst} has the lowest recall: {recall.min():.1%} of it are found."
    yield Plot("recall", "Recall by class", note, draw_recall)


def _class_ticks(axes: Axes, table: TargetPredictions, classes: np.ndarray) -> list[str]:
    """Write class names below the axis, slanted if they are long, and return them."""
    return _name_ticks(axes, [table.class_name(int(place)) for place in classes], classes)


def _name_ticks(axes: Axes, names: list[str], places: np.ndarray) -> list[str]:
    rotation = 40 if sum(map(len, names)) > 50 else 0
    axes.set_xticks(places, names, rotation=rotation, parse_math=False)
    return names


def _size_plots(table: TargetPredictions) -> Iterator[Plot]:
    """The mean error by number of atoms, with quartiles unless errors are 0 or 1."""
    sizes = table.sizes
    if not len(sizes):
        return
    if table.kind == "regression":
        errors, title = np.abs(table.error), in_unit("absolute error", table.unit)
    else:
        classes = table.predicted >= 0.5 if table.kind == "binary" else table.predicted
        errors, title = (classes != table.true).astype(float), "share of wrong predictions"
    graded = not np.isin(errors, (0, 1)).all()
    ranges = size_bins(sizes)
    bins = [errors[(sizes >= low) & (sizes <= high)] for low, high in ranges]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.axhline(errors.mean(), color=theme.muted, linewidth=0.8, linestyle=_DASHED)
        for place, found in enumerate(bins):
            if len(found) and graded:
                low, high = np.quantile(found, (0.25, 0.75))
                axes.bar(place, high - low, 0.42, low, color=theme.first, alpha=0.28)
            if len(found):
                axes.plot([place], [found.mean()], "o", color=theme.first, markersize=5.5)
        axes.set(ylim=(0, None), xlim=(-0.6, max(len(bins), 6) - 0.4))
        axes.set_xticks(range(len(bins)), list(map(_tick, ranges, bins)), fontsize=FONT - 0.5)
        right: Any = {"xycoords": ("axes fraction", "data"), "xytext": (3, 0), "va": "center"}
        right |= {"fontsize": FONT - 0.5, "color": theme.muted}
        write(axes, theme, "all", (1, errors.mean()), **right)
        label(axes, theme, "atoms (number of molecules)", title, grid="y")

    note = f"Molecules with {int(sizes.min())} to {int(sizes.max())} atoms. Dots: mean."
    if graded:
        note += " Bars: from the first to the third quartile."
    yield Plot("sizes", "Error by molecule size", note, draw, wide=True)


def size_bins(sizes: np.ndarray) -> list[tuple[int, int]]:
    """At most `MOST_BINS` ranges of sizes, both ends included, all of the same width."""
    first, last = int(sizes.min()), int(sizes.max())
    width = -(-(last - first + 1) // MOST_BINS)
    return [(start, start + width - 1) for start in range(first, last + 1, width)]


def _tick(ends: tuple[int, int], found: np.ndarray) -> str:
    size = "-".join(map(str, dict.fromkeys(ends)))
    count = f"{len(found):,}" if len(found) < 10_000 else f"{len(found) / 1000:.0f}k"
    return f"{size}\n({count})" if len(found) else size


_PLOTS = {"regression": _regression_plots, "binary": _binary_plots, "multiclass": _class_plots}
