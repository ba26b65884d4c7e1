"""Data sets by name: the shipped one, QM9, ZINC and a user's own tables."""

import csv
import gzip
import hashlib
import importlib.util
import pickle
import re
from pathlib import Path
from types import ModuleType
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from support.ogb_folders import MOLECULES, Trap, write_csv_gz, write_zinc
from torch_geometric.datasets import ZINC

from slicegraph.data import prepare
from slicegraph.data.datasets import load_dataset, source
from slicegraph.data.datasets.source import HARTREE_IN_EV, MissingDataset, qm9_folder
from slicegraph.data.molecules import scaffold

MINI = Path(__file__).parents[2] / "datasets" / "mini"


def loaded(name: str, root: Path, **options):
    return load_dataset(name, root, workers=1, progress=False, **options)


@pytest.fixture(scope="module")
def mini_root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    loaded("mini", root)
    return root


@pytest.fixture
def make() -> ModuleType:
    """The script that made the data set."""
    spec = importlib.util.spec_from_file_location("make", MINI / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_table(path: Path, header: str, *lines: str) -> str:
    path.write_text("\n".join([header, *lines]) + "\n")
    return f"csv:{path}"


def test_mini_is_its_table_prepared_once_below_the_root(mini_root, monkeypatch):
    monkeypatch.setattr(source, "prepare_file", None)  # it is prepared already
    dataset = loaded("mini", mini_root)
    with gzip.open(MINI / "mini.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    assert dataset.store.folder == mini_root / "mini" / "slicegraph-v1"
    assert {path.name for path in MINI.iterdir()} - {"__pycache__"} == {
        *("mini.csv.gz", "README.md", "make.py")
    }
    sizes = {split: len(part) for split, part in dataset.splits.items()}
    assert sizes == {"train": 10_000, "valid": 1_000, "test": 1_000}
    assert [dataset.store.smiles(i) for i in range(12_000)] == [row["smiles"] for row in rows]
    expected = np.array([[float(row["homolumogap"])] for row in rows], dtype=np.float32)
    np.testing.assert_array_equal(dataset.store.labels, expected)
    for split, part in dataset.splits.items():
        assert {rows[row]["split"] for row in dataset.store.rows[part]} == {split}
    task = dataset.task
    assert (task.kind, task.metric, task.unit) == ("regression", "mae", "eV")
    assert dataset.store.meta["duplicates"] == 0
    assert dataset.store.num_atoms.max() == 9


@pytest.mark.parametrize("place", ["package/data/embedded/mini", "datasets/mini"])
def test_shipped_data_are_found_in_the_package_or_in_the_repository(tmp_path, monkeypatch, place):
    monkeypatch.setattr(source, "PACKAGE", tmp_path / "package")
    (tmp_path / place).mkdir(parents=True)
    assert source.shipped_folder("mini") == tmp_path / place
    with pytest.raises(MissingDataset, match=r"installed without its .*mini.csv.gz"):
        loaded("mini", tmp_path)


def test_card_of_mini_names_file_source_licence_and_citation():
    card, content = (MINI / "README.md").read_text(), (MINI / "mini.csv.gz").read_bytes()
    assert re.search(r"SHA-256 `(\w+)`", card)[1] == hashlib.sha256(content).hexdigest()
    assert f"{len(content):,} bytes" in card
    for words in ("qm9pack", "CC0", "10.1038/sdata.2014.22", "10.1021/ci300415d", "GDB-17"):
        assert words in card


@pytest.mark.skipif(qm9_folder() is None, reason="qm9pack is not installed")
def test_mini_is_drawn_again_to_the_byte(make):
    table = make.rows(source.read_qm9(qm9_folder()), make.SIZES)
    assert make.compressed(table) == (MINI / "mini.csv.gz").read_bytes()


def test_drawing_leaves_out_another_spelling_and_keeps_the_order_of_qm9(make):
    molecules = [(i, "C" * i, i / 100) for i in range(1, 7)]
    molecules += [(i + 6, "[CH3]" + "C" * i, 0.5) for i in range(1, 6)]
    spelt_twice = pd.DataFrame(molecules, columns=["number", "smiles", "gap_hartree"])
    rows = list(make.rows(spelt_twice, {"train": 4, "valid": 1, "test": 1}))
    assert len({Chem.CanonSmiles(row[0]) for row in rows}) == 6
    assert [row[2] for row in rows] == ["train"] * 4 + ["valid", "test"]
    numbers = [int(row[3]) for row in rows[:4]]
    assert numbers == sorted(numbers)
    gaps = {str(number): gap for number, _, gap in molecules}
    assert all(row[1] == f"{gaps[row[3]] * HARTREE_IN_EV:.4f}" for row in rows)
    with pytest.raises(ValueError, match="6 different molecules, 7 are wanted"):
        list(make.rows(spelt_twice, {"train": 7}))


def test_qm9_is_read_from_the_files_of_its_package(tmp_path, monkeypatch):
    for part, numbers in zip(source.PARTS, ([0, 1, 2, 3], [4, 5, 6], [7, 8, 9]), strict=True):
        rows = [f'x,{i + 1},"{MOLECULES[i]}","[[0.1,0.2]]",{(i + 1) / 100}' for i in numbers]
        header = "XYZ_file,Index,SMILES,XYZ_Ang,HOMO_LUMO_gap_au"
        (tmp_path / part).write_text("\n".join([header, *rows]) + "\n")
    monkeypatch.setattr(source, "qm9_folder", lambda: tmp_path)
    with pytest.raises(ValueError, match="has 10 rows, expected 130831"):
        loaded("qm9-gap", tmp_path)
    monkeypatch.setattr(source, "SPLIT_SIZES", (6, 3, 1))
    dataset = loaded("qm9-gap", tmp_path)
    assert [dataset.store.smiles(i) for i in range(10)] == MOLECULES
    expected = 27.2114 * np.arange(1, 11) / 100
    np.testing.assert_allclose(dataset.store.labels[:, 0], expected, rtol=1e-6)
    assert [len(part) for part in dataset.splits.values()] == [6, 3, 1]
    assert sorted(np.concatenate(list(dataset.splits.values()))) == list(range(10))
    assert (dataset.task.metric, dataset.task.unit) == ("mae", "eV")


def edges(edge_index, edge_attr) -> set[tuple[int, ...]]:
    return {(*pair, *kind) for pair, kind in zip(edge_index.T.tolist(), edge_attr, strict=True)}


@pytest.mark.parametrize(("name", "subset"), [("zinc", True), ("zinc-full", False)])
def test_zinc_has_the_graphs_and_splits_of_pyg(tmp_path, name, subset):
    write_zinc(tmp_path / "zinc" / "raw", {"train": 9, "val": 4, "test": 3})
    dataset = loaded(name, tmp_path)
    assert list(dataset.splits) == ["train", "val", "test"]
    for split, part in dataset.splits.items():
        expected = ZINC(str(tmp_path / "zinc"), subset=subset, split=split)
        for position, data in zip(part, expected, strict=True):
            found = dataset.store[int(position)]
            assert found.x.tolist() == data.x.tolist()
            assert found.y.flatten().tolist() == data.y.tolist()
            assert edges(found.edge_index, found.edge_attr.tolist()) == edges(
                data.edge_index, data.edge_attr.view(-1, 1).tolist()
            )
    meta = dataset.store.meta
    assert (meta["atom_vocabulary"], meta["bond_vocabulary"]) == ([28], [4])
    assert (dataset.task.kind, dataset.evaluator.name) == ("regression", "MAE")
    assert len(loaded(name, tmp_path).store) == len(dataset.store)


def test_code_in_a_pickle_of_zinc_is_not_run(tmp_path):
    write_zinc(tmp_path / "zinc" / "raw", {"train": 3, "val": 3, "test": 3})
    content = pickle.dumps([Trap(tmp_path / "sprung")])
    (tmp_path / "zinc" / "raw" / "val.pickle").write_bytes(content)
    with pytest.raises(ValueError, match=r"\.mkdir in a pickle is not read"):
        loaded("zinc", tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("zinc", rf"zinc is not here: .*train\.pickle, .*{re.escape(ZINC.url)}"),
        ("qm9-gap", r"qm9-gap is not here: .*slicegraph\[qm9\]"),
        ("csv:none.csv", r"csv:none.csv: there is no file 'none\.csv'"),
        ("csv:.", r"csv:\.: '\.' is a folder, expected a file"),
    ],
)
def test_what_is_missing_is_named_with_how_to_get_it(tmp_path, monkeypatch, name, message):
    def no_network(*words: object, **options: object) -> None:
        raise URLError("no network here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(source, "urlopen", no_network)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDataset, match=message):
        loaded(name, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_own_table_is_split_at_random_by_its_seed_without_its_rejected_rows(tmp_path):
    lines = [f"{'C' * n},{n}" for n in range(1, 41)]
    name = write_table(tmp_path / "own.csv", "smiles,logS", *lines, "C1CC,3", "CC,high")
    datasets = [loaded(name, tmp_path, targets="logS", seed=seed) for seed in (0, 0, 1)]
    first, again, other = (dataset.splits for dataset in datasets)
    assert datasets[0].store.meta["rejected"] == 2
    assert [len(part) for part in first.values()] == [32, 4, 4]
    assert sorted(np.concatenate(list(first.values()))) == list(range(40))
    assert np.array_equal(first["test"], again["test"])
    assert not np.array_equal(first["test"], other["test"])


def test_scaffold_split_of_an_own_table_divides_no_scaffold(tmp_path):
    rings = [f"{side}{ring}" for ring in ("c1ccccc1", "C1CC1", "c1ccncc1", "C1CCC1") for side in
             ("C", "CC", "O", "N", "F")]  # fmt: skip
    name = write_table(
        tmp_path / "own.csv", "smiles,y", *(f"{ring},{len(ring)}.5" for ring in rings)
    )
    options = {"split": "scaffold", "fractions": (0.5, 0.25, 0.25)}
    first, again = (loaded(name, tmp_path, **options) for _ in range(2))
    found = [{scaffold(first.store.smiles(int(i))) for i in part} for part in first.splits.values()]
    assert [len(part) for part in first.splits.values()] == [10, 5, 5]
    assert sum(map(len, found)) == len(set().union(*found)) == 4
    assert all(np.array_equal(first.splits[name], again.splits[name]) for name in first.splits)


def test_changed_table_is_prepared_again(tmp_path):
    name = write_table(
        tmp_path / "own.csv", "smiles,y", *(f"{'C' * n},{n}.5" for n in range(1, 11))
    )
    first = loaded(name, tmp_path)
    write_table(tmp_path / "own.csv", "smiles,y", *(f"{'C' * n},{n}.25" for n in range(1, 21)))
    second = loaded(name, tmp_path)
    assert (len(first.store), len(second.store)) == (10, 20)
    assert first.store.folder != second.store.folder


def test_columns_of_an_own_table_can_be_chosen(tmp_path):
    lines = [f"{n},{'C' * n},{n % 2},{n / 2}" for n in range(1, 21)]
    name = write_table(tmp_path / "own.csv", "a,structure,b,c", *lines)
    dataset = loaded(name, tmp_path, smiles="structure", targets=["c", "a"])
    assert dataset.task.target_names == ("c", "a")
    np.testing.assert_array_equal(dataset.store.labels[2], [1.5, 3.0])


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("split = 'sorted', expected random, stratified, scaffold", {"split": "sorted"}),
        ("task = 'ranking', expected regression, binary", {"task": "ranking"}),
        ("leaves 'valid' empty; choose other fractions", {"fractions": (0.9, 0.01, 0.09)}),
        ("no column 'gap'; its columns are 'smiles', 'y'", {"targets": "gap"}),
    ],
)
def test_options_that_do_not_fit_the_table_are_named(tmp_path, message, options):
    name = write_table(
        tmp_path / "own.csv", "smiles,y", *(f"{'C' * n},{n}.5" for n in range(1, 11))
    )
    with pytest.raises(ValueError, match=message):
        loaded(name, tmp_path, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pcqm", {}, r"no data set 'pcqm'; there are mini, qm9-gap, pcqm4m-v2, .*zinc-full, and"),
        ("ogbg-ppa", {}, "no data set 'ogbg-ppa'; there are "),
        ("digits", {}, "'digits' is a task, not a data set of molecules; slicegraph train --task"),
        ("mini", {"split": "random", "seed": 1}, "takes no split, seed: these are for csv:PATH"),
        (str(MINI / "mini.csv.gz"), {}, "is a file; use csv:"),
    ],
)
def test_name_or_option_that_is_not_known_is_refused(tmp_path, name, options, message):
    with pytest.raises(ValueError, match=message):
        loaded(name, tmp_path, **options)


def test_data_set_is_prepared_by_name_with_its_own_columns(tmp_path, monkeypatch):
    rows = [("a", "smiles", "homolumogap"), ("1", "CC", 1.0), ("2", "CCC", 2.0)]
    write_csv_gz(tmp_path / "mini.csv.gz", rows)
    monkeypatch.setattr(source, "shipped_folder", lambda name: tmp_path)
    result = prepare("mini", tmp_path / "store", root=tmp_path, workers=1)
    assert (result.molecules, result.smiles, result.labels) == (2, "smiles", ("homolumogap",))
    with pytest.raises(ValueError, match="zinc has no SMILES to prepare"):
        prepare("zinc", tmp_path / "other")


def test_submission_of_a_set_without_a_leaderboard_is_refused(mini_root, tmp_path):
    dataset = loaded("mini", mini_root)
    with pytest.raises(ValueError, match="'test' of 'mini' is not submitted"):
        dataset.write_submission("test", np.zeros(1000), dataset.splits["test"], tmp_path)
