"""Figures of singular spectra and of effective ranks, a model beside its twin."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.ticker import MaxNLocator

from slicegraph.analysis.findings import Findings
from slicegraph.report.numbers import number
from slicegraph.report.plot import Plot, label, legend
from slicegraph.report.theme import Theme

_FLOOR = 1e-4
"""Singular values below this share of the largest are not drawn."""


def spectrum_plots(models: Sequence[Findings]) -> Iterator[Plot]:
    """A figure of every layer for each model; for two, also one that compares them."""
    longest = max(len(model.spectrum) for model in models)
    for place, model in enumerate(models):
        ends = [layer.mixed.first_share for layer in (model.layers[0], model.layers[-1])]
        note = (
            f"{model.mixer}: singular values of what each layer mixes, over the largest. Its share "
            f"of the sum of squares is {ends[0]:.1%} in the first layer, {ends[1]:.1%} in the last."
        )
        title = f"Singular spectrum of every layer, {model.name}"
        draw = _every_layer(model, place, longest)
        yield Plot(f"spectrum-{place + 1}", title, note, draw, wide=len(models) == 1)


def comparison_plots(models: Sequence[Findings]) -> Iterator[Plot]:
    """Effective rank by layer, and for two models their mean spectra in one figure."""
    told = ", ".join(f"{model.name} {number(model.effective_rank)}" for model in models)
    words = f"Mean over the layers: {told}. Dashed: the rows after the whole block."
    yield Plot("rank", "Effective rank by layer", words, _ranks(models), wide=len(models) == 1)
    if len(models) > 1:
        words = "Singular values of what a layer mixes, over the largest; the mean of all layers."
        yield Plot("spectrum-mean", "Mean spectrum", words, _mean_spectra(models))


def colour_of(theme: Theme, place: int) -> str:
    """The colour of the first model, or of its twin."""
    return (theme.first, theme.second)[place]


def _every_layer(model: Findings, place: int, longest: int) -> Callable[[Axes, Theme], None]:
    def draw(axes: Axes, theme: Theme) -> None:
        shades = _shades(theme, colour_of(theme, place), len(model.layers))
        for count, (layer, shade) in enumerate(zip(model.layers, shades, strict=True), start=1):
            named = f"layer {count}" if count in (1, len(model.layers)) else None
            _curve(axes, layer.mixed.spectrum, shade, named)
        _frame(axes, theme, longest)

    return draw


def _mean_spectra(models: Sequence[Findings]) -> Callable[[Axes, Theme], None]:
    def draw(axes: Axes, theme: Theme) -> None:
        for place, model in enumerate(models):
            _curve(axes, model.spectrum, colour_of(theme, place), model.name)
        _frame(axes, theme, max(len(model.spectrum) for model in models))

    return draw


def _curve(axes: Axes, spectrum: np.ndarray, colour: str, name: str | None) -> None:
    seen = spectrum[spectrum >= _FLOOR]
    marker = "o" if len(spectrum) <= 32 else None
    ranks = np.arange(1, len(seen) + 1)
    axes.plot(ranks, seen, color=colour, linewidth=1.4, marker=marker, markersize=2.5, label=name)


def _frame(axes: Axes, theme: Theme, longest: int) -> None:
    axes.set_yscale("log")
    axes.set_ylim(_FLOOR, 1.5)
    axes.set_xlim(1 - 0.02 * longest, longest + 0.02 * longest)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    label(axes, theme, "number of the singular value", "relative to the largest")
    legend(axes, theme)


def _ranks(models: Sequence[Findings]) -> Callable[[Axes, Theme], None]:
    def draw(axes: Axes, theme: Theme) -> None:
        for place, model in enumerate(models):
            layers, colour = np.arange(1, len(model.layers) + 1), colour_of(theme, place)
            mixed = [layer.mixed.effective_rank for layer in model.layers]
            block = [layer.block.effective_rank for layer in model.layers]
            axes.plot(layers, mixed, "o-", color=colour, linewidth=1.6, label=model.name)
            axes.plot(layers, block, "o--", color=colour, linewidth=1.0, alpha=0.6, markersize=3)
        axes.set_ylim(bottom=0, top=1.25 * axes.get_ylim()[1])
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        label(axes, theme, "layer", "effective rank")
        legend(axes, theme)

    return draw


def _shades(theme: Theme, colour: str, count: int) -> list[str]:
    """From pale, the first layer, to full."""
    ramp = LinearSegmentedColormap.from_list("shades", [theme.background, colour])
    return [to_hex(ramp(share)) for share in np.linspace(1 if count == 1 else 0.3, 1, count)]
