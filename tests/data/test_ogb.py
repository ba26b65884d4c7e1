"""OGB's folders: PCQM4Mv2, PCQM4M and ogbg-mol*, read without a prompt, a network or a risk."""

import builtins
import pickle
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

from slicegraph.data import open_ogb, prepare
from slicegraph.data.datasets import DATASETS, load_dataset, ogb, source
from slicegraph.data.datasets.ogb import MOL_SIZES, read_pt
from slicegraph.data.datasets.source import MissingDataset

pytestmark = pytest.mark.usefixtures("nothing_asked_and_nothing_fetched")
V2, MOL, TASKS = "pcqm4m-v2", "ogbg-moltox21", 12
CLASSES = {V2: lsc.PygPCQM4Mv2Dataset, "pcqm4m": lsc.PygPCQM4MDataset}


@pytest.fixture
def nothing_asked_and_nothing_fetched(monkeypatch) -> None:
    def refuse_prompt(*words: str) -> str:
        raise AssertionError(f"waits at a prompt: {words}")

    def no_network(*words: object, **options: object) -> None:
        raise URLError("no network here")

    monkeypatch.setattr(builtins, "input", refuse_prompt)
    monkeypatch.setattr(source, "urlopen", no_network)


def loaded(name: str, root: Path):
    return load_dataset(name, root, workers=1, progress=False)


def written(name: str, root: Path) -> Path:
    return write_mol(root, name, TASKS) if name == MOL else write_lsc(root, name)


def as_lists(splits: dict) -> dict[str, list[int]]:
    return {split: rows.tolist() for split, rows in splits.items()}


@pytest.mark.parametrize(("name", "challenge"), [(V2, "PCQM4Mv2"), ("pcqm4m", "PCQM4M")])
def test_folder_version_and_address_are_ogbs(tmp_path, name, challenge):
    class Facts(getattr(lsc, f"{challenge}Dataset")):
        def prepare_smiles(self) -> None:
            """Only the attributes of the constructor are wanted."""

    facts, found = Facts(root=str(tmp_path), only_smiles=True), DATASETS[name](name, tmp_path)
    assert (facts.folder, facts.url, facts.version) == (str(found.folder), found.url, 1)


def test_every_molecule_set_of_ogb_is_known():
    path = Path(graphproppred.__file__).parent / "master.csv"
    names = path.read_text().splitlines()[0].split(",")[1:]
    assert sorted(MOL_SIZES) == sorted(name for name in names if name.startswith("ogbg-mol"))


@pytest.mark.parametrize("name", LSC_SPLITS)
def test_challenge_is_loaded_with_ogbs_splits_and_labels(tmp_path, name):
    folder = write_lsc(tmp_path, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
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
    shutil.rmtree(folder / "raw")  # the prepared molecules are enough
    assert len(loaded(name, tmp_path).store) == 10


@pytest.mark.parametrize("name", LSC_SPLITS)
def test_ogbs_own_object_works_when_processing_and_when_reading_back(tmp_path, name):
    folder = write_lsc(tmp_path, name)
    for _ in range(2):
        dataset = open_ogb(name, tmp_path)
        assert isinstance(dataset, CLASSES[name])
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
        assert len(pickle.loads(pickle.dumps(dataset))) == 10  # as a worker process gets it
        assert (folder / "processed" / "geometric_data_processed.pt").is_file()
    dataset = open_ogb(name, tmp_path, transform=lambda data: data.num_nodes)
    assert list(dataset)[:3] == [3, 6, 1]


def test_arrays_that_numpy_1_wrote_are_read(tmp_path):
    path = write_lsc(tmp_path, V2) / "split_dict.pt"
    with zipfile.ZipFile(path) as new, zipfile.ZipFile(tmp_path / "old.pt", "w") as old:
        for entry in new.infolist():
            content = new.read(entry)
            old.writestr(entry.filename, content.replace(b"numpy._core.", b"numpy.core."))
        assert b"numpy.core.multiarray" in old.read("split_dict/data.pkl")
    assert as_lists(read_pt(tmp_path / "old.pt")) == LSC_SPLITS[V2]


def test_torch_load_is_as_strict_as_before(tmp_path):
    folder = write_lsc(tmp_path, V2)
    torch.save(Trap(tmp_path / "sprung"), tmp_path / "trap.pt")
    with safe_globals([np.dtype]):  # what the user allowed stays allowed
        before = set(get_safe_globals())
        open_ogb(V2, tmp_path)
        with pytest.raises(ValueError, match="is not read"):
            read_pt(tmp_path / "trap.pt")
        assert set(get_safe_globals()) == before
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(folder / "split_dict.pt")


@pytest.mark.parametrize("wrap", [list, lambda trap: np.array(trap, dtype=object)])
def test_code_in_a_file_is_not_run(tmp_path, wrap):
    content = {"train": [1], 1: {"deep": wrap([Trap(tmp_path / "sprung")])}}
    torch.save(content, tmp_path / "split_dict.pt")
    with pytest.raises(ValueError, match=r"split_dict.pt is not read: it has \w+\.mkdir in it"):
        read_pt(tmp_path / "split_dict.pt")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("file", ["pre_transform.pt", "geometric_data_processed.pt"])
def test_code_in_processed_files_is_not_run(tmp_path, file):
    folder = write_lsc(tmp_path, V2)
    open_ogb(V2, tmp_path)
    torch.save(Trap(tmp_path / "sprung"), folder / "processed" / file)
    with pytest.raises(ValueError, match=f"{file} is not read"):
        open_ogb(V2, tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("length", [0, 10, 300])
def test_damaged_file_is_named(tmp_path, length):
    path = write_lsc(tmp_path, V2) / "split_dict.pt"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"split_dict.pt is not read: it is damaged"):
        read_pt(path)


@pytest.mark.parametrize(
    ("message", "splits"),
    [
        (r"has \['train'\], expected the splits train, valid", {"train": np.arange(3)}),
        ("has Tensor, expected the splits", torch.arange(3)),
        (r"'valid' is float64 \[1\], expected integers", {**LSC_SPLITS[V2], "valid": np.zeros(1)}),
        ("'valid' has row 10 and the table 10", {**LSC_SPLITS[V2], "valid": np.array([10])}),
    ],
)
def test_splits_that_do_not_belong_to_the_table_are_refused(tmp_path, message, splits):
    torch.save(splits, write_lsc(tmp_path, V2) / "split_dict.pt")
    with pytest.raises(ValueError, match=message):
        loaded(V2, tmp_path)


def test_rejected_molecule_of_a_split_is_reported(tmp_path):
    write_lsc(tmp_path, V2, [*MOLECULES[:3], "C1CC", *MOLECULES[4:]])
    with pytest.warns(UserWarning, match=r"1 of 4 molecules of split 'train'.*rejected\.csv"):
        dataset = loaded(V2, tmp_path)
    rows = {split: dataset.store.rows[part].tolist() for split, part in dataset.splits.items()}
    assert rows == {**LSC_SPLITS[V2], "train": [7, 0, 4]}


def test_folder_of_an_older_release_is_used_with_a_warning(tmp_path):
    (write_lsc(tmp_path, V2) / "RELEASE_v1.txt").unlink()
    with pytest.warns(UserWarning, match=r"has no RELEASE_v1.txt"):
        assert len(open_ogb(V2, tmp_path)) == 10


@pytest.mark.parametrize("name", [*LSC_SPLITS, MOL])
def test_offline_one_sentence_names_the_missing_file_and_its_address(tmp_path, name):
    root = tmp_path / "data"
    found = DATASETS[name](name, root)
    for call in (loaded, open_ogb, lambda *args: prepare(args[0], root / "s", root=root)):
        with pytest.raises(MissingDataset) as caught:
            call(name, root)
        message = str(caught.value)
        assert f"{name} is not here: there is no {found.path}" in message
        assert f"{found.url} cannot be fetched (<urlopen error no network here>)" in message
        assert f"rename {found.inner} to {found.folder}" in message
        assert "\n" not in message
    assert not root.exists()


@pytest.mark.parametrize("name", [*LSC_SPLITS, MOL])
def test_archive_in_the_root_is_unpacked(tmp_path, name):
    root = tmp_path / "root"
    found = DATASETS[name](name, root)
    folder = written(name, tmp_path).rename(tmp_path / found.inner)
    archive = zipped(folder, root / found.url.rpartition("/")[2])
    assert len(loaded(name, root).store) == 10
    assert {path.name for path in root.iterdir()} == {archive.name, found.folder.name}
    shutil.rmtree(found.folder)
    archive.write_bytes(b"half of an archive")
    with pytest.raises(MissingDataset, match=rf"{archive.name} is damaged .*delete it"):
        loaded(name, root)


def test_download_is_unpacked_where_ogb_expects_it(tmp_path, monkeypatch):
    archive = zipped(write_lsc(tmp_path, V2), tmp_path / "pcqm4m-v2.zip")
    monkeypatch.setattr(source, "urlopen", lambda url, timeout: nullcontext())
    monkeypatch.setattr(ogb, "download_url", lambda url, folder: shutil.copy(archive, folder))
    root = tmp_path / "a" / "root"
    assert len(open_ogb(V2, root)) == 10
    assert [path.name for path in root.iterdir()] == [V2]


@pytest.mark.parametrize("form", ["csv", "arrays", "tensors"])
def test_ogbg_set_is_loaded_with_ogbs_splits_labels_and_metric(tmp_path, form):
    folder = write_mol(tmp_path, MOL, TASKS)
    if form != "csv":
        make = np.array if form == "arrays" else torch.tensor
        splits = {split: make(rows) for split, rows in MOL_SPLITS.items()}
        torch.save(splits, folder / "split" / "scaffold" / "split_dict.pt")
    dataset = loaded(MOL, tmp_path)
    assert as_lists(dataset.splits) == MOL_SPLITS
    assert (dataset.task.kind, dataset.task.num_classes) == ("binary", 2)
    assert dataset.task.target_names == tuple(f"task-{task}" for task in range(TASKS))
    assert (dataset.task.metric, dataset.evaluator.name) == ("rocauc", "ROC-AUC")
    expected = np.genfromtxt(folder / "raw" / "graph-label.csv.gz", delimiter=",")
    np.testing.assert_array_equal(dataset.store.labels, expected.astype(np.float32))
    for _ in range(2):
        theirs = open_ogb(MOL, tmp_path)
        assert isinstance(theirs, graphproppred.PygGraphPropPredDataset)
        assert (theirs.num_tasks, theirs.eval_metric) == (TASKS, "rocauc")
        assert as_lists(theirs.get_idx_split()) == MOL_SPLITS
        assert np.array_equal(theirs[1].x, smiles2graph(MOLECULES[1])["node_feat"])
        assert theirs[0].y.shape == (1, TASKS)


def test_folder_that_ogb_used_before_is_taken(tmp_path):
    folder = write_mol(tmp_path, MOL, TASKS, "ogbg_moltox21_pyg")
    assert loaded(MOL, tmp_path).store.folder.parent == folder


def test_regression_of_ogb_has_its_unit_and_metric(tmp_path):
    write_mol(tmp_path, "ogbg-molesol", 1)
    task = loaded("ogbg-molesol", tmp_path).task
    assert (task.kind, task.metric, task.unit) == ("regression", "rmse", "log mol/L")


def test_table_with_another_number_of_tasks_is_refused(tmp_path):
    write_mol(tmp_path, MOL, TASKS - 1)
    with pytest.raises(ValueError, match=r"has 11 columns besides smiles and mol_id, .* the 12"):
        loaded(MOL, tmp_path)


def test_changed_table_is_not_taken_for_the_prepared_one(tmp_path):
    folder = write_lsc(tmp_path, V2)
    loaded(V2, tmp_path)
    write_csv_gz(folder / "raw" / "data.csv.gz", [("smiles", "homolumogap"), ("CC", 1.0)])
    with pytest.raises(ValueError, match=r"was prepared from another data.csv.gz .*delete"):
        loaded(V2, tmp_path)


@pytest.mark.parametrize("name", ["data.DataEdgeAttr", "data.DataTensorAttr", "storage"])
def test_private_name_of_pyg_may_be_missing(monkeypatch, name):
    before = len(list(ogb.pyg_classes()))
    monkeypatch.delattr(f"torch_geometric.data.{name}")
    assert len(list(ogb.pyg_classes())) == before - 1


def test_unknown_set_of_ogb_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'ogbg-molnew' is not a molecule set of OGB"):
        open_ogb("ogbg-molnew", tmp_path)
