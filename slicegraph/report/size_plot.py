"""How large the error is for small and for large molecules."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes

from slicegraph.report.plot import FONT, Plot, label
from slicegraph.report.theme import Theme

MOST_BINS = 20


def size_plot(name: str, sizes: np.ndarray, errors: np.ndarray, error_name: str) -> Plot:
    """The mean error by number of atoms, and between which values the middle half of it lies.

    Args:
        name: of the file.
        sizes: ``[n]``, the number of atoms.
        errors: ``[n]``, the size of the error, not negative.
        error_name: what the vertical axis says, with the unit.
    """
    first, last = int(sizes.min()), int(sizes.max())
    note = f"Molecules of {first} to {last} atoms. Dots: mean; below: how many molecules there are."
    if not _all_or_nothing(errors):
        note += " Bars: the middle half of the molecules."
    return Plot(name, "Error by molecule size", note, _drawing(sizes, errors, error_name), True)


def size_bins(sizes: np.ndarray) -> list[tuple[int, int]]:
    """At most `MOST_BINS` ranges of sizes (both ends count), all of the same width."""
    first, last = int(sizes.min()), int(sizes.max())
    width = -(-(last - first + 1) // MOST_BINS)
    return [(start, start + width - 1) for start in range(first, last + 1, width)]


def _drawing(
    sizes: np.ndarray, errors: np.ndarray, error_name: str
) -> Callable[[Axes, Theme], None]:
    graded = not _all_or_nothing(errors)
    bins = [(low, high, errors[(sizes >= low) & (sizes <= high)]) for low, high in size_bins(sizes)]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.grid(visible=False, axis="x")
        axes.axhline(errors.mean(), color=theme.muted, linewidth=0.8, linestyle=(0, (2, 3)))
        for place, (_, _, found) in enumerate(bins):
            if len(found) and graded:
                low, high = np.quantile(found, (0.25, 0.75))
                axes.bar(place, high - low, 0.42, low, color=theme.first, alpha=0.28)
            if len(found):
                axes.plot([place], [found.mean()], "o", color=theme.first, markersize=5.5)
        axes.set_ylim(bottom=0)
        axes.set_xlim(-0.6, max(len(bins), 6) - 0.4)
        axes.set_xticks(range(len(bins)), [_tick(*entry) for entry in bins], fontsize=FONT - 0.5)
        axes.annotate(
            "all",
            (1, errors.mean()),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=FONT - 0.5,
            color=theme.muted,
        )
        label(axes, theme, "atoms, and how many molecules", error_name)

    return draw


def _tick(low: int, high: int, found: np.ndarray) -> str:
    size = f"{low}" if low == high else f"{low}-{high}"
    count = f"{len(found):,}" if len(found) < 10_000 else f"{len(found) / 1000:.0f}k"
    return f"{size}\n({count})" if len(found) else size


def _all_or_nothing(errors: np.ndarray) -> bool:
    """Right or wrong: then quartiles say nothing."""
    return bool(np.isin(errors, (0, 1)).all())
