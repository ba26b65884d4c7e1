"""A batch made at once is the batch that PyG makes of the same molecules."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.small_store import chain, random_graph, write_store
from torch_geometric.data import Batch, Data

from slicegraph.data.batch.collate import collate
from slicegraph.data.store.molecule_store import MoleculeStore
from slicegraph.models import GraphSliceformer, GraphSliceformerConfig
from slicegraph.transforms import StructuralEncoding

GRAPHS = [random_graph(4, 5, 0), chain(1), random_graph(7, 9, 1), chain(6), random_graph(2, 0, 2)]
PICKS = [[0], [1, 1], [3, 0, 4, 2], [4, 1], [2, 3, 1, 0, 4, 2]]


@pytest.fixture(params=[2, 0], ids=["labels", "none"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> MoleculeStore:
    labels = [[i, -i] for i in range(5)] if request.param else None
    smiles = ["A", "B", "C", "D", "E"]
    return MoleculeStore(write_store(tmp_path, GRAPHS, labels, smiles, ["gap", "dipole"]))


def assert_same_graph(actual: Data, expected: Data) -> None:
    assert set(actual.keys()) == set(expected.keys()) - {"smiles"}
    for name in actual.keys():  # noqa: SIM118
        value = expected[name]
        assert torch.equal(actual[name], value.to(actual[name].dtype)), name


@pytest.mark.parametrize("encode", [None, StructuralEncoding(), StructuralEncoding(3, 2)])
@pytest.mark.parametrize("picks", PICKS, ids=str)
def test_batch_is_that_of_pyg(
    store: MoleculeStore, picks: list[int], encode: StructuralEncoding | None
) -> None:
    graphs = [store[i] if encode is None else encode(store[i]) for i in picks]
    batch = collate(store, picks, encode)
    assert_same_graph(batch, Batch.from_data_list(graphs))
    assert batch.num_graphs == len(picks)
    assert batch.index.tolist() == picks


def test_batch_separates_into_its_molecules(store: MoleculeStore) -> None:
    picks, encode = [3, 0, 4, 1], StructuralEncoding()
    batch = collate(store, picks, encode)
    for graph, i in zip(batch.to_data_list(), picks, strict=True):
        assert_same_graph(graph, encode(store[i]))
    assert_same_graph(batch[2], encode(store[4]))
    assert [graph.index.tolist() for graph in batch[1:3]] == [[0], [4]]


def test_separated_molecules_make_the_batch_again(store: MoleculeStore) -> None:
    batch = collate(store, [3, 0, 4, 1])
    assert_same_graph(Batch.from_data_list(batch.to_data_list()), batch)


def test_numbers_are_small(store: MoleculeStore) -> None:
    batch = collate(store, [0, 1, 2])
    dtypes = {name: str(batch[name].dtype).removeprefix("torch.") for name in batch.keys()}  # noqa: SIM118
    assert dtypes.pop("y", "float32") == "float32"
    assert dtypes == {
        **dict.fromkeys(("x", "edge_attr", "pair_distance"), "uint8"),
        **dict.fromkeys(("pair_path", "in_degree", "out_degree"), "int16"),
        **dict.fromkeys(("edge_index", "ptr", "batch", "index"), "int64"),
    }


def test_labels_are_absent_where_the_store_has_none(tmp_path: Path) -> None:
    batch = collate(MoleculeStore(write_store(tmp_path, GRAPHS)), [0, 1])
    assert batch.y is None


def test_index_counts_in_the_whole_store(store: MoleculeStore) -> None:
    assert collate(store[[4, 2, 0]], [1, 0]).index.tolist() == [2, 4]


def test_every_tensor_moves_with_the_batch(store: MoleculeStore) -> None:
    moved = collate(store, [0, 2]).to("meta")
    assert all(value.is_meta for _, value in moved)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a CUDA device pins memory")
def test_every_tensor_is_pinned_with_the_batch(store: MoleculeStore) -> None:
    pinned = collate(store, [0, 2]).pin_memory()
    assert all(value.is_pinned() for _, value in pinned)


def through_pickle(batch: Batch) -> Batch:
    return pickle.loads(pickle.dumps(batch))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, through_pickle])
def test_copies_of_a_batch_still_separate(
    store: MoleculeStore, duplicate: Callable[[Batch], Batch]
) -> None:
    batch = collate(store, [3, 0])
    assert_same_graph(duplicate(batch), batch)
    assert_same_graph(duplicate(batch)[1], batch[1])


def test_changing_a_batch_leaves_the_store_alone(store: MoleculeStore) -> None:
    batch = collate(store, slice(None))
    for _, value in batch:
        value.zero_()
    assert store[4].index.tolist() == [4]
    assert store[2].x.tolist() == GRAPHS[2][0]


def test_no_molecules_are_an_error(store: MoleculeStore) -> None:
    with pytest.raises(ValueError, match="indices are empty"):
        collate(store, [])


@pytest.mark.parametrize("mixer", ["sort_attn", "sort"])
def test_model_takes_the_batch_with_and_without_encoding(store: MoleculeStore, mixer: str) -> None:
    torch.manual_seed(0)
    config = GraphSliceformerConfig(
        num_layers=1, channels=16, ffn_channels=16, heads=2, mixer=mixer
    )
    model = GraphSliceformer(config).eval()
    encoded, plain = (model(collate(store, [0, 2, 3], e)) for e in (StructuralEncoding(), None))
    assert torch.equal(encoded, plain)
    assert len(encoded) == 3
