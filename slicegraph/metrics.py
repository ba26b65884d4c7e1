"""Scores accumulated batch by batch, scores with intervals, and OGB's leaderboard files."""

import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from slicegraph.extras import import_ogb, needs

__all__ = ["METRICS", "Evaluator", "Metric", "evaluator", "write_submission"]


class Metric(NamedTuple):
    """A metric of OGB: its title, its function in `sklearn.metrics` and what it expects."""

    title: str
    function: str
    higher_is_better: bool = False
    binary: bool = False


METRICS = {
    "mae": Metric("MAE", "mean_absolute_error"),
    "rmse": Metric("RMSE", "root_mean_squared_error"),
    "rocauc": Metric("ROC-AUC", "roc_auc_score", higher_is_better=True, binary=True),
    "ap": Metric("AP", "average_precision_score", higher_is_better=True, binary=True),
    "acc": Metric("accuracy", "accuracy_score", higher_is_better=True),
}
"""The metrics ``"mae"``, ``"rmse"``, ``"rocauc"``, ``"ap"`` and ``"acc"``, by name."""
_LSC = {"pcqm4m": "PCQM4MEvaluator", "pcqm4m-v2": "PCQM4Mv2Evaluator"}
_SUBMISSIONS = {
    ("pcqm4m-v2", "test-dev"): 147_037,
    ("pcqm4m-v2", "test-challenge"): 147_432,
    ("pcqm4m", "test"): 377_423,
}


class Evaluator:
    """Accumulates predictions batch by batch and scores all of them at once.

    Labels that are NaN are gaps and do not count, as in OGB; the score over several targets is the
    mean of their scores. ROC-AUC and AP skip a target whose labels have only one class.

    Args:
        metric: "mae", "rmse", "rocauc", "ap" or "acc".
        num_targets: the number of columns of labels and predictions.
        unit: the unit of the labels, for printing the score.
        judge: the OGB data set whose own evaluator computes the score (default: scikit-learn,
            with the same result).

    Example:
        >>> evaluator = Evaluator("mae", unit="eV")
        >>> evaluator.update(y_true=torch.tensor([[1.0], [2.0]]), y_pred=torch.tensor([1.5, 2.0]))
        >>> evaluator.update(y_true=torch.tensor([[5.0]]), y_pred=torch.tensor([4.0]))
        >>> evaluator.compute()
        0.5
    """

    def __init__(
        self, metric: str, num_targets: int = 1, unit: str = "", judge: str | None = None
    ) -> None:
        if metric not in METRICS:
            raise ValueError(f"Evaluator: metric {metric!r}, expected {', '.join(METRICS)}")
        self.metric, self.num_targets, self.unit = metric, num_targets, unit
        self.name = METRICS[metric].title
        self.higher_is_better = METRICS[metric].higher_is_better
        self._judge = judge
        self.reset()

    def reset(self) -> None:
        """Discard all predictions."""
        self._batches: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, y_true: Tensor | ArrayLike, y_pred: Tensor | ArrayLike) -> None:
        """Add a batch: tensors or arrays of shape ``[n, num_targets]``, or ``[n]`` for one target.

        Predictions are values for MAE and RMSE, scores (the higher, the likelier class 1) for
        ROC-AUC and AP, class numbers for accuracy.
        """
        labels, values = self._columns("y_true", y_true), self._columns("y_pred", y_pred)
        if len(labels) != len(values):
            raise ValueError(f"Evaluator: y_true has {len(labels)} rows and y_pred {len(values)}")
        for row, column in np.argwhere(~np.isfinite(values)):
            raise ValueError(f"Evaluator: y_pred[{row}, {column}] = {values[row, column]}")
        self._batches.append((labels, values))

    def compute(self) -> float:
        """Return the score of all batches since the last `reset`."""
        if not sum(len(labels) for labels, _ in self._batches):
            raise ValueError(f"Evaluator: no predictions to compute {self.name} of; call update")
        labels, values = map(np.concatenate, zip(*self._batches, strict=True))
        known = ~np.isnan(labels)
        scored = known.any(0)
        if METRICS[self.metric].binary:
            for label in labels[known & ~np.isin(labels, (0, 1))]:
                raise ValueError(f"Evaluator: label {label:g}, {self.name} expects 0 and 1")
            scored = (labels == 0).any(0) & (labels == 1).any(0)
            if not scored.any():
                problem = "is not defined, no target has labels of both classes"
                raise ValueError(f"Evaluator: {self.name} {problem}")
        elif not scored.all():
            problem = f"target {scored.argmin()} has no label among {len(labels)} molecules"
            hidden = "; the labels of OGB's test splits are not published" if self._judge else ""
            raise ValueError(f"Evaluator: {problem}, {self.name} is not defined{hidden}")
        if self._judge is not None:
            if self._judge in _LSC:  # takes one target without gaps
                labels, values = labels[known], values[known]
            found = _ogb_evaluator(self._judge).eval({"y_true": labels, "y_pred": values})
            return float(found[self.metric])
        with needs("Evaluator", "mol"):
            import sklearn.metrics  # takes most of a second

        score = getattr(sklearn.metrics, METRICS[self.metric].function)
        columns = [(labels[known[:, t], t], values[known[:, t], t]) for t in np.flatnonzero(scored)]
        return float(sum(score(*column) for column in columns) / len(columns))

    def _columns(self, name: str, values: Tensor | ArrayLike) -> np.ndarray:
        array = _as_numpy(values).astype(np.float64)
        if array.ndim == 1 and self.num_targets == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != self.num_targets:
            expected = f"expected [n, {self.num_targets}]"
            raise ValueError(f"Evaluator: {name} has shape {list(array.shape)}, {expected}")
        return array


# Each score takes labels [n] and predictions, and returns a function of whole weights [R, n] that
# gives [R] scores, NaN where they are not defined. A bootstrap resample of the rows is a row of
# weights: what does not depend on it, such as an order, is found once.
Resampled = Callable[[np.ndarray], np.ndarray]
Score = Callable[[np.ndarray, np.ndarray], Resampled]


def _mean_of(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return weights @ values / weights.sum(1)


def _mae(true: np.ndarray, predicted: np.ndarray) -> Resampled:
    return partial(_mean_of, np.abs(predicted - true))


def _rmse(true: np.ndarray, predicted: np.ndarray) -> Resampled:
    squares = (predicted - true) ** 2
    return lambda weights: np.sqrt(_mean_of(squares, weights))


def _r2(true: np.ndarray, predicted: np.ndarray) -> Resampled:
    errors, centred = (predicted - true) ** 2, true - true.mean()
    squares = centred**2
    least = 1e-14 * squares.max()  # equal labels leave a spread of rounding errors

    def score(weights: np.ndarray) -> np.ndarray:
        spread = _mean_of(squares, weights) - _mean_of(centred, weights) ** 2
        return 1 - _mean_of(errors, weights) / np.where(spread > least, spread, np.nan)

    return score


def _spearman(true: np.ndarray, predicted: np.ndarray) -> Resampled:
    both = _Sorted(true), _Sorted(predicted)

    def score(weights: np.ndarray) -> np.ndarray:
        middle = weights.sum(1)[:, None] / 2
        sums = [one.sums(weights) for one in both]  # equal values have the mean of their ranks
        ranks = [np.cumsum(own, 1) - own / 2 - middle for own in sums]
        x, y = (own[:, one.place] for own, one in zip(ranks, both, strict=True))
        xy, xx, yy = (np.einsum("rn,rn,rn->r", weights, a, b) for a, b in ((x, y), (x, x), (y, y)))
        return xy / np.sqrt(xx * yy)

    return score


def _rocauc(true: np.ndarray, predicted: np.ndarray) -> Resampled:
    """Of one class against the others, or the mean over the classes if they are in columns."""
    if predicted.ndim == 2:
        each = [_rocauc(true == k, predicted[:, k]) for k in range(predicted.shape[1])]
        return lambda weights: np.mean([score(weights) for score in each], axis=0)
    order, own = _Sorted(predicted), true == 1

    def score(weights: np.ndarray) -> np.ndarray:
        hits, misses = order.sums(weights * own), order.sums(weights * ~own)
        above = hits.sum(1, keepdims=True) - np.cumsum(hits, 1) + hits / 2
        return (misses * above).sum(1) / (hits.sum(1) * misses.sum(1))

    return score


def _prauc(true: np.ndarray, predicted: np.ndarray) -> Resampled:
    """The average precision; undefined, as ROC-AUC, without both classes."""
    order, own = _Sorted(-predicted), true == 1

    def score(weights: np.ndarray) -> np.ndarray:
        hits, misses = order.sums(weights * own), order.sums(weights * ~own)
        found, taken = np.cumsum(hits, 1), np.cumsum(hits + misses, 1)
        total = (hits * found / np.maximum(taken, 1)).sum(1) / hits.sum(1)
        return np.where(misses.sum(1) > 0, total, np.nan)

    return score


def _classes(predicted: np.ndarray) -> np.ndarray:
    return predicted.argmax(1) if predicted.ndim == 2 else (predicted >= 0.5).astype(np.int64)


def _accuracy(true: np.ndarray, predicted: np.ndarray) -> Resampled:
    return partial(_mean_of, _classes(predicted) == true)


def _mcc(true: np.ndarray, predicted: np.ndarray) -> Resampled:
    """Matthews' correlation; 0 if all predictions are equal, undefined if all labels are."""
    chosen = _classes(predicted)
    classes, right = np.union1d(true, chosen), chosen == true

    def score(weights: np.ndarray) -> np.ndarray:
        counts = weights.sum(1)
        labels, guesses = (weights @ (own[:, None] == classes) for own in (true, chosen))
        covariance = counts * (weights @ right) - (labels * guesses).sum(1)
        of_labels, of_guesses = (counts**2 - (own**2).sum(1) for own in (labels, guesses))
        found = covariance / np.sqrt(of_labels * np.maximum(of_guesses, 1))  # whole numbers
        return np.where(of_labels > 0, found, np.nan)

    return score


class _Sorted:
    """The order of values: sums weights ``[R, n]`` over equal ones, in ascending order."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, kind="stable")
        self.starts = np.flatnonzero(np.diff(values[self.order], prepend=-np.inf) > 0)
        self.place = np.unique(values, return_inverse=True)[1]  # among the different ones

    def sums(self, weights: np.ndarray) -> np.ndarray:
        return np.add.reduceat(weights[:, self.order], self.starts, axis=1)


SCORES: dict[str, dict[str, Score]] = {
    "regression": {"mae": _mae, "rmse": _rmse, "r2": _r2, "spearman": _spearman},
    "binary": {"rocauc": _rocauc, "prauc": _prauc, "mcc": _mcc, "accuracy": _accuracy},
    "multiclass": {"accuracy": _accuracy, "rocauc": _rocauc, "mcc": _mcc},
}
TITLES = {"mae": "MAE", "rmse": "RMSE", "r2": "R²", "spearman": "Spearman", "rocauc": "ROC-AUC"}
TITLES |= {"prauc": "PR-AUC", "mcc": "MCC", "accuracy": "accuracy"}
_UNDEFINED = {
    **dict.fromkeys(("rocauc", "prauc"), "the {n} labels are not of every class"),
    "r2": "all {n} labels are equal",
    "spearman": "all {n} labels or predictions are equal",
    "mcc": "all {n} labels are of one class",
}
_MOST_WEIGHTS, _WEIGHTS_AT_ONCE, _LEAST_RESAMPLES = 10_000_000, 2_000_000, 100
_MOST_ROWS = 100_000  # that are resampled; the interval of more is scaled by the square root
_LEAST_LABELS, _LEAST_OF_CLASS = 3, 2  # for any interval
_FEW_LABELS = 10  # of each class, for an interval of zero width


def all_metrics(
    kind: str, true: ArrayLike, predicted: ArrayLike, seed: int = 0, resamples: int = 1000
) -> dict[str, Any]:
    """Score the predictions of one target, with 95 % bootstrap percentile intervals.

    Args:
        kind: "regression", "binary" or "multiclass".
        true: ``[n]`` labels; NaN is a gap and does not count.
        predicted: ``[n]`` values, ``[n]`` probabilities of class 1, or ``[n, classes]``
            probabilities.
        seed: the seed of the resamples.
        resamples: how many times the rows are drawn; fewer (at least 100) for many rows, and at
            most 100,000 of these, so that it takes a few seconds.

    Returns:
        ``n``, the number of labels; for binary labels ``positives``; and each of `SCORES[kind]` as
        ``{"value", "low", "high"}``, or ``{"value": None, "reason"}`` if it is not defined; low and
        high are None, with a reason, if there are too few labels or no resample has the score. The
        values are those of scikit-learn and scipy.

    Example:
        >>> all_metrics("regression", [1.0, 2.0, 4.0], [1.5, 2.0, 3.0])["mae"]["value"]
        0.5
    """
    labels, values = np.asarray(true, np.float64), np.asarray(predicted, np.float64)
    labels, values = labels[known := ~np.isnan(labels)], values[known]
    n, scores = len(labels), SCORES[kind]
    found: dict[str, Any] = {"n": n}
    fewest = n  # labels of a class, which limit all scores but the accuracy
    if kind == "binary":
        found["positives"] = int((labels == 1).sum())
        fewest = min(found["positives"], n - found["positives"])
    if not n:
        return found | {name: {"value": None, "reason": "there are no labels"} for name in scores}
    random = np.random.default_rng(seed)
    rows_drawn = min(n, _MOST_ROWS)
    least = _MOST_WEIGHTS // (rows_drawn * (values.size // n))
    count = min(resamples, max(_LEAST_RESAMPLES, least))
    parts: list[list[np.ndarray]] = []
    with np.errstate(invalid="ignore", divide="ignore"):
        ready = [score(labels, values) for score in scores.values()]
        single = centre = [score(np.ones((1, n)))[0] for score in ready]
        if n > _MOST_ROWS:
            some = random.choice(n, _MOST_ROWS, replace=False)
            ready = [score(labels[some], values[some]) for score in scores.values()]
            centre = [score(np.ones((1, _MOST_ROWS)))[0] for score in ready]
        while count > 0:
            rows = min(count, max(1, _WEIGHTS_AT_ONCE // rows_drawn))
            drawn = random.integers(0, rows_drawn, (rows, rows_drawn))
            drawn += rows_drawn * np.arange(rows)[:, None]
            weights = np.bincount(drawn.ravel(), minlength=rows * rows_drawn) * 1.0
            weights = weights.reshape(rows, rows_drawn)
            parts.append([score(weights) for score in ready])
            count -= rows
    each = zip(scores, single, centre, zip(*parts, strict=True), strict=True)
    for name, value, middle, drawn_values in each:
        if np.isnan(value):
            reason = _UNDEFINED[name].format(n=n) if n > 1 else "there is only 1 label"
            found[name] = {"value": None, "reason": reason}
            continue
        resampled = np.concatenate(drawn_values)
        if n > _MOST_ROWS:  # a score of n rows varies less than that of some of them
            resampled = value + (resampled - middle) * np.sqrt(_MOST_ROWS / n)
        few = n if name == "accuracy" else fewest
        low = high = None
        if not np.isnan(resampled).all():
            low, high = map(float, np.nanpercentile(resampled, [2.5, 97.5]))
        found[name] = {"value": float(value), "low": None, "high": None}
        if name == "mcc" and len(np.unique(_classes(values))) == 1:
            found[name]["reason"] = "all predictions are of one class"
        elif low is None:
            found[name]["reason"] = f"no resample of the {n} labels has this score"
        elif n < _LEAST_LABELS or few < _LEAST_OF_CLASS or (low == high and few < _FEW_LABELS):
            found[name]["reason"] = "too few labels for an interval"
        else:
            found[name] |= {"low": low, "high": high}
    return found


def counted(count: int, noun: str) -> str:
    """Write a number of things, whose noun is given in the plural.

    Example:
        >>> counted(1, "molecules"), counted(1200, "rows")
        ('1 molecule', '1,200 rows')
    """
    words = [word.removesuffix("s") for word in noun.split()] if count == 1 else [noun]
    return f"{count:,} {' '.join(words)}"


def number(value: float, unit: str = "") -> str:
    """Write three decimals, or three significant digits if these are more, and the unit.

    Example:
        >>> number(0.23147), number(0.071234), number(1234.5), number(2e-9, "eV")
        ('0.231', '0.0712', '1,234', '2e-09 eV')
    """
    size, digits = abs(value), ".3f"
    if not size < 1e7 or 0 < size < 1e-4:  # also NaN and infinity
        digits = ".3g"
    elif 0 < size < 0.1:
        digits = f".{2 - math.floor(math.log10(size))}f"
    elif size >= 100:
        digits = ",.0f" if size >= 1000 else ".1f"
    return f"{value:{digits}} {unit}".rstrip()


def most_probable(values: np.ndarray) -> np.ndarray:
    """Return the classes of probabilities ``[n, targets, classes]``; other predictions as given."""
    return values.argmax(-1) if values.ndim == 3 else values


def evaluator(name: str) -> Evaluator:
    """Return the evaluator of an OGB data set: "pcqm4m-v2", "pcqm4m" or an ogbg-mol* set."""
    if name in _LSC:
        return Evaluator("mae", unit="eV", judge=name)
    if not name.startswith("ogbg-mol"):
        known = f"{', '.join(_LSC)} or ogbg-mol*"
        raise ValueError(f"evaluator: {name!r} is not a molecule data set of OGB, expected {known}")
    found = _ogb_evaluator(name)
    return Evaluator(found.eval_metric, found.num_tasks, judge=name)


def _ogb_evaluator(name: str) -> Any:
    with needs("Evaluator", "mol"):
        import_ogb()
        from ogb import graphproppred, lsc  # both import scikit-learn

    return getattr(lsc, _LSC[name])() if name in _LSC else graphproppred.Evaluator(name)


def write_submission(
    name: str,
    split: str,
    y_pred: Tensor | np.ndarray,
    index: Tensor | ArrayLike,
    split_index: Tensor | ArrayLike,
    folder: str | Path,
) -> Path:
    """Write the file that OGB's leaderboard takes, by OGB's own `save_test_submission`.

    Everything is checked before the file is written, and the file is read back afterwards. An
    older file of the same name is replaced.

    Args:
        name: "pcqm4m-v2" (its splits "test-dev" and "test-challenge") or "pcqm4m" ("test").
        split: the name of the split, which has ``n`` molecules in OGB's release.
        y_pred: ``[n]``, float32 or float64, the predictions in the order of the split.
        index: ``[n]``, the molecule of each prediction, from the batches.
        split_index: ``[n]``, the molecules of the split, from the data set.
        folder: where to write; created if missing.
    """
    if (name, split) not in _SUBMISSIONS:
        known = ", ".join(f"{split!r} of {name}" for name, split in _SUBMISSIONS)
        raise ValueError(f"write_submission: {split!r} of {name!r} is not submitted, only {known}")
    count = _SUBMISSIONS[name, split]
    kind = getattr(y_pred, "dtype", type(y_pred).__name__)
    if kind not in (np.float32, np.float64, torch.float32, torch.float64):
        raise TypeError(f"write_submission: y_pred is {kind}, expected float32 or float64")
    y_pred = _as_numpy(y_pred)
    if y_pred.shape != (count,):
        raise ValueError(
            f"write_submission: y_pred has shape {list(y_pred.shape)}, expected [{count}]: OGB "
            f"takes predictions of the whole split {split!r}, and this is not the whole data set "
            f"{name}"
        )
    with np.errstate(over="ignore"):
        values = y_pred.astype(np.float32)
    for row in np.flatnonzero(~np.isfinite(values)):
        raise ValueError(f"write_submission: y_pred[{row}] = {y_pred[row]}, not finite in float32")
    given, expected = _as_numpy(index), _as_numpy(split_index)
    for what, rows in (("index", given), ("split_index", expected)):
        if rows.shape != (count,) or rows.dtype.kind not in "iu":
            array = f"{rows.dtype} {list(rows.shape)}"
            raise ValueError(f"write_submission: {what} is {array}, expected {count} integers")
    for row in np.flatnonzero(given != expected):
        problem = f"prediction {row} is of molecule {given[row]}, expected {expected[row]}"
        raise ValueError(f"write_submission: {problem}; predict the split in its own order")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        mode = {} if name == "pcqm4m" else {"mode": split}
        _ogb_evaluator(name).save_test_submission({"y_pred": values}, temporary, **mode)
        (written,) = Path(temporary).iterdir()
        with np.load(written, allow_pickle=False) as file:
            found = file["y_pred"]
        if found.dtype != np.float32 or not np.array_equal(found, values):
            raise OSError(f"write_submission: {written.name} does not read back as it was written")
        return written.replace(Path(folder) / written.name)


def _as_numpy(values: Tensor | ArrayLike) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.asarray(values)
