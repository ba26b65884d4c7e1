"""`slicegraph.train` is a function and a package, whatever is imported first."""

import subprocess
import sys
from itertools import permutations

import pytest

import slicegraph
from slicegraph.registry import predictor_class

IMPORTS = (
    "import slicegraph",
    "import slicegraph.train",
    "import slicegraph.train.config",
    "from slicegraph.train import TrainConfig",
    "from slicegraph import train",
    "import slicegraph.train.config as config",
)


def in_process(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_function_is_the_package_in_every_order_of_imports():
    # In one process, each order with the modules of the package removed.
    code = f"""
import sys
for lines in {list(permutations(IMPORTS, 2))!r}:
    for name in [name for name in sys.modules if name.split(".")[0] == "slicegraph"]:
        del sys.modules[name]
    scope = {{}}
    for line in lines:
        exec(line, scope)
    import slicegraph
    assert callable(slicegraph.train), lines
    assert slicegraph.train.TrainConfig is sys.modules["slicegraph.train.config"].TrainConfig
    assert slicegraph.train.config is sys.modules["slicegraph.train.config"]
    assert scope.get("train", slicegraph.train) is slicegraph.train
    assert scope.get("config", slicegraph.train.config) is slicegraph.train.config
assert "torch" not in sys.modules
"""
    in_process(code)


def test_training_on_molecules_imports_no_tasks():
    in_process("""
import sys, slicegraph
try:
    slicegraph.train({"data": "moon", "accelerator": "cpu"}, progress=False)
except ValueError as error:
    assert "no data set 'moon'" in str(error), error
assert slicegraph.train.train is sys.modules["slicegraph.train.run"].train
unwanted = ("slicegraph.tasks", "slicegraph.cli", "slicegraph.report")
assert not [name for name in sys.modules if name.startswith(unwanted)]
""")


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"slicegraph\.train' has no attribute 'nonsense'"):
        slicegraph.train.nonsense  # noqa: B018


def test_a_model_without_a_predictor_is_named():
    with pytest.raises(ValueError, match=r"no predictor for a model of class 'Tree', only for Gra"):
        predictor_class("Tree")
