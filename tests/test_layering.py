"""Imports go one way: ops <- nn <- models <- train <- cli; nn and data never meet."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import slicegraph

# A layer may import itself, the version and these. Whoever adds a layer adds a line.
_FEEDS = {"ops", "transforms", "data", "metrics"}
_PREDICTION = {"predictor", "class_predictor", "prediction_table", "ranks"}
MAY_IMPORT = {
    "__init__": {"predictor", "train"},  # slicegraph.load and train, imported when asked for
    "__main__": {"cli"},
    "torch_damage": set(),
    "ops": set(),
    "nn": {"ops"},
    "models": {"ops", "nn", "torch_damage"},
    "testing": {"ops", "nn"},
    "transforms": {"ops"},
    "metrics": set(),
    "data": {"ops", "transforms", "metrics", "torch_damage"},
    "train": {"nn", "models", "torch_damage", *_FEEDS},
    "report": {"metrics"},
    "analysis": {"ops", "nn", "report"},
    "given_samples": {"data"},
    "class_predictor": {"models", "given_samples", *_FEEDS},
    "predictor": {"models", "class_predictor", *_FEEDS},
    "ranks": set(),
    "prediction_table": {"models", "predictor", "ranks", *_FEEDS},
    "cli": {"nn", "models", "train", "report", "analysis", *_PREDICTION, *_FEEDS},
}


def imported_modules(source: str, package: list[str]) -> Iterator[str]:
    """The absolute name of everything that a file of `package` imports, anywhere in the file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*parent, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def violations(root: Path) -> list[str]:
    """Each import under the package folder `root` that the table does not allow."""
    found = []
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root)
        layer = path.with_suffix("").parts[0]
        if layer not in MAY_IMPORT:
            found.append(f"{path}: the layer {layer} is not in the table")
            continue
        for name in imported_modules(file.read_text(), ["slicegraph", *path.parts[:-1]]):
            if not _allowed(name, layer, path):
                found.append(f"{path}: imports {name}")
    return found


def _allowed(name: str, layer: str, path: Path) -> bool:
    top, *rest = name.split(".")
    if top == "slicegraph":
        target = rest[0] if rest else ""
        return target not in MAY_IMPORT or target in MAY_IMPORT[layer] | {layer}
    if layer != "ops":
        return True
    own = {"torch", "triton"} if "backends" in path.parts else {"torch"}
    return top in sys.stdlib_module_names or top in own


def test_every_import_goes_downwards():
    assert violations(Path(slicegraph.__file__).parent) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("ops/column_sort.py", "from slicegraph.nn import SliceSort"),
        ("ops/column_sort.py", "import numpy"),
        ("ops/column_sort.py", "import triton"),
        ("nn/slice_sort.py", "from slicegraph.data import collate"),
        ("nn/slice_sort.py", "import slicegraph.models.graph"),
        ("nn/slice_sort.py", "from slicegraph import data"),
        ("nn/slice_sort.py", "from .. import data"),
        ("nn/slice_sort.py", "def late():\n    from ..data.store import Store"),
        ("data/collate.py", "from slicegraph.nn import SliceSort"),
        ("transforms/paths.py", "from slicegraph.models import GraphSliceformer"),
        ("metrics.py", "import slicegraph.train"),
        ("models/graph.py", "from slicegraph.cli import main"),
        ("__init__.py", "from slicegraph.ops import column_sort"),
        ("brandnew/thing.py", "import torch"),
    ],
)
def test_an_import_in_the_wrong_direction_is_found(tmp_path, file, line):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(line)
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("ops/column_sort.py", "import os\nimport torch.nn\nfrom slicegraph.ops.sets import rows"),
        ("ops/backends/triton.py", "import triton.language as tl"),
        ("nn/slice_sort.py", "from ..ops import column_sort\nfrom .readout import Readout"),
        ("train/module.py", "from slicegraph import __version__, data, models"),
        ("cli/info.py", "from slicegraph import __version__"),
    ],
)
def test_an_import_in_the_right_direction_is_not(tmp_path, file, line):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(line)
    assert violations(tmp_path) == []
