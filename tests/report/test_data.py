"""The data of a run on its page: the summary, scores with intervals, warnings."""

import copy

import pytest
from report.sample_run import write_json, write_run
from report.sample_summary import SUMMARY, target
from support.html_page import Page

from slicegraph.report import write_check, write_report

HOSTILE = "<script>alert(1)</script>$\\frac{$&"


def score(value, low=None, high=None, reason=None):
    if value is None:
        return {"value": None, "reason": reason}
    return {"value": value, "low": low, "high": high}


def page_of(run) -> Page:
    return Page(write_report(run).read_text("utf-8"))


def with_summary(run, **changes) -> Page:
    write_json(run / "data.json", {"summary": {**copy.deepcopy(SUMMARY), **changes}})
    return page_of(run)


def test_data_comes_first_with_counts_and_assumptions(run):
    text = with_summary(run).text
    assert text.index(" Data file own.csv") < text.index(" Learning ")
    for words in (
        "rows 37 rows read 32 rows rejected 5 rows merged or left out 2",
        "rows that repeat a molecule 6 molecules with different labels 5",
        "molecules in two splits 0 heavy atoms 2 to 40, median 14.5",
        "standardisation fragment, charge",
        "train 24 18 24 1.500 0.500 1.000 2.000",
        "What was assumed the target gap was guessed; --targets chooses another",
        "unclosed ring data row 7: C1CC 4 no SMILES data row 9 1",
        "median 0.35; 75% are below 0.4",
    ):
        assert words in text


def test_run_without_a_summary_has_no_such_section(run):
    headings = [line for line in page_of(run).words if line == "Data"]
    assert headings == []


def test_figures_of_the_data_are_in_the_page_and_the_folder(run):
    with_summary(run)
    names = {path.name for path in (run / "figures").iterdir()}
    assert {"labels.png", "similarity.png"} <= names


def test_without_a_test_split_there_is_no_figure_of_similarity(run):
    with_summary(run, similarity=None)
    assert not (run / "figures" / "similarity.png").exists()


def test_classes_have_counts_and_shares(run):
    text = with_summary(run, targets=[target("hit", "binary", ("inactive", "active"))]).text
    assert "train 24 18 24 inactive: 20 (83%), active: 4 (17%)" in text


def test_several_targets_have_rows_with_their_names(run):
    text = with_summary(run, targets=[target("logD"), target("Papp")]).text
    assert "logD valid 3 3 3" in text
    assert "Papp test 3 3 3" in text


def test_warnings_are_banners_each_once(run):
    few = "the test split has only 3 molecules with a label: its scores are uncertain"
    warnings = [few, "worse than the mean of the training labels"]
    write_json(run / "metrics.json", {"warnings": warnings})
    header = with_summary(run, warnings=[*SUMMARY["warnings"], "2 rows left out"]).text
    assert "Worse than the mean of the training labels." in header
    assert "2 rows left out." in header
    assert header.count("has only 3 molecules") == 1  # the run and its data both have it


def test_early_stop_is_at_the_top(run):
    write_json(run / "metrics.json", {"stopped": "stopped: no gain for 50 epochs; epoch 122 kept"})
    text = write_report(run).read_text("utf-8").split("</header>")[0]
    assert "Stopped: no gain for 50 epochs; epoch 122 kept." in text


def test_scores_of_every_split_have_intervals_and_reasons(run):
    known = {"mae": score(0.5, 0.4, 0.6), "r2": score(None, reason="one label"), "n": 12}
    write_json(run / "metrics.json", {"splits": {"train": {"gap": known}, "test": {"gap": known}}})
    text = page_of(run).text
    assert "split molecules MAE R²" in text
    assert "train 12 0.500 0.400 to 0.600 none" in text
    assert "test: no R²: one label" in text
    assert "95 % interval 0.400 to 0.600. For comparison" in text


def test_headline_of_several_targets_names_each_of_them(tmp_path):
    run = write_run(tmp_path / "run", targets=("logD", "Papp"))
    scores = {"logD": {"mae": score(0.25, 0.2, 0.3)}, "Papp": {"mae": score(1234.0, 1e3, 2e3)}}
    write_json(run / "metrics.json", {"splits": {"test": scores}})
    header = Page(write_report(run).read_text("utf-8").split("<header>")[1].split("</header>")[0])
    assert header.text.startswith("run test MAE logD 0.250 Papp 1,234")
    assert "valid MAE" not in header.text  # the mean of errors on two scales


def test_other_tasks_keep_the_mean_over_targets(tmp_path):
    run = write_run(tmp_path / "run", "binary", ("a", "b"))
    scores = {name: {"rocauc": score(0.5, 0.4, 0.6)} for name in ("a", "b")}
    write_json(run / "metrics.json", {"test": 0.875, "splits": {"test": scores}})
    assert "test ROC-AUC 0.875" in page_of(run).text


@pytest.mark.parametrize("damage", [{}, {"targets": 3}, {"targets": [{}]}, {"sizes": None}, 7])
def test_damaged_summary_is_named_and_the_page_is_made(run, damage):
    summary = {**SUMMARY, **damage} if damage and damage != 7 else damage or {"file": "x"}
    write_json(run / "data.json", {"summary": summary})
    text = page_of(run).text
    assert "Predictions" in text
    assert ("data.json has a summary that cannot be read" in text) == isinstance(summary, dict)


@pytest.mark.parametrize("damage", [{"test": 3}, {"test": {"gap": 1}}, [1]])
def test_damaged_scores_give_those_of_the_predictions(run, damage):
    write_json(run / "metrics.json", {"splits": damage})
    assert "split molecules MAE RMSE R²" in page_of(run).text


def test_hostile_text_of_the_data_stays_text(run):
    summary = copy.deepcopy(SUMMARY)
    summary |= {"file": HOSTILE, "notes": [HOSTILE], "warnings": [HOSTILE]}
    summary["targets"] = [target(HOSTILE), target("b", "binary", (HOSTILE, "x"))]
    summary["rejected"][0] |= {"reason": HOSTILE, "examples": [{"row": 1, "text": HOSTILE}]}
    write_json(run / "metrics.json", {"splits": {"test": {HOSTILE: {"mae": score(1.0, 1.0, 1.0)}}}})
    page = with_summary(run, **summary)
    assert "script" not in page.tags
    assert page.text.count("alert(1)") > 8


def test_page_of_a_check_is_one_file_with_the_command(tmp_path):
    write_check(tmp_path / "check.html", SUMMARY, "slicegraph train --data csv:own.csv")
    page = Page((tmp_path / "check.html").read_text("utf-8"))
    page.assert_self_contained()
    assert "own.csv rows that can be used 32 of 37" in page.text
    assert "The test split has only 3 molecules" in page.text
    assert "Train on it slicegraph train --data csv:own.csv" in page.text
    assert [path.name for path in tmp_path.iterdir()] == ["check.html"]
