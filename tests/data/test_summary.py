"""The summary of a table: counts, splits, labels, similarity and warnings."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from slicegraph.data import summary as module
from slicegraph.data.splits import Task
from slicegraph.data.summary import (
    count_conflicts,
    group_reasons,
    odd_molecules,
    similarity,
    summarize,
    summary_lines,
)

SMILES = ["CCO", "CCN", "c1ccccc1", "CCCl", "CCBr", "CCF", "CCCO", "CCCN", "CC(C)O", "CC(C)N"]
SPLITS = {"train": np.arange(6), "valid": np.array([6, 7]), "test": np.array([8, 9])}


class Store:
    """The molecules above."""

    num_atoms = np.array([3, 3, 6, 3, 3, 3, 4, 4, 4, 4])
    folder = Path("store")

    def __len__(self) -> int:
        return len(SMILES)

    def smiles(self, index: int) -> str:
        return SMILES[index]


def data_set(labels, kind="regression", names=("logD",), splits=SPLITS, classes=0, unit=""):
    """A data set of these molecules."""
    labels = np.array(labels, dtype=np.float32).reshape(len(SMILES), len(names))
    return SimpleNamespace(
        name="csv:some/table.csv",
        source={"name": "table.csv"},
        store=Store(),
        splits=splits,
        task=Task(kind, names, "mae", unit, classes),
        labels=lambda positions: labels[positions],
    )


def described(labels=range(10), *, keys=range(10), rejected=(), **options):
    given = {name: options.pop(name) for name in ("notes", "warnings", "bounds") if name in options}
    keys = np.array(keys, dtype=np.uint64)
    rows = len(SMILES) + len(rejected)
    return summarize(data_set(labels, **options), keys=keys, rows=rows, rejected=rejected, **given)


def text_of(summary) -> str:
    return "\n".join(summary_lines(summary))


def test_summary_is_json_without_nan():
    labels = [np.nan] * 9 + [1.0]
    text = json.dumps(described(labels), allow_nan=False)
    assert json.loads(text)["targets"][0]["splits"]["valid"]["mean"] is None


def test_accepted_and_rejected_are_the_rows_of_the_file():
    summary = described(rejected=[(3, "C1CC", "unclosed ring"), (7, "", "no SMILES")])
    counts = [entry["count"] for entry in summary["rejected"]]
    assert summary["accepted"] + sum(counts) == summary["rows"] == 12
    assert "12 in table.csv: 10 read, 2 rejected (16.7 %)" in text_of(summary)


def test_rows_without_a_label_are_counted_apart_from_rejected_rows():
    rejected = [(1, "C", "no label"), (2, "CC", "no label"), (3, "C1", "unclosed ring")]
    rejected += [(4, "CCC", "a limit (--censored drop)")]
    summary = described(rejected=rejected)
    assert summary["lost"] == {"without a label": 2, "left out as limits": 1, "rejected": 1}
    lines = summary_lines(summary)
    read = "14 in table.csv: 10 read, 2 without a label, 1 left out as limits, 1 rejected (7.1 %)"
    assert lines[0] == f"rows    {read}"
    assert lines[1].strip() == "2 without a label (data row 1 'C', data row 2 'CC')"
    assert sum("counted from 0" in line for line in lines) == 1


def test_one_row_is_written_in_the_singular():
    text = text_of(described([1, 2, *range(8)], keys=[5, 5, *range(10, 18)]))
    assert "1 row repeats a molecule; 1 molecule has different labels" in text
    text = text_of(described(keys=[0, 1, 2, 3, 4, 5, 6, 7, 8, 0]))
    assert "; 1 molecule in two splits" in text
    assert "WARNING 1 molecule is in two splits" in text


def test_reasons_that_differ_in_values_are_one_group_and_the_largest_is_first():
    rejected = [(0, "C1", "unclosed ring")]
    rejected += [(row, "CC", f"gap = '{row} nM' is not a number") for row in range(1, 5)]
    first, second = group_reasons(rejected)
    assert first["reason"] == "gap = '1 nM' is not a number, and similar"
    assert first["count"] == 4
    assert [example["row"] for example in first["examples"]] == [1, 2, 3]
    assert second == {
        "reason": "unclosed ring",
        "count": 1,
        "examples": [{"row": 0, "text": "C1"}],
    }


def test_many_reasons_are_counted_together_at_the_end():
    rejected = [(row, "C", f"reason {'abcdefghijkl'[row]}") for row in range(12)]
    found = group_reasons(rejected)
    assert len(found) == module.MOST_REASONS + 1
    assert sum(entry["count"] for entry in found) == 12
    assert found[-1]["reason"] == "4 other reasons"


@pytest.mark.parametrize(
    ("labels", "conflicts"),
    [
        ([[1], [1], [2]], 0),
        ([[1], [5], [2]], 1),
        ([[1], [np.nan], [2]], 0),
        ([[np.nan], [np.nan], [np.nan]], 0),
        ([[1, 3], [1, 4], [2, 2]], 1),
    ],
)
def test_conflicts_are_molecules_with_different_labels(labels, conflicts):
    keys = np.array([7, 7, 8], dtype=np.uint64)
    assert count_conflicts(keys, np.array(labels, dtype=float)) == conflicts


def test_duplicates_are_the_rows_after_the_first_of_each_molecule():
    summary = described([1, 2, 1, *range(7)], keys=[5, 5, 5, 1, 1, 2, 3, 4, 6, 7])
    assert (summary["duplicates"], summary["conflicts"]) == (3, 2)
    assert "3 rows repeat a molecule; 2 molecules have different labels" in text_of(summary)


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        ([1, 1.5, 0, 0.7, 3, 3, *range(4)], {"unit": "log M"}, "(typical difference 0.6 log M)"),
        ([0, 1, 1, 0, 1, 1, 0, 1, 0, 1], {"kind": "binary", "classes": 2}, "(2 with both classes)"),
    ],
)
def test_contradicting_replicates_are_a_warning(labels, options, words):
    summary = described(labels, keys=[5, 5, 6, 6, 7, 7, 1, 2, 3, 4], **options)
    (text,) = (text for text in summary["warnings"] if "--replicates" in text)
    assert text.startswith(f"2 molecules occur more than once with different labels {words}")
    assert "this bounds the reachable error" in text


def test_replicates_that_agree_or_are_merged_are_no_warning():
    keys = [5, 5, 6, 7, 8, 9, 1, 2, 3, 4]
    splits = SPLITS | {"train": np.arange(1, 6)}
    for summary in (described([2, 2, *range(8)], keys=keys), described(keys=keys, splits=splits)):
        assert not any("--replicates" in text for text in summary["warnings"])


def test_overlap_counts_the_molecules_on_two_sides_and_is_a_warning():
    assert described()["overlap"] == 0
    summary = described(keys=[0, 1, 2, 3, 4, 5, 0, 7, 0, 5])
    assert summary["overlap"] == 2
    assert any("2 molecules are in two splits" in text for text in summary["warnings"])


def test_splits_have_rows_and_different_molecules_and_the_rest_is_left_out():
    splits = {"train": np.arange(5), "test": np.array([8, 9])}
    summary = described(keys=[0, 0, 0, 1, 2, 3, 4, 5, 6, 7], splits=splits)
    expected = {"train": {"rows": 5, "molecules": 3}, "test": {"rows": 2, "molecules": 2}}
    assert summary["splits"] == expected
    assert summary["left_out"] == 3
    assert "train 5, test 2 rows; 0 molecules in two splits; 3 rows merged or left out" in text_of(
        summary
    )


def test_labels_of_each_split_are_described_with_shared_bins():
    labels = [0, 1, 2, 3, 4, np.nan, 10, 20, 24, 12]
    bounds = np.zeros((10, 1), dtype=np.int8)
    bounds[[0, 5, 9], 0] = 1, -1, 1
    (target,) = described(labels, bounds=bounds, unit="log M")["targets"]
    train = target["splits"]["train"]
    assert (train["count"], train["missing"], train["censored"]) == (5, 1, 1)
    assert (train["mean"], train["min"], train["max"]) == (2, 0, 4)
    assert train["std"] == pytest.approx(np.std(range(5)))
    assert train["histogram"] == np.histogram(range(5), np.linspace(0, 24, 13))[0].tolist()
    assert target["edges"] == pytest.approx(np.linspace(0, 24, 13))
    assert target["unit"] == "log M"


def test_labels_over_many_orders_of_magnitude_have_logarithmic_bins_and_a_hint():
    summary = described([1, 10, 100, 1e3, 1e4, 1e5, 2, 3, 5, 0])
    (target,) = summary["targets"]
    assert target["log"]
    assert np.diff(np.log10(target["edges"])) == pytest.approx(np.full(12, 5 / 12))
    assert sum(sum(part["histogram"]) for part in target["splits"].values()) == 10
    assert any("logD spans 5.0 orders of magnitude" in note for note in summary["notes"])


@pytest.mark.parametrize("labels", [np.linspace(0.0005, 1, 10), [-1, *np.geomspace(1, 1e6, 9)]])
def test_labels_that_are_not_spread_over_orders_of_magnitude_have_equal_bins(labels):
    (target,) = described(labels)["targets"]
    assert not target["log"]
    assert np.ptp(np.diff(target["edges"])) == pytest.approx(0, abs=1e-6)


def test_classes_are_counted_by_split_and_a_rare_one_is_a_warning():
    labels = [0, 1, 0, 1, 0, 0, 0, 0, 1, 0]
    summary = described(labels, kind="binary", names=("active",), classes=2)
    (target,) = summary["targets"]
    counts = {split: facts["classes"] for split, facts in target["splits"].items()}
    assert counts == {"train": [4, 2], "valid": [2, 0], "test": [1, 1]}
    assert "active, binary: train 6 (2 of class 1, 33.3 %)" in text_of(summary)
    assert any("valid has no label of class 1 (active)" in text for text in summary["warnings"])


def test_class_names_of_the_task_are_used():
    data = data_set([0, 1, 2, 0, 1, 2, 0, 1, 2, 0], kind="multiclass", classes=3)
    data.task = SimpleNamespace(**vars(data.task), num_targets=1)
    data.task.class_names = ("low", "mid", "high")
    summary = summarize(data, keys=np.arange(10, dtype=np.uint64), rows=10, rejected=[])
    assert summary["targets"][0]["classes"] == ["low", "mid", "high"]
    assert any("valid has no label of class high (logD)" in text for text in summary["warnings"])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1.5] * 10, "all labels of logD are 1.5: there is nothing to learn"),
        ([*range(9), -999], "logD has 1 label far from all others (-999)"),
        ([*range(8), np.nan, np.nan], "test has no label of logD"),
        (range(10), "the test split has only 2 molecules"),
    ],
)
def test_labels_that_cannot_be_used_are_a_warning(labels, words):
    assert any(words in text for text in described(labels)["warnings"])


def test_warnings_of_the_caller_come_first_and_are_the_last_lines():
    lines = summary_lines(described(notes=["a note"], warnings=["a warning", "a warning"]))
    place = lines.index("note    a note")
    assert lines[place + 1] == "WARNING a warning"
    assert all(line.startswith("WARNING ") for line in lines[place + 1 :])
    assert lines.count("WARNING a warning") == 1


def test_similarity_of_a_molecule_that_is_in_train_is_one():
    found = similarity(SMILES.__getitem__, np.array([0]), np.arange(6))
    assert (found["median"], found["share_below_0.4"]) == (1, 0)
    assert found["histogram"] == [0] * 19 + [1]


def test_similarity_is_tanimoto_of_the_nearest_molecule():
    from rdkit import Chem, DataStructs
    from rdkit.Chem.rdMolDescriptors import GetMorganFingerprintAsBitVect

    bits = [GetMorganFingerprintAsBitVect(Chem.MolFromSmiles(text), 2) for text in SMILES]
    expected = max(DataStructs.TanimotoSimilarity(bits[8], bits[i]) for i in range(6))
    found = similarity(SMILES.__getitem__, np.array([8]), np.arange(6))
    assert found["median"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("smiles", [lambda i: "", lambda i: "C1CC"])
def test_similarity_is_none_without_molecules_that_rdkit_reads(smiles):
    assert similarity(smiles, np.array([1]), np.array([0])) is None


def test_at_most_so_many_molecules_are_compared(monkeypatch):
    monkeypatch.setattr(module, "MOST_QUERIES", 2)
    monkeypatch.setattr(module, "MOST_NEIGHBOURS", 3)
    found = similarity(SMILES.__getitem__, np.arange(5, 10), np.arange(5))
    assert (found["test"], found["train"]) == (2, 3)


def test_console_has_about_ten_printable_lines():
    rejected = [(row, "C\n" * 60, "unclosed ring") for row in range(9)]
    lines = summary_lines(described(rejected=rejected, names=("a\nb",)))
    assert 6 <= len(lines) <= 12
    assert all(line.isprintable() for line in lines)


def test_odd_molecules_are_counted_by_kind(monkeypatch):
    odd = ["CC(=O)[O-].[Na+]", "CCO.Cl", "[Fe]CC", "*CC", "C[N+](C)(C)C", "[13CH4]", "C" * 301]
    usual = ["CCO", "c1cc[nH]c1", "C[C@H](N)C(=O)O", "C[N+](=O)[O-]"]
    texts = [*odd, *usual]
    sizes = np.array([len(text) for text in texts])
    found = odd_molecules(texts.__getitem__, sizes)
    assert found["of"] == len(texts)
    assert found["counts"] == {
        **{"salts or mixtures": 2, "metals": 2, "wildcards": 1, "charged molecules": 1},
        **{"isotopes": 1, "macromolecules": 1},
    }
    assert odd_molecules(usual.__getitem__, np.full(4, 3)) == {}
    own = ["CCO.Cl", "[13CH4]", *SMILES[2:]]
    monkeypatch.setattr(Store, "smiles", lambda self, index: own[index])
    assert "\nodd     1 salt or mixture, 1 isotope (--standardize)\n" in text_of(described())
    monkeypatch.setattr(module, "MOST_SEARCHED", 9)
    assert " of 9 drawn at random" in text_of(described())


def test_standardisation_is_named():
    data = data_set(range(10))
    keys = np.arange(10, dtype=np.uint64)
    summary = summarize(data, keys=keys, rows=10, rejected=[], standardize=("fragment", "charge"))
    assert "molecules standardised: fragment, charge; predict does the same" in text_of(summary)
