"""Figures for tests that are not about figures: drawn once, and never rendered."""

import pytest
from matplotlib.figure import Figure

from slicegraph.report.plots import LIGHT, Plot, Theme


def make_figures_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicegraph.report.page.render", _sketch)


def _sketch(plot: Plot, theme: Theme) -> bytes:
    if theme is LIGHT:
        plot.draw(Figure().add_subplot(), theme)
    return b"\x89PNG " + plot.name.encode()
