"""The page of an analysis: the order of its parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from slicegraph.analysis.findings import Findings
from slicegraph.analysis.row_plots import heat_plots, permutation_plots
from slicegraph.analysis.smoothing import Smoothing
from slicegraph.analysis.smoothing_plot import smoothing_plot
from slicegraph.analysis.spectrum_plots import comparison_plots, spectrum_plots
from slicegraph.report.document import document
from slicegraph.report.markup import gallery, pairs, paragraph, section, table
from slicegraph.report.numbers import number
from slicegraph.report.plot import Picture, Plot

_SPECTRUM = (
    "The matrix is what a layer mixes, before its output projection, for one sample: a row for "
    "each element, a column for each channel. Its singular values are divided by the largest and "
    "averaged over the samples. A spectrum that falls at once has rows that are nearly multiples "
    "of one another."
)
_RANK = (
    "With p the singular values over their sum, the effective rank is exp(-Σ p log p): n for n "
    "equal singular values, 1 for a matrix of rank one. The first share is the square of the "
    "largest over the sum of squares. Both are means over the samples; “block” is of the rows "
    "after the whole block, with its residuals."
)
_PERMUTATION = (
    "Sorting a channel multiplies it by a permutation matrix, where attention multiplies all the "
    "channels of a head by one matrix of positive weights. With align “pivot” it is the "
    "permutation of the sort itself, before its rows are handed to the nodes. With “quantile_attn” "
    "the sorted channel is read at its quantiles, a mixture of them is added to every row, and the "
    "rows stay in their places."
)
_SMOOTHING = (
    "Scores s ~ Normal(0, 1), as those of independent queries and keys of variance 1; w = "
    "softmax(s). For large N the largest weight is about exp(√(2 ln N) - 1/2) / N, exp(-entropy) "
    "is √e / N, and the length of w, the deviation of the weighted mean of independent values of "
    "deviation 1, is √(e / N): what is left of the differences of rows. A row of a permutation "
    "matrix has 1 in all three, for every N."
)


@dataclass(frozen=True)
class Choice:
    """Whose permutation is drawn: a layer, from 1, and a channel, from 0."""

    layer: int = 1
    channel: int = 0


def plots(models: Sequence[Findings], smoothing: Smoothing, choice: Choice) -> list[list[Plot]]:
    """The figures of each section: spectra, ranks, rows, permutation, softmax."""
    heat = [plot for i, model in enumerate(models, 1) for plot in heat_plots(f"rows-{i}", model)]
    permuted: list[Plot] = []
    if models[0].sorts:
        permuted += permutation_plots(models[0], choice.layer, choice.channel)
    return [
        list(spectrum_plots(models)),
        list(comparison_plots(models)),
        heat,
        permuted,
        [smoothing_plot(smoothing)],
    ]


def page(
    models: Sequence[Findings], facts: Mapping[str, Any], figures: Sequence[Sequence[Picture]]
) -> str:
    """The whole page as HTML."""
    spectra, ranks, rows, permuted, smoothing = map(gallery, figures)
    title = " and ".join(model.name for model in models)
    parts = [
        _header(title, models, facts),
        section("Singular spectrum", paragraph(_SPECTRUM), spectra),
        section("Effective rank", paragraph(_RANK), rank_table(models), ranks),
        section("Rows of one sample", rows),
        section("Implicit permutation", paragraph(_PERMUTATION), permuted) if permuted else "",
        section("Why attention smooths", paragraph(_SMOOTHING), smoothing),
    ]
    return document(f"{title}: analysis", parts)


def rank_table(models: Sequence[Findings]) -> str:
    """A row for each layer, three columns for each model."""
    head, rows = rank_rows(models)
    return table(head, rows)


def rank_rows(models: Sequence[Findings]) -> tuple[list[str], list[list[Any]]]:
    """The head and the rows of the table of ranks."""
    head = ["layer"]
    for model in models:
        head += [f"{model.name} {what}" for what in ("rank", "first share", "block rank")]
    rows: list[list[Any]] = []
    for place in range(max(len(model.layers) for model in models)):
        rows.append([str(place + 1)])
        for model in models:
            rows[-1] += _cells(model, place)
    return head, rows


def _cells(model: Findings, place: int) -> list[float | None]:
    if place >= len(model.layers):
        return [None] * 3
    layer = model.layers[place]
    return [layer.mixed.effective_rank, layer.mixed.first_share, layer.block.effective_rank]


def _header(title: str, models: Sequence[Findings], facts: Mapping[str, Any]) -> str:
    first, *others = models
    against = "".join(f"against {number(twin.effective_rank)}, {twin.mixer}" for twin in others)
    return (
        f"<header>\n<h1>{escape(title)}</h1>\n"
        '<p class="headline"><span class="what">mean effective rank of what a layer mixes, '
        f'{escape(first.mixer)}</span> <span class="value">{number(first.effective_rank)}</span> '
        f'<span class="unit">&nbsp;{escape(against)}</span></p>\n{pairs(facts, "facts")}\n</header>'
    )
