"""Scores accumulated batch by batch, by OGB or scikit-learn, and OGB's leaderboard files."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


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
            reason = "the labels of OGB's test splits are not published"
            raise ValueError(f"Evaluator: {problem}, {self.name} is not defined; {reason}")
        if self._judge is not None:
            if self._judge in _LSC:  # takes one target without gaps
                labels, values = labels[known], values[known]
            found = _ogb_evaluator(self._judge).eval({"y_true": labels, "y_pred": values})
            return float(found[self.metric])
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
        shape = list(y_pred.shape)
        raise ValueError(f"write_submission: y_pred has shape {shape}, expected [{count}]")
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
