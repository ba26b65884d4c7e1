"""From a table to a store: every row kept or rejected with its reason, and resumable."""

import gzip
import json
import math
import os
import resource
import shutil
import signal
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ogb.utils import smiles2graph
from rdkit import Chem
from support.molecule_tables import contents, molecule_csv, random_smiles, rejected, write_csv

from slicegraph.data.cells import ColumnFormat
from slicegraph.data.prepare import (
    PrepareError,
    prepare,
    write_graphs,
)
from slicegraph.data.smiles import OGB_ATOM_CODE, OGB_BOND_CODE, read_smiles
from slicegraph.data.store import ARRAYS, MoleculeStore, StoreError
from slicegraph.data.table import open_table

module = import_module("slicegraph.data.prepare")  # the package has a function of this name
store_module = import_module("slicegraph.data.store")

FILES = {*ARRAYS, "rejected.csv", "meta.json"}
CHUNK = {"chunk_rows": 10, "workers": 1}


@pytest.fixture
def source(tmp_path):
    return molecule_csv(tmp_path / "molecules.csv", 60)


@pytest.fixture
def whole(source, tmp_path):
    """What the files of `source` should be."""
    prepare(source, tmp_path / "whole", **CHUNK)
    return contents(tmp_path / "whole")


@pytest.fixture
def interrupted(source, tmp_path, monkeypatch):
    """A folder with a whole log, and the run ended before the files were written."""

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_store", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(source, tmp_path / "store", **CHUNK)
    return tmp_path / "store"


def test_a_store_has_the_graphs_of_ogb_in_the_order_of_the_rows(tmp_path):
    texts = random_smiles(50)
    source = write_csv(tmp_path / "a.csv", [[text, 1] for text in texts])
    options = {"canonical": False, "chunk_rows": 7, "workers": 2, "labels": ["gap"]}
    prepare(source, tmp_path / "store", **options)
    store = MoleculeStore(tmp_path / "store")
    assert [store.smiles(i) for i in range(len(store))] == texts
    for data, text in zip(store, texts, strict=True):
        expected = smiles2graph(text)
        assert np.array_equal(data.x, expected["node_feat"])
        assert np.array_equal(data.edge_index, expected["edge_index"])
        assert np.array_equal(data.edge_attr, expected["edge_feat"])


def test_labels_are_float32_and_gaps_are_nan(tmp_path):
    rows = [["C", "0.1", "", "3"], ["CC", "NaN", "-2e3", "n/a"], ["CCC", " 1 ", "5", "None"]]
    source = write_csv(tmp_path / "a.csv", rows, ["smiles", "a", "b", "c"])
    prepare(source, tmp_path / "store", labels=["a", "b", "c"])
    store = MoleculeStore(tmp_path / "store")
    nan = math.nan
    expected = np.float32([[0.1, nan, 3], [nan, -2e3, nan], [1, 5, nan]])
    assert np.array_equal(store.labels, expected, equal_nan=True)
    assert list(store.label_names) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "label", "reason"),
    [
        ("C1CC", "1", "unclosed ring"),
        ("", "1", "no SMILES"),
        ("  ", "1", "no SMILES"),
        ("CCO", "", "no label"),
        ("CCO", "nan", "no label"),
        ("CCO", "high", "gap = 'high' is not a number"),
        ("CCO", "1,5", "gap = '1,5' is not a number"),
        ("CCO", "1_000", "gap = '1_000' is not a number"),
        ("CCO", "inf", "gap = 'inf' is not finite"),
        ("CCO", "-Infinity", "gap = '-Infinity' is not finite"),
        ("CCO", "1e39", "gap = '1e39' is too large for float32"),
    ],
)
def test_a_bad_row_is_listed_with_its_number_text_and_reason(tmp_path, text, label, reason):
    source = write_csv(tmp_path / "a.csv", [["C", "1"], [text, label], ["CC", "2"]])
    result = prepare(source, tmp_path / "store", labels=["gap"])
    assert (result.molecules, result.rejected) == (2, 1)
    ((row, shown, why),) = rejected(tmp_path / "store")
    assert (row, shown) == (1, text)
    assert reason in why
    assert list(MoleculeStore(tmp_path / "store").rows) == [0, 2]


_LINES = st.one_of(
    st.sampled_from([b"CCO,1", b"C1CC,1", b"CCO,", b"CCO,x", b"", b'"C","2"', b"C C,1"]),
    st.binary(max_size=20),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace") + b",1"),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(_LINES, max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_every_row_is_in_the_store_or_rejected(tmp_path_factory, lines, end):
    folder = tmp_path_factory.mktemp("any")
    (folder / "a.csv").write_bytes(end.join([b"smiles,gap", b"C,1", *lines]))
    count = sum(1 for _ in open_table(folder / "a.csv", "smiles", ["gap"]).rows())
    result = prepare(folder / "a.csv", folder / "store", smiles="smiles", labels=["gap"], **CHUNK)
    store = MoleculeStore(folder / "store")
    rows = [*store.rows.tolist(), *(row for row, _, _ in rejected(folder / "store"))]
    assert (len(store), len(rows)) == (result.molecules, result.molecules + result.rejected)
    assert sorted(rows) == list(range(count))


def test_long_texts_and_bytes_that_are_not_text_are_listed_readably(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"smiles,gap\nC\xff\x00,1\nCC,2\n" + b"(" * 5000 + b",1\n")
    prepare(tmp_path / "a.csv", tmp_path / "store")
    first, (_, text, _) = rejected(tmp_path / "store")
    assert first == (0, r"C\xff\x00", "holds bytes that are not UTF-8, or NUL")
    assert text == "(" * 1000 + "... (5,000 characters)"


def test_unlabelled_keeps_rows_without_a_label(tmp_path):
    source = write_csv(tmp_path / "a.csv", [["C", "1"], ["CC", ""]])
    result = prepare(source, tmp_path / "store", unlabelled=True, labels=["gap"])
    assert (result.molecules, result.rejected) == (2, 0)
    assert np.isnan(MoleculeStore(tmp_path / "store").labels[1, 0])


def test_a_table_without_labels_has_none(tmp_path):
    (tmp_path / "a.smi").write_text("CCO ethanol\nbad\nC methane\n")
    result = prepare(tmp_path / "a.smi", tmp_path / "store")
    store = MoleculeStore(tmp_path / "store")
    assert (result.molecules, result.rejected, result.smiles) == (2, 1, None)
    assert store.labels.shape == (2, 0)


@pytest.mark.parametrize(("canonical", "duplicates"), [(True, 3), (False, 2)])
def test_duplicates_are_kept_and_counted_by_their_graph(tmp_path, canonical, duplicates):
    texts = ["CCO", "OCC", "CCO", "C", "CC", "C"]
    source = write_csv(tmp_path / "a.csv", [[text, i] for i, text in enumerate(texts)])
    options = {"canonical": canonical, "labels": ["gap"], "workers": 1, "chunk_rows": 2}
    result = prepare(source, tmp_path / "store", **options)
    assert (result.molecules, result.duplicates) == (6, duplicates)


@pytest.mark.parametrize("options", [{"workers": 3}, {"chunk_rows": 1000}])
def test_the_files_do_not_depend_on_workers_nor_chunks(source, whole, tmp_path, options):
    prepare(source, tmp_path / "store", **{**CHUNK, **options})
    assert contents(tmp_path / "store") == whole


def test_the_files_do_not_depend_on_where_they_are(source, whole, tmp_path):
    elsewhere = tmp_path / "deep" / "er"
    elsewhere.mkdir(parents=True)
    copied = elsewhere / source.name
    copied.write_bytes(source.read_bytes())
    os.utime(copied, (0, 0))
    prepare(copied, elsewhere / "store", **CHUNK)
    assert contents(elsewhere / "store") == whole
    assert str(tmp_path).encode() not in b"".join(whole.values())


def test_a_folder_has_the_files_of_the_format_and_nothing_else(whole):
    assert whole.keys() == FILES
    assert json.loads(whole["meta.json"])["files"].keys() == FILES - {"meta.json"}
    for name in ARRAYS:
        assert whole[name].startswith(b"\x93NUMPY\x01\x00")


@pytest.mark.parametrize("workers", [1, 2])
def test_strict_stops_at_the_first_bad_row_of_the_source(tmp_path, workers):
    rows = [["C", 1.5]] * 40
    rows[23], rows[31] = ["C1CC", 1], ["CC(", 1]
    source = write_csv(tmp_path / "a.csv", rows)
    with pytest.raises(PrepareError, match=r"^row 23: 'C1CC': .*unclosed ring"):
        prepare(source, tmp_path / "store", strict=True, chunk_rows=4, workers=workers)


def test_strict_stops_at_a_bad_row_that_an_earlier_run_let_pass(source, interrupted):
    with pytest.raises(PrepareError, match=r"^row 5: 'C1CC': "):
        prepare(source, interrupted, strict=True, **CHUNK)
    prepare(source, interrupted, **CHUNK)
    with pytest.raises(PrepareError, match=r"'molecules.csv' has 8 bad rows"):
        prepare(source, interrupted, strict=True, **CHUNK)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "smiles,gap\nC1CC,1\nCC,x\n",
            "all 2 rows are bad, the first is row 0: 'C1CC'",
        ),
        ("smiles,gap\n", "'a.csv' has no rows"),
        ("", "'a.csv' is empty"),
    ],
)
def test_a_table_without_molecules_is_an_error_and_leaves_no_parts(tmp_path, content, message):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path / "a.csv", tmp_path / "store", labels=["gap"] if content else None)
    assert not (tmp_path / "store").exists() or contents(tmp_path / "store") == {}


def written(folder: Path) -> dict[Path, tuple[int, ...]]:
    """Which file each is, and when it was written; the time of reading does not count."""
    each = {path: path.stat() for path in folder.iterdir()}
    return {path: (own.st_ino, own.st_mtime_ns, own.st_size) for path, own in each.items()}


def test_a_complete_folder_is_left_alone(source, tmp_path):
    first = prepare(source, tmp_path / "store", **CHUNK)
    before = written(tmp_path / "store")
    again = prepare(source, tmp_path / "store", workers=2)
    assert (first.was_complete, again.was_complete) == (False, True)
    assert (again.molecules, again.duplicates) == (first.molecules, first.duplicates)
    other = molecule_csv(tmp_path / "other.csv", 20, seed=1)
    for table, change, message in (
        (source, {"canonical": False}, "canonical = True, not False"),
        (source, {"unlabelled": True}, "unlabelled = False, not True"),
        (source, {"labels": []}, r"labels = \['gap'\], not \[\]"),
        (other, {}, "sha256 = "),
        (other, {"restart": True}, "sha256 = "),
    ):
        with pytest.raises(StoreError, match=message):
            prepare(table, tmp_path / "store", **CHUNK, **change)
    assert written(tmp_path / "store") == before
    path = tmp_path / "store" / "bonds.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(StoreError, match=r"bonds.npy is damaged"):
        prepare(source, tmp_path / "store", **CHUNK)


def test_an_interrupted_run_goes_on_where_it_was(source, interrupted, whole, monkeypatch):
    monkeypatch.delattr(module, "read_smiles")  # every part is there
    result = prepare(source, interrupted, **CHUNK)
    assert result.kept_rows == 60
    assert contents(interrupted) == whole


def damaged(content: bytes, at: int) -> list[bytes]:
    """The content cut off, with a bit changed, and with its beginning repeated at the end."""
    changed = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
    return [content[:at], changed, content + content[:at]]


@pytest.mark.parametrize("kind", range(3))
def test_a_damaged_log_is_used_up_to_the_damage(source, interrupted, whole, kind, tmp_path):
    content = (interrupted / "parts" / "parts.log").read_bytes()
    kept = []
    for number, at in enumerate(np.linspace(0, len(content) - 1, 20, dtype=int)):
        store = shutil.copytree(interrupted, tmp_path / str(number))
        (store / "parts" / "parts.log").write_bytes(damaged(content, at)[kind])
        kept.append(prepare(source, store, **CHUNK).kept_rows)
        assert contents(store) == whole
    assert kept == sorted(kept)
    assert set(kept) == ({60} if kind == 2 else {0, 10, 20, 30, 40, 50})


def test_a_log_that_is_damaged_before_it_is_read_again_is_named(source, tmp_path, monkeypatch):
    def damage(*arguments):
        (tmp_path / "store" / "parts" / "parts.log").write_bytes(b"")
        return write_store(*arguments)

    write_store = store_module.write_store
    monkeypatch.setattr(store_module, "write_store", damage)
    with pytest.raises(PrepareError, match=r"parts.log was damaged"):
        prepare(source, tmp_path / "store", **CHUNK)
    monkeypatch.undo()
    assert prepare(source, tmp_path / "store", **CHUNK).kept_rows == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"canonical": False}, "another settings .*canonical was True, is False"),
        ({"labels": []}, r"another settings .*labels was \['gap'\], is \[\]"),
        ("rdkit", r"another software .*rdkit was .*is '1999.01.1'"),
        ("source", r"another source .*sha256 was .*--restart"),
    ],
)
def test_an_interrupted_run_of_another_job_is_refused_until_restarted(
    source, interrupted, tmp_path, monkeypatch, change, message
):
    before, options = contents(interrupted), CHUNK if isinstance(change, str) else CHUNK | change
    if change == "source":
        molecule_csv(source, 70)
    if change == "rdkit":
        monkeypatch.setattr(module.rdkit, "__version__", "1999.01.1")
    with pytest.raises(StoreError, match=f"begun with {message}"):
        prepare(source, interrupted, **options)
    assert contents(interrupted) == before
    prepare(source, interrupted, restart=True, **options)
    prepare(source, tmp_path / "fresh", **options)
    assert contents(interrupted) == contents(tmp_path / "fresh")


def test_a_source_that_changes_while_it_is_read_is_named(source, tmp_path, monkeypatch):
    def append(text, canonical):
        with open(source, "a") as file:
            file.write("C,1\n")
        return read_smiles(text, canonical)

    monkeypatch.setattr(module, "read_smiles", append)
    with pytest.raises(ValueError, match=r"'molecules.csv' changed while it was read"):
        prepare(source, tmp_path / "store", chunk_rows=1000, workers=1)


@pytest.mark.parametrize(
    "name", ["notes.txt", "atoms.npy", "parts/notes.txt", "parts/parts.log", "parts/job.json"]
)
@pytest.mark.parametrize("restart", [False, True])
def test_a_folder_with_files_of_others_is_refused_and_left_alone(source, tmp_path, name, restart):
    path = tmp_path / "store" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(StoreError, match=f"holds {name!r}, which is not ours"):
        prepare(source, tmp_path / "store", restart=restart, **CHUNK)
    found = contents(tmp_path / "store")
    found.pop("parts/", None)
    assert found == {name: b"{}"}


def test_a_stranger_in_our_parts_is_refused_and_left_alone(source, interrupted):
    (interrupted / "parts" / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"holds 'parts/thesis.txt'"):
        prepare(source, interrupted, restart=True, **CHUNK)
    assert (interrupted / "parts" / "thesis.txt").read_text() == "mine"


def test_a_folder_that_is_a_file_is_refused(source, tmp_path):
    (tmp_path / "store").write_text("mine")
    with pytest.raises(StoreError, match="is a file, expected a folder"):
        prepare(source, tmp_path / "store")


@pytest.mark.parametrize("stage", ["parts", "files"])
def test_a_full_disk_is_an_error_and_the_same_call_goes_on(
    source, whole, tmp_path, monkeypatch, stage
):
    def full(file):
        calls.append(file.name)
        if len(calls) > 3:
            raise OSError(28, "No space left on device", file.name)

    calls = []
    rows, folder = 30 if stage == "parts" else 60, tmp_path / "store"
    with monkeypatch.context() as patch:
        patch.setattr(module if stage == "parts" else store_module, "sync", full)
        with pytest.raises(PrepareError, match=f"no room is left .*'{folder}', after {rows} rows"):
            prepare(source, folder, **CHUNK)
    assert {path.name for path in (folder / "parts").iterdir()} == {"job.json", "parts.log"}
    assert prepare(source, folder, **CHUNK).kept_rows >= rows
    assert contents(folder) == whole


def test_a_real_limit_on_files_is_an_error_and_the_same_call_goes_on(tmp_path):
    source = write_csv(tmp_path / "a.csv", [["C" * 10, 1]] * 400)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    options = {"labels": ["gap"], "chunk_rows": 10, "workers": 2}
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(
            PrepareError, match=r"File too large.* after \d+ rows; all finished rows are kept"
        ):
            prepare(source, tmp_path / "store", **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert prepare(source, tmp_path / "store", **options).kept_rows >= 30
    prepare(source, tmp_path / "fresh", **options)
    assert contents(tmp_path / "store") == contents(tmp_path / "fresh")


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked, with the patch, on Linux")
def test_a_row_that_ends_its_process_costs_that_row_only(tmp_path, monkeypatch):
    def die(text, canonical):
        if text == "CCCCC":
            os.kill(os.getpid(), signal.SIGKILL)
        return read_smiles(text, canonical)

    rows = [["C", 1]] * 60
    rows[36] = rows[37] = ["CCCCC", 1]
    options = {"labels": ["gap"], "chunk_rows": 10, "workers": 2}
    monkeypatch.setattr(module, "read_smiles", die)
    result = prepare(write_csv(tmp_path / "a.csv", rows), tmp_path / "store", **options)
    assert (result.molecules, result.rejected) == (58, 2)
    for number, (row, text, reason) in enumerate(rejected(tmp_path / "store"), 36):
        assert (row, text) == (number, "CCCCC")
        assert "ended the process" in reason


def test_gzip_and_parquet_give_the_same_arrays(source, whole, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(source.read_bytes(), mtime=0))
    pandas.read_csv(source, dtype=str).to_parquet(tmp_path / "a.parquet", row_group_size=13)
    for name in ("a.csv.gz", "a.parquet"):
        prepare(tmp_path / name, tmp_path / f"{name}-store", **CHUNK)
        found = contents(tmp_path / f"{name}-store")
        del found["meta.json"]
        assert found.items() <= whole.items()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.csv", "there is no file 'missing.csv'"),
        ("missing.csv.gz", "there is no file 'missing.csv.gz'"),
        ("no/where", "there is no file 'no/where'"),
        (".", "'.' is a folder, expected a file"),
    ],
)
def test_a_source_that_is_no_file_is_named(tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        prepare(name, tmp_path / "store")


@pytest.mark.parametrize("option", ["workers", "chunk_rows"])
def test_no_workers_or_rows_at_all_are_refused(source, tmp_path, option):
    with pytest.raises(PrepareError, match=f"{option} = 0"):
        prepare(source, tmp_path / "store", **{**CHUNK, option: 0})


GRAPHS = [(read_smiles(text), [label]) for text, label in (("CCO", 1.5), ("C", math.nan))]
OGB = (OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary)


def test_graphs_in_memory_become_a_store(tmp_path):
    write_graphs(tmp_path / "store", GRAPHS, *OGB, label_names=["gap"], source_name="by hand")
    store = MoleculeStore(tmp_path / "store")
    assert contents(tmp_path / "store").keys() == FILES
    assert store.meta["source"]["name"] == "by hand"
    assert store.smiles(0) == ""
    assert np.array_equal(store.labels, np.float32([[1.5], [math.nan]]), equal_nan=True)
    for data, (graph, _) in zip(store, GRAPHS, strict=True):
        assert np.array_equal(data.x, graph.atoms)
        assert np.array_equal(data.edge_index.T[::2], graph.bonds)


def test_a_finished_store_is_not_overwritten_by_graphs(tmp_path):
    write_graphs(tmp_path / "store", GRAPHS, *OGB, label_names=["gap"], source_name="by hand")
    with pytest.raises(StoreError, match="is a finished store"):
        write_graphs(tmp_path / "store", GRAPHS, *OGB, label_names=["gap"], source_name="by hand")


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "there are no graphs"),
        ([(GRAPHS[0][0], [1.0, 2.0])], "graph 0 has 2 labels, expected 1"),
        (
            [GRAPHS[0], (GRAPHS[0][0]._replace(bonds=np.array([[0, 1], [1, 3]])), [1.0])],
            "graph 1 has bonds from atom 0 to 3, expected 0 to 2",
        ),
        ([(GRAPHS[0][0]._replace(bonds=np.zeros((1, 2), int)), [1.0])], r"expected \[2, 2\]"),
    ],
)
def test_graphs_that_do_not_fit_are_named(tmp_path, graphs, message):
    with pytest.raises(ValueError, match=message):
        write_graphs(tmp_path / "store", graphs, *OGB, label_names=["gap"], source_name="by hand")


def test_labels_are_read_by_their_formats(tmp_path):
    rows = [["C", "1.234,5", "Yes"], ["CC", "n.d.", "no"], ["CCC", "1.5", "maybe"]]
    source = write_csv(tmp_path / "a.csv", rows, ["smiles", "a", "b"])
    formats = {"a": ColumnFormat(",", "."), "b": ColumnFormat(words=(("yes", 1), ("no", 0)))}
    prepare(source, tmp_path / "store", labels=["a", "b"], formats=formats)
    expected = np.float32([[1234.5, 1], [math.nan, 0]])
    labels = MoleculeStore(tmp_path / "store").labels
    assert np.array_equal(labels, expected, equal_nan=True)
    assert "a = '1.5' is not a number with a decimal comma" in rejected(tmp_path / "store")[0][2]


@pytest.mark.parametrize(
    ("censored", "labels"), [("drop", [2]), ("value", [10, 2]), ("loss", [10, 2])]
)
def test_bounds_are_dropped_or_kept_as_the_format_has_it(tmp_path, censored, labels):
    source = write_csv(tmp_path / "a.csv", [["C", ">10"], ["CC", "2"]])
    formats = {"gap": ColumnFormat(censored=censored)}
    prepare(source, tmp_path / "store", labels=["gap"], formats=formats)
    assert MoleculeStore(tmp_path / "store").labels[:, 0].tolist() == labels


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bound_without_a_choice_stops_with_the_first_cell(tmp_path, workers):
    rows = [["C", "1"]] * 25 + [["CC", ">10"], ["C", "<3"]]
    source = write_csv(tmp_path / "a.csv", rows)
    message = r"row 25: gap = '>10' is a bound, .* drop, value, loss \(--censored\)"
    options = {"labels": ["gap"], "workers": workers, "chunk_rows": 10}
    with pytest.raises(PrepareError, match=message):
        prepare(source, tmp_path / "store", formats={"gap": ColumnFormat()}, **options)


def test_default_formats_leave_a_store_of_before_valid(source, tmp_path):
    prepare(source, tmp_path / "store", **CHUNK)
    again = prepare(source, tmp_path / "store", formats={"gap": ColumnFormat()}, **CHUNK)
    assert again.was_complete


@pytest.mark.parametrize("first", [{}, {"formats": {"gap": ColumnFormat(censored="drop")}}])
def test_a_store_of_other_formats_is_refused(source, tmp_path, first):
    other = {} if first else {"formats": {"gap": ColumnFormat(censored="value")}}
    prepare(source, tmp_path / "store", **CHUNK, **first)
    with pytest.raises(StoreError, match="another source or setting: formats = "):
        prepare(source, tmp_path / "store", **CHUNK, **other)


def test_standardised_molecules_have_their_new_smiles(tmp_path, monkeypatch):
    module = "slicegraph.data.molecules"
    monkeypatch.setattr(f"{module}.standardize", lambda t, s: t.split(".")[0] + "O" * len(s))
    monkeypatch.setattr(f"{module}.isotopologue", lambda text, steps: "")
    source = write_csv(tmp_path / "a.csv", [["CC.Cl", "1"]])
    prepare(source, tmp_path / "store", workers=1, standardize=["fragment"], labels=["gap"])
    store = MoleculeStore(tmp_path / "store")
    assert (store.smiles(0), store.meta["settings"]["standardize"]) == ("CCO", ["fragment"])


def test_inchi_is_kept_as_smiles(tmp_path):
    rows = [["InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3", "1"], ["InChI=1S/nonsense", "2"]]
    source = write_csv(tmp_path / "a.csv", rows, ["inchi", "gap"])
    prepare(source, tmp_path / "store", labels=["gap"])
    assert MoleculeStore(tmp_path / "store").smiles(0) == "CCO"
    ((_, text, reason),) = rejected(tmp_path / "store")
    assert (text, reason) == ("InChI=1S/nonsense", "RDKit cannot read this InChI")


def test_every_row_of_an_sdf_and_a_workbook_is_in_the_store_or_rejected(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles(text)) for text in ("CCO", "C")]
    record = "{}> <gap>\n{}\n\n$$$$\n"
    content = [record.format(*pair) for pair in zip([*blocks, "x\n"], "123", strict=True)]
    (tmp_path / "a.sdf").write_text("".join(content))
    book = openpyxl.Workbook()
    for line in (["smiles", "gap"], ["CCO", 1], [], ["C", 2], ["x", 3]):
        book.active.append(line)
    book.save(tmp_path / "a.xlsx")
    for name in ("a.sdf", "a.xlsx"):
        result = prepare(tmp_path / name, tmp_path / f"{name}-store", labels=["gap"])
        store = MoleculeStore(tmp_path / f"{name}-store")
        assert (result.molecules, result.rejected, list(store.rows)) == (2, 1, [0, 1])
        assert [store.smiles(0), store.labels[:, 0].tolist()] == ["CCO", [1, 2]]
