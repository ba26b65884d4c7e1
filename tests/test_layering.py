"""Imports go one way, lazy and type-only ones included, and the layers import nothing heavy."""

import ast
import graphlib
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import slicegraph

# A room is a file or folder of the package; `data` is a room for each of its files. A room may
# import itself, the version of the package and these. A new room is a new line.
DATA = {"files", "data.smiles", "data.table", "data.cells", "data.columns", "data.store"}
ALL_DATA = {
    *DATA,
    "data",
    "data.pool",
    "data.molecules",
    "data.prepare",
    "data.descriptors",
    "data.batch",
    "data.splits",
    "data.summary",
    "data.datasets",
}
FEEDS = {*ALL_DATA, "extras", "ops", "transforms", "metrics", "registry", "vocabulary"}
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": {"predict", "train", "registry", "estimators"},  # imported lazily
    "__main__": {"cli"},
    "registry": set(),
    "vocabulary": set(),
    "files": set(),
    "extras": set(),
    "ops": set(),
    "nn": {"ops"},
    "models": {"ops", "nn", "files", "transforms", "vocabulary"},
    "graphgym": {"nn", "models", "vocabulary"},
    "testing": {"ops", "nn"},
    "transforms": {"ops"},
    "metrics": {"extras"},
    "data.smiles": {"vocabulary"},
    "data.table": {"files", "extras", "data.smiles"},
    "data.cells": {"data.table"},
    "data.columns": {"data.cells", "data.table"},
    "data.store": {"files", "data.smiles"},
    "data.pool": set(),
    "data.molecules": {"data.smiles", "data.pool"},
    "data.prepare": {*DATA, "data.pool", "data.molecules"},
    "data.descriptors": {*DATA, "data.pool", "data.molecules"},
    "data.batch": {*DATA, "ops", "transforms"},
    "data.splits": {"files", "data.cells", "data.columns", "data.molecules", "metrics"},
    "data.summary": {"data.smiles", "data.molecules", "data.splits", "data.store", "metrics"},
    "data.datasets": {
        *DATA,
        "data.molecules",
        "data.prepare",
        "data.splits",
        "data.summary",
        "metrics",
        "registry",
    },
    "data": {*ALL_DATA, "extras"},
    "drawing": {"vocabulary"},
    "predict": {"nn", "models", "drawing", *FEEDS},
    "train": {"nn", "models", "predict", *FEEDS},
    "estimators": {"models", "predict", "train", *FEEDS},
    "report": {"metrics", "files", "extras", "drawing"},
    "analysis": {"ops", "nn", "report", "files", "metrics", "extras"},
    "tasks": {"nn", "models", "predict", "train", "analysis", *FEEDS},
    "cli": {"nn", "models", "predict", "train", "tasks", "report", "analysis", "drawing", *FEEDS},
}
OUTSIDE_OF_OPS = {"ops.triton": {"torch", "triton"}, "ops.tiles": {"torch", "triton"}}
PACKAGE = Path(slicegraph.__file__).parent


def module_name(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(["slicegraph", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def imported_names(file: Path, root: Path) -> Iterator[str]:
    """The absolute name of everything that a file imports, anywhere in it."""
    package = ["slicegraph", *file.relative_to(root).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*parent, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def room_of(name: str) -> str:
    """The room of a module or of a name in it; that of the package itself is `__init__`."""
    _, *parts = name.split(".")
    if ".".join(parts[:2]) in MAY_IMPORT:
        return ".".join(parts[:2])
    return parts[0] if parts else "__init__"


def violations(root: Path) -> list[str]:
    """Each import in the package folder `root` that the table does not allow."""
    found = []
    for file in sorted(root.rglob("*.py")):
        module, path = module_name(file, root), file.relative_to(root)
        room = room_of(module)
        # `data/new.py` and `data/new/` have the room `data`, which is that of its `__init__` alone.
        if room not in MAY_IMPORT or (room == "data" and module != "slicegraph.data"):
            found.append(f"{path}: is not in the table")
            continue
        for name in imported_names(file, root):
            top, target = name.split(".")[0], room_of(name)
            if top == "slicegraph":
                wrong = target in MAY_IMPORT and target not in {room, "__init__"} | MAY_IMPORT[room]
            else:
                outside = OUTSIDE_OF_OPS.get(module.removeprefix("slicegraph."), {"torch"})
                wrong = room == "ops" and top not in {*sys.stdlib_module_names, *outside}
            if wrong:
                found.append(f"{path}: imports {name}")
    return found


def import_graph(root: Path) -> dict[str, set[str]]:
    """The modules of the package that each of its modules imports."""
    files = {module_name(file, root): file for file in root.rglob("*.py")}
    graph = {}
    for module, file in files.items():
        names = [(name, name.rpartition(".")[0]) for name in imported_names(file, root)]
        modules = {name if name in files else parent for name, parent in names}
        graph[module] = (modules & files.keys()) - {module}
    return graph


def write(root: Path, files: dict[str, str]) -> Path:
    for file, text in files.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    return root


def test_every_import_goes_downwards():
    assert violations(PACKAGE) == []


def test_there_is_no_import_cycle():
    graphlib.TopologicalSorter(import_graph(PACKAGE)).prepare()  # a CycleError names the modules


def test_the_table_itself_has_no_cycle():
    rooms = {room: targets - {"data"} for room, targets in MAY_IMPORT.items()}
    graphlib.TopologicalSorter(rooms).prepare()


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("ops/sort.py", "from slicegraph.nn import SliceSort"),
        ("ops/sort.py", "import numpy"),
        ("ops/sort.py", "import triton"),
        ("nn/slice_sort.py", "from slicegraph.data import collate"),
        ("nn/slice_sort.py", "import slicegraph.models.graph"),
        ("nn/slice_sort.py", "from slicegraph import data"),
        ("nn/slice_sort.py", "from .. import data"),
        ("nn/slice_sort.py", "def late():\n    from ..data.store import Store"),
        (
            "nn/slice_sort.py",
            "if TYPE_CHECKING:\n    from slicegraph.models import GraphSliceformer",
        ),
        ("data/batch.py", "from slicegraph.nn import SliceSort"),
        ("data/store.py", "from slicegraph.data.prepare import prepare"),
        ("data/prepare.py", "def late():\n    from slicegraph.data.datasets import prepare"),
        ("data/prepare.py", "from slicegraph.data import featurize"),
        ("data/datasets/ogb.py", "from slicegraph.tasks import TASKS"),
        ("data/brandnew.py", "import torch"),
        ("train/run.py", "def late():\n    from slicegraph.tasks.domain import recipe"),
        ("metrics.py", "import slicegraph.train"),
        ("__init__.py", "from slicegraph.ops import column_sort"),
        ("brandnew/thing.py", "import torch"),
    ],
)
def test_an_import_in_the_wrong_direction_is_found(tmp_path, file, line):
    assert len(violations(write(tmp_path, {file: line}))) == 1


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("ops/sort.py", "import os\nimport torch.nn\nfrom slicegraph.ops.layout import rows"),
        ("ops/triton.py", "import triton.language as tl"),
        ("nn/slice_sort.py", "from ..ops import column_sort\nfrom .readout import Readout"),
        ("data/prepare.py", "from slicegraph.data import store, table\nimport rdkit"),
        ("data/datasets/ogb.py", "from .source import Source\nfrom ..prepare import prepare"),
        ("train/module.py", "from slicegraph import __version__, data, models"),
    ],
)
def test_an_import_in_the_right_direction_is_not(tmp_path, file, line):
    assert violations(write(tmp_path, {file: line})) == []


def test_a_cycle_of_lazy_and_type_only_imports_is_found(tmp_path):
    files = {
        "data/a.py": "from slicegraph.data import b",
        "data/b.py": "def late():\n    from slicegraph.data.c import name",
        "data/c.py": "if TYPE_CHECKING:\n    from .a import name",
    }
    with pytest.raises(graphlib.CycleError, match=r"slicegraph\.data\.a"):
        graphlib.TopologicalSorter(import_graph(write(tmp_path, files))).prepare()


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """What each of these imports adds to those before it, in a fresh interpreter."""
    code = """
import importlib, json, sys
found = {}
for name in ("torch_geometric.nn", "slicegraph.nn", "slicegraph.data", "slicegraph.train"):
    before = set(sys.modules)
    importlib.import_module(name)
    found[name] = sorted(set(sys.modules) - before)
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name: set(added) for name, added in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("slicegraph.nn", {"lightning", "ogb", "rdkit", "matplotlib", "pandas", "slicegraph.data"}),
        ("slicegraph.data", {"lightning", "matplotlib", "sklearn", "slicegraph.nn"}),
        ("slicegraph.train", {"slicegraph.tasks", "slicegraph.cli", "slicegraph.report"}),
    ],
)
def test_nothing_heavy_is_imported(imported, module, forbidden):
    assert not forbidden & imported[module]  # pandas is imported by PyG itself


def test_submodules_are_imported_when_they_are_used():
    code = """
import sys
import slicegraph
assert "torch" not in sys.modules
names = dir(slicegraph)
assert {"load", "train", "nn", "ops", "models", "data", "transforms"} <= set(names), names
assert names == sorted(names)
assert slicegraph.nn.SliceSort is sys.modules["slicegraph.nn.slice_sort"].SliceSort
assert "rdkit" not in sys.modules and "lightning" not in sys.modules
assert callable(slicegraph.load)
for name in names:
    if name != "graphgym":  # which warns without yacs
        getattr(slicegraph, name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


PUBLIC = ["ops", "nn", "models", "data", "predict", "train", "tasks", "report", "analysis"]
SINGLE = ["estimators", "transforms", "testing", "metrics", "vocabulary"]


@pytest.mark.parametrize("name", [*PUBLIC, *SINGLE])
def test_every_public_module_lists_its_names(name):
    module = importlib.import_module(f"slicegraph.{name}")
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public).__doc__ or isinstance(getattr(module, public), tuple)


MODULES = [path for name in ("nn", "models") for path in sorted((PACKAGE / name).glob("[a-z]*.py"))]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_the_call_of_every_module_is_documented(path):
    module = importlib.import_module(f"slicegraph.{path.parent.name}.{path.stem}")
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, torch.nn.Module) and name[0] != "_":
            assert kind.forward.__doc__, name
            assert ":" in kind.forward.__doc__, name


def test_the_house_on_one_page_has_every_file():
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    rows = page.partition("## The house on one page")[2].partition("\n## ")[0].splitlines()
    folder, named = "", set[str]()
    for cells in (row.split("|") for row in rows if row.startswith("|")):
        found = [name.removesuffix("/") for name in re.findall(r"`([^`]+)`", cells[1])]
        folder = f"{found[0]}/" if found else "" if cells[1].strip() else folder
        named |= {folder + name.removesuffix("/") for name in re.findall(r"`([^`]+)`", cells[2])}
    package = Path(slicegraph.__file__).parent
    whole = ("cli/", "data/datasets/")  # the rows of these folders name no files
    files = {path.relative_to(package).with_suffix("").as_posix() for path in package.rglob("*.py")}
    files = {name for name in files if not name.startswith(whole)}
    assert {name for name in files if not name.endswith(("__init__", "__main__"))} <= named
