"""Figures are small and drawn once in these tests, except where they themselves are tested."""

import pytest

from slicegraph.report import plot, write


@pytest.fixture(autouse=True)
def small_figures(request, monkeypatch):
    if "figures" not in request.module.__name__:
        monkeypatch.setattr(plot, "DPI", 20)
        monkeypatch.setattr(write, "picture", _drawn_once)


def _drawn_once(figure: plot.Plot) -> plot.Picture:
    png = plot.render(figure, plot.LIGHT)
    return plot.Picture(figure, png, png)
