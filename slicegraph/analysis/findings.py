"""The numbers of a model: the spectrum and the rank of each of its mixing layers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from slicegraph.analysis.spectrum import (
    effective_rank,
    first_share,
    relative_spectrum,
    singular_values,
)
from slicegraph.analysis.trace import LayerTrace


@dataclass(frozen=True)
class Measures:
    """A matrix of rows, the mean over the samples.

    Args:
        effective_rank: see :func:`~slicegraph.analysis.effective_rank`.
        first_share: the share of the largest singular value in the sum of squares.
        spectrum: ``[K]``, singular values over the largest one.
    """

    effective_rank: float
    first_share: float
    spectrum: np.ndarray

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "effective_rank": self.effective_rank,
            "first_share": self.first_share,
            "spectrum": self.spectrum.tolist(),
        }


@dataclass(frozen=True)
class LayerFindings:
    """What a layer mixed, before its output projection, and the rows after its block."""

    mixed: Measures
    block: Measures


@dataclass(frozen=True)
class Findings:
    """A model by name, with its formula, its layers, and what was measured of each of them."""

    name: str
    mixer: str
    layers: list[LayerFindings]
    traces: list[LayerTrace]

    @property
    def sorts(self) -> bool:
        """Whether the model has layers that sort."""
        return any(layer.ordered is not None for layer in self.traces)

    @property
    def effective_rank(self) -> float:
        """Of what is mixed, the mean over the layers."""
        return float(np.mean([layer.mixed.effective_rank for layer in self.layers]))

    @property
    def spectrum(self) -> np.ndarray:
        """Of what is mixed, the mean over the layers."""
        return np.mean([layer.mixed.spectrum for layer in self.layers], axis=0)


def measure(name: str, traces: list[LayerTrace]) -> Findings:
    """The findings of a model that was traced.

    Args:
        name: what to call it.
        traces: as :func:`~slicegraph.analysis.trace` gives them.
    """
    mixers = dict.fromkeys(_formula(layer) for layer in traces)
    layers = [
        LayerFindings(
            _measures(f"{name}: layer {number}", layer.mixed, layer.ptr),
            _measures(f"{name}: block {number}", layer.block, layer.ptr),
        )
        for number, layer in enumerate(traces, start=1)
    ]
    return Findings(name, ", ".join(mixers), layers, traces)


def _formula(layer: LayerTrace) -> str:
    order = layer.mixer.order
    return layer.mixer.mixer if order is None else f"{layer.mixer.mixer} {order.name}"


def _measures(what: str, rows: Tensor, ptr: Tensor) -> Measures:
    if not bool(rows.isfinite().all()):
        raise ValueError(f"{what} has an output that is not finite; was the training stopped?")
    values = singular_values(rows, ptr)
    return Measures(
        float(effective_rank(values).mean()),
        float(first_share(values).mean()),
        relative_spectrum(values).numpy(),
    )
