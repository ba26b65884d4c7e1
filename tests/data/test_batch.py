"""Batches: the laws of an epoch, PyG's own batches, and a loader that leaves nothing out."""

import copy
import pickle
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.small_store import chain, random_graph, write_store
from torch_geometric.data import Batch, Data

from slicegraph.data.batch import SizeGroupedBatchSampler, collate, molecule_loader
from slicegraph.data.store import MoleculeStore
from slicegraph.models import GraphSliceformer, GraphSliceformerConfig
from slicegraph.transforms import StructuralEncoding

SIZES = [5 + (7 * i) % 31 for i in range(200)]
GRAPHS = [random_graph(4, 5, 0), chain(1), random_graph(7, 9, 1), chain(6), random_graph(2, 0, 2)]
laws = settings(deadline=None, max_examples=100)


@st.composite
def settings_of_ranks(draw: st.DrawFn, least_batch: int = 1) -> dict[str, object]:
    """What all ranks share; there are at least as many molecules as ranks."""
    world = draw(st.integers(1, 5))
    return {
        "sizes": draw(st.lists(st.integers(1, 50), min_size=world, max_size=60)),
        "batch_size": draw(st.integers(least_batch, 8)),
        "world": world,
        "seed": draw(st.integers(0, 3)),
        "window": draw(st.integers(0, 4)),
        "shuffle": draw(st.booleans()),
    }


def epoch_of(sampler: SizeGroupedBatchSampler, epoch: int = 0) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return list(sampler)


def ranks_of(options: dict[str, object], epoch: int) -> list[list[list[int]]]:
    world = int(options["world"])
    return [epoch_of(SizeGroupedBatchSampler(rank=r, **options), epoch) for r in range(world)]


@laws
@given(options=settings_of_ranks(), epoch=st.integers(0, 5))
def test_ranks_get_every_molecule_once_in_equal_shares(options: dict, epoch: int) -> None:
    ranks = ranks_of(options, epoch)
    assert ranks == ranks_of(options, epoch)
    seen = [i for rank in ranks for batch in rank for i in batch]
    assert sorted(seen) == list(range(len(options["sizes"])))
    expected = len(SizeGroupedBatchSampler(**options))
    assert [len(rank) for rank in ranks] == [expected] * options["world"]
    for shares in zip(*ranks, strict=True):
        counts = [len(share) for share in shares]
        assert min(counts) >= max(1, max(counts) - 1)
        assert max(counts) <= max(2, options["batch_size"])


@laws
@given(options=settings_of_ranks(least_batch=2), parts=st.integers(1, 3), epoch=st.integers(0, 5))
def test_parts_of_all_ranks_are_together_the_batch_of_one(
    options: dict, parts: int, epoch: int
) -> None:
    shares = options["world"] * parts
    assume(len(options["sizes"]) >= shares)
    one = options | {"batch_size": options["batch_size"] * shares, "world": 1}
    ranks = ranks_of(options | {"parts": parts}, epoch)
    turns = list(zip(*ranks, strict=True))
    updates = [turns[first : first + parts] for first in range(0, len(turns), parts)]
    together = [sorted(i for turn in update for batch in turn for i in batch) for update in updates]
    alone = epoch_of(SizeGroupedBatchSampler(**one), epoch)
    assert together == [sorted(batch) for batch in alone]
    assert all(batch for rank in ranks for batch in rank)


@laws
@given(options=settings_of_ranks(), epoch=st.integers(0, 5))
def test_all_but_two_batches_are_full(options: dict, epoch: int) -> None:
    counts = sorted(len(batch) for batch in ranks_of(options | {"world": 1}, epoch)[0])
    assert set(counts[2:]) <= {options["batch_size"]}
    if len(counts) > 1:
        assert 2 * counts[0] >= options["batch_size"]


@laws
@given(options=settings_of_ranks(), data=st.data())
def test_resumed_epoch_gives_the_batches_that_were_left(options: dict, data: st.DataObject) -> None:
    most = len(options["sizes"]) // options["world"]
    options["parts"] = data.draw(st.integers(1, min(3, most)))
    sampler = SizeGroupedBatchSampler(**options)
    epochs = [list(sampler) for _ in range(3)]
    epoch, batch = data.draw(st.integers(0, 1)), data.draw(st.integers(0, len(sampler)))
    resumed = SizeGroupedBatchSampler(**options)
    resumed.resume(epoch, batch)
    resumed.set_epoch(epoch)
    assert list(resumed) == epochs[epoch][batch:]
    assert list(resumed) == epochs[epoch + 1]


@laws
@given(options=settings_of_ranks(), epoch=st.integers(0, 5))
def test_dropping_the_last_leaves_full_batches_only(options: dict, epoch: int) -> None:
    whole = options["batch_size"] * options["world"]
    count = len(options["sizes"]) // whole
    if count == 0:
        with pytest.raises(ValueError, match="fill no batch"):
            SizeGroupedBatchSampler(drop_last=True, **options)
        return
    ranks = ranks_of(options | {"drop_last": True}, epoch)
    assert [[len(batch) for batch in rank] for rank in ranks] == [
        [options["batch_size"]] * count
    ] * options["world"]
    assert len({i for rank in ranks for batch in rank for i in batch}) == whole * count


def test_each_iteration_is_another_epoch_even_if_one_is_abandoned() -> None:
    sampler = SizeGroupedBatchSampler(SIZES, batch_size=10, window=4)
    first, second = list(sampler), list(sampler)
    assert {frozenset(batch) for batch in first}.isdisjoint(map(frozenset, second))
    assert [first, second] == [epoch_of(sampler, 0), epoch_of(sampler, 1)]
    next(iter(sampler))
    assert list(sampler) == epoch_of(SizeGroupedBatchSampler(SIZES, batch_size=10, window=4), 3)
    assert first != list(SizeGroupedBatchSampler(SIZES, batch_size=10, window=4, seed=1))


def test_every_place_in_the_epoch_is_equally_likely() -> None:
    """The mean place of any molecule is the middle: neither small nor large ones come early."""
    epochs, batches = 400, 20
    sampler = SizeGroupedBatchSampler(SIZES, batch_size=10, window=5)
    places = np.zeros(len(SIZES))
    for _ in range(epochs):
        for place, batch in enumerate(sampler):
            places[batch] += place / epochs
    # A mean of 400 uniform places has a deviation of sqrt((20^2 - 1) / 12 / 400) = 0.29.
    assert np.abs(places - (batches - 1) / 2).max() < 5 * 0.29


def test_batches_have_molecules_of_like_size() -> None:
    sizes = random.Random(0).choices(range(5, 50), k=3200)

    def padded(window: int) -> int:
        sampler = SizeGroupedBatchSampler(sizes, batch_size=32, window=window)
        return sum(len(batch) * max(sizes[i] for i in batch) for batch in sampler)

    assert padded(window=32) < 1.05 * sum(sizes)
    assert padded(window=0) > 1.7 * sum(sizes)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
@pytest.mark.parametrize(
    ("sizes", "batch_size", "window", "expected"),
    [
        ([3, 9, 4, 8, 1, 1], 2, 2, [[0, 2], [3, 1], [4, 5]]),
        ([1] * 9, 4, 0, [[0, 1, 2, 3], [4, 5, 6], [7, 8]]),
        ([9, 1, 8, 2, 7], 2, 0, [[0, 1], [2, 3], [4]]),
    ],
)
def test_without_shuffling_only_windows_are_sorted(
    sizes: list[int], batch_size: int, window: int, expected: list[list[int]], kind: Callable
) -> None:
    options = {"shuffle": False, "window": window}
    assert list(SizeGroupedBatchSampler(kind(sizes), batch_size, **options)) == expected


@pytest.mark.parametrize("shuffle", [True, False])
def test_single_molecules_a_rank_make_one_larger_batch(shuffle: bool) -> None:
    options = {"sizes": SIZES[:7], "batch_size": 1, "world": 3, "shuffle": shuffle}
    counts = [sorted(len(batch) for batch in rank) for rank in ranks_of(options, 0)]
    assert counts == [[1, 2], [1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("batch_size = 0, expected at least 1", {"batch_size": 0}),
        ("world = 0, expected at least 1", {"world": 0}),
        ("seed = -1, expected at least 0", {"seed": -1}),
        ("window = -1, expected at least 0", {"window": -1}),
        (r"rank = 2 is not in 0\.\.1", {"world": 2, "rank": 2}),
        ("3 molecules cannot be dealt out to 4 ranks of 1 parts; use at most 3", {"world": 4}),
        ("3 molecules fill no batch of 4", {"drop_last": True}),
        ("0 molecules", {"sizes": []}),
    ],
)
def test_wrong_settings_are_named(message: str, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"SizeGroupedBatchSampler: .*{message}"):
        SizeGroupedBatchSampler(**{"sizes": [1, 2, 3], "batch_size": 4, **options})


@pytest.mark.parametrize(("epoch", "batch"), [(-1, 0), (0, -1), (0, 3)])
def test_place_to_resume_outside_the_epoch_is_named(epoch: int, batch: int) -> None:
    sampler = SizeGroupedBatchSampler([1, 2, 3, 4], batch_size=2)
    with pytest.raises(ValueError, match=f"cannot resume at batch {batch} of epoch {epoch}"):
        sampler.resume(epoch, batch)


@pytest.fixture(params=["labels", "none", "bounds"])
def few(tmp_path: Path, request: pytest.FixtureRequest) -> MoleculeStore:
    labels = None if request.param == "none" else [[i, -i] for i in range(5)]
    store = MoleculeStore(write_store(tmp_path, GRAPHS, labels, list("ABCDE"), ["gap", "dipole"]))
    if request.param != "bounds":
        return store
    return store.with_labels(store.labels, np.arange(10, dtype=np.int8).reshape(5, 2) % 3 - 1)


def tensors(data: Data) -> dict[str, torch.Tensor]:
    return {name: value for name, value in data if name != "max_nodes"}


def assert_same_graph(actual: Data, expected: Data) -> None:
    assert tensors(actual).keys() == tensors(expected).keys() - {"smiles"}
    for name, value in tensors(actual).items():
        assert torch.equal(value, expected[name].to(value.dtype)), name


@pytest.mark.parametrize("encode", [None, StructuralEncoding(), StructuralEncoding(3, 2)])
@pytest.mark.parametrize("picks", [[0], [1, 1], [3, 0, 4, 2], [4, 1], [2, 3, 1, 0, 4, 2]], ids=str)
def test_batch_is_that_of_pyg_and_separates(
    few: MoleculeStore, picks: list[int], encode: StructuralEncoding | None
) -> None:
    graphs = [few[i] if encode is None else encode(few[i]) for i in picks]
    batch = collate(few, picks, encode)
    assert_same_graph(batch, Batch.from_data_list(graphs))
    assert batch.num_graphs == len(picks)
    assert batch.index.tolist() == picks
    assert ("y" in batch) == bool(few.meta["labels"])
    for graph, expected in zip(batch.to_data_list(), graphs, strict=True):
        assert_same_graph(graph, expected)
    assert_same_graph(Batch.from_data_list(batch.to_data_list()), batch)
    assert [graph.index.tolist() for graph in batch[:2]] == [[i] for i in picks[:2]]


def test_without_pygs_private_names_pyg_makes_the_batch(
    few: MoleculeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = collate(few[1:], [3, 0])
    monkeypatch.setattr("slicegraph.data.batch._pyg_is_known", lambda: False)
    batch = collate(few[1:], [3, 0])
    assert_same_graph(batch, expected)
    assert_same_graph(batch[1], expected[1])


def test_numbers_are_small(few: MoleculeStore) -> None:
    batch = tensors(collate(few, [0, 1, 2]))
    dtypes = {name: str(value.dtype).removeprefix("torch.") for name, value in batch.items()}
    assert dtypes.pop("y", "float32") == "float32"
    assert dtypes.pop("bound", "int8") == "int8"
    assert dtypes == {
        **dict.fromkeys(("x", "edge_attr", "pair_distance"), "uint8"),
        **dict.fromkeys(("pair_path", "in_degree", "out_degree"), "int16"),
        **dict.fromkeys(("edge_index", "ptr", "batch", "index"), "int64"),
    }


def test_index_counts_in_the_whole_store(few: MoleculeStore) -> None:
    assert collate(few[[4, 2, 0]], [1, 0]).index.tolist() == [2, 4]


def test_every_tensor_moves_with_the_batch(few: MoleculeStore) -> None:
    batch = collate(few, [0, 2]).to("meta")
    assert all(value.is_meta for value in tensors(batch).values())
    assert batch.max_nodes == max(few[0].num_nodes, few[2].num_nodes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a CUDA device pins memory")
def test_every_tensor_is_pinned_with_the_batch(few: MoleculeStore) -> None:
    batch = collate(few, [0, 2]).pin_memory()
    assert all(value.is_pinned() for value in tensors(batch).values())
    assert isinstance(batch.max_nodes, int)


def through_pickle(batch: Batch) -> Batch:
    return pickle.loads(pickle.dumps(batch))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, through_pickle])
def test_copies_of_a_batch_still_separate(
    few: MoleculeStore, duplicate: Callable[[Batch], Batch]
) -> None:
    batch = collate(few, [3, 0])
    assert_same_graph(duplicate(batch), batch)
    assert_same_graph(duplicate(batch)[1], batch[1])


def test_changing_a_batch_leaves_the_store_alone(few: MoleculeStore) -> None:
    for value in tensors(collate(few, slice(None))).values():
        value.zero_()
    assert few[4].index.tolist() == [4]
    assert few[2].x.tolist() == GRAPHS[2][0]


def test_no_molecules_are_an_error(few: MoleculeStore) -> None:
    with pytest.raises(ValueError, match="indices are empty"):
        collate(few, [])


@pytest.mark.parametrize("mixer", ["sort_attn", "sort"])
def test_model_takes_the_batch_with_and_without_encoding(few: MoleculeStore, mixer: str) -> None:
    torch.manual_seed(0)
    config = GraphSliceformerConfig(
        num_layers=1, channels=16, ffn_channels=16, heads=2, mixer=mixer
    )
    model = GraphSliceformer(config).eval()
    encoded, plain = (model(collate(few, [0, 2, 3], e)) for e in (StructuralEncoding(), None))
    assert torch.equal(encoded, plain)
    assert len(encoded) == 3


@pytest.fixture(scope="module")
def forty(tmp_path_factory: pytest.TempPathFactory) -> MoleculeStore:
    graphs = [random_graph(1 + i % 9, i % 7, i) for i in range(40)]
    names = [f"molecule {i}" for i in range(40)]
    labels = [[float(i)] for i in range(40)]
    return MoleculeStore(write_store(tmp_path_factory.mktemp("loader"), graphs, labels, names))


def assert_same_batches(actual: list[Batch], expected: list[Batch]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert set(one.keys()) == set(other.keys())
        assert all(torch.equal(value, other[name]) for name, value in tensors(one).items())
        assert one.max_nodes == other.max_nodes == int(one.ptr.diff().max())


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2},
        {"num_workers": 1, "multiprocessing_context": "spawn"},
        {"num_workers": 2, "persistent_workers": False, "prefetch_factor": 1},
    ],
    ids=["forked", "spawned", "not persistent"],
)
def test_workers_make_the_same_batches(forty: MoleculeStore, options: dict) -> None:
    alone = molecule_loader(forty, 6, seed=3)
    with_workers = molecule_loader(forty, 6, seed=3, **options)
    epochs = [list(alone) for _ in range(2)]
    for epoch in epochs:
        assert_same_batches(list(with_workers), epoch)
    with_workers.sampler.resume(epoch=0, batch=3)
    assert_same_batches(list(with_workers), epochs[0][3:])
    assert_same_batches(list(with_workers), epochs[1])


def test_epoch_has_every_molecule_once_with_its_label(forty: MoleculeStore) -> None:
    state = torch.get_rng_state()
    loader = molecule_loader(forty, 6)
    batches = list(loader)
    index = torch.cat([batch.index for batch in batches])
    assert sorted(index.tolist()) == list(range(40))
    assert torch.equal(torch.cat([batch.y for batch in batches]).flatten(), index.float())
    assert len(loader) == len(batches) == 7
    assert torch.equal(torch.get_rng_state(), state)


def test_ranks_together_have_the_batches_of_one_process(forty: MoleculeStore) -> None:
    alone = molecule_loader(forty, 6)
    ranks = [molecule_loader(forty, 3, rank=rank, world=2) for rank in range(2)]
    for whole, one, other in zip(alone, *ranks, strict=True):
        assert sorted(torch.cat([one.index, other.index]).tolist()) == sorted(whole.index.tolist())


def test_a_view_is_loaded_and_pickled_with_positions_of_the_store(forty: MoleculeStore) -> None:
    loader = molecule_loader(forty[[7, 30, 2]], 2, encode=None)
    copied = pickle.loads(pickle.dumps(loader))
    batches = list(loader)
    assert sorted(i for batch in batches for i in batch.index.tolist()) == [2, 7, 30]
    assert "pair_distance" not in batches[0]
    assert_same_batches(list(copied), batches)


def test_encoding_is_chosen(forty: MoleculeStore) -> None:
    encode = StructuralEncoding(max_distance=2, max_hops=1)
    encoded = next(iter(molecule_loader(forty, 4, encode=encode)))
    assert_same_batches([encoded], [collate(forty, encoded.index, encode)])
    assert encoded.pair_path.shape[1] == 1


def test_memory_is_pinned_only_where_there_is_a_gpu(forty: MoleculeStore) -> None:
    assert molecule_loader(forty, 6).pin_memory == torch.cuda.is_available()
    assert not molecule_loader(forty, 6, pin_memory=False).pin_memory
