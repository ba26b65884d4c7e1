"""The page of an analysis: its figures, its numbers and its printed tables."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import MaxNLocator

from slicegraph.analysis.measures import (
    Findings,
    LayerTrace,
    Smoothing,
    implicit_permutation,
    slice_weights,
)
from slicegraph.files import write_atomically
from slicegraph.metrics import number
from slicegraph.report.data import Part
from slicegraph.report.page import Page, cell, write_page
from slicegraph.report.plots import FONT, Plot, Theme, label

_SPECTRUM = (
    "For one sample, the mixed rows of a layer before its output projection are a matrix: one row "
    "for each element, one column for each channel. Its singular values are divided by the "
    "largest and averaged over the samples. If they fall at once, the rows are nearly multiples of "
    "one another."
)
_RANK = (
    "With p the singular values over their sum, the effective rank is exp(-Σ p log p): n for n "
    "equal singular values, 1 for a matrix of rank one. The first share is the square of the "
    "largest over the sum of squares. Both are means over the samples; “block” stands for the rows "
    "after the whole block, with its residuals."
)
_PERMUTATION = (
    "Sorting a channel multiplies it by a permutation matrix; attention multiplies all channels of "
    "a head by one matrix of positive weights. With align “pivot” the figure shows the permutation "
    "of the sort itself, before its rows go to the nodes. With “quantile_attn” the sorted channel "
    "is read at its quantiles, a mixture of them is added to every row, and the rows stay in place."
)
_SLICE = (
    "Attention along a slice weighs a pair of rows by exp(-|k_i - k_j| / τ), with one key k a row "
    "and a learned width τ. In the order of the keys the weights are a band around the diagonal, "
    "wide where keys are dense. The number of rows that a row reads is exp(entropy) of its "
    "weights: 1 for a permutation, N for the mean of all rows."
)
_SMOOTHING = (
    "Scores s ~ Normal(0, 1), as those of independent queries and keys of variance 1; w = "
    "softmax(s). For large N the largest weight is about exp(√(2 ln N) - 1/2) / N, exp(-entropy) "
    "is √e / N, and the norm of w is √(e / N). The norm is the standard deviation of the weighted "
    "mean of independent values of standard deviation 1: what is left of differences between rows. "
    "A row of a permutation matrix has the value 1 in all three, for every N."
)
_SHOWN = (2, 4, 8, 16, 32)  # places of the spectrum that are printed, if they exist
_FLOOR = 1e-4  # smaller singular values, relative to the largest, are not drawn
_MOST_COLUMNS = 512  # of a heat map, all layers together: more are narrower than a pixel


@dataclass(frozen=True)
class Choice:
    """The permutation to draw: a layer, from 1, and a channel, from 0."""

    layer: int = 1
    channel: int = 0


def write_analysis(
    folder: str | Path,
    models: Sequence[Findings],
    smoothing: Smoothing,
    choice: Choice | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``analysis.html``, ``analysis.json`` and ``figures/*.png``, and return the page.

    Args:
        folder: where to write; created if it does not exist, older files are replaced.
        models: one model, or a sorting model and its twin.
        smoothing: the result of :func:`~slicegraph.analysis.softmax_smoothing`.
        choice: the layer and the channel to draw.
        facts: names and values for the top of the page, such as the data.
    """
    choice, facts, first = choice or Choice(), facts or {}, models[0]
    if not 1 <= choice.layer <= len(first.traces):
        raise ValueError(
            f"analyze: {first.name} has no layer {choice.layer}, they are 1..{len(first.traces)}"
        )
    layer = first.traces[choice.layer - 1]
    permutation, plots = None, []
    if layer.unordered is not None and layer.order is not None:
        sources = implicit_permutation(layer.order, layer.unordered, choice.channel).numpy()
        permutation = {"sample": first.sample, **vars(choice), "sources": sources}
        where = f"layer {choice.layer}, channel {choice.channel}, {first.drawn}"
        values = layer.unordered[:, choice.channel].float().numpy()
        plots = list(_permutation_plots(where, layer.order.name, values, sources))
    along, sliced = _slice_plot(layer, choice, first.drawn)
    numbers: dict[str, Any] = {"facts": dict(facts), "models": []}
    for model in models:
        layers = [{"layer": i} | asdict(part) for i, part in enumerate(model.layers, start=1)]
        ranks = {"effective_rank": model.effective_rank, "layers": layers}
        numbers["models"].append({"name": model.name, "mixer": model.mixer, **ranks})
    numbers |= {"permutation": permutation, "slice": along, "softmax": asdict(smoothing)}
    path = Path(folder) / "analysis.html"
    write_page(path, _page(models, smoothing, plots, sliced, facts))
    text = json.dumps(numbers, indent=1, default=np.ndarray.tolist)
    write_atomically(path.with_suffix(".json"), [text.encode()])
    return path


def _page(
    models: Sequence[Findings],
    smoothing: Smoothing,
    permuted: list[Plot],
    sliced: list[Plot],
    facts: Mapping[str, Any],
) -> Page:
    first, *others = models
    title = " and ".join(model.name for model in models)
    against = "".join(f"against {number(twin.effective_rank)}, {twin.mixer}" for twin in others)
    heat = [plot for i, model in enumerate(models, 1) for plot in _heat_plots(f"rows-{i}", model)]
    head, *rows = rank_table(models)
    ranks: Part = {"text": _RANK, "head": head, "rows": rows, "names": 1}
    ranks["plots"] = list(_comparison_plots(models))
    smooth: Part = {"text": _SMOOTHING, "plots": [_smoothing_plot(smoothing)]}
    permutation: list[Part] = [{"text": _PERMUTATION, "plots": permuted}] if permuted else []
    along: list[Part] = [{"text": _SLICE, "plots": sliced}] if sliced else []
    return Page(
        title=f"{title}: analysis",
        heading=title,
        what=f"mean effective rank of the mixed rows, {first.mixer}",
        value=number(first.effective_rank),
        unit=f"\N{NO-BREAK SPACE}{against}" if against else "",
        facts=facts,
        sections=[
            ("Singular spectrum", [{"text": _SPECTRUM, "plots": list(_spectrum_plots(models))}]),
            ("Effective rank", [ranks]),
            ("Rows of one sample", [{"plots": heat}]),
            ("Implicit permutation", permutation),
            ("Attention along a slice", along),
            ("Why attention smooths", [smooth]),
        ],
    )


def rank_table(models: Sequence[Findings]) -> list[list[Any]]:
    """A head and a row for each layer, with three columns for each model."""
    names = ("rank", "first share", "block rank")
    table: list[list[Any]] = [["layer", *(f"{m.name} {name}" for m in models for name in names)]]
    for count, layers in enumerate(zip_longest(*(model.layers for model in models)), start=1):
        table.append([str(count)])
        for layer in layers:
            mixed, block = (None, None) if layer is None else (layer.mixed, layer.block)
            table[-1] += [mixed and mixed.effective_rank, mixed and mixed.first_share]
            table[-1].append(block and block.effective_rank)
    return table


def decay_table(models: Sequence[Findings]) -> list[list[Any]]:
    """A head and the spectra of the mixed rows by layer, a row for each model with that layer."""
    longest = max(len(layer.mixed.spectrum) for model in models for layer in model.layers)
    places = [k for k in _SHOWN if k <= longest]
    table: list[list[Any]] = [["layer", "model", "rank", *(f"s{k}/s1" for k in places), "area"]]
    for count, layers in enumerate(zip_longest(*(model.layers for model in models)), start=1):
        for model, layer in zip(models, layers, strict=True):
            if layer is not None:
                values = dict(enumerate(layer.mixed.spectrum.tolist(), start=1))
                rank, shown = layer.mixed.effective_rank, map(values.get, places)
                area = float(layer.mixed.spectrum.sum())  # the larger, the slower the decay
                table.append([str(count), model.name, rank, *shown, area])
    return table


def table_lines(models: Sequence[Findings]) -> list[str]:
    """Format the ranks as a text table; for a model and its twin also their spectra."""
    means = [value for model in models for value in (model.effective_rank, None, None)]
    lines = _aligned([*rank_table(models), ["mean", *means]])
    if len(models) < 2:
        return lines
    model, twin = models
    areas = [[layer.mixed.spectrum.sum() for layer in each.layers] for each in models]
    slower = [own > other for own, other in zip(*areas, strict=False)]
    return [
        *lines,
        "",
        *_aligned(decay_table(models)),
        f"the spectrum of {model.name} decays more slowly than that of {twin.name} in "
        f"{sum(slower)} of {len(slower)} layers, by the area under sigma_k / sigma_1",
    ]


def _aligned(table: list[list[Any]]) -> list[str]:
    cells = [list(map(cell, row)) for row in table]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in cells]


def _spectrum_plots(models: Sequence[Findings]) -> Iterator[Plot]:
    """The spectra of all layers, one figure for each model."""
    longest = max(len(model.spectrum) for model in models)
    for place, model in enumerate(models):

        def draw(axes: Axes, theme: Theme, model: Findings = model, place: int = place) -> None:
            ramp = theme.ramp(theme.background, (theme.first, theme.second)[place])
            spectra = [layer.mixed.spectrum for layer in model.layers]
            colours = map(to_hex, ramp(np.linspace(1, 0.3, len(spectra))[::-1]))
            names: list[Any] = ["layer 1", *[None] * (len(spectra) - 2), f"layer {len(spectra)}"]
            _draw_spectra(axes, theme, longest, zip(spectra, colours, names, strict=False))

        first, last = model.layers[0].mixed, model.layers[-1].mixed
        note = (
            f"{model.mixer}: singular values of the mixed rows, divided by the largest. The "
            f"largest has {first.first_share:.1%} of the sum of squares in the first layer and "
            f"{last.first_share:.1%} in the last."
        )
        title = f"Singular spectrum of every layer, {model.name}"
        yield Plot(f"spectrum-{place + 1}", title, note, draw, wide=len(models) == 1)


def _comparison_plots(models: Sequence[Findings]) -> Iterator[Plot]:
    """Effective rank by layer, and for two models their mean spectra in one figure."""

    def draw_ranks(axes: Axes, theme: Theme) -> None:
        for model, colour in zip(models, (theme.first, theme.second), strict=False):
            layers = np.arange(1, len(model.layers) + 1)
            mixed = [layer.mixed.effective_rank for layer in model.layers]
            block = [layer.block.effective_rank for layer in model.layers]
            axes.plot(layers, mixed, "o-", color=colour, linewidth=1.6, label=model.name)
            axes.plot(layers, block, "o--", color=colour, linewidth=1.0, alpha=0.6, markersize=3)
        axes.set_ylim(bottom=0, top=1.25 * axes.get_ylim()[1])
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        label(axes, theme, "layer", "effective rank", legend={})

    def draw_means(axes: Axes, theme: Theme) -> None:
        spectra, names = [model.spectrum for model in models], [model.name for model in models]
        curves = zip(spectra, (theme.first, theme.second), names, strict=True)
        _draw_spectra(axes, theme, max(map(len, spectra)), curves)

    means = ", ".join(f"{model.name} {number(model.effective_rank)}" for model in models)
    note = f"Mean over the layers: {means}. Dashed: the rows after the whole block."
    yield Plot("rank", "Effective rank by layer", note, draw_ranks, wide=len(models) == 1)
    if len(models) > 1:
        note = "Singular values of the mixed rows, divided by the largest; mean over the layers."
        yield Plot("spectrum-mean", "Mean spectrum", note, draw_means)


def _draw_spectra(axes: Axes, theme: Theme, longest: int, curves: Iterable[Any]) -> None:
    """Draw spectra, each with its colour and its name or None."""
    for spectrum, colour, name in curves:
        seen = spectrum[spectrum >= _FLOOR]
        style: Any = {"color": colour, "marker": "o" if len(spectrum) <= 32 else None}
        x = np.arange(1, len(seen) + 1)
        axes.plot(x, seen, label=name, linewidth=1.4, markersize=2.5, **style)
    margin = 0.02 * longest
    axes.set(yscale="log", ylim=(_FLOOR, 1.5), xlim=(1 - margin, longest + margin))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    label(axes, theme, "number of the singular value", "relative to the largest", legend={})


def _heat_plots(name: str, model: Findings) -> Iterator[Plot]:
    """The sorted rows of every layer, or the mixed rows if the model does not sort.

    For layers that read quantiles, also the rows before sorting.
    """
    if all(layer.ordered is None for layer in model.traces):
        plots = [("", "Attention outputs", "mixed", "attention output of each layer")]
    elif all(layer.mixer.context is None for layer in model.traces):
        plots = [("", "Sorted outputs", "ordered", "sorted rows of each layer")]
    else:
        what = "attention output of each layer, before its channels are sorted"
        plots = [("-unordered", "Attention outputs", "unordered", what)]
        what = "the same with every channel sorted, as each layer reads its quantiles"
        plots.append(("", "Sorted channels", "ordered", what))
    for ending, title, field, what in plots:
        found = [getattr(layer, field) for layer in model.traces]
        shown = [rows.float().numpy() for rows in found if rows is not None]
        title, what = f"{title}, {model.name}", f"{model.mixer}: {what}, {model.drawn}"
        yield _heat_plot(f"{name}{ending}", title, what, shown)


def _heat_plot(name: str, title: str, what: str, shown: list[np.ndarray]) -> Plot:
    rows, channels = shown[0].shape
    each = max(1, min(channels, _MOST_COLUMNS // len(shown)))
    gap = max(1, round(each * len(shown) / 80))
    columns: list[np.ndarray] = []
    for values in shown:
        scale = np.quantile(np.abs(values[:, :each]), 0.99) or 1
        columns += [values[:, :each] / scale, np.full((rows, gap), np.nan)]
    image = np.concatenate(columns[:-1], axis=1)

    def draw(axes: Axes, theme: Theme) -> None:
        colours = theme.ramp(theme.second, theme.background, theme.first)
        axes.imshow(image, colours, aspect="auto", interpolation="nearest", vmin=-1, vmax=1)
        places = (each - 1) / 2 + np.arange(len(shown)) * (each + gap)
        titles = [f"layer {count}" for count in range(1, len(shown) + 1)]
        axes.set_xticks(places, titles, fontsize=FONT - 0.5)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.spines["bottom"].set_visible(False)
        label(axes, theme, "", "row", grid="none")

    first = "all" if each == channels else f"the first {each} of"
    note = f"{what}. Columns: {first} {channels} channels; rows: the {rows} rows of the sample."
    return Plot(name, title, f"{note} Each layer has its own colour scale.", draw, wide=True)


def _permutation_plots(
    where: str, order: str, before: np.ndarray, sources: np.ndarray
) -> Iterator[Plot]:
    """The permutation of a channel as a matrix, and its values before and after the sort."""
    rows = np.arange(len(sources))

    def draw_matrix(axes: Axes, theme: Theme) -> None:
        size = float(np.clip(160 / len(rows), 0.5, 6))
        axes.plot(rows, rows, color=theme.line, linewidth=1.2)
        axes.plot(sources, rows, "o", color=theme.first, markersize=size, markeredgewidth=0)
        axes.set(ylim=(len(rows) - 0.5, -0.5), xlim=(-0.5, len(rows) - 0.5))
        axes.locator_params(nbins=6, integer=True)
        label(axes, theme, "row before the sort", "row after the sort")

    def draw_values(axes: Axes, theme: Theme) -> None:
        axes.step(rows, before, where="mid", color=theme.second, label="before", linewidth=1.2)
        after = before[sources]
        axes.step(rows, after, where="mid", color=theme.first, label="after", linewidth=1.2)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, top + 0.3 * (top - bottom))
        label(axes, theme, "row", "value", legend={})

    note = (
        "A dot connects a row after the sort with the row that its value comes from; "
        f"{(sources == rows).sum()} of {len(rows)} rows stay in place."
    )
    yield Plot("permutation", f"Permutation of {where}", note, draw_matrix)
    note = f"Order {order}: the same {len(rows)} values in other rows."
    yield Plot("channel", f"Values of {where}", note, draw_values)


def _slice_plot(
    layer: LayerTrace, choice: Choice, sample: str
) -> tuple[dict[str, Any] | None, list[Plot]]:
    """The attention weights of the slice of a channel, in the order of its keys, if it has one."""
    kernel = layer.mixer.slices
    if layer.keys is None or kernel is None or kernel.log_tau is None:
        return None, []
    width = layer.mixer.hidden_channels // kernel.slices
    if not 0 <= choice.channel < layer.mixer.hidden_channels:
        last = layer.mixer.hidden_channels - 1
        raise ValueError(f"there is no channel {choice.channel}, they are 0..{last}")
    place = choice.channel // width
    tau = kernel.log_tau.detach().float().exp()[place].cpu()
    weights = slice_weights(layer.keys[:, place].float().cpu(), tau)
    read = float(torch.special.entr(weights).sum(1).exp().mean()) if len(weights) else 0.0
    image = weights.numpy()

    def draw(axes: Axes, theme: Theme) -> None:
        top = float(np.quantile(image, 0.99)) if image.size else 1.0
        axes.imshow(image, theme.ramp(), interpolation="nearest", vmin=0, vmax=top or 1.0)
        axes.locator_params(nbins=6, integer=True)
        label(axes, theme, "rank of the row that is read", "rank of the row", grid="none")

    note = f"τ = {float(tau):.3g}; a row reads {read:.1f} of {len(weights)} rows on average."
    title = f"Weights of slice {place}, layer {choice.layer}, {sample}"
    numbers = {**vars(choice), "slice": place, "tau": float(tau), "rows_read": read}
    return numbers, [Plot("slice", title, note, draw)]


def _smoothing_plot(found: Smoothing) -> Plot:
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
        for name, values, colour, style in curves:
            axes.plot(n, values, style, color=colour, linewidth=1.3, markersize=3, label=name)
        axes.set(xscale="log", yscale="log", xlim=(n[0] * 0.9, n[-1] * 1.1))
        right = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "handlelength": 1.6}
        scores = "of a softmax of N normal scores"
        label(axes, theme, "N, rows to attend to", scores, legend=right)

    first, last = found.counts[[0, -1]]
    note = (
        f"From N = {first:,} to {last:,} the largest weight falls from {found.largest[0]:.2f} to "
        f"{found.largest[-1]:.1e}, and differences between rows shrink to {found.spread[-1]:.1e} "
        "of their size."
    )
    return Plot("softmax", "A softmax over N rows", note, draw, wide=True)
