"""`slicegraph analyze` in a moment, and what it has found."""

import json
from pathlib import Path

import pytest
from support.small_figures import make_figures_small

from slicegraph.analysis import smoothing, write


def make_analysis_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small figures, and the softmax of few scores."""
    make_figures_small(monkeypatch, write)
    monkeypatch.setattr(smoothing.softmax_smoothing, "__defaults__", ((10, 100), 2, 1.0, 0))


def numbers(folder: Path) -> dict:
    return json.loads((folder / "analysis.json").read_text())
