"""OGB's evaluators batch by batch, and the leaderboard file."""

import numpy as np
import pytest
import torch
from ogb.graphproppred import Evaluator as GraphEvaluator
from ogb.lsc import PCQM4MEvaluator, PCQM4Mv2Evaluator

from slicegraph.metrics import Evaluator, evaluator, write_submission

LSC = {"pcqm4m": PCQM4MEvaluator, "pcqm4m-v2": PCQM4Mv2Evaluator}
SUBMISSIONS = [
    ("pcqm4m-v2", "test-dev", 147_037, "y_pred_pcqm4m-v2_test-dev.npz"),
    ("pcqm4m-v2", "test-challenge", 147_432, "y_pred_pcqm4m-v2_test-challenge.npz"),
    ("pcqm4m", "test", 377_423, "y_pred_pcqm4m.npz"),
]
NAME, SPLIT, COUNT, FILE = SUBMISSIONS[0]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def labels_with_gaps(metric: str, rows: int, targets: int) -> np.ndarray:
    random = np.random.default_rng(1)
    if metric == "rmse":
        labels = random.normal(size=(rows, targets))
    else:
        labels = random.integers(0, 2, (rows, targets)).astype(float)
    labels[random.random(labels.shape) < 0.3] = np.nan
    return labels


@pytest.mark.parametrize("name", LSC)
@pytest.mark.parametrize("batch_size", [1, 7, 50])
def test_error_of_a_challenge_is_what_ogb_computes_of_everything(name, batch_size):
    y_true, y_pred = random(50, seed=1), random(50, seed=2)
    judged = evaluator(name)
    for start in range(0, 50, batch_size):
        part = slice(start, start + batch_size)
        judged.update(y_true[part], y_pred[part])
    expected = LSC[name]().eval({"y_true": y_true, "y_pred": y_pred})["mae"]
    assert judged.compute() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "metric"),
    [("ogbg-moltox21", "rocauc"), ("ogbg-molmuv", "ap"), ("ogbg-mollipo", "rmse")],
)
def test_score_with_gaps_in_the_labels_is_what_ogb_computes(name, metric):
    judge = GraphEvaluator(name)
    y_true = labels_with_gaps(metric, 60, judge.num_tasks)
    y_pred = random(60, judge.num_tasks)
    judged = evaluator(name)
    judged.update(y_true[:25], y_pred[:25])
    judged.update(torch.tensor(y_true[25:]), torch.tensor(y_pred[25:]))
    assert judged.compute() == judge.eval({"y_true": y_true, "y_pred": y_pred})[metric]


@pytest.mark.parametrize("metric", ["rocauc", "ap", "rmse"])
def test_number_of_targets_is_free(metric):
    names = {"rocauc": "ogbg-molclintox", "ap": "ogbg-molmuv", "rmse": "ogbg-molesol"}
    judge = GraphEvaluator(names[metric])
    judge.num_tasks = 3
    y_true, y_pred = labels_with_gaps(metric, 40, 3), random(40, 3)
    judged = Evaluator(metric, num_targets=3)
    judged.update(y_true, y_pred)
    assert judged.compute() == judge.eval({"y_true": y_true, "y_pred": y_pred})[metric]


def test_accuracy_is_the_share_of_equal_classes():
    judged = Evaluator("acc")
    judged.update(y_true=[0, 2, 1, 1], y_pred=[0, 2, 2, 1])
    assert judged.compute() == 0.75


def test_absolute_error_leaves_gaps_out_and_averages_over_targets():
    judged = Evaluator("mae", num_targets=2)
    judged.update([[1.0, np.nan], [2.0, 5.0]], [[1.5, 0.0], [2.5, 1.0]])
    assert judged.compute() == np.mean([np.mean([0.5, 0.5]), 4.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_tensors_of_any_precision_and_with_a_gradient_count(dtype):
    judged = Evaluator("mae")
    judged.update(
        torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 3.5], dtype=dtype).requires_grad_()
    )
    assert judged.compute() == 0.75


def test_reset_forgets_what_was_added():
    judged = Evaluator("mae")
    judged.update([1.0], [100.0])
    judged.reset()
    judged.update([1.0], [2.0])
    assert judged.compute() == 1.0


def test_later_changes_of_a_batch_do_not_matter():
    judged, y_pred = Evaluator("mae"), np.array([2.0])
    judged.update([1.0], y_pred)
    y_pred += 5
    assert judged.compute() == 1.0


@pytest.mark.parametrize(
    ("name", "title", "unit", "higher"),
    [
        ("pcqm4m-v2", "MAE", "eV", False),
        ("pcqm4m", "MAE", "eV", False),
        ("ogbg-molhiv", "ROC-AUC", "", True),
        ("ogbg-molpcba", "AP", "", True),
        ("ogbg-molesol", "RMSE", "", False),
    ],
)
def test_evaluator_says_what_its_score_is(name, title, unit, higher):
    judged = evaluator(name)
    assert (judged.name, judged.unit, judged.higher_is_better) == (title, unit, higher)


@pytest.mark.parametrize(
    ("message", "y_true", "y_pred"),
    [
        (r"y_true has shape \[2\], expected \[n, 2\]", [1.0, 2.0], [[1.0, 2.0]]),
        (r"y_pred has shape \[1, 3\], expected \[n, 2\]", [[1.0, 2.0]], [[1.0, 2.0, 3.0]]),
        ("y_true has 1 rows and y_pred 2", [[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]]),
        (r"y_pred\[1, 0\] = nan", [[1.0, 2.0]] * 2, [[1.0, 2.0], [np.nan, 2.0]]),
        (r"y_pred\[0, 1\] = inf", [[1.0, 2.0]], [[1.0, np.inf]]),
    ],
)
def test_batch_that_does_not_fit_is_refused(message, y_true, y_pred):
    with pytest.raises(ValueError, match=message):
        Evaluator("mae", num_targets=2).update(y_true, y_pred)


@pytest.mark.parametrize("rows", [None, 0])
def test_score_of_nothing_is_an_error(rows):
    judged = Evaluator("mae")
    if rows is not None:
        judged.update(np.empty((rows, 1)), np.empty((rows, 1)))
    with pytest.raises(ValueError, match="no predictions to compute MAE of"):
        judged.compute()


@pytest.mark.parametrize(
    ("metric", "labels", "message"),
    [
        ("rocauc", [1.0, 1.0, np.nan], "ROC-AUC is not defined, no target has labels of both"),
        ("ap", [0.0, 0.0, 0.0], "AP is not defined"),
        ("rocauc", [0.0, 1.0, 2.0], "label 2, ROC-AUC expects 0 and 1"),
        ("mae", [np.nan] * 3, "target 0 has no label among 3 molecules"),
        ("rmse", [np.nan] * 3, "target 0 has no label among 3 molecules"),
    ],
)
def test_labels_without_a_score_are_an_error(metric, labels, message):
    judged = Evaluator(metric)
    judged.update(labels, [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=message):
        judged.compute()


def test_target_of_one_class_is_skipped_as_ogb_does():
    judged = Evaluator("rocauc", num_targets=2)
    judged.update([[0, 1], [1, 1], [1, 1]], [[0.2, 0.1], [0.9, 0.2], [0.1, 0.3]])
    assert judged.compute() == 0.5


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="metric 'mse', expected mae, rmse"):
        Evaluator("mse")
    with pytest.raises(ValueError, match="'ogbg-ppa' is no molecular data set"):
        evaluator("ogbg-ppa")


@pytest.mark.parametrize(("name", "split", "count", "file"), SUBMISSIONS)
def test_submission_is_the_file_that_ogb_writes(tmp_path, name, split, count, file):
    y_pred, index = random(count).astype(np.float32), np.arange(count)[::-1]
    path = write_submission(name, split, torch.from_numpy(y_pred), index, index, tmp_path / "a")
    assert path == tmp_path / "a" / file
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == [file]
    mode = {"mode": split} if name == "pcqm4m-v2" else {}
    LSC[name]().save_test_submission({"y_pred": y_pred}, str(tmp_path / "b"), **mode)
    with np.load(path) as ours, np.load(tmp_path / "b" / file) as theirs:
        assert list(ours) == list(theirs)
        assert ours["y_pred"].dtype == theirs["y_pred"].dtype == np.float32
        np.testing.assert_array_equal(ours["y_pred"], theirs["y_pred"])


def test_submission_replaces_an_older_one(tmp_path):
    index = np.arange(COUNT)
    for value in (1.0, 2.0):
        path = write_submission(NAME, SPLIT, np.full(COUNT, value), index, index, tmp_path)
    with np.load(path) as file:
        assert (file["y_pred"] == 2.0).all()


def changed(position: int, value: float) -> np.ndarray:
    y_pred = np.zeros(COUNT)
    y_pred[position] = value
    return y_pred


@pytest.mark.parametrize(
    ("error", "message", "y_pred"),
    [
        (ValueError, rf"shape \[{COUNT - 1}\], expected \[{COUNT}\]", np.zeros(COUNT - 1)),
        (ValueError, rf"shape \[{COUNT}, 1\]", np.zeros((COUNT, 1))),
        (TypeError, "y_pred is int64", np.zeros(COUNT, dtype=np.int64)),
        (TypeError, "y_pred is float16", np.zeros(COUNT, dtype=np.float16)),
        (TypeError, "y_pred is torch.bfloat16", torch.zeros(COUNT, dtype=torch.bfloat16)),
        (TypeError, "y_pred is list", [0.0] * COUNT),
        (ValueError, r"y_pred\[5\] = nan", changed(5, np.nan)),
        (ValueError, r"y_pred\[7\] = -inf", changed(7, -np.inf)),
        (ValueError, r"y_pred\[9\] = 1e\+39", changed(9, 1e39)),
    ],
)
def test_wrong_predictions_are_refused_before_anything_is_written(tmp_path, error, message, y_pred):
    index = np.arange(COUNT)
    with pytest.raises(error, match=message):
        write_submission(NAME, SPLIT, y_pred, index, index, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("message", "index"),
    [
        ("prediction 0 is of molecule 1, expected 0", np.roll(np.arange(COUNT), -1)),
        (f"prediction {COUNT - 1} is of molecule 3", np.append(np.arange(COUNT - 1), 3)),
        (f"expected {COUNT} integers", np.arange(COUNT - 1)),
        (f"index is float64 .*expected {COUNT} integers", np.arange(COUNT) * 1.0),
    ],
)
def test_predictions_in_another_order_are_refused(tmp_path, message, index):
    with pytest.raises(ValueError, match=message):
        write_submission(NAME, SPLIT, np.zeros(COUNT), index, np.arange(COUNT), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("name", "split"), [("pcqm4m-v2", "valid"), ("mini", "test")])
def test_split_that_nobody_submits_is_refused(tmp_path, name, split):
    with pytest.raises(ValueError, match="is not submitted, only 'test-dev' of pcqm4m-v2"):
        write_submission(name, split, np.zeros(1), [0], [0], tmp_path)


def test_file_that_does_not_read_back_is_not_left_behind(tmp_path, monkeypatch):
    def save_zeros(self, input_dict, dir_path, mode):
        np.savez_compressed(f"{dir_path}/y_pred_pcqm4m-v2_{mode}", y_pred=np.zeros(3))

    monkeypatch.setattr(PCQM4Mv2Evaluator, "save_test_submission", save_zeros)
    index = np.arange(COUNT)
    with pytest.raises(OSError, match="does not read back"):
        write_submission(NAME, SPLIT, np.ones(COUNT), index, index, tmp_path)
    assert list(tmp_path.iterdir()) == []
