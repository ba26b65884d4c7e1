"""Figures of a classification: ROC curve and scores, or confusion matrix and recall."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from slicegraph.report.numbers import number
from slicegraph.report.plot import FONT, Plot, label, legend
from slicegraph.report.predictions import Predictions
from slicegraph.report.scores import binary_scores, class_scores, confusion_matrix, roc_curve
from slicegraph.report.size_plot import size_plot
from slicegraph.report.theme import Theme

MOST_COUNTS = 12
"""More classes than these have no numbers in the cells of their confusion matrix."""


def binary_plots(table: Predictions, prefix: str = "") -> Iterator[Plot]:
    """The figures of one target with the classes 0 and 1."""
    if 0 < table.true.sum() < len(table):
        yield _roc(table, f"{prefix}roc")
    yield _scores(table, f"{prefix}scores")
    wrong = (table.predicted >= 0.5) != (table.true == 1)
    yield from _sizes(table, wrong, f"{prefix}sizes")


def class_plots(table: Predictions, prefix: str = "") -> Iterator[Plot]:
    """The figures of one target with several classes."""
    counts = confusion_matrix(table.true, table.predicted, len(table.class_names))
    yield _confusion(table, counts, f"{prefix}confusion")
    yield _recall(table, counts, f"{prefix}recall")
    yield from _sizes(table, table.true != table.predicted, f"{prefix}sizes")


def _roc(table: Predictions, name: str) -> Plot:
    area = number(binary_scores(table.true, table.predicted)["ROC-AUC"])

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=0.8, linestyle=(0, (2, 3)))
        axes.plot(*roc_curve(table.true, table.predicted), color=theme.first, linewidth=1.6)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        label(axes, theme, "false positive rate", "true positive rate")
        axes.text(0.6, 0.1, f"ROC-AUC {area}", fontsize=FONT, color=theme.text)

    ones = int(table.true.sum())
    words = f"ROC-AUC {area}; {ones:,} molecules of class 1 and {len(table) - ones:,} of class 0."
    return Plot(name, "ROC curve", words, draw)


def _scores(table: Predictions, name: str) -> Plot:
    def draw(axes: Axes, theme: Theme) -> None:
        for value, colour in ((0, theme.second), (1, theme.first)):
            found = table.predicted[table.true == value]
            if len(found):
                share, edges = np.histogram(found, 30, (0, 1))
                share = share / len(found)
                axes.stairs(share, edges, fill=True, color=colour, alpha=0.22)
                name = f"class {table.class_name(value)}"
                axes.stairs(share, edges, color=colour, linewidth=1.4, label=name)
        axes.grid(visible=False, axis="x")
        label(axes, theme, f"predicted probability of {table.target}", "share of the class")
        legend(axes, theme)

    right = binary_scores(table.true, table.predicted)["accuracy"]
    words = f"Predictions for molecules of either class; {right:.1%} are right at one half."
    return Plot(name, "Distribution of the scores", words, draw)


def _confusion(table: Predictions, counts: np.ndarray, name: str) -> Plot:
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    accuracy = number(class_scores(table.true, table.predicted)["accuracy"])

    def draw(axes: Axes, theme: Theme) -> None:
        axes.grid(visible=False)
        axes.imshow(share, cmap=theme.ramp, vmin=0, vmax=1, aspect="auto")
        if len(counts) <= MOST_COUNTS:
            names = [table.class_name(number) for number in range(len(counts))]
            axes.set_xticks(range(len(counts)), names, rotation=_slant(names), parse_math=False)
            axes.set_yticks(range(len(counts)), names, parse_math=False)
            for row, column in np.ndindex(counts.shape):
                colour = theme.background if share[row, column] > 0.55 else theme.text
                text = f"{counts[row, column]:,}"
                axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
        label(axes, theme, "predicted class", "true class")

    words = f"Accuracy {accuracy}. Shade: the share of the true class."
    return Plot(name, "Confusion matrix", words, draw)


def _recall(table: Predictions, counts: np.ndarray, name: str) -> Plot:
    classes = np.flatnonzero(counts.sum(1))
    share = counts[classes, classes] / counts.sum(1)[classes]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.grid(visible=False, axis="x")
        axes.bar(classes, share, width=0.6, color=theme.first)
        axes.set_ylim(0, 1)
        if len(counts) <= MOST_COUNTS:
            names = [table.class_name(int(number)) for number in classes]
            axes.set_xticks(classes, names, rotation=_slant(names), parse_math=False)
        label(axes, theme, "true class", "share that is right")

    worst = int(np.argmin(share))
    hardest = table.class_name(int(classes[worst]))
    words = f"Class {hardest} is the hardest: {share[worst]:.1%} are right."
    return Plot(name, "Right by class", words, draw)


def _slant(names: list[str]) -> int:
    """The angle at which names have room beside each other."""
    return 40 if sum(map(len, names)) > 50 else 0


def _sizes(table: Predictions, wrong: np.ndarray, name: str) -> Iterator[Plot]:
    if len(table.sizes):
        yield size_plot(name, table.sizes, wrong.astype(np.float64), "share that is wrong")
