"""Run folders with missing, damaged or unusual files: the page names the problem."""

import numpy as np
import pytest
from report.sample_run import write_json, write_run, write_test_split
from sklearn import metrics

from slicegraph.report import write_report
from slicegraph.report.read import binary_scores, confusion_matrix, regression_scores

FILES = ["config.yaml", "command.txt", "log.csv", "metrics.json", "data.json"]


def text_of(run) -> str:
    return write_report(run).read_text("utf-8")


def test_missing_files_are_named(run):
    for name in FILES:
        (run / name).unlink()
    text = text_of(run)
    assert all(f"There is no {name}." in text for name in FILES)


@pytest.mark.parametrize("content", [b"", b"\xff[\x00", b"[" * 3000])
def test_damaged_files_are_named(run, content):
    names = [*FILES, "status.json", "bad_batch.json", "predictions/test.csv"]
    for name in names:
        (run / name).write_bytes(content)
    text = text_of(run)
    assert "</html>" in text
    assert all(f"{name} cannot be read" in text for name in names if name != "command.txt")


def test_row_of_another_length_is_named_by_its_line(run):
    (run / "predictions" / "test.csv").write_text("gap_true,gap_pred\n1,2\n1\n")
    assert "test.csv, line 3: 1 fields, expected 2" in text_of(run)


def test_result_comes_from_the_predictions_if_there_are_no_metrics(run):
    (run / "metrics.json").unlink()
    write_test_split(run, np.zeros(4), np.full(4, 0.25))
    assert '<span class="value">0.250</span>' in text_of(run)


def test_run_with_nothing_but_its_settings_has_a_page(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    text = text_of(tmp_path)
    for sentence in ("No result", "No predictions were written.", "not known how this run ended."):
        assert sentence in text
    assert list((tmp_path / "figures").iterdir()) == []


@pytest.mark.parametrize("place", ["nowhere", "empty"])
def test_folder_that_is_not_a_run_is_refused_by_name(tmp_path, place):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=f"{place}.* is not a run"):
        write_report(tmp_path / place)
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("failed", "This run failed: the loss is NaN."),
        ("stopped", "--resume continues it: the loss is NaN."),
        ("running", "had not ended"),
    ],
)
def test_state_and_reason_are_at_the_top(run, state, words):
    assert 'class="banner"' not in text_of(run)
    write_json(run / "status.json", {"state": state, "reason": "the loss is NaN"})
    assert words in text_of(run).split("</header>")[0]


def test_bad_batch_is_listed(run):
    molecules = [{"position": 7, "row": 9, "smiles": "CC[Pb]", "labels": [None]}] * 64
    write_json(run / "bad_batch.json", {"loss": "nan", "molecules": molecules})
    text = text_of(run)
    assert "The loss of a batch of 64 molecules was not a finite number. The first 20" in text
    assert text.count("CC[Pb]") == 20


def test_without_test_labels_the_validation_split_is_shown(run):
    write_test_split(run, np.full(5, np.nan), np.zeros(5))
    reason = "the labels are not published"
    write_json(run / "metrics.json", {"test": None, "valid": 0.5, "test_reason": reason})
    text = text_of(run)
    assert f"The test split has no score: {reason}. The page shows the valid" in text
    assert "gap, valid split" in text
    assert "valid MAE</span>" in text


def test_missing_labels_and_predictions_that_are_not_finite_are_counted(run):
    write_test_split(run, [1.0, np.nan, np.nan, 2.0, 3.0], [1.0, 1.0, 1.0, np.inf, 4.0])
    text = text_of(run)
    assert "2 molecules without a label" in text
    assert "1 prediction that cannot be compared, not finite" in text
    assert "2 molecules: MAE 0.500 eV" in text


def test_log_keeps_the_last_finite_value_of_an_epoch(run):
    rows = "0,1,,7\n0,,3,\n0,0.5,,\n1,nan,inf,\n"
    (run / "log.csv").write_text(f"epoch,train_loss,valid_loss,valid_mae\n{rows}")
    text = text_of(run)
    assert "In the last epoch: train 0.500, valid 3.000." in text
    assert "In the last epoch: 7.000 eV." in text


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_labels_that_do_not_fit_the_task_are_named(tmp_path, kind):
    run = write_run(tmp_path / "run", kind)
    write_test_split(run, [0.5, -1.0], [0.0, 1.0])
    assert f"The task is {kind}, but some" in text_of(run)


def test_scores_of_labels_that_are_all_the_same():
    assert set(regression_scores(np.full(3, 0.1), np.zeros(3))) == {"MAE", "RMSE"}
    assert binary_scores(np.zeros(4), np.linspace(0, 0.6, 4)) == {"accuracy": 0.75}


def test_one_class_has_no_roc_curve(tmp_path):
    run = write_run(tmp_path / "run", "binary")
    write_test_split(run, np.zeros(6), np.linspace(0, 1, 6))
    assert "ROC curve" not in text_of(run)


def test_confusion_matrix_has_a_row_for_every_class_that_is_known():
    true, predicted = np.random.default_rng(5).integers(0, 5, (2, 300)).astype(float)
    expected = np.zeros((7, 7))
    expected[:5, :5] = metrics.confusion_matrix(true, predicted)
    np.testing.assert_array_equal(confusion_matrix(true, predicted, 7), expected)
    np.testing.assert_array_equal(confusion_matrix(true, predicted), expected[:5, :5])
