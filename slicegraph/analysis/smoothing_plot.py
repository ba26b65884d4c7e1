"""The figure of a softmax that smooths."""

from matplotlib.axes import Axes

from slicegraph.analysis.smoothing import Smoothing
from slicegraph.report.plot import FONT, Plot, label
from slicegraph.report.theme import Theme


def smoothing_plot(found: Smoothing) -> Plot:
    """Largest weight, sharpness and spread by the number of rows, on logarithmic scales."""

    def draw(axes: Axes, theme: Theme) -> None:
        n = found.counts
        curves = (
            ("a permutation: always 1", 1 + 0 * n, theme.muted, "-"),
            ("what is left of differences", found.spread, theme.first, "o-"),
            ("largest weight", found.largest, theme.second, "o-"),
            ("exp(-entropy)", found.sharpness, theme.text, "o-"),
            ("1 / N, all weights equal", 1 / n, theme.muted, "--"),
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        for name, values, colour, style in curves:
            axes.plot(n, values, style, color=colour, linewidth=1.3, markersize=3, label=name)
        axes.set_xlim(n[0] * 0.9, n[-1] * 1.1)
        label(axes, theme, "N, rows to attend to", "of a softmax of N normal scores")
        axes.legend(
            fontsize=FONT,
            labelcolor=theme.text,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            frameon=False,
            handlelength=1.6,
        )

    first, last = found.counts[[0, -1]]
    note = (
        f"The largest weight falls from {found.largest[0]:.2f} at N = {first:,} to "
        f"{found.largest[-1]:.1e} at {last:,}; differences of rows to {found.spread[-1]:.1e} of "
        "what they were."
    )
    return Plot("softmax", "A softmax over N rows", note, draw, wide=True)
