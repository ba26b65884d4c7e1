"""OGB's evaluators batch by batch, scores with intervals, and the leaderboard file."""

import numpy as np
import pytest
import torch
from ogb.graphproppred import Evaluator as GraphEvaluator
from ogb.lsc import PCQM4MEvaluator, PCQM4Mv2Evaluator
from scipy import stats
from sklearn import metrics as peer

from slicegraph.metrics import SCORES, Evaluator, all_metrics, counted, evaluator, write_submission

LSC = {"pcqm4m": PCQM4MEvaluator, "pcqm4m-v2": PCQM4Mv2Evaluator}
NAN, INF = float("nan"), float("inf")
NAME, SPLIT, COUNT, FILE = (*("pcqm4m-v2", "test-dev", 147_037, "y_pred_pcqm4m-v2_test-dev.npz"),)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def labels_with_gaps(metric: str, rows: int, targets: int) -> np.ndarray:
    random = np.random.default_rng(1)
    if metric in ("mae", "rmse"):
        labels = random.normal(size=(rows, targets))
    else:
        labels = random.integers(0, 2, (rows, targets)).astype(float)
    labels[random.random(labels.shape) < 0.3] = NAN
    return labels


@pytest.mark.parametrize("name", LSC)
@pytest.mark.parametrize("batch_size", [1, 7, 50])
def test_error_of_a_challenge_is_what_ogb_computes_of_everything(name, batch_size):
    y_true, y_pred = random(50, seed=1), random(50, seed=2)
    judged = [evaluator(name), Evaluator("mae")]
    for start in range(0, 50, batch_size):
        for one in judged:
            one.update(y_true[start : start + batch_size], y_pred[start : start + batch_size])
    expected = LSC[name]().eval({"y_true": y_true, "y_pred": y_pred})["mae"]
    assert [one.compute() for one in judged] == [expected] * 2


@pytest.mark.parametrize(
    ("name", "metric"),
    [("ogbg-moltox21", "rocauc"), ("ogbg-molmuv", "ap"), ("ogbg-mollipo", "rmse")],
)
@pytest.mark.parametrize("targets", [None, 3])
def test_score_with_gaps_in_the_labels_is_what_ogb_computes(name, metric, targets):
    judge = GraphEvaluator(name)
    judged = evaluator(name) if targets is None else Evaluator(metric, targets)
    judge.num_tasks = targets or judge.num_tasks
    y_true = labels_with_gaps(metric, 60, judge.num_tasks)
    y_pred = random(60, judge.num_tasks)
    judged.update(y_true[:25], y_pred[:25])
    judged.update(torch.tensor(y_true[25:]), torch.tensor(y_pred[25:]))
    assert judged.compute() == judge.eval({"y_true": y_true, "y_pred": y_pred})[metric]


@pytest.mark.parametrize(
    ("metric", "labels", "values", "expected"),
    [
        ("acc", [[0], [2], [1], [1]], [[0], [2], [2], [1]], 0.75),
        ("mae", [[1.0, NAN], [2.0, 5.0]], [[1.5, 0.0], [2.5, 1.0]], (0.5 + 4.0) / 2),
        # A target of one class is skipped, as OGB does.
        ("rocauc", [[0, 1], [1, 1], [1, 1]], [[0.2, 0.1], [0.9, 0.2], [0.1, 0.3]], 0.5),
    ],
)
def test_score_is_the_mean_over_targets_without_gaps(metric, labels, values, expected):
    judged = Evaluator(metric, num_targets=len(labels[0]))
    judged.update(labels, values)
    assert judged.compute() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_tensors_of_any_precision_and_with_a_gradient_count(dtype):
    judged = Evaluator("mae")
    y_pred = torch.tensor([2.0, 3.5], dtype=dtype)
    judged.update(torch.tensor([[1.0], [3.0]]), y_pred.clone().requires_grad_())
    assert judged.compute() == 0.75
    judged.reset()
    judged.update([3.0, 3.5], y_pred)
    y_pred += 5  # a later change of a batch does not matter
    assert judged.compute() == 0.5


@pytest.mark.parametrize(
    ("name", "title", "unit", "higher"),
    [
        ("pcqm4m-v2", "MAE", "eV", False),
        ("ogbg-molhiv", "ROC-AUC", "", True),
        ("ogbg-molpcba", "AP", "", True),
        ("ogbg-molesol", "RMSE", "", False),
    ],
)
def test_evaluator_describes_its_score(name, title, unit, higher):
    judged = evaluator(name)
    assert (judged.name, judged.unit, judged.higher_is_better) == (title, unit, higher)


@pytest.mark.parametrize(
    ("message", "y_true", "y_pred"),
    [
        (r"y_true has shape \[2\], expected \[n, 2\]", [1.0, 2.0], [[1.0, 2.0]]),
        (r"y_pred has shape \[1, 3\], expected \[n, 2\]", [[1.0, 2.0]], [[1.0, 2.0, 3.0]]),
        ("y_true has 1 rows and y_pred 2", [[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]]),
        (r"y_pred\[1, 0\] = nan", [[1.0, 2.0]] * 2, [[1.0, 2.0], [NAN, 2.0]]),
        (r"y_pred\[0, 1\] = inf", [[1.0, 2.0]], [[1.0, INF]]),
    ],
)
def test_batch_that_does_not_fit_is_refused(message, y_true, y_pred):
    with pytest.raises(ValueError, match=message):
        Evaluator("mae", num_targets=2).update(y_true, y_pred)


@pytest.mark.parametrize(
    ("metric", "labels", "message"),
    [
        ("mae", [], "no predictions to compute MAE of"),
        ("rocauc", [1.0, 1.0, NAN], "ROC-AUC is not defined, no target has labels of both"),
        ("ap", [0.0, 0.0, 0.0], "AP is not defined"),
        ("rocauc", [0.0, 1.0, 2.0], "label 2, ROC-AUC expects 0 and 1"),
        ("rmse", [NAN] * 3, "target 0 has no label among 3 molecules"),
    ],
)
def test_labels_without_a_score_are_an_error(metric, labels, message):
    judged = Evaluator(metric)
    judged.update(labels, random(len(labels)))
    with pytest.raises(ValueError, match=message):
        judged.compute()


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="metric 'mse', expected mae, rmse"):
        Evaluator("mse")
    for name in ("ogbg-code2", "ogbg-ppa", "zinc"):
        with pytest.raises(ValueError, match=f"'{name}' is not a molecule data set of OGB"):
            evaluator(name)


@pytest.mark.parametrize(
    ("name", "split", "count", "file"),
    [
        (NAME, SPLIT, COUNT, FILE),
        ("pcqm4m-v2", "test-challenge", 147_432, "y_pred_pcqm4m-v2_test-challenge.npz"),
        ("pcqm4m", "test", 377_423, "y_pred_pcqm4m.npz"),
    ],
)
def test_submission_is_the_file_that_ogb_writes(tmp_path, name, split, count, file):
    y_pred, index = random(count).astype(np.float32), np.arange(count)[::-1]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / file).write_bytes(b"an older file")
    path = write_submission(name, split, torch.from_numpy(y_pred), index, index, tmp_path / "a")
    assert list((tmp_path / "a").iterdir()) == [path] == [tmp_path / "a" / file]
    mode = {"mode": split} if name == "pcqm4m-v2" else {}
    LSC[name]().save_test_submission({"y_pred": y_pred}, str(tmp_path / "b"), **mode)
    with np.load(path) as ours, np.load(tmp_path / "b" / file) as theirs:
        assert list(ours) == list(theirs)
        assert ours["y_pred"].dtype == theirs["y_pred"].dtype == np.float32
        np.testing.assert_array_equal(ours["y_pred"], theirs["y_pred"])


def changed(position: int, value: float) -> np.ndarray:
    y_pred = np.zeros(COUNT)
    y_pred[position] = value
    return y_pred


ORDER = np.arange(COUNT)


@pytest.mark.parametrize(
    ("error", "message", "y_pred", "index"),
    [
        (ValueError, rf"shape \[{COUNT - 1}\], expected \[{COUNT}\]", np.zeros(COUNT - 1), ORDER),
        (ValueError, rf"shape \[{COUNT}, 1\]", np.zeros((COUNT, 1)), ORDER),
        (TypeError, "y_pred is int64", np.zeros(COUNT, dtype=np.int64), ORDER),
        (TypeError, "y_pred is torch.bfloat16", torch.zeros(COUNT, dtype=torch.bfloat16), ORDER),
        (TypeError, "y_pred is list", [0.0] * COUNT, ORDER),
        (ValueError, r"y_pred\[5\] = nan", changed(5, NAN), ORDER),
        (ValueError, r"y_pred\[9\] = 1e\+39", changed(9, 1e39), ORDER),
        (ValueError, "0 is of molecule 1, expected 0", np.zeros(COUNT), np.roll(ORDER, -1)),
        (ValueError, f"expected {COUNT} integers", np.zeros(COUNT), ORDER[:-1]),
        (ValueError, f"is float64 .*expected {COUNT} integers", np.zeros(COUNT), ORDER * 1.0),
    ],
)
def test_wrong_predictions_are_refused_before_anything_is_written(
    tmp_path, error, message, y_pred, index
):
    with pytest.raises(error, match=message):
        write_submission(NAME, SPLIT, y_pred, index, ORDER, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("name", "split"), [("pcqm4m-v2", "valid"), ("mini", "test")])
def test_split_that_nobody_submits_is_refused(tmp_path, name, split):
    with pytest.raises(ValueError, match="is not submitted, only 'test-dev' of pcqm4m-v2"):
        write_submission(name, split, np.zeros(1), [0], [0], tmp_path)


def test_file_that_does_not_read_back_is_not_left_behind(tmp_path, monkeypatch):
    def save_zeros(self, input_dict, dir_path, mode):
        np.savez_compressed(f"{dir_path}/y_pred_pcqm4m-v2_{mode}", y_pred=np.zeros(3))

    monkeypatch.setattr(PCQM4Mv2Evaluator, "save_test_submission", save_zeros)
    with pytest.raises(OSError, match="does not read back"):
        write_submission(NAME, SPLIT, np.ones(COUNT), ORDER, ORDER, tmp_path)
    assert list(tmp_path.iterdir()) == []


# With ties, gaps in the labels, and a class that is predicted but has no label.
THREE = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.3, 0.4, 0.3]] * 2)
SCORED = {
    "regression": ([1.0, 2.0, 2.0, 5.0, -3.0, NAN], [1.5, 2.0, 1.5, 4.0, 0.0, 9.0]),
    "binary": ([0, 1, 1, 0, 1, NAN], [0.2, 0.9, 0.2, 0.6, 0.5, 0.1]),
    "multiclass": ([0, 1, 2, 2, 0, 1, 1, NAN], THREE),
}
PEERS = {
    ("regression", "mae"): peer.mean_absolute_error,
    ("regression", "rmse"): peer.root_mean_squared_error,
    ("regression", "r2"): peer.r2_score,
    ("regression", "spearman"): lambda true, predicted: stats.spearmanr(true, predicted)[0],
    ("binary", "rocauc"): peer.roc_auc_score,
    ("binary", "prauc"): peer.average_precision_score,
    ("binary", "mcc"): lambda true, chance: peer.matthews_corrcoef(true, chance >= 0.5),
    ("binary", "accuracy"): lambda true, chance: peer.accuracy_score(true, chance >= 0.5),
    ("multiclass", "accuracy"): lambda true, chances: peer.accuracy_score(true, chances.argmax(1)),
    ("multiclass", "rocauc"): lambda true, c: peer.roc_auc_score(true, c, multi_class="ovr"),
    ("multiclass", "mcc"): lambda true, chances: peer.matthews_corrcoef(true, chances.argmax(1)),
}


@pytest.mark.parametrize(("kind", "name"), PEERS)
def test_score_and_resamples_are_what_scikit_learn_and_scipy_compute(kind, name):
    true, predicted = (np.array(values, float) for values in SCORED[kind])
    known = ~np.isnan(true)
    found, expected = all_metrics(kind, true, predicted), PEERS[kind, name]
    true, predicted = true[known], predicted[known]
    assert found["n"] == len(true)
    assert found[name]["value"] == pytest.approx(expected(true, predicted))
    assert found[name]["low"] <= found[name]["value"] <= found[name]["high"]
    drawn = np.array([[0, 1, 2, 3, 3], [1, 0, 2, 2, 4], [0, 3, 4, 2, 1]])
    weights = np.stack([np.bincount(rows, minlength=len(true)) for rows in drawn])
    resampled = SCORES[kind][name](true, predicted)(weights.astype(float))
    assert resampled == pytest.approx([expected(true[rows], predicted[rows]) for rows in drawn])


def test_interval_is_that_of_scipys_bootstrap():
    true, predicted = random(60, seed=1), random(60, seed=2)
    found = all_metrics("regression", true, predicted)["mae"]
    error = np.abs(true - predicted)
    options = {"method": "percentile", "n_resamples": 4000, "rng": np.random.default_rng(5)}
    expected = stats.bootstrap((error,), np.mean, **options).confidence_interval
    width = expected.high - expected.low
    assert (found["low"], found["high"]) == pytest.approx(tuple(expected), abs=0.1 * width)


def test_the_interval_of_many_rows_is_as_narrow_as_they_make_it():
    error = random(400_000, seed=3)
    found = all_metrics("regression", np.zeros(400_000), error)["mae"]
    expected = 2 * 1.96 * np.abs(error).std() / np.sqrt(400_000)
    assert found["high"] - found["low"] == pytest.approx(expected, rel=0.3)
    assert found["low"] < found["value"] < found["high"]


def test_intervals_depend_on_the_seed_alone():
    once, again, other = (all_metrics("binary", *SCORED["binary"], seed=s) for s in (0, 0, 1))
    assert once == again
    assert once["accuracy"]["value"] == other["accuracy"]["value"]


def test_many_rows_are_drawn_less_often(monkeypatch):
    drawn = []

    def count_rows(weights):
        drawn.append(len(weights))
        return np.ones(len(weights))

    monkeypatch.setitem(SCORES, "regression", {"mae": lambda true, predicted: count_rows})
    for count in (10, 100_000, 500_000):
        drawn.clear()
        all_metrics("regression", np.zeros(count), np.zeros(count))
        assert sum(drawn[1:]) == {10: 1000, 100_000: 100, 500_000: 101}[count]
        assert min(count, 100_000) * max(drawn) <= 2_000_000


def test_an_interval_without_any_resample_is_none_with_a_reason():
    true, predicted = [1] + [0] * 11, np.linspace(0.9, 0.1, 12)
    each = (all_metrics("binary", true, predicted, s, resamples=1)["rocauc"] for s in range(20))
    none = next(found for found in each if "no resample" in found.get("reason", ""))
    assert (none["value"], none["high"]) == (1.0, None)
    assert none["reason"] == "no resample of the 12 labels has this score"


@pytest.mark.parametrize(
    ("kind", "true", "predicted", "reasons"),
    [
        ("regression", [NAN, NAN], [1.0, 2.0], dict.fromkeys(("mae", "r2"), "no labels")),
        ("regression", [2.1], [1.0], {"r2": "there is only 1 label"}),
        ("regression", [2.1] * 3, [1.0, 2.0, 3.0], {"r2": "all 3 labels are equal"}),
        ("regression", [1.0, 2.0], [5.0, 5.0], {"spearman": "2 labels or predictions are equal"}),
        (
            "binary",
            [1, 1],
            [0.1, 0.2],
            {"rocauc": "every class", "mcc": "of one class"},
        ),
        ("binary", [0, 0], [0.1, 0.2], {"prauc": "not of every class"}),
        ("multiclass", [0, 1], [[0.5, 0.3, 0.2]] * 2, {"rocauc": "not of every class"}),
    ],
)
def test_score_that_is_not_defined_has_a_reason(kind, true, predicted, reasons):
    found = all_metrics(kind, true, predicted)
    for name, reason in reasons.items():
        assert found[name]["value"] is None
        assert reason in found[name]["reason"]
    if not np.isnan(true).any():
        assert found["mae" if kind == "regression" else "accuracy"]["value"] is not None


def test_positives_are_counted_and_equal_predictions_have_no_correlation():
    found = all_metrics("binary", [0, 1, 1, NAN], [0.9] * 4)
    assert (found["n"], found["positives"]) == (3, 2)
    reason = "all predictions are of one class"
    assert found["mcc"] == {"value": 0, "low": None, "high": None, "reason": reason}


@pytest.mark.parametrize(
    ("true", "predicted", "has_interval"),
    [
        ([1.0], [2.0], False),
        ([1.0, 2.0], [2.0, 4.0], False),
        ([1.0, 2.0, 3.0], [2.0, 4.0, 3.5], True),
        (range(9), range(1, 10), False),  # every error is 1
        (range(10), range(1, 11), True),
    ],
)
def test_few_labels_have_no_interval(true, predicted, has_interval):
    found = all_metrics("regression", true, predicted)["mae"]
    assert found["value"] is not None
    assert (found["low"] is not None, found["high"] is not None) == (has_interval, has_interval)
    assert found.get("reason", "") == ("" if has_interval else "too few labels for an interval")


@pytest.mark.parametrize(("positives", "has_interval"), [(1, False), (2, False), (10, True)])
def test_few_labels_of_a_class_have_no_interval(positives, has_interval):
    true = [1] * positives + [0] * 20
    found = all_metrics("binary", true, np.linspace(0, 0.9, 20 + positives)[::-1])
    assert found["rocauc"]["value"] == 1
    for name in ("rocauc", "prauc"):
        assert (found[name]["low"] is not None) == has_interval
        assert ("too few labels" in found[name].get("reason", "")) != has_interval
    assert found["accuracy"]["low"] is not None


def test_counts_have_the_singular_of_one():
    assert [counted(n, "rows") for n in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]


def test_evaluator_mentions_ogb_only_for_its_data_sets():
    for judged, mentioned in ((Evaluator("mae"), False), (evaluator("pcqm4m"), True)):
        judged.update([NAN], [0.0])
        with pytest.raises(ValueError, match="has no label") as raised:
            judged.compute()
        assert ("OGB" in str(raised.value)) == mentioned
