"""The numbers of a model: the spectrum and the rank of each of its mixing layers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from slicegraph.analysis.gathered import Gathered
from slicegraph.analysis.spectrum import effective_rank, first_share, relative_spectrum
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
    """A model by name, with its formula, and what was measured of its layers.

    Args:
        name, mixer: the model and its formula.
        layers: of all samples.
        traces: the layers with the rows of the sample that is drawn, of a pair the first text's.
        sample: the number of that sample, from 0.
        towers: how many sequences a sample has, 2 for pairs.
        sizes: the number of rows of every sequence, image or graph.
    """

    name: str
    mixer: str
    layers: list[LayerFindings]
    traces: list[LayerTrace]
    sample: int = 0
    towers: int = 1
    sizes: tuple[int, ...] = ()

    @property
    def drawn(self) -> str:
        """Whose rows are drawn, in words."""
        return f"{'the first text of pair' if self.towers == 2 else 'sample'} {self.sample}"

    @property
    def sorts(self) -> bool:
        """Whether the model has layers that sort."""
        return any(layer.ordered is not None for layer in self.traces)

    @property
    def reads_quantiles(self) -> bool:
        """Whether its layers sort to read quantiles, and leave the rows in their places."""
        return any(layer.mixer.context is not None for layer in self.traces)

    @property
    def effective_rank(self) -> float:
        """Of what is mixed, the mean over the layers."""
        return float(np.mean([layer.mixed.effective_rank for layer in self.layers]))

    @property
    def spectrum(self) -> np.ndarray:
        """Of what is mixed, the mean over the layers."""
        return np.mean([layer.mixed.spectrum for layer in self.layers], axis=0)


def measure(
    name: str, parts: Iterable[list[LayerTrace]], sample: int = 0, towers: int = 1
) -> Findings:
    """The findings of a model that was traced.

    Args:
        name: what to call it.
        parts: as :func:`~slicegraph.analysis.trace` gives them, for a few samples at a time: only
            the rows of one sample are kept.
        sample: the number of that sample, from 0.
        towers: how many sequences a sample has, 2 for pairs.
    """
    found = Gathered(name, chosen=sample * towers)
    for layers in parts:
        found.add(layers)
    check_sample(sample, len(found.sizes) // towers)
    layers = found.kept
    measured = [
        LayerFindings(
            _measures(found.values(f"layer {number}")), _measures(found.values(f"block {number}"))
        )
        for number in range(1, len(layers) + 1)
    ]
    mixers = ", ".join(dict.fromkeys(map(_formula, layers)))
    return Findings(name, mixers, measured, layers, sample, towers, tuple(found.sizes))


def check_sample(sample: int, count: int) -> None:
    """Raises an error if there is no such sample among so many."""
    if not 0 <= sample < count:
        raise ValueError(f"analyze: there is no sample {sample}, they are 0..{count - 1}")


def _formula(layer: LayerTrace) -> str:
    order = layer.mixer.order
    return layer.mixer.mixer if order is None else f"{layer.mixer.mixer} {order.name}"


def _measures(values: Tensor) -> Measures:
    return Measures(
        float(effective_rank(values).mean()),
        float(first_share(values).mean()),
        relative_spectrum(values).numpy(),
    )
