"""A run folder; figures are only sketched, except in the tests that are about figures."""

import pytest
from report.sample_run import write_run
from support.small_figures import make_figures_small


@pytest.fixture(autouse=True)
def small_figures(request, monkeypatch):
    if "plots" not in request.module.__name__:
        make_figures_small(monkeypatch)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")
