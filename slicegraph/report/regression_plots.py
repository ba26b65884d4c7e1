"""Figures of a regression: predicted against true, and the distribution of the errors."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from slicegraph.report.numbers import number, with_unit
from slicegraph.report.plot import Plot, in_unit, label, note
from slicegraph.report.predictions import Predictions
from slicegraph.report.scores import regression_scores
from slicegraph.report.size_plot import size_plot
from slicegraph.report.theme import Theme

MOST_DOTS = 3000
"""More molecules than these are shown as a density."""


def regression_plots(table: Predictions, unit: str, prefix: str = "") -> Iterator[Plot]:
    """The figures of one target; `prefix` begins the names of their files."""
    yield _against(table, unit, f"{prefix}predicted")
    yield _distribution(table, unit, f"{prefix}errors")
    if len(table.sizes):
        errors = np.abs(table.error)
        yield size_plot(f"{prefix}sizes", table.sizes, errors, in_unit("absolute error", unit))


def _against(table: Predictions, unit: str, name: str) -> Plot:
    scores = regression_scores(table.true, table.predicted)
    spelled = {key: number(v) if key == "R²" else with_unit(v, unit) for key, v in scores.items()}

    def draw(axes: Axes, theme: Theme) -> None:
        low, high = _limits(table)
        axes.plot([low, high], [low, high], color=theme.muted, linewidth=0.8, zorder=3)
        if len(table) > MOST_DOTS:
            _density(axes, theme, table, (low, high))
        else:
            axes.scatter(
                table.true, table.predicted, s=9, color=theme.first, alpha=0.45, linewidths=0
            )
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        label(axes, theme, in_unit(f"true {table.target}", unit), in_unit("predicted", unit))
        note(axes, theme, "\n".join(f"{key} {text}" for key, text in spelled.items()))

    words = ", ".join(f"{key} {text}" for key, text in spelled.items())
    return Plot(name, "Predicted against true", f"{len(table):,} molecules: {words}.", draw)


def _limits(table: Predictions) -> tuple[float, float]:
    values = np.concatenate([table.true, table.predicted])
    low, high = float(values.min()), float(values.max())
    margin = 0.03 * (high - low) or 1.0
    return low - margin, high + margin


def _density(axes: Axes, theme: Theme, table: Predictions, limits: tuple[float, float]) -> None:
    axes.hexbin(
        table.true,
        table.predicted,
        gridsize=(55, 32),
        extent=(*limits, *limits),
        bins="log",
        mincnt=1,
        cmap=theme.density,
        linewidths=0,
    )


def _distribution(table: Predictions, unit: str, name: str) -> Plot:
    size = np.abs(table.error)
    reach = float(np.quantile(size, 0.995)) or 1.0
    outside = int((size > reach).sum())
    half, most = np.quantile(size, (0.5, 0.95))
    words = (
        f"Mean {with_unit(table.error.mean(), unit)}; half of the molecules are within "
        f"{with_unit(half, unit)}, 95% within {with_unit(most, unit)}."
    )
    if outside:
        words += f" {outside:,} with larger errors than shown."

    def draw(axes: Axes, theme: Theme) -> None:
        bins = np.linspace(-reach, reach, 42)
        axes.hist(table.error, bins.tolist(), color=theme.first, rwidth=0.9)
        axes.axvline(0, color=theme.second, linewidth=1, zorder=3)
        axes.grid(visible=False, axis="x")
        label(axes, theme, in_unit("predicted - true", unit), "molecules")

    return Plot(name, "Distribution of the errors", words, draw)
