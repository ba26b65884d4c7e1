"""The store: molecules, views and batches; folders that are damaged are recognised and named."""

import json
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.small_store import (
    ATOM_SIZES,
    BOND_SIZES,
    Graph,
    chain,
    random_graph,
    write_json,
    write_meta,
    write_store,
)
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from slicegraph import files
from slicegraph.data.prepare import write_graphs
from slicegraph.data.smiles import MoleculeGraph
from slicegraph.data.store import (
    MoleculeStore,
    StoreError,
    array_types,
    count_duplicates,
    read_meta,
)
from slicegraph.files import sha256_of

GRAPHS = [random_graph(4, 5, 0), chain(1), random_graph(7, 9, 1), chain(3), random_graph(2, 0, 2)]
LABELS = [[0.5, 1.0], [-2.0, float("nan")], [3.25, 0.0], [0.0, 7.0], [1.0, 1.0]]
SMILES = ["CC", "[Fe+2]", "not é SMILES", "", "CC"]


@pytest.fixture
def store(tmp_path: Path) -> MoleculeStore:
    names = ["gap", "dipole"]
    return MoleculeStore(write_store(tmp_path / "store", GRAPHS, LABELS, SMILES, names))


def given_labels(store: MoleculeStore) -> MoleculeStore:
    labels = np.arange(15, dtype=np.float64).reshape(5, 3)
    return store.with_labels(labels, (labels % 3 - 1).astype(np.int8), ("a", "b", "c"))


def edges_of(graph: Graph) -> tuple[list[list[int]], list[list[int]]]:
    """Each bond there and back, and its features twice."""
    both = [edge for i, j in graph[1] for edge in ((i, j), (j, i))]
    return [[i for i, _ in both], [j for _, j in both]], [f for f in graph[2] for _ in range(2)]


def arrays_of(graph: Graph) -> MoleculeGraph:
    atoms, bonds, features = (np.array(part, dtype=np.uint8) for part in graph)
    return MoleculeGraph(atoms, bonds.reshape(-1, 2).astype(np.uint16), features.reshape(-1, 3))


@pytest.mark.parametrize("i", range(5))
def test_molecule_is_what_was_written(store: MoleculeStore, i: int) -> None:
    data, (edge_index, edge_attr) = store[i], edges_of(GRAPHS[i])
    assert data.x.tolist() == GRAPHS[i][0]
    assert data.edge_index.tolist() == edge_index
    assert data.edge_attr.tolist() == edge_attr
    assert data.edge_attr.shape[1] == 3
    assert {data[name].dtype for name in ("x", "edge_index", "edge_attr")} == {torch.int64}
    assert torch.equal(data.y.nan_to_num(99), torch.tensor([LABELS[i]]).nan_to_num(99))
    assert data.smiles == SMILES[i] == store.smiles(i)
    assert data.index.tolist() == [i]
    assert store[i - 5].x.tolist() == GRAPHS[i][0]


def test_columns_are_what_was_written(store: MoleculeStore) -> None:
    assert len(store) == 5
    assert np.array_equal(store.labels, np.array(LABELS, dtype=np.float32), equal_nan=True)
    assert store.label_names == ["gap", "dipole"]
    assert store.num_atoms.tolist() == [4, 1, 7, 3, 2]
    assert store.rows.tolist() == [0, 1, 2, 3, 4]
    assert store.meta["molecules"] == 5
    assert repr(store[1:3]) == f"MoleculeStore({str(store.folder)!r}, 2 of 5)"


@pytest.mark.parametrize("index", [5, -6, [0, 5], [True] * 4])
def test_index_beyond_the_end_is_an_index_error(store: MoleculeStore, index: object) -> None:
    with pytest.raises(IndexError, match="MoleculeStore of 5 molecules"):
        store[index]


@pytest.mark.parametrize("index", [1.0, "1", [0.5], [[1, 2]], None])
def test_what_is_no_index_is_a_type_error(store: MoleculeStore, index: object) -> None:
    with pytest.raises(TypeError):
        store[index]


VIEWS = [
    (slice(1, 4), [1, 2, 3]),
    (slice(None, None, -2), [4, 2, 0]),
    ([3, 0, 3], [3, 0, 3]),
    ((4, -5), [4, 0]),
    (range(2), [0, 1]),
    (np.array([2, 1], dtype=np.uint8), [2, 1]),
    (np.array([True, False, False, True, False]), [0, 3]),
    ([False, True, False, False, False], [1]),
    (torch.tensor([4]), [4]),
    (torch.tensor([False, False, True, True, False]), [2, 3]),
    ([], []),
]


@pytest.mark.parametrize(("index", "expected"), VIEWS)
def test_view_has_the_chosen_molecules(
    store: MoleculeStore, index: object, expected: list[int]
) -> None:
    view = store[index]
    assert len(view) == len(expected)
    assert [data.x.tolist() for data in view] == [GRAPHS[i][0] for i in expected]
    assert [view.smiles(k) for k in range(len(view))] == [SMILES[i] for i in expected]
    assert view.rows.tolist() == view.positions.tolist() == expected
    assert view.num_atoms.tolist() == [len(GRAPHS[i][0]) for i in expected]
    assert np.array_equal(view.labels, store.labels[expected], equal_nan=True)
    assert view.batch(slice(None)).index.tolist() == expected


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, torch.tensor, np.array])
def test_whole_number_of_any_kind_is_one_molecule(store: MoleculeStore, kind: type) -> None:
    assert store[kind(2)].smiles == SMILES[2]


def test_view_of_a_view_keeps_positions_in_the_store(store: MoleculeStore) -> None:
    view = store[1:][[3, 1]]
    assert view.batch([1, 0]).index.tolist() == [2, 4]
    assert view[0].index.tolist() == [4]


@pytest.mark.parametrize("indices", [[0], [4, 0, 2, 2, 1, 3], [1], [-1, 4], slice(1, 4)])
def test_batch_is_the_molecules_one_after_another(
    store: MoleculeStore, indices: list[int] | slice
) -> None:
    chosen = range(5)[indices] if isinstance(indices, slice) else indices
    expected = Batch.from_data_list([store[i] for i in chosen])
    arrays = store.batch(indices)
    for name in ("x", "ptr", "edge_index", "edge_attr", "y", "index"):
        found = torch.from_numpy(getattr(arrays, name))
        assert torch.equal(found.nan_to_num(99), expected[name].to(found.dtype).nan_to_num(99))
    assert arrays.edge_ptr.tolist() == expected._slice_dict["edge_index"].tolist()
    kinds = {
        name: str(array.dtype) for name, array in arrays._asdict().items() if array is not None
    }
    assert kinds["x"] == kinds["edge_attr"] == "uint8"
    assert kinds["ptr"] == kinds["edge_index"] == kinds["index"] == "int64"
    assert kinds["y"] == "float32"


def test_batch_may_be_written_to(store: MoleculeStore) -> None:
    given = given_labels(store)
    for array in given.batch(slice(None)):
        if array is not None:
            array.fill(0)
    assert given.labels[1].tolist() == [3, 4, 5]
    assert given.bounds[1].tolist() == [-1, 0, 1]
    assert [data.smiles for data in store] == SMILES
    assert store[2].x.tolist() == GRAPHS[2][0]


def test_files_are_mapped_and_never_written(store: MoleculeStore) -> None:
    for array in store._arrays.values():
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


@pytest.mark.parametrize("view", [slice(None), slice(1, 4), [3, 0]])
def test_pickled_store_opens_the_same_molecules_from_elsewhere(
    store: MoleculeStore, view: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.folder.parent)
    pickled = pickle.dumps(MoleculeStore("store")[view])
    monkeypatch.chdir(os.sep)
    copy = pickle.loads(pickled)
    assert [data.smiles for data in copy] == [data.smiles for data in store[view]]
    assert copy.batch([0, -1]).index.tolist() == store[view].batch([0, -1]).index.tolist()


def test_pickle_is_small_whatever_the_number_of_atoms(tmp_path: Path) -> None:
    large = MoleculeStore(write_store(tmp_path, [chain(2000)] * 3))
    assert len(pickle.dumps(large)) < 4000


def test_pickle_of_a_folder_that_was_made_again_is_refused(store: MoleculeStore) -> None:
    pickled = pickle.dumps(store)
    write_store(store.folder, GRAPHS[::-1])
    with pytest.raises(StoreError, match="was prepared again"):
        pickle.loads(pickled)


def test_other_labels_and_bounds_survive_views_and_pickling(store: MoleculeStore) -> None:
    given = pickle.loads(pickle.dumps(given_labels(store)[[3, 1]]))
    assert given.labels.dtype == np.float32
    assert given.labels.tolist() == [[9, 10, 11], [3, 4, 5]]
    assert given.bounds.dtype == np.int8
    assert given.bounds.tolist() == [[-1, 0, 1]] * 2
    assert given.label_names == ["a", "b", "c"]
    assert given[1].y.tolist() == [[3, 4, 5]]
    assert given[1].bound.tolist() == [[-1, 0, 1]]
    assert store.label_names == ["gap", "dipole"]
    assert store.bounds is None
    np.testing.assert_array_equal(store.labels, np.float32(LABELS))


def test_labels_of_a_view_are_for_its_molecules(store: MoleculeStore) -> None:
    given = store[[4, 2]].with_labels(np.array([[1.0, 2.0], [3.0, float("nan")]]))
    np.testing.assert_array_equal(given.labels, [[1, 2], [3, float("nan")]])
    assert given[[1]].labels[0, 0] == 3
    assert given.bounds is None


@pytest.mark.parametrize("what", ["labels", "bounds"])
def test_labels_of_another_shape_are_refused(store: MoleculeStore, what: str) -> None:
    shapes = {"labels": (5, 2), "bounds": (5, 2)} | {what: (4, 2)}
    with pytest.raises(ValueError, match=rf"{what} have shape \[4, 2\], expected \[5, 2\]"):
        store.with_labels(*(np.zeros(shape) for shape in shapes.values()))


def test_store_without_labels_and_text(tmp_path: Path) -> None:
    store = MoleculeStore(write_store(tmp_path, GRAPHS))
    assert store.labels.shape == (5, 0)
    assert store.batch([1, 2]).y.shape == (2, 0)
    assert store.smiles(2) == ""
    assert set(store[0].keys()) == {"x", "edge_index", "edge_attr", "index"}


def test_store_of_nothing(tmp_path: Path) -> None:
    store = MoleculeStore(write_store(tmp_path, []))
    assert len(store) == 0
    assert list(store) == []
    arrays = store.batch([])
    assert (arrays.x.shape, arrays.edge_index.shape, arrays.ptr.tolist()) == ((0, 9), (2, 0), [0])


def test_package_writes_the_bytes_of_the_format(tmp_path: Path) -> None:
    by_hand = write_store(tmp_path / "hand", GRAPHS, LABELS, names=["gap", "dipole"])
    graphs = [(arrays_of(graph), labels) for graph, labels in zip(GRAPHS, LABELS, strict=True)]
    names = {"label_names": ["gap", "dipole"], "source_name": "small"}
    write_graphs(tmp_path / "ours", graphs, ATOM_SIZES, BOND_SIZES, **names)
    for path in sorted(by_hand.iterdir()):
        if path.name != "meta.json":
            assert (tmp_path / "ours" / path.name).read_bytes() == path.read_bytes(), path.name


def test_pyg_loader_batches_a_store(store: MoleculeStore) -> None:
    batch = next(iter(DataLoader(store, batch_size=5)))
    assert batch.smiles == SMILES
    assert batch.index.tolist() == [0, 1, 2, 3, 4]
    assert [data.index.tolist() for data in batch.to_data_list()] == [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize("at_once", [50, 999, 4000, 10**6])
def test_duplicates_are_counted_in_any_amount_of_memory(tmp_path: Path, at_once: int) -> None:
    digests = np.random.default_rng(0).integers(0, 5000, 4000, dtype=np.uint64) << np.uint64(50)
    digests.tofile(tmp_path / "digests")
    repeated = len(digests) - len(set(digests.tolist()))
    assert count_duplicates(tmp_path / "digests", at_once) == repeated


DAMAGED = [chain(4), random_graph(5, 6, 0), chain(2)]
ARRAYS = [
    *("atoms.npy", "atom_ptr.npy", "bonds.npy", "bond_features.npy", "bond_ptr.npy"),
    *("labels.npy", "rows.npy", "smiles.npy", "smiles_ptr.npy"),
]
FILES = [*ARRAYS, "rejected.csv"]
fuzzed = settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    labels, smiles = [[1.0], [2.0], [3.0]], ["CCCC", "O", "CC"]
    return write_store(tmp_path / "molecules", DAMAGED, labels, smiles)


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    whole = path.read_bytes()
    content = bytearray(whole)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    yield
    path.write_bytes(whole)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_file_of_another_size_is_named(folder: Path, name: str, verify: bool) -> None:
    content = (folder / name).read_bytes()
    size = len(content)
    (folder / name).write_bytes(content[:-1])
    with pytest.raises(StoreError, match=f"{name} is truncated: {size - 1} bytes, expected {size}"):
        MoleculeStore(folder, verify)
    (folder / name).write_bytes(content + b"\0")
    with pytest.raises(StoreError, match=f"{name} is too long"):
        MoleculeStore(folder, verify)
    (folder / name).unlink()
    with pytest.raises(StoreError, match=f"molecules': {name} is missing; copy it again"):
        MoleculeStore(folder, verify)


@fuzzed
@given(name=st.sampled_from(FILES), data=st.data())
def test_every_flipped_bit_is_found(folder: Path, name: str, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * (folder / name).stat().st_size - 1))
    message = f"{name} is damaged: its SHA-256 is"
    with flipped(folder / name, bit), pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


def test_files_are_hashed_once_and_again_after_a_change(folder: Path, monkeypatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(files, "_YOUNG", -(10**9))  # of any age
    monkeypatch.setattr(files, "sha256_of", lambda path: read.append(path.name) or sha256_of(path))
    for _ in range(3):
        MoleculeStore(folder)
    assert sorted(read) == sorted(FILES)
    content = (folder / "atoms.npy").read_bytes()
    (folder / "atoms.npy").write_bytes(content)  # the same content at another time
    MoleculeStore(folder)
    assert read[len(FILES) :] == ["atoms.npy"]
    (folder / "atoms.npy").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreError, match=r"atoms\.npy is damaged"):
        MoleculeStore(folder)


def test_a_young_file_is_not_remembered(folder: Path) -> None:
    (folder / "atoms.npy").touch()
    MoleculeStore(folder)
    path = folder / "checksums.json"
    assert "atoms.npy" not in (json.loads(path.read_text()) if path.exists() else {})


@pytest.mark.parametrize("content", ["", "[1]", '{"atoms.npy": []}', '{"atoms.npy": 5}', "{", "7"])
def test_checksums_that_are_damaged_are_made_again(folder: Path, content: str) -> None:
    (folder / "checksums.json").write_text(content)
    assert len(MoleculeStore(folder))


@fuzzed
@given(data=st.data())
def test_flipped_bit_in_meta_is_found_or_changes_nothing(folder: Path, data: st.DataObject) -> None:
    before, path = read_meta(folder), folder / "meta.json"
    with flipped(path, data.draw(st.integers(0, 8 * path.stat().st_size - 1))):
        try:
            after = read_meta(folder)
        except StoreError:
            after = before
    assert {key: after[key] for key in before} == before


@fuzzed
@given(name=st.sampled_from(ARRAYS), bit=st.integers(0, 8 * 128 - 1))
def test_damaged_header_is_named_or_harmless_without_verifying(
    folder: Path, name: str, bit: int
) -> None:
    with flipped(folder / name, bit):
        try:
            found = MoleculeStore(folder, verify=False).batch([0, 1, 2])
        except StoreError as error:
            found = None
            assert name in str(error)  # noqa: PT017
    for array, expected in zip(found or (), MoleculeStore(folder).batch([0, 1, 2]), strict=False):
        assert np.array_equal(array, expected)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("atoms.npy", r"half-written: it has no meta\.json.*prepare` again"),
        ("parts", "is half-written"),
        ("notes.txt", r"is not a store: it has no meta\.json"),
    ],
)
def test_folder_without_meta_is_named_with_the_remedy(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(StoreError, match=message):
        MoleculeStore(tmp_path)
    with pytest.raises(StoreError, match="nowhere': there is no such folder; make it with"):
        MoleculeStore(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="is a file, expected the folder"):
        MoleculeStore(tmp_path / name)


@pytest.mark.parametrize(
    "text", ["", "{", "\xff\xfe", "[" * 100_000, '{"format": "slicegraph-molecules",']
)
def test_meta_that_is_not_json_is_named(folder: Path, text: str) -> None:
    (folder / "meta.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError, match=r"meta\.json is not JSON"):
        MoleculeStore(folder)


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', "{}", '{"format": "parquet"}'])
def test_foreign_meta_is_named(folder: Path, text: str) -> None:
    (folder / "meta.json").write_text(text)
    with pytest.raises(StoreError, match=r"is foreign: meta\.json has format .*, expected"):
        MoleculeStore(folder)


def change(folder: Path, **values: Any) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    del meta["checksum"]
    write_json(folder, {**meta, **values})


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("has version 2, expected 1; update slicegraph", {"version": 2}),
        ("has version 0, expected 1", {"version": 0}),
        ("has version True, expected 1", {"version": True}),
        ("has version '1', expected 1", {"version": "1"}),
        ("molecules = -1, expected int", {"molecules": -1}),
        ("atoms = None, expected int", {"atoms": None}),
        ("labels = 'gap', expected list", {"labels": "gap"}),
        ("wrong atom_vocabulary", {"atom_vocabulary": [0]}),
        ("wrong bond_vocabulary", {"bond_vocabulary": [1 << 40, 1 << 40]}),
        ("bond_vocabulary = ..many.., expected ints", {"bond_vocabulary": ["many"]}),
        ("labels = .1., expected strs", {"labels": [1]}),
        ("no sha256 and bytes of 'atoms.npy'", {"files": {}}),
    ],
)
def test_meta_with_a_wrong_value_is_named(
    folder: Path, message: str, values: dict[str, Any]
) -> None:
    change(folder, **values)
    with pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


def test_file_outside_the_folder_is_refused(folder: Path) -> None:
    files = json.loads((folder / "meta.json").read_text())["files"]
    change(folder, files={**files, "../atoms.npy": files["atoms.npy"]})
    with pytest.raises(StoreError, match=r"'\.\./atoms\.npy'"):
        MoleculeStore(folder)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (r"atoms\.npy holds uint32 \[11\], expected uint32 \[12\]", {"atoms": 12}),
        (r"bonds\.npy holds uint16 \[10, 2\], expected uint16 \[9, 2\]", {"bonds": 9}),
        (r"labels\.npy holds float32 \[3, 1\], expected float32 \[3, 2\]", {"labels": ["a", "b"]}),
        (r"atoms\.npy holds uint32 \[11\], expected uint8 \[11\]", {"atom_vocabulary": [119]}),
    ],
)
def test_array_that_differs_from_meta_is_named(
    folder: Path, message: str, values: dict[str, Any]
) -> None:
    change(folder, **values)
    with pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


def rewrite(folder: Path, name: str, edit: Callable[[np.ndarray], np.ndarray]) -> None:
    """Another array in place of one, with its right checksum."""
    meta = json.loads((folder / "meta.json").read_text())
    np.save(folder / name, edit(np.load(folder / name)), allow_pickle=True)
    write_meta(folder, {key: meta[key] for key in meta if key not in ("files", "checksum")})


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("atom_ptr.npy", [0, 4, 9, 10], r"atom_ptr\.npy goes from 0 to 10, expected 0 to 11"),
        ("bond_ptr.npy", [1, 3, 9, 10], r"bond_ptr\.npy goes from 1 to 10, expected 0 to 10"),
        ("smiles_ptr.npy", [0, 4, 5, 6], r"smiles_ptr\.npy goes from 0 to 6, expected 0 to 7"),
        ("atom_ptr.npy", [0, 9, 4, 11], r"must not descend, but 4 follows 9 at position 1"),
    ],
)
def test_wrong_pointers_are_named(folder: Path, name: str, values: list[int], message: str) -> None:
    rewrite(folder, name, lambda _: np.array(values))
    with pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("labels.npy", lambda a: a.astype(object), r"labels\.npy is not an npy file"),
        ("rows.npy", lambda a: a.astype("<i4"), r"rows\.npy holds int32"),
        ("rows.npy", lambda a: a.astype(">i8"), r"rows\.npy holds >i8"),
        ("bonds.npy", np.asfortranarray, r"bonds\.npy holds uint16 .* in C order"),
    ],
)
def test_array_of_another_kind_is_named(
    folder: Path, name: str, edit: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    rewrite(folder, name, edit)
    with pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


def test_type_of_codes_follows_the_vocabulary() -> None:
    types = array_types([28], [300, 2], labels=3)
    assert types["atoms.npy"] == (np.dtype("u1"), ())
    assert types["bond_features.npy"] == (np.dtype("<u2"), ())
    assert types["labels.npy"] == (np.dtype("<f4"), (3,))
