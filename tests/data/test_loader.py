"""The loader: the same batches whoever makes them, and no molecule left out."""

import pickle
from pathlib import Path

import pytest
import torch
from support.small_store import chain, random_graph, write_store
from torch_geometric.data import Batch

from slicegraph.data.batch.collate import collate
from slicegraph.data.batch.loader import molecule_loader
from slicegraph.data.store.molecule_store import MoleculeStore
from slicegraph.transforms import StructuralEncoding

GRAPHS = [random_graph(1 + i % 9, i % 7, i) for i in range(40)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> MoleculeStore:
    folder = tmp_path_factory.mktemp("loader") / "store"
    names = [f"molecule {i}" for i in range(40)]
    return MoleculeStore(write_store(folder, GRAPHS, [[float(i)] for i in range(40)], names))


def assert_same_batches(actual: list[Batch], expected: list[Batch]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert set(one.keys()) == set(other.keys())
        assert all(torch.equal(value, other[name]) for name, value in one)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2},
        {"num_workers": 1, "multiprocessing_context": "spawn"},
        {"num_workers": 2, "persistent_workers": False, "prefetch_factor": 1},
    ],
    ids=["forked", "spawned", "not persistent"],
)
def test_workers_make_the_same_batches(store: MoleculeStore, options: dict) -> None:
    alone = molecule_loader(store, 6, seed=3)
    with_workers = molecule_loader(store, 6, seed=3, **options)
    for _ in range(2):
        assert_same_batches(list(with_workers), list(alone))


def test_epoch_has_every_molecule_once_with_its_label(store: MoleculeStore) -> None:
    batches = list(molecule_loader(store, 6))
    index = torch.cat([batch.index for batch in batches])
    assert sorted(index.tolist()) == list(range(40))
    assert torch.equal(torch.cat([batch.y for batch in batches]).flatten(), index.float())


def test_loader_is_as_long_as_its_epoch(store: MoleculeStore) -> None:
    loader = molecule_loader(store, 6)
    assert len(loader) == len(list(loader)) == 7


def test_epochs_differ_and_can_be_chosen(store: MoleculeStore) -> None:
    loader = molecule_loader(store, 6)
    first, second = ([batch.index.tolist() for batch in loader] for _ in range(2))
    assert first != second
    loader.sampler.set_epoch(0)
    assert [batch.index.tolist() for batch in loader] == first


@pytest.mark.parametrize("num_workers", [0, 2])
def test_epoch_is_resumed_where_it_was(store: MoleculeStore, num_workers: int) -> None:
    loader = molecule_loader(store, 6, num_workers=num_workers)
    epochs = [list(loader), list(loader)]
    loader.sampler.resume(epoch=0, batch=3)
    assert_same_batches(list(loader), epochs[0][3:])
    assert_same_batches(list(loader), epochs[1])


def test_order_is_recovered_by_index_without_shuffling(store: MoleculeStore) -> None:
    predicted = torch.full((40,), torch.nan)
    for batch in molecule_loader(store, 6, shuffle=False):
        predicted[batch.index] = batch.y.flatten()
    assert predicted.tolist() == list(range(40))


def test_ranks_together_have_the_batches_of_one_process(store: MoleculeStore) -> None:
    alone = molecule_loader(store, 6)
    ranks = [molecule_loader(store, 3, rank=rank, world=2) for rank in range(2)]
    for whole, one, other in zip(alone, *ranks, strict=True):
        assert sorted(torch.cat([one.index, other.index]).tolist()) == sorted(whole.index.tolist())


def test_view_is_loaded_with_positions_of_the_store(store: MoleculeStore) -> None:
    batches = list(molecule_loader(store[[7, 30, 2]], 2, encode=None))
    assert sorted(i for batch in batches for i in batch.index.tolist()) == [2, 7, 30]


def test_encoding_is_optional_and_chosen(store: MoleculeStore) -> None:
    plain = next(iter(molecule_loader(store, 4, encode=None)))
    assert "pair_distance" not in plain
    encode = StructuralEncoding(max_distance=2, max_hops=1)
    encoded = next(iter(molecule_loader(store, 4, encode=encode)))
    assert_same_batches([encoded], [collate(store, encoded.index, encode)])
    assert encoded.pair_path.shape[1] == 1


def test_global_random_state_is_left_alone(store: MoleculeStore) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(molecule_loader(store, 6))
    assert torch.equal(torch.get_rng_state(), before)


def test_loader_is_pickled(store: MoleculeStore) -> None:
    loader = molecule_loader(store[5:], 6)
    copied = pickle.loads(pickle.dumps(loader))
    assert_same_batches(list(copied), list(loader))


def test_large_molecules_are_refused_by_name(tmp_path: Path) -> None:
    sizes = [3, 12, 2, 11, 13, 14]
    names = [f"molecule of {n}" for n in sizes]
    store = MoleculeStore(write_store(tmp_path, [chain(n) for n in sizes], smiles=names))
    message = (
        r"4 of 6 molecules have more than max_atoms = 10: "
        r"store\[1\] 'molecule of 12' \(12 atoms\), store\[3\] 'molecule of 11' \(11 atoms\), "
        r"store\[4\] .*, \.\.\.; keep them with"
    )
    with pytest.raises(ValueError, match=message):
        molecule_loader(store, 2, max_atoms=10)
    assert len(list(molecule_loader(store[store.num_atoms <= 10], 2, max_atoms=10))) == 1


def test_large_molecules_are_kept_when_asked(store: MoleculeStore) -> None:
    loader = molecule_loader(store, 6, max_atoms=2, oversize="keep")
    assert sorted(i for batch in loader for i in batch.index.tolist()) == list(range(40))


def test_molecules_at_the_limit_are_not_oversize(store: MoleculeStore) -> None:
    assert len(molecule_loader(store, 40, max_atoms=9)) == 1


def test_dropping_oversize_molecules_is_not_offered(store: MoleculeStore) -> None:
    with pytest.raises(ValueError, match="oversize = 'drop', expected 'refuse' or 'keep'"):
        molecule_loader(store, 6, max_atoms=2, oversize="drop")


def test_memory_is_pinned_only_where_there_is_a_gpu(store: MoleculeStore) -> None:
    assert molecule_loader(store, 6).pin_memory == torch.cuda.is_available()
    assert not molecule_loader(store, 6, pin_memory=False).pin_memory
