"""Figures of one sample: the rows that layers make, and the permutation of a channel."""

from collections.abc import Callable, Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from slicegraph.analysis.findings import Findings
from slicegraph.analysis.permutation import implicit_permutation
from slicegraph.report.plot import FONT, Plot, label, legend
from slicegraph.report.theme import Theme

_MOST_COLUMNS = 512
"""Of all layers together, in a heat map: more are narrower than a pixel."""


def heat_plots(name: str, model: Findings) -> Iterator[Plot]:
    """What every layer sorted, or mixed if it does not sort, side by side; of layers that read
    quantiles also what they sort, before it is sorted."""
    if not model.sorts:
        shown, what = [layer.mixed for layer in model.traces], "what each layer attends to"
        yield _heat_plot(name, "Attention outputs", what, model, shown)
        return
    before = [layer.unordered for layer in model.traces if layer.unordered is not None]
    after = [layer.ordered for layer in model.traces if layer.ordered is not None]
    if model.reads_quantiles:
        what = "what each layer attends to and reads quantiles of, unordered"
        yield _heat_plot(f"{name}-unordered", "Attention outputs", what, model, before)
        what = "the same with every channel sorted, as each layer reads its quantiles"
        yield _heat_plot(name, "Sorted channels", what, model, after)
    else:
        yield _heat_plot(name, "Sorted outputs", "what each layer sorts", model, after)


def permutation_plots(model: Findings, number: int, channel: int) -> Iterator[Plot]:
    """The permutation of a channel as a matrix, and its values before and after."""
    layer = model.traces[number - 1]
    assert layer.order is not None
    assert layer.unordered is not None
    sources = implicit_permutation(layer.order, layer.unordered, channel).numpy()
    where = f"layer {number}, channel {channel}, {model.drawn}"
    stay = int((sources == np.arange(len(sources))).sum())
    note = (
        f"A dot where a row after the sort has its value from; {stay} of {len(sources)} rows stay."
    )
    yield Plot("permutation", f"Permutation of {where}", note, _matrix(sources))
    values = layer.unordered[:, channel].float().numpy()
    note = f"Order {layer.order.name}; the same {len(values)} values, in other rows."
    yield Plot("channel", f"Values of {where}", note, _values(values, values[sources]))


def _heat_plot(name: str, title: str, what: str, model: Findings, shown: list[Tensor]) -> Plot:
    rows, channels = shown[0].shape
    each = max(1, min(channels, _MOST_COLUMNS // len(shown)))
    first = "All" if each == channels else f"The first {each} of"
    note = (
        f"{model.mixer}: {what}, {model.drawn}. {first} {channels} channels to the right, {rows} "
        "rows downwards; each layer on a scale of its own."
    )
    draw = _heat_map([rows[:, :each] for rows in shown])
    return Plot(name, f"{title}, {model.name}", note, draw, wide=True)


def _heat_map(panels: list[Tensor]) -> Callable[[Axes, Theme], None]:
    each, gap = panels[0].shape[1], max(1, round(sum(panel.shape[1] for panel in panels) / 80))
    space = np.full((panels[0].shape[0], gap), np.nan)
    columns: list[np.ndarray] = []
    for panel in panels:
        values = panel.float().numpy()
        columns += [values / (np.quantile(np.abs(values), 0.99) or 1), space]
    picture = np.concatenate(columns[:-1], axis=1)
    places = [(each - 1) / 2 + place * (each + gap) for place in range(len(panels))]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.grid(visible=False)
        axes.imshow(
            picture,
            cmap=theme.contrast,
            vmin=-1,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
        )
        named = [f"layer {number}" for number in range(1, len(panels) + 1)]
        axes.set_xticks(places, named, fontsize=FONT - 0.5)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.spines["bottom"].set_visible(False)
        label(axes, theme, "", "row")

    return draw


def _matrix(sources: np.ndarray) -> Callable[[Axes, Theme], None]:
    def draw(axes: Axes, theme: Theme) -> None:
        rows, size = np.arange(len(sources)), float(np.clip(160 / len(sources), 0.5, 6))
        axes.plot(rows, rows, color=theme.line, linewidth=1.2)
        axes.plot(sources, rows, "o", color=theme.first, markersize=size, markeredgewidth=0)
        axes.set_ylim(len(sources) - 0.5, -0.5)
        axes.set_xlim(-0.5, len(sources) - 0.5)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(6, integer=True))
        label(axes, theme, "row before the sort", "row after the sort")

    return draw


def _values(before: np.ndarray, after: np.ndarray) -> Callable[[Axes, Theme], None]:
    def draw(axes: Axes, theme: Theme) -> None:
        for name, values, colour in (
            ("before", before, theme.second),
            ("after", after, theme.first),
        ):
            axes.plot(values, color=colour, label=name, linewidth=1.2, drawstyle="steps-mid")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, top + 0.3 * (top - bottom))
        label(axes, theme, "row", "value")
        legend(axes, theme)

    return draw
