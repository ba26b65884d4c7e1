"""A figure of the page: what to draw, and how it becomes a PNG.

Figures are made with matplotlib's objects and its Agg canvas: pyplot, its settings and its windows
are not touched.
"""

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slicegraph.report.theme import DARK, LIGHT, Theme

DPI = 200
HALF = (4.5, 3.3)
WIDE = (9.2, 2.9)
FONT = 8.5


@dataclass(frozen=True)
class Plot:
    """A figure, drawn when it is rendered, once a theme.

    Args:
        name: of its file, without suffix.
        title: what it shows.
        note: a sentence with its numbers, which is also what a screen reader says.
        draw: draws it into axes that have the theme's look.
        wide: the whole width of the page instead of half of it.
    """

    name: str
    title: str
    note: str
    draw: Callable[[Axes, Theme], None]
    wide: bool = False


@dataclass(frozen=True)
class Picture:
    """A plot and its PNGs, for light and for dark screens."""

    plot: Plot
    light: bytes
    dark: bytes


def picture(plot: Plot) -> Picture:
    """Draws a plot in both themes."""
    return Picture(plot, render(plot, LIGHT), render(plot, DARK))


def render(plot: Plot, theme: Theme) -> bytes:
    """The PNG of a plot, 900 x 660 pixels or 1840 x 580."""
    size = WIDE if plot.wide else HALF
    figure = Figure(figsize=size, dpi=DPI, facecolor=theme.background, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _dress(axes, theme)
    plot.draw(axes, theme)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Names come from the user, and the font may lack a letter of theirs.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def label(axes: Axes, theme: Theme, x: str, y: str) -> None:
    """Names the axes; a dollar sign in a user's name is a dollar sign."""
    axes.set_xlabel(_short(x), fontsize=FONT, color=theme.muted, parse_math=False)
    axes.set_ylabel(_short(y), fontsize=FONT, color=theme.muted, parse_math=False)


def in_unit(name: str, unit: str) -> str:
    """The name of an axis with its unit."""
    return f"{name} ({unit})" if unit else name


def legend(axes: Axes, theme: Theme) -> None:
    """A legend without a frame, in the upper right corner, over what is there."""
    box = axes.legend(
        fontsize=FONT,
        labelcolor=theme.text,
        loc="upper right",
        handlelength=1.2,
        facecolor=theme.background,
        edgecolor="none",
        framealpha=0.9,
    )
    box.set_zorder(5)


def note(axes: Axes, theme: Theme, text: str) -> None:
    """Lines of text in the upper left corner."""
    box = {"facecolor": theme.background, "edgecolor": "none", "alpha": 0.8, "pad": 2}
    axes.text(
        0.03,
        0.97,
        text,
        transform=axes.transAxes,
        va="top",
        fontsize=FONT,
        color=theme.text,
        linespacing=1.5,
        parse_math=False,
        bbox=box,
    )


def _dress(axes: Axes, theme: Theme) -> None:
    axes.set_facecolor(theme.background)
    axes.set_axisbelow(True)
    axes.grid(color=theme.line, linewidth=0.6)
    axes.tick_params(which="both", colors=theme.muted, labelsize=FONT - 0.5, length=0, pad=4)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.line)


def _short(text: str, most: int = 48) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
