"""Writes the page of an analysis, its figures and its numbers."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from slicegraph.analysis.findings import Findings
from slicegraph.analysis.page import Choice, page, plots
from slicegraph.analysis.permutation import implicit_permutation
from slicegraph.analysis.smoothing import Smoothing
from slicegraph.report.document import replace, write_document
from slicegraph.report.plot import picture


def write_analysis(
    folder: str | Path,
    models: Sequence[Findings],
    smoothing: Smoothing,
    choice: Choice | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Makes ``analysis.html``, ``analysis.json`` and ``figures/*.png``.

    The page is one file that needs no other one and no network.

    Args:
        folder: where to write; created if it does not exist, older files are replaced.
        models: one model, or a sorting model and its twin.
        smoothing: as :func:`~slicegraph.analysis.softmax_smoothing` gives it.
        choice: the layer and the channel to draw.
        facts: names and values for the top of the page, such as the data.

    Returns:
        The path of the page.
    """
    choice = _checked(choice or Choice(), models[0])
    figures = [[picture(plot) for plot in part] for part in plots(models, smoothing, choice)]
    place = Path(folder) / "analysis.html"
    write_document(place, page(models, facts or {}, figures), chain.from_iterable(figures))
    numbers = json.dumps(_numbers(models, smoothing, choice, facts or {}), indent=1)
    replace(place.with_suffix(".json"), numbers.encode())
    return place


def _checked(choice: Choice, model: Findings) -> Choice:
    if not 1 <= choice.layer <= len(model.traces):
        raise ValueError(
            f"analyze: {model.name} has no layer {choice.layer}, they are 1..{len(model.traces)}"
        )
    channels = model.traces[choice.layer - 1].mixed.shape[1]
    if not 0 <= choice.channel < channels:
        raise ValueError(
            f"analyze: layer {choice.layer} of {model.name} has no channel {choice.channel}, they "
            f"are 0..{channels - 1}"
        )
    return choice


def _numbers(
    models: Sequence[Findings], smoothing: Smoothing, choice: Choice, facts: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "facts": dict(facts),
        "models": [_of_model(model) for model in models],
        "permutation": _permutation(models[0], choice),
        "softmax": {name: values.tolist() for name, values in vars(smoothing).items()},
    }


def _of_model(model: Findings) -> dict[str, Any]:
    layers = [
        {"layer": number, "mixed": layer.mixed.as_dict(), "block": layer.block.as_dict()}
        for number, layer in enumerate(model.layers, start=1)
    ]
    return {
        "name": model.name,
        "mixer": model.mixer,
        "effective_rank": model.effective_rank,
        "layers": layers,
    }


def _permutation(model: Findings, choice: Choice) -> dict[str, Any] | None:
    layer = model.traces[choice.layer - 1]
    if layer.unordered is None or layer.order is None:
        return None
    found = implicit_permutation(layer.order, layer.unordered, choice.channel)
    return {"sample": model.sample, **vars(choice), "sources": found.tolist()}
