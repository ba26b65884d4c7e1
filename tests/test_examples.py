"""Every example is short, runs from beginning to end and prints what it promises."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
LINES = {
    "sort_a_set.py": "Same as sorted alone, without padding: True",
    "pyg_layer.py": "GPSConv, SliceSortConv",
    "compare_mixers.py": "mixer           formula",
    "distance_bias.py": "the same after saving and loading: True",
    "point_cloud.py": "Same answers with the points in another order: True",
    "images.py": "The first reads [",
    "text.py": "it heeds ",
    "long_range.py": "tokens  sort: ms a step  attention  times",
}
TOY_SIZES = {
    "compare_mixers.py": ["--epochs", "2"],
    "distance_bias.py": ["--epochs", "2"],
    "pyg_layer.py": ["--epochs", "2"],
    "point_cloud.py": ["--clouds", "960", "--epochs", "2"],
    "images.py": ["--images", "100", "--epochs", "1"],
    "text.py": ["--data", "generated", "--texts", "64", "--epochs", "1"],
    "long_range.py": ["--steps", "2", "--lengths", "100"],
}
SURFACES = 6


@cache
def output_of(name: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *TOY_SIZES.get(name, [])]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(LINES)


@pytest.mark.parametrize("name", LINES)
def test_the_example_has_fewer_than_120_lines(name):
    assert len((EXAMPLES / name).read_text().splitlines()) < 120


@pytest.mark.parametrize("name", LINES)
def test_the_example_runs_and_prints_its_result(name):
    assert LINES[name] in output_of(name)


@pytest.mark.parametrize("name", sorted(TOY_SIZES))
def test_nothing_to_train_is_an_error_that_says_so(name):
    option = "--steps" if name == "long_range.py" else "--epochs"
    command = [sys.executable, str(EXAMPLES / name), option, "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 2
    assert f"{option} 0" in run.stderr
    assert "expected at least 1" in run.stderr


def test_a_few_updates_tell_surfaces_apart_far_better_than_chance():
    *_, last = re.findall(r"epoch +\d+: ([\d.]+)% of 600 new clouds", output_of("point_cloud.py"))
    assert float(last) / 100 > 3 / SURFACES
