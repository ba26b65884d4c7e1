"""Runs that failed, have no labels, or lack files: the page says so."""

import json

import numpy as np
import pytest
from report.sample_run import write_predictions, write_run

from slicegraph.report import write_report

FILES = ["config.yaml", "command.txt", "log.csv", "metrics.json", "data.json"]


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def text_of(run) -> str:
    return write_report(run).read_text("utf-8")


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(run, name):
    (run / name).unlink()
    assert f"There is no {name}." in text_of(run)


@pytest.mark.parametrize("name", [*FILES, "status.json", "predictions/test.csv"])
@pytest.mark.parametrize("content", [b"", b"\xff[\x00"])
def test_damaged_file_does_not_stop_the_page(run, name, content):
    (run / name).write_bytes(content)
    assert "</html>" in text_of(run)


def test_damaged_file_is_named(run):
    (run / "metrics.json").write_text("{")
    assert "metrics.json cannot be read" in text_of(run)


def test_row_of_another_length_is_named_by_its_line(run):
    (run / "predictions" / "test.csv").write_text("gap_true,gap_pred\n1,2\n1\n")
    assert "test.csv, line 3: 1 fields, expected 2" in text_of(run)


def test_result_comes_from_the_predictions_if_there_are_no_metrics(run):
    (run / "metrics.json").unlink()
    write_predictions(run / "predictions" / "test.csv", {"gap": (np.zeros(4), np.full(4, 0.25))})
    assert '<span class="value">0.250</span>' in text_of(run)


def test_run_with_nothing_but_its_settings_has_a_page(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    text = text_of(tmp_path)
    assert "No result" in text
    assert "No predictions were written." in text
    assert "How this run ended is not known." in text
    assert list((tmp_path / "figures").iterdir()) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("failed", "This run failed: the loss is NaN."),
        ("stopped", "goes on with it: the loss is NaN."),
        ("running", "had not ended"),
    ],
)
def test_state_and_reason_stand_at_the_top(run, state, words):
    (run / "status.json").write_text(json.dumps({"state": state, "reason": "the loss is NaN"}))
    assert words in text_of(run).split("</header>")[0]


def test_finished_run_has_no_banner(run):
    assert 'class="banner"' not in text_of(run)


def test_bad_batch_is_listed(run):
    molecules = [{"position": 7, "row": 9, "smiles": "CC[Pb]", "labels": [None]}] * 64
    (run / "bad_batch.json").write_text(json.dumps({"loss": "nan", "molecules": molecules}))
    text = text_of(run)
    assert "The loss of these 64 molecules was not a finite number. The first 20" in text
    assert text.count("CC[Pb]") == 20


def test_without_test_labels_the_validation_split_is_shown(run):
    gaps = np.full(5, np.nan)
    write_predictions(run / "predictions" / "test.csv", {"gap": (gaps, np.zeros(5))})
    metrics = json.loads((run / "metrics.json").read_text())
    words = {"test": None, "valid": 0.5, "test_reason": "the labels are not published"}
    (run / "metrics.json").write_text(json.dumps(metrics | words))
    text = text_of(run)
    assert "The test split has no score: the labels are not published. Shown is the valid" in text
    assert "gap, valid split" in text
    assert "valid MAE</span>" in text


def test_labels_that_miss_and_predictions_that_are_not_finite_are_counted(run):
    true = np.array([1.0, np.nan, np.nan, 2.0, 3.0])
    predicted = np.array([1.0, 1.0, 1.0, np.inf, 4.0])
    write_predictions(run / "predictions" / "test.csv", {"gap": (true, predicted)})
    text = text_of(run)
    assert "2 molecules have no label" in text
    assert "1 predictions are not finite" in text
    assert "2 molecules: MAE 0.500 eV" in text


def test_loss_that_is_nan_leaves_the_epochs_before(run):
    (run / "log.csv").write_text("epoch,train_loss,valid_loss,valid_mae\n0,1,2,0.5\n1,nan,nan,\n")
    assert "In the last epoch: train 1.000, valid 2.000." in text_of(run)


def test_last_value_of_an_epoch_counts(run):
    (run / "log.csv").write_text("epoch,train_loss,valid_loss\n0,1,\n0,,3\n0,0.5,\n")
    assert "train 0.500, valid 3.000." in text_of(run)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_labels_that_do_not_fit_the_task_are_told(tmp_path, kind):
    run = write_run(tmp_path / "run", kind)
    values = {"gap": (np.array([0.5, -1.0]), np.array([0.0, 1.0]))}
    write_predictions(run / "predictions" / "test.csv", values)
    assert f"The task is {kind}, but there are" in text_of(run)


def test_one_class_has_no_roc_curve(tmp_path):
    run = write_run(tmp_path / "run", "binary")
    values = {"gap": (np.zeros(6), np.linspace(0, 1, 6))}
    write_predictions(run / "predictions" / "test.csv", values)
    assert "ROC curve" not in text_of(run)


@pytest.mark.parametrize("place", ["nowhere", "empty"])
def test_folder_that_is_not_a_run_is_refused_by_name(tmp_path, place):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=f"{place}.* is not a run"):
        write_report(tmp_path / place)
    assert list((tmp_path / "empty").iterdir()) == []
