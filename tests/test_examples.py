"""Every example runs from beginning to end and prints what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
LINES = {
    "sort_a_set.py": "Same as sorted alone, without padding: True",
    "pyg_layer.py": "GPSConv, SliceSortConv",
    "compare_mixers.py": "mixer           formula",
    "point_cloud.py": "Same answers with the points in another order: True",
    "images.py": "The first reads [",
    "text.py": "it heeds ",
    "long_range.py": "tokens  sort: ms a step  attention  times",
}
TOY_SIZES = {
    "point_cloud.py": ["--clouds", "96", "--epochs", "1"],
    "images.py": ["--images", "100", "--epochs", "1"],
    "text.py": ["--data", "generated", "--texts", "64", "--epochs", "1"],
    "long_range.py": ["--steps", "2", "--lengths", "100"],
}


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(LINES)


@pytest.mark.parametrize("name", LINES)
def test_the_example_runs_and_prints_its_result(name):
    command = [sys.executable, str(EXAMPLES / name), *TOY_SIZES.get(name, [])]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert LINES[name] in run.stdout
