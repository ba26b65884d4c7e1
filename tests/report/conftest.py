"""Figures are small and drawn once in these tests, except where they themselves are tested."""

import pytest
from support.small_figures import make_figures_small

from slicegraph.report import write


@pytest.fixture(autouse=True)
def small_figures(request, monkeypatch):
    if "figures" not in request.module.__name__:
        make_figures_small(monkeypatch, write)
