"""A quick `slicegraph analyze`, and the numbers that it writes."""

import json
from pathlib import Path

import pytest
from support.small_figures import make_figures_small

from slicegraph.analysis import softmax_smoothing


def make_analysis_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sketch the figures, and take the softmax of few scores."""
    make_figures_small(monkeypatch)
    monkeypatch.setattr(softmax_smoothing, "__defaults__", ((10, 100), 2, 1.0, 0))


def numbers(folder: Path) -> dict:
    return json.loads((folder / "analysis.json").read_text())
