"""OGB's folders: PCQM4Mv2, PCQM4M and ogbg-mol*, read without a prompt, a network or a risk."""

import builtins
import shutil
import warnings
import zipfile
from contextlib import nullcontext
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from ogb import graphproppred, lsc
from ogb.utils import smiles2graph
from support.ogb_folders import (
    LSC_FOLDERS,
    LSC_SPLITS,
    MOL_SPLITS,
    MOLECULES,
    Trap,
    gap,
    write_csv_gz,
    write_lsc,
    write_mol,
    zipped,
)
from torch.serialization import get_safe_globals, safe_globals

from slicegraph.data.sets import ogb_download
from slicegraph.data.sets.datasets import load, source_of
from slicegraph.data.sets.lsc import LSC
from slicegraph.data.sets.ogb_pyg import open_ogb
from slicegraph.data.sets.ogbg_mol import MolSource
from slicegraph.data.sets.source import MissingDataSet
from slicegraph.data.sets.torch_files import read_pt

pytestmark = pytest.mark.usefixtures("nothing_asked_and_nothing_fetched")
MOL, TASKS = "ogbg-moltox21", 12
CLASSES = {"pcqm4m-v2": lsc.PygPCQM4Mv2Dataset, "pcqm4m": lsc.PygPCQM4MDataset}


@pytest.fixture
def nothing_asked_and_nothing_fetched(monkeypatch) -> None:
    def refuse_prompt(*words: str) -> str:
        raise AssertionError(f"waits at a prompt: {words}")

    def no_network(*words: object, **options: object) -> None:
        raise URLError("no network here")

    monkeypatch.setattr(builtins, "input", refuse_prompt)
    monkeypatch.setattr(ogb_download, "urlopen", no_network)


def loaded(name: str, root: Path):
    return load(name, root, workers=1, progress=False)


def as_lists(splits: dict) -> dict[str, list[int]]:
    return {split: rows.tolist() for split, rows in splits.items()}


@pytest.mark.parametrize(("name", "challenge"), [("pcqm4m-v2", "PCQM4Mv2"), ("pcqm4m", "PCQM4M")])
def test_folder_version_and_address_are_ogbs(tmp_path, name, challenge):
    class Facts(getattr(lsc, f"{challenge}Dataset")):
        def prepare_smiles(self) -> None:
            """Only what the constructor says is wanted."""

    facts = Facts(root=str(tmp_path), only_smiles=True)
    assert (Path(facts.folder).name, facts.url) == (LSC[name].folder, LSC[name].url)
    assert facts.version == 1


@pytest.mark.parametrize("name", LSC_SPLITS)
def test_challenge_is_loaded_with_ogbs_splits_and_labels(tmp_path, name):
    folder = write_lsc(tmp_path, name)
    dataset = loaded(name, tmp_path)
    assert as_lists(dataset.splits) == LSC_SPLITS[name]
    assert dataset.store.folder == folder / "slicegraph-v1"
    assert [dataset.store.smiles(i) for i in range(10)] == MOLECULES
    labels = dataset.store.labels[:, 0]
    known = np.concatenate([dataset.splits["train"], dataset.splits["valid"]])
    assert labels[known].tolist() == [gap(row) for row in known]
    assert np.isnan(np.delete(labels, known)).all()
    task = dataset.task
    assert (task.kind, task.num_targets, task.metric, task.unit) == ("regression", 1, "mae", "eV")
    assert dataset.evaluator.name == "MAE"


@pytest.mark.parametrize("name", LSC_SPLITS)
def test_ogbs_own_object_works_when_processing_and_when_reading_back(tmp_path, name):
    folder = write_lsc(tmp_path, name)
    for _ in range(2):
        dataset = open_ogb(name, tmp_path)
        assert isinstance(dataset, CLASSES[name])
        assert len(dataset) == 10
        for data, smiles in zip(dataset, MOLECULES, strict=True):
            graph = smiles2graph(smiles)
            assert np.array_equal(data.x, graph["node_feat"])
            assert np.array_equal(data.edge_index, graph["edge_index"])
            assert np.array_equal(data.edge_attr, graph["edge_feat"])
        assert dataset[0].y.tolist() == [gap(0)]
        splits = dataset.get_idx_split()
        assert all(isinstance(rows, torch.Tensor) for rows in splits.values())
        assert as_lists(splits) == LSC_SPLITS[name]
        assert len(dataset[splits["train"]]) == 4
        assert (folder / "processed" / "geometric_data_processed.pt").is_file()


def test_ogbs_own_object_takes_a_transform(tmp_path):
    write_lsc(tmp_path, "pcqm4m-v2")
    dataset = open_ogb("pcqm4m-v2", tmp_path, transform=lambda data: data.num_nodes)
    assert list(dataset)[:3] == [3, 6, 1]


def test_arrays_that_numpy_1_wrote_are_read(tmp_path):
    write_lsc(tmp_path, "pcqm4m-v2")
    source = tmp_path / "pcqm4m-v2" / "split_dict.pt"
    with zipfile.ZipFile(source) as new, zipfile.ZipFile(tmp_path / "old.pt", "w") as old:
        for entry in new.infolist():
            content = new.read(entry)
            old.writestr(entry.filename, content.replace(b"numpy._core.", b"numpy.core."))
        assert b"numpy.core.multiarray" in old.read("split_dict/data.pkl")
    assert as_lists(read_pt(tmp_path / "old.pt")) == LSC_SPLITS["pcqm4m-v2"]


def test_torch_load_is_as_strict_as_before(tmp_path):
    folder = write_lsc(tmp_path, "pcqm4m-v2")
    with safe_globals([np.dtype]):  # also what someone else allowed stays as it is
        before = set(get_safe_globals())
        open_ogb("pcqm4m-v2", tmp_path)
        loaded("pcqm4m-v2", tmp_path)
        assert set(get_safe_globals()) == before
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(folder / "split_dict.pt")


@pytest.mark.parametrize("hidden", ["value", "key", "array"])
def test_code_in_a_file_is_not_run(tmp_path, hidden):
    trap = Trap(tmp_path / "sprung")
    content = {
        "value": {"train": trap},
        "key": {"train": [1], 1: {"deep": [trap]}},
        "array": {"train": np.array([trap], dtype=object)},
    }[hidden]
    torch.save(content, tmp_path / "split_dict.pt")
    with pytest.raises(ValueError, match=r"split_dict.pt is not read: it has \w+\.mkdir in it"):
        read_pt(tmp_path / "split_dict.pt")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("file", ["pre_transform.pt", "geometric_data_processed.pt"])
def test_code_in_processed_files_is_not_run(tmp_path, file):
    folder = write_lsc(tmp_path, "pcqm4m-v2")
    open_ogb("pcqm4m-v2", tmp_path)
    torch.save(Trap(tmp_path / "sprung"), folder / "processed" / file)
    with pytest.raises(ValueError, match=f"{file} is not read"):
        open_ogb("pcqm4m-v2", tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("length", [0, 10, 300])
def test_damaged_file_is_named(tmp_path, length):
    path = write_lsc(tmp_path, "pcqm4m-v2") / "split_dict.pt"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"split_dict.pt is not read: it is damaged"):
        read_pt(path)


@pytest.mark.parametrize(
    ("message", "splits"),
    [
        (r"has \['train'\], expected the splits train, valid", {"train": np.arange(3)}),
        ("has Tensor, expected the splits", torch.arange(3)),
        (
            r"split 'valid' is float64 \[1\], expected integers",
            {**LSC_SPLITS["pcqm4m-v2"], "valid": np.zeros(1)},
        ),
        (
            "split 'valid' has row 10 and the table 10 rows",
            {**LSC_SPLITS["pcqm4m-v2"], "valid": np.array([10])},
        ),
    ],
)
def test_splits_that_do_not_belong_to_the_table_are_refused(tmp_path, message, splits):
    folder = write_lsc(tmp_path, "pcqm4m-v2")
    torch.save(splits, folder / "split_dict.pt")
    with pytest.raises(ValueError, match=message):
        loaded("pcqm4m-v2", tmp_path)


def test_rejected_molecule_of_a_split_is_reported(tmp_path):
    write_lsc(tmp_path, "pcqm4m-v2", [*MOLECULES[:3], "C1CC", *MOLECULES[4:]])
    with pytest.warns(UserWarning, match=r"1 of 4 molecules of split 'train'.*rejected\.csv"):
        dataset = loaded("pcqm4m-v2", tmp_path)
    rows = {split: dataset.store.rows[part].tolist() for split, part in dataset.splits.items()}
    assert rows == {**LSC_SPLITS["pcqm4m-v2"], "train": [7, 0, 4]}


def test_folder_of_an_older_release_is_used_with_a_warning(tmp_path):
    folder = write_lsc(tmp_path, "pcqm4m-v2")
    (folder / "RELEASE_v1.txt").unlink()
    with pytest.warns(UserWarning, match=r"has no RELEASE_v1.txt"):
        assert len(open_ogb("pcqm4m-v2", tmp_path)) == 10


def test_prepared_molecules_are_enough_without_the_table(tmp_path):
    folder = write_lsc(tmp_path, "pcqm4m-v2")
    loaded("pcqm4m-v2", tmp_path)
    shutil.rmtree(folder / "raw")
    assert len(loaded("pcqm4m-v2", tmp_path).store) == 10


@pytest.mark.parametrize("name", [*LSC_FOLDERS, MOL])
def test_offline_one_sentence_says_what_is_missing_and_where_it_is(tmp_path, name):
    root = tmp_path / "data"
    source = MolSource(name, root) if name == MOL else None
    url = source.meta["url"] if source else LSC[name].url
    file = source.path if source else root / LSC[name].folder / "raw" / "data.csv.gz"
    for call in (loaded, lambda name, root: open_ogb(name, root), source_of):
        with pytest.raises(MissingDataSet) as caught:
            call(name, root)
        message = str(caught.value)
        assert f"{name} is not here: there is no {file}" in message
        assert f"{url} cannot be fetched (<urlopen error no network here>)" in message
        assert f"unpack that into {root}" in message
        assert "\n" not in message
    assert not root.exists()


@pytest.mark.parametrize("name", [*LSC_FOLDERS, MOL])
def test_archive_that_lies_in_the_folder_is_unpacked(tmp_path, name):
    root = tmp_path / "root"
    if name == MOL:
        folder, archive = write_mol(tmp_path, name, TASKS, "tox21"), "tox21.zip"
    else:
        folder, archive = write_lsc(tmp_path, name), f"{LSC_FOLDERS[name]}.zip"
    zipped(folder, root / archive)
    assert len(loaded(name, root).store) == 10
    assert sorted(path.name for path in root.iterdir()) == sorted(
        [archive, name.replace("-", "_") if name == MOL else folder.name]
    )


def test_download_is_unpacked_where_ogb_expects_it(tmp_path, monkeypatch):
    archive = zipped(write_lsc(tmp_path, "pcqm4m-v2"), tmp_path / "pcqm4m-v2.zip")
    monkeypatch.setattr(ogb_download, "urlopen", lambda url, timeout: nullcontext())
    monkeypatch.setattr(
        ogb_download, "download_url", lambda url, folder: shutil.copy(archive, folder)
    )
    root = tmp_path / "a" / "root"
    assert len(open_ogb("pcqm4m-v2", root)) == 10
    assert [path.name for path in root.iterdir()] == ["pcqm4m-v2"]


def test_damaged_archive_is_named(tmp_path):
    (tmp_path / "pcqm4m-v2.zip").write_bytes(b"half of an archive")
    with pytest.raises(MissingDataSet, match=r"pcqm4m-v2.zip is damaged .*delete it"):
        loaded("pcqm4m-v2", tmp_path)


@pytest.mark.parametrize("form", ["csv", "arrays", "tensors"])
def test_ogbg_set_is_loaded_with_ogbs_splits_labels_and_metric(tmp_path, form):
    folder = write_mol(tmp_path, MOL, TASKS)
    if form != "csv":
        make = np.array if form == "arrays" else torch.tensor
        splits = {split: make(rows) for split, rows in MOL_SPLITS.items()}
        torch.save(splits, folder / "split" / "scaffold" / "split_dict.pt")
    dataset = loaded(MOL, tmp_path)
    assert as_lists(dataset.splits) == MOL_SPLITS
    assert dataset.task.kind == "binary"
    assert dataset.task.target_names == tuple(f"task-{task}" for task in range(TASKS))
    assert (dataset.task.metric, dataset.evaluator.name) == ("rocauc", "ROC-AUC")
    expected = np.genfromtxt(folder / "raw" / "graph-label.csv.gz", delimiter=",")
    np.testing.assert_array_equal(dataset.store.labels, expected.astype(np.float32))
    values = np.linspace(0, 1, expected.size).reshape(expected.shape)
    dataset.evaluator.update(dataset.store.labels, values)
    judge = graphproppred.Evaluator(MOL)
    assert (
        dataset.evaluator.compute() == judge.eval({"y_true": expected, "y_pred": values})["rocauc"]
    )


@pytest.mark.parametrize("form", ["csv", "arrays"])
def test_ogbs_object_of_an_ogbg_set_works(tmp_path, form):
    folder = write_mol(tmp_path, MOL, TASKS)
    if form == "arrays":
        splits = {split: np.array(rows) for split, rows in MOL_SPLITS.items()}
        torch.save(splits, folder / "split" / "scaffold" / "split_dict.pt")
    for _ in range(2):
        dataset = open_ogb(MOL, tmp_path)
        assert isinstance(dataset, graphproppred.PygGraphPropPredDataset)
        assert (dataset.num_tasks, dataset.eval_metric) == (TASKS, "rocauc")
        assert as_lists(dataset.get_idx_split()) == MOL_SPLITS
        assert np.array_equal(dataset[1].x, smiles2graph(MOLECULES[1])["node_feat"])
        assert dataset[0].y.shape == (1, TASKS)


def test_folder_that_ogb_used_before_is_taken(tmp_path):
    folder = write_mol(tmp_path, MOL, TASKS, "ogbg_moltox21_pyg")
    assert loaded(MOL, tmp_path).store.folder.parent == folder


def test_regression_of_ogb_has_its_unit_and_metric(tmp_path):
    write_mol(tmp_path, "ogbg-molesol", 1)
    task = loaded("ogbg-molesol", tmp_path).task
    assert (task.kind, task.metric, task.unit) == ("regression", "rmse", "log mol/L")


def test_table_with_another_number_of_tasks_is_refused(tmp_path):
    write_mol(tmp_path, MOL, TASKS - 1)
    with pytest.raises(
        ValueError, match=r"has 11 columns beside smiles and mol_id, expected the 12"
    ):
        loaded(MOL, tmp_path)


def test_changed_table_is_not_taken_for_the_prepared_one(tmp_path):
    folder = write_lsc(tmp_path, "pcqm4m-v2")
    loaded("pcqm4m-v2", tmp_path)
    write_csv_gz(folder / "raw" / "data.csv.gz", [("smiles", "homolumogap"), ("CC", 1.0)])
    with pytest.raises(ValueError, match=r"was prepared from another data.csv.gz"):
        loaded("pcqm4m-v2", tmp_path)


def test_names_are_no_molecules_or_unknown(tmp_path):
    with pytest.raises(ValueError, match="ogbg-ppa is a data set of OGB, but not of molecules"):
        loaded("ogbg-ppa", tmp_path)
    with pytest.raises(ValueError, match="'ogbg-molnew' is no set of molecules of OGB"):
        open_ogb("ogbg-molnew", tmp_path)


def test_nothing_warns_when_all_is_well(tmp_path):
    write_lsc(tmp_path, "pcqm4m-v2")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loaded("pcqm4m-v2", tmp_path)
