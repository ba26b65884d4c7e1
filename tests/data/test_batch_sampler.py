"""The laws of an epoch: each molecule once, the same for all ranks together as for one process."""

import random

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slicegraph.data.batch.batch_sampler import SizeGroupedBatchSampler

SIZES = [5 + (7 * i) % 31 for i in range(200)]


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


laws = settings(deadline=None, max_examples=200)


@laws
@given(options=settings_of_ranks(), epoch=st.integers(0, 5))
def test_every_molecule_comes_once_over_all_ranks(options: dict, epoch: int) -> None:
    seen = [i for rank in ranks_of(options, epoch) for batch in rank for i in batch]
    assert sorted(seen) == list(range(len(options["sizes"])))


@laws
@given(options=settings_of_ranks(), epoch=st.integers(0, 5))
def test_all_ranks_have_equally_many_batches_and_none_is_empty(options: dict, epoch: int) -> None:
    ranks = ranks_of(options, epoch)
    expected = len(SizeGroupedBatchSampler(**options))
    assert [len(rank) for rank in ranks] == [expected] * options["world"]
    assert all(batch for rank in ranks for batch in rank)


@laws
@given(options=settings_of_ranks(), epoch=st.integers(0, 5))
def test_ranks_get_equal_shares_of_a_batch_but_for_one_molecule(options: dict, epoch: int) -> None:
    for parts in zip(*ranks_of(options, epoch), strict=True):
        counts = [len(part) for part in parts]
        assert max(counts) - min(counts) <= 1
        assert max(counts) <= max(2, options["batch_size"])


@laws
@given(options=settings_of_ranks(least_batch=2), epoch=st.integers(0, 5))
def test_batches_of_all_ranks_are_those_of_one_process(options: dict, epoch: int) -> None:
    whole = options["batch_size"] * options["world"]
    alone = SizeGroupedBatchSampler(**(options | {"batch_size": whole, "world": 1}))
    together = [
        sorted(i for part in parts for i in part)
        for parts in zip(*ranks_of(options, epoch), strict=True)
    ]
    assert together == [sorted(batch) for batch in epoch_of(alone, epoch)]


@laws
@given(options=settings_of_ranks(least_batch=2), parts=st.integers(1, 3), epoch=st.integers(0, 5))
def test_parts_of_a_rank_are_together_its_batch(options: dict, parts: int, epoch: int) -> None:
    assume(len(options["sizes"]) >= options["world"] * parts)
    shares = options["world"] * parts
    alone = epoch_of(
        SizeGroupedBatchSampler(
            **(options | {"batch_size": options["batch_size"] * shares, "world": 1})
        ),
        epoch,
    )
    ranks = ranks_of(options | {"parts": parts}, epoch)
    turns = list(zip(*ranks, strict=True))
    updates = [turns[first : first + parts] for first in range(0, len(turns), parts)]
    together = [sorted(i for turn in update for batch in turn for i in batch) for update in updates]
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
@given(options=settings_of_ranks(), epoch=st.integers(0, 5))
def test_same_seed_epoch_and_rank_give_the_same_batches(options: dict, epoch: int) -> None:
    assert ranks_of(options, epoch) == ranks_of(options, epoch)


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


def test_each_iteration_is_another_epoch() -> None:
    sampler = SizeGroupedBatchSampler(SIZES, batch_size=10)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert [first, second] == [epoch_of(sampler, 0), epoch_of(sampler, 1)]


def test_abandoned_iteration_is_not_repeated() -> None:
    sampler = SizeGroupedBatchSampler(SIZES, batch_size=10)
    next(iter(sampler))
    assert list(sampler) == epoch_of(SizeGroupedBatchSampler(SIZES, batch_size=10), 1)


def test_company_of_a_molecule_changes_from_epoch_to_epoch() -> None:
    sampler = SizeGroupedBatchSampler(SIZES, batch_size=10, window=4)
    first, second = ({frozenset(batch) for batch in sampler} for _ in range(2))
    assert first.isdisjoint(second)


def test_other_seeds_give_other_batches() -> None:
    one, other = (SizeGroupedBatchSampler(SIZES, batch_size=10, seed=seed) for seed in (0, 1))
    assert list(one) != list(other)


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


def test_windows_are_sorted_and_cut_in_order_without_shuffling() -> None:
    sampler = SizeGroupedBatchSampler([3, 9, 4, 8, 1, 1], batch_size=2, shuffle=False, window=2)
    assert list(sampler) == [[0, 2], [3, 1], [4, 5]]


def test_last_two_batches_share_what_is_left() -> None:
    sampler = SizeGroupedBatchSampler([1] * 9, batch_size=4, shuffle=False, window=0)
    assert list(sampler) == [[0, 1, 2, 3], [4, 5, 6], [7, 8]]


def test_order_is_kept_without_shuffling_and_window() -> None:
    sampler = SizeGroupedBatchSampler([9, 1, 8, 2, 7], batch_size=2, shuffle=False, window=0)
    assert list(sampler) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("shuffle", [True, False])
def test_single_molecules_a_rank_make_one_larger_batch(shuffle: bool) -> None:
    options = {"sizes": SIZES[:7], "batch_size": 1, "world": 3, "shuffle": shuffle}
    counts = [sorted(len(batch) for batch in rank) for rank in ranks_of(options, 0)]
    assert counts == [[1, 2], [1, 1], [1, 1]]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_sizes_of_any_kind(kind: type) -> None:
    assert list(SizeGroupedBatchSampler(kind([2, 1]), batch_size=2, shuffle=False)) == [[1, 0]]


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("batch_size = 0, expected at least 1", {"batch_size": 0}),
        ("world = 0, expected at least 1", {"world": 0}),
        ("seed = -1, expected at least 0", {"seed": -1}),
        ("window = -1, expected at least 0", {"window": -1}),
        (r"rank = 2 is not in 0\.\.1", {"world": 2, "rank": 2}),
        ("3 molecules cannot be dealt out to 4 ranks; use at most 3", {"world": 4}),
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
