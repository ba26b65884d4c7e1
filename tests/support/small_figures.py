"""Figures for tests that are not about figures: small, and drawn once for both themes."""

from types import ModuleType

import pytest

from slicegraph.report import plot


def make_figures_small(monkeypatch: pytest.MonkeyPatch, writer: ModuleType) -> None:
    """`writer` is the module that turns plots into pictures."""
    monkeypatch.setattr(plot, "DPI", 20)
    monkeypatch.setattr(writer, "picture", _drawn_once)


def _drawn_once(figure: plot.Plot) -> plot.Picture:
    png = plot.render(figure, plot.LIGHT)
    return plot.Picture(figure, png, png)
