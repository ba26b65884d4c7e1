"""Random and scaffold splits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicegraph.data.sets.splits import (
    permutation,
    random_split,
    scaffold,
    scaffold_split,
    split_by_size,
    split_groups,
)

FRACTIONS = (0.8, 0.1, 0.1)


def assert_partition(splits: dict[str, np.ndarray], count: int) -> None:
    assert list(splits) == ["train", "valid", "test"]
    assert np.array_equal(np.sort(np.concatenate(list(splits.values()))), np.arange(count))
    for part in splits.values():
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()


@settings(deadline=None)
@given(
    count=st.integers(0, 300),
    shares=st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any),
    seed=st.integers(0, 2**32),
)
def test_random_parts_hold_every_molecule_once(count, shares, seed):
    fractions = [share / sum(shares) for share in shares]
    splits = random_split(count, fractions, seed)
    assert_partition(splits, count)
    for part, fraction in zip(splits.values(), fractions, strict=True):
        assert abs(len(part) - count * fraction) <= 1


def test_random_split_depends_on_the_seed_alone():
    first, again, other = (random_split(1000, FRACTIONS, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["test"], other["test"])


def test_order_of_a_seed_never_changes():
    # The smallest of the first raw numbers of NumPy's PCG64(0) comes first.
    raw = np.random.PCG64(0).random_raw(4)
    order = permutation(4, seed=0)
    assert raw[order].tolist() == sorted(raw.tolist())


def test_sizes_can_be_given():
    splits = split_by_size(130_831, (110_000, 10_000), seed=0)
    assert_partition(splits, 130_831)
    assert [len(part) for part in splits.values()] == [110_000, 10_000, 10_831]


@pytest.mark.parametrize("fractions", [(0.8, 0.2), (0.8, 0.1, 0.2), (1.1, -0.1, 0.0), (0.5,) * 4])
def test_fractions_that_are_no_shares_are_refused(fractions):
    with pytest.raises(ValueError, match="expected three shares that add up to 1"):
        random_split(10, fractions)
    with pytest.raises(ValueError, match="expected three shares that add up to 1"):
        scaffold_split(["C", "CC"], fractions)


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("Cc1ccccc1", "c1ccccc1"),
        ("OC(=O)c1ccc(CCc2ccncc2)cc1", "c1ccc(CCc2ccncc2)cc1"),
        ("CCO", ""),
        ("C[C@H]1CC[C@@H](C2CC2)CC1", "C1CCC(C2CC2)CC1"),
        ("[Na+].[O-]c1ccccc1", "c1ccccc1"),
        ("F[Al](F)(F)(F)(F)(F)F", "F[Al](F)(F)(F)(F)(F)F"),
    ],
)
def test_scaffold_is_the_rings_and_what_links_them(smiles, expected):
    assert scaffold(smiles) == expected


def test_frequent_scaffolds_go_to_train_and_rare_ones_to_test():
    benzenes = [f"{'C' * n}c1ccccc1" for n in range(6)]
    chains = ["CCO", "CCN"]
    rare = ["C1CC1", "C1CCC1"]
    splits = scaffold_split([*rare, *chains, *benzenes], (0.6, 0.2, 0.2))
    assert {name: part.tolist() for name, part in splits.items()} == {
        "train": [4, 5, 6, 7, 8, 9],
        "valid": [2, 3],
        "test": [0, 1],
    }


@settings(deadline=None)
@given(groups=st.lists(st.integers(0, 12), min_size=1, max_size=120))
def test_no_group_is_divided(groups):
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    numbered = np.array([numbers[group] for group in groups])
    splits = split_groups(numbered, FRACTIONS)
    assert_partition(splits, len(groups))
    found = [set(numbered[part]) for part in splits.values()]
    assert sum(map(len, found)) == len(numbers)
    assert len(splits["train"]) <= round(0.8 * len(groups))


def test_group_that_is_too_large_for_train_is_not_lost():
    assert split_groups(np.zeros(5, dtype=np.int64), FRACTIONS)["test"].tolist() == [0, 1, 2, 3, 4]
