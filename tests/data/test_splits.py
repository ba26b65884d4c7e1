"""Random and grouped splits, scaffolds, and tasks derived from labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicegraph.data.splits import (
    permutation,
    random_split,
    scaffold,
    scaffold_groups,
    split_groups,
    task_of_labels,
)

FRACTIONS = (0.8, 0.1, 0.1)
NAN = float("nan")


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


def test_order_of_a_seed_never_changes():
    # The smallest of the first raw numbers of NumPy's PCG64 comes first.
    raw = np.random.PCG64(3).random_raw(1000)
    assert np.array_equal(raw[permutation(1000, seed=3)], np.sort(raw))


@pytest.mark.parametrize("fractions", [(0.8, 0.2), (0.8, 0.1, 0.2), (1.1, -0.1, 0.0), (0.5,) * 4])
def test_fractions_that_are_not_shares_are_refused(fractions):
    with pytest.raises(ValueError, match="expected three shares that add up to 1"):
        random_split(10, fractions)


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("OC(=O)c1ccc(CCc2ccncc2)cc1", "c1ccc(CCc2ccncc2)cc1"),
        ("CCO", ""),
        ("C[C@H]1CC[C@@H](C2CC2)CC1", "C1CCC(C2CC2)CC1"),
        ("[Na+].[O-]c1ccccc1", "c1ccccc1"),
        ("F[Al](F)(F)(F)(F)(F)F", "F[Al](F)(F)(F)(F)(F)F"),
    ],
)
def test_scaffold_is_the_rings_and_their_linkers(smiles, expected):
    assert scaffold(smiles) == expected


def test_frequent_scaffolds_go_to_train_and_rare_ones_to_test():
    benzenes = [f"{'C' * n}c1ccccc1" for n in range(6)]
    groups = scaffold_groups(["C1CC1", "C1CCC1", "CCO", "CCN", *benzenes])
    splits = {name: part.tolist() for name, part in split_groups(groups, (0.6, 0.2, 0.2)).items()}
    assert splits == {"train": [4, 5, 6, 7, 8, 9], "valid": [2, 3], "test": [0, 1]}


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


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        ([0, 1], (), ("binary", "rocauc", 2)),
        ([0, NAN], (), ("binary", "rocauc", 2)),
        ([0, 1], (None, "ap"), ("binary", "ap", 2)),
        ([0, 1], ("regression",), ("regression", "mae", 0)),
        ([0, 2], (), ("regression", "mae", 0)),
        ([0.5, 1], (None, "rmse"), ("regression", "rmse", 0)),
        ([0, 2], ("multiclass",), ("multiclass", "acc", 3)),
    ],
)
def test_task_is_derived_from_the_labels_unless_given(labels, options, expected):
    task = task_of_labels(np.array([labels]).T, ("y",), *options)
    assert (task.kind, task.metric, task.num_classes) == expected
    assert task.evaluator().metric == expected[1]


@pytest.mark.parametrize(
    ("labels", "names", "kind", "message"),
    [
        ([[0.5]], ("y",), "ranking", "task = 'ranking', expected regression, binary"),
        ([[0.5]], ("y",), "binary", "label 0.5 in a binary task, expected 0 to 1"),
        ([[0.5]], ("y",), "multiclass", "label 0.5 in a multiclass task"),
        ([[-1.0]], ("y",), "multiclass", "label -1 in a multiclass task"),
        ([[NAN]], ("y",), None, "no molecule has a label in y"),
        ([[]], (), None, "there are no labels; name their columns"),
    ],
)
def test_labels_that_do_not_fit_the_task_are_named(labels, names, kind, message):
    with pytest.raises(ValueError, match=message):
        task_of_labels(np.array(labels), names, kind)
