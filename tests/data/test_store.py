"""What is read from a store: molecules, views, batches; in this process and in others."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from support.small_store import ATOM_SIZES, BOND_SIZES, Graph, chain, random_graph, write_store
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from slicegraph.data.molecule.molecule_graph import MoleculeGraph
from slicegraph.data.store.graph_writer import write_graphs
from slicegraph.data.store.layout import StoreError
from slicegraph.data.store.molecule_store import MoleculeStore

GRAPHS = [random_graph(4, 5, 0), chain(1), random_graph(7, 9, 1), chain(3), random_graph(2, 0, 2)]
LABELS = [[0.5, 1.0], [-2.0, float("nan")], [3.25, 0.0], [0.0, 7.0], [1.0, 1.0]]
SMILES = ["CC", "[Fe+2]", "not é SMILES", "", "CC"]


@pytest.fixture
def store(tmp_path: Path) -> MoleculeStore:
    names = ["gap", "dipole"]
    return MoleculeStore(write_store(tmp_path / "store", GRAPHS, LABELS, SMILES, names))


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


def test_columns_are_what_was_written(store: MoleculeStore) -> None:
    assert len(store) == 5
    assert np.array_equal(store.labels, np.array(LABELS, dtype=np.float32), equal_nan=True)
    assert store.label_names == ["gap", "dipole"]
    assert store.num_atoms.tolist() == [4, 1, 7, 3, 2]
    assert store.rows.tolist() == [0, 1, 2, 3, 4]
    assert store.meta["molecules"] == 5


def test_negative_index_counts_from_the_end(store: MoleculeStore) -> None:
    assert store[-2].smiles == store.smiles(-2) == SMILES[3]
    assert store[-5].x.tolist() == GRAPHS[0][0]


@pytest.mark.parametrize("index", [5, -6, [0, 5], [True] * 4])
def test_index_beyond_the_end_is_an_index_error(store: MoleculeStore, index: object) -> None:
    with pytest.raises(IndexError, match="MoleculeStore of 5 molecules"):
        store[index]


@pytest.mark.parametrize("index", [1.0, "1", [0.5], [[1, 2]], None])
def test_what_is_no_index_is_a_type_error(store: MoleculeStore, index: object) -> None:
    with pytest.raises(TypeError):
        store[index]


def test_iterating_gives_every_molecule_and_ends(store: MoleculeStore) -> None:
    assert [data.smiles for data in store] == SMILES


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
    kinds = {name: str(array.dtype) for name, array in arrays._asdict().items()}
    assert kinds["x"] == kinds["edge_attr"] == "uint8"
    assert kinds["ptr"] == kinds["edge_index"] == kinds["index"] == "int64"
    assert kinds["y"] == "float32"


def test_batch_may_be_written_to(store: MoleculeStore) -> None:
    for array in store.batch(slice(None)):
        array.fill(0)
    assert [data.smiles for data in store] == SMILES
    assert store[2].x.tolist() == GRAPHS[2][0]


def test_files_are_mapped_and_never_written(store: MoleculeStore) -> None:
    for array in store._arrays.values():
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


@pytest.mark.parametrize("view", [slice(None), slice(1, 4), [3, 0]])
def test_pickled_store_opens_the_same_molecules(store: MoleculeStore, view: object) -> None:
    copy = pickle.loads(pickle.dumps(store[view]))
    assert [data.smiles for data in copy] == [data.smiles for data in store[view]]
    assert copy.batch([0, -1]).index.tolist() == store[view].batch([0, -1]).index.tolist()


def test_pickle_is_small_whatever_the_number_of_atoms(tmp_path: Path) -> None:
    large = MoleculeStore(write_store(tmp_path, [chain(2000)] * 3))
    assert len(pickle.dumps(large)) < 4000


def test_pickle_finds_its_folder_from_elsewhere(
    store: MoleculeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.folder.parent)
    pickled = pickle.dumps(MoleculeStore("store"))
    monkeypatch.chdir(os.sep)
    assert pickle.loads(pickled).smiles(0) == SMILES[0]


def test_pickle_of_a_folder_that_was_made_anew_is_refused(store: MoleculeStore) -> None:
    pickled = pickle.dumps(store)
    write_store(store.folder, GRAPHS[::-1])
    with pytest.raises(StoreError, match="was prepared anew"):
        pickle.loads(pickled)


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
    write_graphs(tmp_path / "ours", graphs, ATOM_SIZES, BOND_SIZES, ["gap", "dipole"], "small")
    for path in sorted(by_hand.iterdir()):
        if path.name != "meta.json":
            assert (tmp_path / "ours" / path.name).read_bytes() == path.read_bytes(), path.name


def test_pyg_loader_batches_a_store(store: MoleculeStore) -> None:
    batch = next(iter(DataLoader(store, batch_size=5)))
    assert batch.smiles == SMILES
    assert batch.index.tolist() == [0, 1, 2, 3, 4]
    assert [data.index.tolist() for data in batch.to_data_list()] == [[0], [1], [2], [3], [4]]


def test_representation_names_folder_and_size(store: MoleculeStore) -> None:
    assert repr(store[1:3]) == f"MoleculeStore({str(store.folder)!r}, 2 of 5)"
