"""The core runs without the packages of the extras; whatever needs one raises one sentence."""

import configparser
import json
import os
import re
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

import pytest
import torch

from slicegraph.cli import COMMANDS
from slicegraph.extras import PACKAGES, MissingPackage, import_ogb, needs
from slicegraph.models import GraphSliceformer, GraphSliceformerConfig

ROOT = Path(__file__).parents[1]
CORE = {"torch", "torch-geometric", "numpy", "safetensors"}
MODULES = {"scikit-learn": "sklearn", "pillow": "PIL", "pyyaml": "yaml"}
# Hides modules as if they were not installed: no finder finds them.
HIDE = """
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in HIDDEN:
            return self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""


def name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0].lower()


def brought_along(packages: set[str]) -> set[str]:
    """The packages and everything that they depend on, without extras."""
    found: set[str] = set()
    todo = set(packages)
    while todo:
        package = todo.pop()
        found.add(package)
        try:
            lines = metadata.requires(package) or []
        except metadata.PackageNotFoundError:  # of another platform
            continue
        todo |= {name_of(line) for line in lines if "extra ==" not in line} - found
    return found


def hidden_by(*extras: str) -> set[str]:
    """The modules of these extras which no other package brings along."""
    kept = CORE.union(*(PACKAGES[extra] for extra in PACKAGES.keys() - set(extras)))
    names = {package for extra in extras for package in PACKAGES[extra]} - brought_along(kept)
    return {MODULES.get(name, name) for name in names}


def run(code: str, *extras: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs code in an interpreter without the packages of these extras."""
    code = f"HIDDEN = {hidden_by(*extras)!r}\n{HIDE}\n{code}"
    words = [sys.executable, "-c", code]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def requirements() -> dict[str, set[str]]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    found = {"": config["options"]["install_requires"], **config["options.extras_require"]}
    return {extra: set(text.strip().splitlines()) for extra, text in found.items()}


def test_the_core_is_four_packages(requirements):
    assert set(map(name_of, requirements[""])) == CORE


@pytest.mark.parametrize("extra", PACKAGES)
def test_the_table_has_the_packages_of_setup_cfg(requirements, extra):
    assert set(map(name_of, requirements[extra])) == set(PACKAGES[extra])


def test_all_is_every_extra_of_the_table_and_the_tests_have_all(requirements):
    (everything,) = requirements["all"]
    assert set(everything.removeprefix("slicegraph[").removesuffix("]").split(",")) == set(PACKAGES)
    assert "slicegraph[all]" in requirements["test"]


CORE_USE = """
import warnings
warnings.filterwarnings("ignore", message="To use GraphGym")
import torch
from torch_geometric.data import Batch, Data
import slicegraph
import slicegraph.graphgym, slicegraph.metrics, slicegraph.vocabulary
from slicegraph import models, nn, ops, testing, transforms

x, edge_index = torch.randn(5, 8), torch.tensor([[0, 1, 3], [1, 2, 4]])
assert nn.SliceSort(8)(x[None]).shape == (1, 5, 8)
assert nn.SliceSortConv(8, 8)(x, edge_index).shape == (5, 8)
assert ops.column_sort(x[None])[0].equal(x[None].sort(1).values)
batch = Batch.from_data_list([Data(x=x, edge_index=edge_index)] * 2)
assert "pair_distance" in transforms.StructuralEncoding()(batch)
testing.assert_backends_agree
config = models.GraphSliceformerConfig(num_layers=1, channels=8, heads=2, node_dim=8)
model = models.GraphSliceformer(config).eval()
model.save("model")
loaded = models.load("model").eval()
assert loaded(batch).equal(model(batch))
assert not HIDDEN & set(sys.modules)
"""


def test_without_triton_an_import_prints_nothing(tmp_path):
    done = run("HIDDEN.add('triton')\nimport slicegraph.nn", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Prints the error of each attempt, and the status and output of each command, as JSON.
ATTEMPT = """
import contextlib, importlib, io, json, sys, warnings
import slicegraph
from slicegraph.cli import COMMANDS, main

def error_of(attempt):
    try:
        attempt()
    except ImportError as error:
        return str(error)

def command(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as exit:
            status = exit.code
    return status, out.getvalue(), err.getvalue()

found = {
    "load": error_of(lambda: slicegraph.load("model")),
    "train": error_of(lambda: slicegraph.train()),
    "settings": error_of(lambda: slicegraph.train.TrainConfig().to_yaml()),
    "score": error_of(lambda: slicegraph.metrics.evaluator("ogbg-molhiv")),
}
for name in ("analysis", "data", "data.smiles", "predict", "report", "tasks"):
    found[name] = error_of(lambda: importlib.import_module(f"slicegraph.{name}"))
found["commands"] = {" ".join(words): command(*words) for words in WORDS}
print(json.dumps(found))
"""
FAILING = {
    "datasets": ("mol",),
    "prepare a.csv --out b": ("mol",),
    "predict model CCO": ("mol",),
    "submit model --out b": ("mol",),
    "check a.csv": ("mol", "train"),
    "train": ("mol", "train"),
    "evaluate model": ("mol", "train"),
    "report model": ("mol", "train"),
    "analyze model": ("mol", "train"),
}


def attempts(commands: list[str], *extras: str, folder: Path, before: str = "") -> dict:
    code = f"{before}\nWORDS = {[c.split() for c in commands]!r}\n{ATTEMPT}"
    done = run(code, *extras, folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def sentence(user: str, *extras: str) -> str:
    """The expected error where none of the extras is installed."""
    hidden = hidden_by(*PACKAGES)
    names = [name for extra in extras for name in PACKAGES[extra]]
    what = ", ".join(name for name in names if MODULES.get(name, name) in hidden)
    pronoun = "them" if "," in what else "it"
    remedy = f'pip install "slicegraph[{",".join(extras)}]"'
    return f"{user} needs {what}; install {pronoun} with: {remedy}"


@pytest.fixture(scope="module")
def on_the_core(tmp_path_factory) -> dict:
    """What works and what fails after layers, models and transforms ran without any extra."""
    helps = [f"{command} --help" for command in COMMANDS]
    folder, words = tmp_path_factory.mktemp("core"), [*FAILING, *helps, "info"]
    return attempts(words, *PACKAGES, folder=folder, before=CORE_USE)


@pytest.mark.parametrize(
    ("attempt", "user", "extras"),
    [
        ("load", "slicegraph.predict", ("mol",)),
        ("train", "slicegraph.train", ("mol", "train")),
        ("settings", "slicegraph.train", ("train",)),
        ("score", "Evaluator", ("mol",)),
        ("data", "slicegraph.data", ("mol",)),
        ("data.smiles", "slicegraph.data", ("mol",)),
        ("predict", "slicegraph.predict", ("mol",)),
        ("tasks", "slicegraph.tasks", ("mol",)),
        ("report", "slicegraph.report", ("mol", "train")),
        ("analysis", "slicegraph.analysis", ("mol", "train")),
    ],
)
def test_what_needs_an_extra_names_it(on_the_core, attempt, user, extras):
    assert on_the_core[attempt] == sentence(user, *extras)


@pytest.mark.parametrize("command", FAILING)
def test_a_command_that_needs_an_extra_is_an_error_line(on_the_core, command):
    status, out, err = on_the_core["commands"][command]
    name = f"slicegraph {command.split()[0]}"
    assert (status, out) == (2, "")
    assert err == f"slicegraph: error: {sentence(name, *FAILING[command])}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_needs_no_extra(on_the_core, command):
    status, out, err = on_the_core["commands"][f"{command} --help"]
    assert (status, err) == (0, "")
    assert out.startswith(f"usage: slicegraph {command}")


def test_info_needs_no_extra_and_lists_what_is_missing(on_the_core):
    status, out, err = on_the_core["commands"]["info"]
    assert (status, err) == (0, "")
    lines = out.splitlines()
    rows = dict(line.split(maxsplit=1) for line in lines[lines.index("Extras") + 1 :][:4])
    assert rows["xlsx"] == 'openpyxl not installed; pip install "slicegraph[xlsx]"'
    assert "rdkit" in rows["mol"]
    assert "lightning" in rows["train"]


def test_predict_needs_only_mol_and_train_names_what_is_left(tmp_path):
    torch.manual_seed(0)
    config = GraphSliceformerConfig(num_layers=1, channels=8, ffn_channels=8, heads=2)
    GraphSliceformer(config).save(tmp_path / "model")
    commands = ["predict model CCO", "datasets", "train --out run --epochs 1"]
    found = attempts(commands, "train", "parquet", "xlsx", folder=tmp_path)
    assert [found[name] for name in ("data", "predict", "tasks", "score")] == [None] * 4
    (predicted, listed, (status, _, error)) = found["commands"].values()
    assert (predicted[0], listed[0]) == (0, 0)
    assert "CCO" in predicted[1]
    assert status == 2
    assert error.startswith("slicegraph: error: slicegraph train needs lightning, ")
    assert error.endswith('install them with: pip install "slicegraph[train]"\n')
    assert not (tmp_path / "run").exists()


def test_one_missing_package_is_named_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    remedy = re.escape('install it with: pip install "slicegraph[train]"')
    with (
        pytest.raises(MissingPackage, match=f"^a figure needs matplotlib; {remedy}$"),
        needs("a figure", "mol", "train"),
    ):
        import matplotlib  # noqa: F401


@pytest.mark.parametrize("module", ["no_such_module", "numpy.no_such_module", "ogb.no_such_module"])
def test_another_import_error_is_not_changed(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with (
        pytest.raises(ModuleNotFoundError, match=f"No module named '{module}'"),
        needs("a figure", "mol", "train"),
    ):
        import_module(module)


# A stand-in for `outdated`, whose check needs `pkg_resources`: without that it would not get far.
OUTDATED = """
import socket
def check_outdated(package, version):
    socket.create_connection(("pypi.org", 443))
    return False, version
"""
OGB_THROUGH_US = """
import slicegraph
slicegraph.metrics.evaluator("ogbg-molhiv")  # before slicegraph.data, on its own
slicegraph.data.featurize("CCO")
from slicegraph.data.datasets import table
table()
slicegraph.predict, slicegraph.tasks, slicegraph.report, slicegraph.analysis, slicegraph.train.train
assert "ogb.lsc" in sys.modules and "outdated" not in sys.modules
"""


EXAMPLES_WITH_OGB = [
    path for path in sorted((ROOT / "examples").glob("*.py")) if "from ogb" in path.read_text()
]
OGB_IN_THE_EXAMPLES = f"""
import runpy
sys.argv = ["example", "--help"]
for path in {[*map(str, EXAMPLES_WITH_OGB)]!r}:
    for name in [*sys.modules]:  # the next example imports them again
        if name.split(".")[0] == "ogb" or name.startswith("slicegraph.data"):
            del sys.modules[name]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit:
        pass
    assert "ogb" in sys.modules
"""
CODES = {
    "by itself": ("import ogb", 1),
    "through us": (OGB_THROUGH_US, 0),
    "in the examples": (OGB_IN_THE_EXAMPLES, 0),
}
# Records every connection and every look-up of a host; none is made. What OGB and we import is
# imported once, and the codes run at the same time in forks.
RECORD = f"""
import json, os, socket, sys, time, traceback
calls = []
def record(*arguments, **options):
    calls.append(str(arguments))
    raise OSError("no network in tests")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = record
import lightning, pandas, rdkit.Chem, sklearn.metrics, torch_geometric.data
assert not {{"ogb", "outdated", "slicegraph"}} & set(sys.modules)
sys.path.insert(0, os.getcwd())
children = []
for number, code in enumerate({[code for code, _ in CODES.values()]!r}):
    if child := os.fork():
        children.append(child)
        continue
    try:
        exec(code, {{"__name__": "__main__", "sys": sys}})
        time.sleep(2)
    except BaseException:
        calls.append(traceback.format_exc())
    with open(f"{{number}}.json", "w") as file:
        json.dump(calls, file)
    os._exit(0)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def network_calls(tmp_path_factory) -> dict[str, list[str]]:
    """The connections that each of `CODES` attempts, and its error if it fails."""
    if not hasattr(os, "fork"):
        pytest.skip("forks")
    folder = tmp_path_factory.mktemp("network")
    (folder / "outdated.py").write_text(OUTDATED)
    words = [sys.executable, "-c", RECORD]
    subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    texts = [(folder / f"{number}.json").read_text() for number in range(len(CODES))]
    return dict(zip(CODES, map(json.loads, texts), strict=True))


@pytest.mark.parametrize("name", CODES)
def test_ogb_reaches_the_network_by_itself_and_not_through_us(network_calls, name):
    assert len(network_calls[name]) == CODES[name][1], network_calls[name]
    assert not any("Traceback" in call for call in network_calls[name])


def test_a_loaded_outdated_stays_what_it_was(monkeypatch):
    stand_in = ModuleType("outdated")
    monkeypatch.setitem(sys.modules, "outdated", stand_in)
    import_ogb()
    assert sys.modules["outdated"] is stand_in
