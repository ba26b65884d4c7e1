"""Splits: no molecule on two sides, every row used once; and tasks derived from labels."""

from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.molecule_tables import random_smiles

from slicegraph.data.molecules import molecule_keys, scaffold
from slicegraph.data.splits import (
    BY_COLUMN,
    SPLITS,
    SplitData,
    SplitResult,
    make_splits,
    parse_split,
    permutation,
    random_split,
    read_times,
    task_of_labels,
)

FRACTIONS = (0.8, 0.1, 0.1)
HALVES = (0.5, 0.25, 0.25)
NAN = float("nan")
# Spellings of one molecule in each row: salts, stereo, isotopes, explicit hydrogens, charges.
SPELLINGS = [
    ["CC(=O)O", "CC(=O)[O-].[Na+]", "[2H]C([2H])([2H])C(O)=O", "[K]OC(C)=O"],
    ["C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "CC(N)C(O)=O.Cl", "CC([NH3+])C([O-])=O"],
    ["F/C=C/c1ccccc1", "F/C=C\\c1ccccc1", "c1ccccc1C=CF"],
    ["CN1CCCCC1", "C[NH+]1CCCCC1.Cc1ccc(S(=O)(=O)[O-])cc1.O", "C1CCN(C)CC1"],
    ["Oc1ccncc1", "[O-]c1cc[nH+]cc1", "[H]Oc1ccncc1"],
    ["CS(C)=O", "C[S+](C)[O-]", "[13CH3]S(C)=O"],
    *([text] for text in random_smiles(12, seed=3)),
]
WORDS = {
    "column": ["train", "Training", "0", "val", "test", "TE", "", "2.0"],
    "time": ["2001", "2002", "2003.5", "2020", ""],
    "group": ["a", "b", "c", "d", "e", ""],
}


@cache
def key_of(text: str) -> int:
    return int(molecule_keys([text])[0])


def data_of(texts, labels=None, kind="regression", values=None, **more) -> SplitData:
    keys = np.array([key_of(text) for text in texts], dtype=np.uint64)
    labels = np.zeros((len(texts), 1)) if labels is None else np.array(labels, dtype=float)
    labels = labels.reshape(len(texts), -1)
    return SplitData(keys, texts.__getitem__, labels, kind, values, **more)


def numbered(count: int, labels=None, kind="regression", **more) -> SplitData:
    """Different molecules, of which only the keys are known."""
    labels = np.zeros(count) if labels is None else np.array(labels, dtype=float)
    labels = labels.reshape(count, -1)
    return SplitData(np.arange(count, dtype=np.uint64), str, labels, kind, **more)


def assert_law(found: SplitResult, keys: np.ndarray) -> None:
    assert list(found.parts) == ["train", "valid", "test"]
    everything = np.concatenate([*found.parts.values(), found.left_out])
    assert np.array_equal(np.sort(everything), np.arange(len(keys)))
    sides = [set(keys[part].tolist()) for part in found.parts.values()]
    assert sum(map(len, sides)) == len(set.union(*sides))
    for part in found.parts.values():
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()


@settings(deadline=None, max_examples=25)
@given(draw=st.data())
@pytest.mark.parametrize("name", SPLITS)
def test_no_molecule_is_on_two_sides_and_every_row_is_used_once(name, draw):
    molecule = st.sampled_from(SPELLINGS).flatmap(st.sampled_from)
    texts = draw.draw(st.lists(molecule, min_size=12, max_size=60))
    kind = draw.draw(st.sampled_from(["regression", "binary", "multiclass"]))
    label = st.sampled_from(
        {"regression": [0.5, 1.5, 7, NAN], "binary": [0, 1]}.get(kind, [0, 1, 2])
    )
    labels = draw.draw(st.lists(label, min_size=len(texts), max_size=len(texts)))
    word = st.sampled_from(WORDS.get(name, [""]))
    values = draw.draw(st.lists(word, min_size=len(texts), max_size=len(texts)))
    data = data_of(texts, labels, kind, values)
    text = f"{name}:x" if name in BY_COLUMN else name
    try:
        found = make_splits(text, data, HALVES, draw.draw(st.integers(0, 9)))
    except ValueError:  # too few molecules of a class, or a column without a row of train or test
        assume(False)
    assert_law(found, data.keys)
    if name == "group":
        groups = [{values[i] for i in part} - {""} for part in found.parts.values()]
        assert sum(map(len, groups)) == len(set.union(*groups))
    if name not in BY_COLUMN:
        assert not len(found.left_out)


@pytest.mark.parametrize("name", ["random", "stratified", "scaffold", "cluster", "group:x"])
def test_a_split_depends_on_its_seed_alone(name):
    texts = random_smiles(80, seed=1)
    data = data_of(texts, np.arange(80), values=[str(i // 4) for i in range(80)])
    first, again, other = (make_splits(name, data, HALVES, seed).parts for seed in (3, 3, 4))
    assert all(np.array_equal(first[part], again[part]) for part in first)
    assert any(not np.array_equal(first[part], other[part]) for part in first)


@pytest.mark.parametrize("text", ["sorted", "column", "column: ", "random:x", "", "Scaffold"])
def test_an_unknown_split_is_refused_with_the_list(text):
    expected = "random, stratified, scaffold, cluster, column:NAME, time:NAME, group:NAME"
    with pytest.raises(ValueError, match=f"split = {text!r}, expected {expected}"):
        parse_split(text)


def test_the_name_of_a_column_may_have_a_colon():
    assert parse_split("time:Date: day") == ("time", "Date: day")


@pytest.mark.parametrize("seed", [0, 5])
def test_random_split_without_duplicates_is_that_of_the_positions(seed):
    found = make_splits("random", numbered(57), FRACTIONS, seed).parts
    for part, positions in random_split(57, FRACTIONS, seed).items():
        assert np.array_equal(found[part], positions)


def test_a_molecule_with_many_replicates_is_in_train():
    texts = ["CCO"] * 30 + random_smiles(70, seed=2, pieces=6)
    found = make_splits("random", data_of(texts), FRACTIONS, 0)
    assert set(range(30)) <= set(found.parts["train"].tolist())
    assert [len(part) for part in found.parts.values()] == [80, 10, 10]


def test_a_draw_with_one_class_in_a_part_is_repeated_and_said():
    labels = np.zeros(200)
    labels[:3] = 1
    data = numbered(200, labels, "binary")
    results = [make_splits("random", data, FRACTIONS, seed) for seed in range(3)]
    for found in results:
        assert_law(found, data.keys)
        assert all(len(np.unique(labels[part])) == 2 for part in found.parts.values())
    assert any("drawn again" in note for found in results for note in found.notes)


@pytest.mark.parametrize("kind", ["random", "scaffold"])
def test_every_seed_has_redraws_of_its_own(kind):
    texts = random_smiles(200, seed=9, pieces=6)
    labels = np.zeros(200)
    labels[:4] = 1
    results = [
        make_splits(kind, data_of(texts, labels, "binary"), FRACTIONS, seed) for seed in range(5)
    ]
    assert any("so that every part has both classes" in n for one in results for n in one.notes)
    assert len({tuple(one.parts["test"].tolist()) for one in results}) == 5


def test_a_draw_that_is_never_good_ends_early():
    data = numbered(100, [0, 1] * 50, "binary")
    with pytest.raises(ValueError, match="25 draws of the random split gave no test with both"):
        make_splits("random", data, (0.9, 0.09, 0.01), 0)  # one molecule has one class


def test_rare_classes_are_in_every_stratified_part():
    labels = np.zeros((300, 3))
    labels[:3, 0] = 1
    labels[2:10, 1] = 1
    labels[::2, 2] = 1
    for seed in range(5):
        parts = make_splits("stratified", numbered(300, labels, "binary"), FRACTIONS, seed).parts
        for part in parts.values():
            assert (labels[part].max(0) == 1).all()
            assert labels[part, 2].mean() == pytest.approx(0.5, abs=0.05)
        assert [len(part) for part in parts.values()] == pytest.approx([240, 30, 30], abs=3)


def test_stratified_parts_of_a_regression_have_the_same_values():
    labels = np.random.default_rng(0).permutation(1000) ** 2.0
    parts = make_splits("stratified", numbered(1000, labels), FRACTIONS, 0).parts
    medians = [np.median(labels[part]) for part in parts.values()]
    assert medians == pytest.approx([np.median(labels)] * 3, rel=0.1)


@pytest.mark.parametrize("name", ["random", "stratified"])
@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        ([1.0] * 40, "binary", "every known label of 'y' is 1: .* no split can help"),
        ([1.0] * 2 + [0.0] * 38, "binary", "class 1 of 'y': 2 molecules, .*no split can help"),
        ([1.0] * 2 + [NAN] * 38, "regression", "labels of 'y': 2 molecules, .*no split can help"),
        ([NAN] * 40, "regression", "'y' has no labels"),
    ],
)
def test_labels_that_no_split_can_help_are_refused(name, labels, kind, message):
    with pytest.raises(ValueError, match=message):
        make_splits(name, numbered(40, labels, kind, names=("y",)), FRACTIONS, 0)


def test_classes_in_too_few_scaffolds_are_refused_with_the_remedy():
    texts = [f"{'C' * n}c1ccccc1" for n in range(9)] + random_smiles(40, seed=4)
    labels = [1.0 if scaffold(text) == "c1ccccc1" else 0.0 for text in texts]
    message = "in 1 groups of the scaffold split, .* use --split stratified"
    with pytest.raises(ValueError, match=message):
        make_splits("scaffold", data_of(texts, labels, "binary"), FRACTIONS, 0)


def test_a_target_that_cannot_be_scored_among_others_is_a_warning():
    labels = np.zeros((60, 2))
    labels[::2, 0] = labels[0, 1] = 1
    found = make_splits("random", numbered(60, labels, "binary", names=("a", "b")), HALVES, 0)
    assert ["class 1 of 'b': 1 molecules" in text for text in found.warnings] == [True]


def test_a_part_that_stays_empty_is_refused():
    with pytest.raises(ValueError, match="labels of target 0: 2 molecules, but train, valid, test"):
        make_splits("random", numbered(2), FRACTIONS, 0)
    labels = np.empty((2, 0))
    with pytest.raises(ValueError, match=r"random split of 2 molecules leaves 'valid' empty; choo"):
        make_splits("random", numbered(2, labels), FRACTIONS, 0)


def test_a_part_with_the_share_0_stays_empty():
    parts = make_splits("random", numbered(20), (0.8, 0.2, 0.0), 0).parts
    assert [len(part) for part in parts.values()] == [16, 4, 0]


def test_a_scaffold_is_on_one_side_with_its_salts_and_large_ones_are_in_train():
    texts = [f"{'C' * n}c1ccccc1" for n in range(40)] + random_smiles(60, seed=5, pieces=5)
    texts += [f"{text}.[Na+].[Cl-]" for text in texts[:5]]
    data = data_of(texts)
    for seed in range(4):
        found = make_splits("scaffold", data, FRACTIONS, seed)
        own = [{scaffold(texts[i].split(".")[0]) for i in part} for part in found.parts.values()]
        assert sum(map(len, own)) == len(set.union(*own))
        assert set(range(40)) <= set(found.parts["train"].tolist())
        assert len(found.parts["test"]) == pytest.approx(10.5, abs=3)


def test_one_scaffold_of_nearly_all_molecules_is_in_train_with_a_warning():
    texts = [f"{'C' * n}c1ccccc1" for n in range(95)]
    texts += ["C1CC1", "C1CCC1", "C1CCCC1", "C1CCCCC1", "C1CCCCCC1"]
    found = make_splits("scaffold", data_of(texts), FRACTIONS, 0)
    assert set(range(95)) <= set(found.parts["train"].tolist())
    assert "have 95%, 3%, 2% of the rows, not 80%, 10%, 10%: the largest" in found.warnings[0]


def test_scaffolds_are_kept_in_the_cache(tmp_path):
    texts = random_smiles(60, seed=6)
    first = make_splits("scaffold", data_of(texts, cache=tmp_path), HALVES, 1)
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("scaffolds-")
    unread = data_of(texts, cache=tmp_path)
    object.__setattr__(unread, "smiles", None)
    again = make_splits("scaffold", unread, HALVES, 1)
    assert all(np.array_equal(first.parts[part], again.parts[part]) for part in first.parts)


def test_words_of_a_column_name_the_parts():
    words = ["Train", " training", "tr", "0", "VALID", "val", "dev", "1.0", "test", "holdout", "2"]
    words += ["Test Set", "external", "hold-out", "testing"]
    data = numbered(15, values=words)
    parts = make_splits("column:Set", data, FRACTIONS, 0).parts
    assert [part.tolist() for part in parts.values()] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [*range(8, 15)],
    ]


def test_parts_may_be_called_sets_and_short_names_are_known():
    words = ["Training set", "TRN", "Validation Set", "cal", "calibration_set", "Test set", "TST"]
    data = numbered(9, values=[*words, "External", "hold-out"])
    parts = make_splits("column:Set", data, FRACTIONS, 0).parts
    assert [part.tolist() for part in parts.values()] == [[0, 1], [2, 3, 4], [5, 6, 7, 8]]


@pytest.mark.parametrize(
    ("column", "one", "test"),
    [("is_test", "1", [90, 99]), ("Test", "True", [90, 99]), ("is_train", "1.0", [0, 89])],
)
def test_flags_are_read_by_the_name_of_their_column(column, one, test):
    zero = "False" if one == "True" else "0"
    data = numbered(100, values=[zero] * 90 + [one] * 10)
    found = make_splits(f"column:{column}", data, FRACTIONS, 0)
    assert found.parts["test"][[0, -1]].tolist() == test
    assert len(found.parts["valid"])
    assert "by the name of" in found.notes[0]


def test_zeros_and_ones_without_such_a_name_are_refused():
    with pytest.raises(ValueError, match="no row of test"):
        make_splits("column:Set", numbered(20, values=["0", "1"] * 10), FRACTIONS, 0)


def test_molecules_of_test_are_left_out_of_train_and_valid_with_a_warning():
    texts = ["CCO", "CCO", "CCN", "CCN", "CCC", "CCF"]
    words = ["train", "test", "valid", "test", "train", "valid"]
    found = make_splits("column:Set", data_of(texts, values=words), FRACTIONS, 0)
    assert [part.tolist() for part in found.parts.values()] == [[4], [5], [1, 3]]
    assert found.left_out.tolist() == [0, 2]
    assert ["1 rows of train are left out" in text for text in found.warnings] == [True, False]
    assert "1 rows of valid are left out" in found.warnings[1]


def test_valid_is_drawn_from_train_if_the_column_has_none():
    words = ["train"] * 90 + ["test"] * 10
    found = make_splits("column:Set", numbered(100, values=words), FRACTIONS, 0)
    assert found.parts["test"].tolist() == list(range(90, 100))
    assert [len(part) for part in found.parts.values()] == [80, 10, 10]
    assert "no row of valid: 11% of train are drawn for it, seed 0" in found.notes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "valid"] * 10, r"no row of test \(test, .*external, 2\)"),
        (["test", "valid"] * 10, r"no row of train \(train, training, trn, tr, 0\)"),
        (["train", "test", "blue"] * 10, "10 of 30 rows have 'blue'.*the words of a split are tra"),
        ([""] * 10, "but no row of train"),
    ],
)
def test_a_column_that_is_no_split_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        make_splits("column:Set", numbered(len(words), values=words), FRACTIONS, 0)


def test_rows_without_a_known_word_are_left_out_with_a_warning():
    words = ["train", "test"] * 10 + ["", "spare"]
    found = make_splits("column:Set", numbered(22, values=words), (0.9, 0.0, 0.1), 0)
    assert found.left_out.tolist() == [20, 21]
    assert found.warnings == [
        "2 rows without a known word ('spare') in the split column are left out"
    ]


def test_one_class_in_the_test_of_a_column_is_a_warning():
    words = ["train", "train", "valid", "valid", "test", "test"]
    data = numbered(6, [0, 1, 0, 1, 0, 0], "binary", values=words, names=("y",))
    assert make_splits("column:Set", data, FRACTIONS, 0).warnings == [
        "test lacks both classes of 'y'"
    ]


def test_the_oldest_molecules_are_in_train_and_the_newest_in_test():
    days = permutation(50, 1)
    values = [f"{2000 + day // 12}-{day % 12 + 1:02}-15" for day in days]
    found = make_splits("time:Date", numbered(50, values=values), FRACTIONS, 0)
    ordered = [days[part] for part in found.parts.values()]
    assert list(map(len, ordered)) == [40, 5, 5]
    assert ordered[0].max() < ordered[1].min()
    assert ordered[1].max() < ordered[2].min()
    assert found.notes[0] == "train from 2000-01-15 to 2003-04-15, by the first date of a molecule"


def test_a_molecule_counts_at_its_first_date():
    texts = ["CCO", *random_smiles(20, seed=7), "CCO.Cl"]
    years = [str(1990 + i) for i in range(len(texts))]
    parts = make_splits("time:Year", data_of(texts, values=years), HALVES, 0).parts
    assert {0, len(texts) - 1} <= set(parts["train"].tolist())


def test_a_row_without_a_date_is_left_out_with_a_warning():
    values = [*map(str, range(1990, 2010)), "", "soon"]
    found = make_splits("time:Year", numbered(22, values=values), FRACTIONS, 0)
    assert found.left_out.tolist() == [20, 21]
    assert "2 rows without a date" in found.warnings[0]


@pytest.mark.parametrize(
    ("texts", "order"),
    [
        (["2021", "1999.5", "2003"], [1, 2, 0]),
        (["2021-03-01", "2021-02-28T10:00", "2020-12-31 08:15:00"], [2, 1, 0]),
        (["2021-3", "2021-02", "2020-12"], [2, 1, 0]),
        (["01.03.2021", "28.02.2021", "31.12.2020"], [2, 1, 0]),
        (["3/1/2021", "2/28/2021", "12/31/2020"], [2, 1, 0]),
        (["1/3/2021", "28/2/2021", "31/12/2020"], [2, 1, 0]),
        (["01-Mar-2021", "28-FEB-2021", "31-Oct-2020"], [2, 1, 0]),
        (["01.03.21", "28.02.21", "31.12.99"], [2, 1, 0]),
        (["1 Mar 2021", "28 February 2021 10:00", "31 Dez 20"], [2, 1, 0]),
        (["Mar 1, 2021", "Feb. 28, 2021", "June 3, 2020"], [2, 1, 0]),
        (["2021.03.01", "2021.02.28", "2020.12.31"], [2, 1, 0]),
    ],
)
def test_dates_are_read_in_the_form_that_all_have(texts, order):
    values, _ = read_times(texts)
    assert np.argsort(values).tolist() == order


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["3/1/2021", "2/5/2021"], "'3/1/2021' may be month/day/year or day/month/year; write"),
        (["blue", "green"], "2 of 2 rows have 'blue', 'green'.*the forms of a date are"),
        (["", ""], "has no dates"),
    ],
)
def test_a_column_without_clear_dates_is_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        read_times(texts)


def test_groups_that_share_a_molecule_stay_together():
    texts = ["CCO", "CCO.Cl", *random_smiles(30, seed=8)]
    values = ["a", "b", "b", "a", *(f"g{i}" for i in range(28))]
    found = make_splits("group:Batch", data_of(texts, values=values), HALVES, 2)
    assert sum({0, 1, 2, 3} <= set(part.tolist()) for part in found.parts.values()) == 1


@settings(deadline=None)
@given(
    count=st.integers(0, 300),
    shares=st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any),
    seed=st.integers(0, 2**32),
)
def test_random_parts_hold_every_molecule_once(count, shares, seed):
    fractions = [share / sum(shares) for share in shares]
    splits = random_split(count, fractions, seed)
    assert_law(SplitResult(splits), np.arange(count))
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
