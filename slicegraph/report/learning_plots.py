"""Learning curves: the losses and the validation metric by epoch, the best epoch marked."""

from collections.abc import Callable, Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from slicegraph.report.numbers import number, with_unit
from slicegraph.report.plot import FONT, Plot, in_unit, label, legend
from slicegraph.report.theme import Theme
from slicegraph.report.training_log import TrainingLog

Curve = tuple[np.ndarray, np.ndarray]


def learning_plots(
    log: TrainingLog | None, metric: str, unit: str, best_epoch: float | None
) -> Iterator[Plot]:
    """Up to two plots: those whose columns the log has.

    Args:
        log: the log of the run, if there is one.
        metric: the title of the metric, "MAE".
        unit: its unit.
        best_epoch: the epoch of the saved model, the first is 1.
    """
    if log is None:
        return
    losses = {name: log.curve(f"{name}_loss") for name in ("train", "valid")}
    losses = {name: curve for name, curve in losses.items() if len(curve[0])}
    if losses:
        last = ", ".join(f"{name} {number(values[-1])}" for name, (_, values) in losses.items())
        draw = _drawing(losses, "loss", best_epoch)
        yield Plot("loss", "Loss by epoch", f"In the last epoch: {last}.", draw)
    curve = log.curve(log.metric or "")
    if len(curve[0]):
        draw = _drawing({"valid": curve}, in_unit(f"valid {metric}", unit), best_epoch)
        note = _best_note(curve, best_epoch, unit)
        yield Plot("metric", f"Validation {metric} by epoch", note, draw)


def _best_note(curve: Curve, best_epoch: float | None, unit: str) -> str:
    epochs, values = curve
    found = np.flatnonzero(epochs == best_epoch)
    if not len(found):
        return f"In the last epoch: {with_unit(values[-1], unit)}."
    return f"The model of epoch {best_epoch:g} is kept: {with_unit(values[found[0]], unit)}."


def _drawing(
    curves: dict[str, Curve], name: str, best_epoch: float | None
) -> Callable[[Axes, Theme], None]:
    def draw(axes: Axes, theme: Theme) -> None:
        for split, (epochs, values) in curves.items():
            colour = theme.first if split == "valid" else theme.second
            marker = "o" if len(epochs) == 1 else None
            axes.plot(epochs, values, color=colour, linewidth=1.6, label=split, marker=marker)
        if "valid" in curves and best_epoch is not None:
            _mark(axes, theme, curves["valid"], best_epoch)
        _scale(axes, np.concatenate([values for _, values in curves.values()]))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        label(axes, theme, "epoch", name)
        if len(curves) > 1:
            legend(axes, theme)

    return draw


def _mark(axes: Axes, theme: Theme, curve: Curve, best_epoch: float) -> None:
    epochs, values = curve
    for value in values[epochs == best_epoch]:
        axes.axvline(best_epoch, color=theme.muted, linewidth=0.8, linestyle=(0, (2, 3)))
        axes.plot([best_epoch], [value], "o", color=theme.first, markersize=5)
        share = (best_epoch - epochs[0]) / max(epochs[-1] - epochs[0], 1)
        axes.annotate(
            f"best {number(value)}",
            (best_epoch, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="left" if share < 0.1 else "right" if share > 0.9 else "center",
            fontsize=FONT,
            color=theme.text,
        )


def _scale(axes: Axes, values: np.ndarray) -> None:
    """Logarithmic when the values span more than a decade."""
    if values.min() > 0 and values.max() > 10 * values.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
