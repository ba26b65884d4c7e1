"""Every example is short, runs from beginning to end and prints what it promises."""

import re
import runpy
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from support.ogb_folders import write_lsc, write_mol, write_zinc
from support.pyg_folders import write_modelnet, write_planetoid, write_tu
from torch_geometric.datasets import ZINC

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
    "long_range.py": ["--expressions", "64", "--epochs", "2", "--lengths", "100"],
}
SURFACES = 6
ZINC_SIZES = {"train": 16, "val": 8, "test": 8}
# The examples on data sets by name: further arguments, the data set in a folder, and the metric.
DATA: dict[str, tuple[list[str], Callable[[Path], object], str]] = {
    "zinc_gps.py": ([], lambda root: write_zinc(root / "zinc" / "raw", ZINC_SIZES), "MAE"),
    "ogbg_molhiv.py": ([], lambda root: write_mol(root, "ogbg-molhiv", 1), "rocauc"),
    "pcqm4mv2.py": ([], lambda root: write_lsc(root, "pcqm4m-v2"), "MAE"),
    "tu_dataset.py": (["--folds", "3"], lambda root: write_tu(root, "MUTAG"), "accuracy"),
    "node_classification.py": ([], lambda root: write_planetoid(root, "Cora"), "accuracy"),
    "point_cloud.py": (
        ["--name", "ModelNet10"],
        lambda root: write_modelnet(root, "ModelNet10"),
        "accuracy",
    ),
}


Example = Callable[..., str]
OUTPUTS: dict[str, str] = {}


@pytest.fixture
def example(monkeypatch, capsys) -> Iterator[Example]:
    """Runs an example with arguments in this process, without a network, and returns its output."""

    def no_network(*args: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no network here")

    def run(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        yield run
    torch.set_num_threads(threads)


@pytest.fixture
def output_of(example) -> Callable[[str], str]:
    """The output of an example at a toy size, which is run once."""

    def find(name: str) -> str:
        if name not in OUTPUTS:
            OUTPUTS[name] = example(name, *TOY_SIZES.get(name, []))
        return OUTPUTS[name]

    return find


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*LINES, *DATA}


@pytest.mark.parametrize("name", sorted({*LINES, *DATA}))
def test_the_example_has_at_most_120_lines(name):
    assert len((EXAMPLES / name).read_text().splitlines()) <= 120


@pytest.mark.parametrize("name", LINES)
def test_the_example_runs_and_prints_its_result(output_of, name):
    assert LINES[name] in output_of(name)


@pytest.mark.parametrize("name", sorted({*TOY_SIZES, *DATA}))
def test_nothing_to_train_is_an_error_that_says_so(example, capsys, name):
    with pytest.raises(SystemExit, match="2"):
        example(name, "--epochs", 0)
    error = capsys.readouterr().err
    assert "--epochs 0" in error
    assert "expected at least 1" in error


def test_a_few_updates_tell_surfaces_apart_far_better_than_chance(output_of):
    *_, last = re.findall(r"^surfaces: .* test ([\d.]+)%", output_of("point_cloud.py"), re.M)
    assert float(last) / 100 > 3 / SURFACES


@pytest.mark.parametrize("name", DATA)
def test_the_result_is_of_the_best_epoch_and_of_the_seed(example, tmp_path, name):
    arguments, write, metric = DATA[name]
    write(tmp_path)
    arguments = [*arguments, "--root", tmp_path, "--epochs", 3]
    output = example(name, *arguments, "--seed", 1)
    result = output.splitlines()[-1]
    found = re.fullmatch(rf"\S+: {metric} valid ([\d.]+).*, test.* [\d.]+.*\((.*)\)", result)
    assert found, result
    epochs = dict(re.findall(r"^epoch (\d+): valid ([\d.]+)", output, re.MULTILINE))
    if name != "tu_dataset.py":  # which prints a line for each fold
        assert list(epochs) == ["1", "2", "3"]
        best = (min if metric == "MAE" else max)(epochs.values(), key=float)
        chosen = re.fullmatch(r"epoch (\d) of 3", found[2])
        assert chosen
        assert found[1] == epochs[chosen[1]] == best
    again = example(name, *arguments, "--seed", 1)  # from the files that PyG has processed
    assert again.splitlines()[-1] == result


@pytest.mark.parametrize("name", DATA)
def test_offline_one_sentence_tells_what_is_missing_and_where_to_put_it(example, tmp_path, name):
    arguments, _, _ = DATA[name]
    with pytest.raises(SystemExit) as stopped:
        example(name, *arguments, "--root", tmp_path)
    message = str(stopped.value)
    assert str(tmp_path) in message
    assert "no network here" in message
    assert "http" in message
    assert "\n" not in message


def test_a_file_of_graphs_gives_what_zinc_gives(example, tmp_path):
    _, write, _ = DATA["zinc_gps.py"]
    write(tmp_path)
    arrays = {}
    for split in ZINC_SIZES:
        graphs = list(ZINC(str(tmp_path / "zinc"), subset=True, split=split))
        arrays |= {
            f"{split}_x": np.concatenate([graph.x[:, 0] for graph in graphs]),
            f"{split}_edge_index": np.concatenate([graph.edge_index for graph in graphs], axis=1),
            f"{split}_edge_attr": np.concatenate([graph.edge_attr for graph in graphs]),
            f"{split}_y": np.concatenate([graph.y for graph in graphs]),
            f"{split}_num_nodes": np.array([graph.num_nodes for graph in graphs]),
            f"{split}_num_edges": np.array([graph.num_edges for graph in graphs]),
        }
    np.savez(tmp_path / "graphs.npz", **arrays)
    by_pyg = example("zinc_gps.py", "--root", tmp_path, "--epochs", 2)
    by_file = example("zinc_gps.py", "--npz", tmp_path / "graphs.npz", "--epochs", 2)
    assert by_file.splitlines()[-1].split(": ")[1] == by_pyg.splitlines()[-1].split(": ")[1]
    with pytest.raises(SystemExit, match=re.escape("nowhere.npz")):
        example("zinc_gps.py", "--npz", "nowhere.npz")


def test_a_regression_of_ogb_has_its_own_loss_and_metric(example, tmp_path):
    write_mol(tmp_path, "ogbg-molesol", 1)
    output = example("ogbg_molhiv.py", "--name", "ogbg-molesol", "--root", tmp_path, "--epochs", 1)
    assert re.search(
        r"^ogbg-molesol: rmse valid [\d.]+, test [\d.]+ \(epoch 1 of 1\)$", output, re.M
    )


def test_nodes_without_features_have_their_degrees(example, tmp_path):
    write_tu(tmp_path, "IMDB-BINARY", labels=False)
    arguments = ("--name", "IMDB-BINARY", "--root", tmp_path, "--folds", 3, "--epochs", 1)
    assert "IMDB-BINARY: accuracy valid " in example("tu_dataset.py", *arguments)


def test_a_submission_has_all_molecules_of_the_challenge(example, tmp_path):
    write_lsc(tmp_path, "pcqm4m-v2")
    arguments = ("--root", tmp_path, "--epochs", 1, "--submission", tmp_path / "submission")
    with pytest.raises(SystemExit, match=re.escape("shape [2], expected [147037]")):
        example("pcqm4mv2.py", *arguments)
