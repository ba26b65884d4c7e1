"""OGB's evaluators behind one interface, fed batch by batch; and OGB's leaderboard file."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from ogb.graphproppred import Evaluator as GraphEvaluator
from ogb.lsc import PCQM4MEvaluator, PCQM4Mv2Evaluator
from torch import Tensor

_LSC: dict[str, Callable[[], Any]] = {"pcqm4m": PCQM4MEvaluator, "pcqm4m-v2": PCQM4Mv2Evaluator}
_TITLES = {"mae": "MAE", "rmse": "RMSE", "rocauc": "ROC-AUC", "ap": "AP", "acc": "accuracy"}
_HIGHER_IS_BETTER = {"rocauc", "ap", "acc"}
# OGB names its evaluators after data sets: for each metric one data set that is scored by it.
_JUDGE = {
    "mae": "pcqm4m-v2",
    "rmse": "ogbg-mollipo",
    "rocauc": "ogbg-molhiv",
    "ap": "ogbg-molpcba",
    "acc": "ogbg-ppa",
}
_SUBMISSIONS = {
    ("pcqm4m-v2", "test-dev"): 147_037,
    ("pcqm4m-v2", "test-challenge"): 147_432,
    ("pcqm4m", "test"): 377_423,
}


class Evaluator:
    """Gathers predictions batch by batch and has OGB's own evaluator score all of them.

    Labels that are NaN are gaps and do not count, as in OGB; a score over several targets is the
    mean of theirs. ROC-AUC and AP skip a target that has only one class among its labels.

    Args:
        metric: "mae", "rmse", "rocauc", "ap" or "acc".
        num_targets: how many columns labels and predictions have.
        unit: the unit of the labels, for those who print the score.
        judge: the OGB data set whose evaluator decides; by default one that has this metric.

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
        if metric not in _TITLES:
            raise ValueError(f"Evaluator: metric {metric!r}, expected {', '.join(_TITLES)}")
        self.metric = metric
        self.name = _TITLES[metric]
        self.higher_is_better = metric in _HIGHER_IS_BETTER
        self.num_targets = num_targets
        self.unit = unit
        self._judge = _judge(judge or _JUDGE[metric], num_targets)
        self.reset()

    def reset(self) -> None:
        """Forgets all predictions."""
        self._batches: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, y_true: Tensor | ArrayLike, y_pred: Tensor | ArrayLike) -> None:
        """Adds a batch: tensors or arrays of shape ``[n, num_targets]``, or ``[n]`` for one target.

        Predictions are values for MAE and RMSE, scores (the higher, the likelier class 1) for
        ROC-AUC and AP, class numbers for accuracy.
        """
        labels = self._columns("y_true", y_true)
        values = self._columns("y_pred", y_pred)
        if len(labels) != len(values):
            raise ValueError(
                f"Evaluator: y_true has {len(labels)} rows and y_pred {len(values)}, expected equal"
            )
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise ValueError(f"Evaluator: y_pred[{row}, {column}] = {values[row, column]}")
        self._batches.append((labels, values))

    def compute(self) -> float:
        """The score of all batches since the last `reset`."""
        if not sum(len(labels) for labels, _ in self._batches):
            raise ValueError(f"Evaluator: no predictions to compute {self.name} of; call update")
        labels = np.concatenate([labels for labels, _ in self._batches])
        values = np.concatenate([values for _, values in self._batches])
        self._check_labels(labels)
        if self.metric == "mae":
            return self._mean_absolute_error(labels, values)
        return float(self._judge.eval({"y_true": labels, "y_pred": values})[self.metric])

    def _mean_absolute_error(self, labels: np.ndarray, values: np.ndarray) -> float:
        errors = []
        for y_true, y_pred in zip(labels.T, values.T, strict=True):
            known = ~np.isnan(y_true)
            errors.append(self._judge.eval({"y_true": y_true[known], "y_pred": y_pred[known]}))
        return float(np.mean([error["mae"] for error in errors]))

    def _columns(self, name: str, values: Tensor | ArrayLike) -> np.ndarray:
        array = _as_numpy(values).astype(np.float64)
        if array.ndim == 1 and self.num_targets == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != self.num_targets:
            raise ValueError(
                f"Evaluator: {name} has shape {list(array.shape)}, expected [n, {self.num_targets}]"
            )
        return array

    def _check_labels(self, labels: np.ndarray) -> None:
        known = ~np.isnan(labels)
        if self.metric in ("rocauc", "ap"):
            if not (known & np.isin(labels, (0, 1)) == known).all():
                wrong = labels[known & ~np.isin(labels, (0, 1))][0]
                raise ValueError(f"Evaluator: label {wrong:g}, {self.name} expects 0 and 1")
            if not ((labels == 0).any(0) & (labels == 1).any(0)).any():
                raise ValueError(
                    f"Evaluator: {self.name} is not defined, no target has labels of both classes"
                )
        elif not known.any(0).all():
            target = int(np.argmin(known.any(0)))
            raise ValueError(
                f"Evaluator: target {target} has no label among {len(labels)} molecules, "
                f"{self.name} is not defined; the labels of OGB's test splits are not published"
            )


def evaluator(name: str) -> Evaluator:
    """The evaluator of an OGB data set: its metric, its number of targets, its own judge.

    Args:
        name: "pcqm4m-v2", "pcqm4m" or an ogbg-mol* set.

    Example:
        >>> evaluator("ogbg-moltox21").name
        'ROC-AUC'
    """
    if name in _LSC:
        return Evaluator("mae", unit="eV", judge=name)
    if not name.startswith("ogbg-mol"):
        raise ValueError(
            f"evaluator: {name!r} is no molecular data set of OGB, expected "
            f"{', '.join(_LSC)} or ogbg-mol*"
        )
    found = GraphEvaluator(name)
    return Evaluator(found.eval_metric, found.num_tasks, judge=name)


def write_submission(
    name: str,
    split: str,
    y_pred: Tensor | np.ndarray,
    index: Tensor | ArrayLike,
    split_index: Tensor | ArrayLike,
    folder: str | Path,
) -> Path:
    """Writes the file that OGB's leaderboard takes, by OGB's own `save_test_submission`.

    Everything is checked before the file is written, and the file is read back after.

    Args:
        name: "pcqm4m-v2" (its splits "test-dev" and "test-challenge") or "pcqm4m" ("test").
        split: which of them.
        y_pred: ``[n]``, float32 or float64, the predictions in the order of the split; ``n`` is
            the size of the split in OGB's release.
        index: ``[n]``, the molecule of each prediction, as the batches say.
        split_index: ``[n]``, the molecules of the split, as the data set says.
        folder: where to write; made if it does not exist.

    Returns:
        The path of the file; an older one of that name is replaced.
    """
    if (name, split) not in _SUBMISSIONS:
        known = ", ".join(f"{split!r} of {name}" for name, split in _SUBMISSIONS)
        raise ValueError(f"write_submission: {split!r} of {name!r} is not submitted, only {known}")
    values = _checked_predictions(y_pred, _SUBMISSIONS[name, split])
    _check_order(_as_numpy(index), _as_numpy(split_index), len(values))
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        mode = {} if name == "pcqm4m" else {"mode": split}
        _LSC[name]().save_test_submission({"y_pred": values}, temporary, **mode)
        (written,) = Path(temporary).iterdir()
        _check_written(written, values)
        return written.replace(Path(folder) / written.name)


def _judge(name: str, num_targets: int) -> Any:
    if name in _LSC:
        return _LSC[name]()
    judge = GraphEvaluator(name)
    judge.num_tasks = num_targets
    return judge


def _as_numpy(values: Tensor | ArrayLike) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.asarray(values)


def _checked_predictions(y_pred: Tensor | np.ndarray, expected: int) -> np.ndarray:
    kind = getattr(y_pred, "dtype", type(y_pred).__name__)
    if kind not in (np.float32, np.float64, torch.float32, torch.float64):
        raise TypeError(f"write_submission: y_pred is {kind}, expected float32 or float64")
    y_pred = _as_numpy(y_pred)
    if y_pred.shape != (expected,):
        raise ValueError(
            f"write_submission: y_pred has shape {list(y_pred.shape)}, expected [{expected}]: "
            "one number for each molecule of the split"
        )
    with np.errstate(over="ignore"):
        values = y_pred.astype(np.float32)
    if not np.isfinite(values).all():
        first = int(np.argmin(np.isfinite(values)))
        raise ValueError(
            f"write_submission: y_pred[{first}] = {y_pred[first]} is not finite in float32"
        )
    return values


def _check_order(index: np.ndarray, split_index: np.ndarray, count: int) -> None:
    for name, values in (("index", index), ("split_index", split_index)):
        if values.shape != (count,) or values.dtype.kind not in "iu":
            raise ValueError(
                f"write_submission: {name} is {values.dtype} {list(values.shape)}, "
                f"expected {count} integers"
            )
    if not np.array_equal(index, split_index):
        first = int(np.argmax(index != split_index))
        raise ValueError(
            f"write_submission: prediction {first} is of molecule {index[first]}, expected "
            f"{split_index[first]}: predict the split in its own order, every molecule once"
        )


def _check_written(path: Path, values: np.ndarray) -> None:
    with np.load(path, allow_pickle=False) as file:
        found = file["y_pred"]
    if found.dtype != np.float32 or not np.array_equal(found, values):
        raise OSError(f"write_submission: {path.name} does not read back as it was written")
