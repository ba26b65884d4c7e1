r"""How fast the spectra of a model and of its twin decay, layer by layer.

The measure is the area under the normalised spectrum of what a layer mixes,

.. math:: A = \sum_k \sigma_k / \sigma_1,

the mean over the samples: 1 if all rows are multiples of one another, the number of singular values
if these are equal. Of two layers, that with the larger area decays more slowly.
"""

from collections.abc import Sequence
from typing import Any

from slicegraph.analysis.findings import Findings, Measures

SHOWN = (2, 4, 8, 16, 32)
"""The places :math:`k` of the spectrum that are printed, as far as they exist."""


def spectrum_area(measures: Measures) -> float:
    r"""The area :math:`\sum_k \sigma_k / \sigma_1` under a spectrum."""
    return float(measures.spectrum.sum())


def decay_rows(models: Sequence[Findings]) -> tuple[list[str], list[list[Any]]]:
    """The head and the rows of a table: layer by layer, a row for each model that has it."""
    longest = max(len(layer.mixed.spectrum) for model in models for layer in model.layers)
    places = [k for k in SHOWN if k <= longest]
    head = ["layer", "model", "rank", *(f"s{k}/s1" for k in places), "area"]
    rows = [
        [str(number + 1), model.name, *_values(model.layers[number].mixed, places)]
        for number in range(max(len(model.layers) for model in models))
        for model in models
        if number < len(model.layers)
    ]
    return head, rows


def _values(measures: Measures, places: Sequence[int]) -> list[float | None]:
    spectrum = measures.spectrum
    shown = [float(spectrum[k - 1]) if k <= len(spectrum) else None for k in places]
    return [measures.effective_rank, *shown, spectrum_area(measures)]


def slower_layers(model: Findings, twin: Findings) -> tuple[int, int]:
    """In how many layers the model's spectrum decays more slowly, and how many both have."""
    pairs = list(zip(model.layers, twin.layers, strict=False))
    slower = [spectrum_area(own.mixed) > spectrum_area(other.mixed) for own, other in pairs]
    return sum(slower), len(pairs)
