"""What is to be predicted in a data set, and how it is scored."""

from dataclasses import dataclass

import numpy as np

from slicegraph.metrics import Evaluator

KINDS = {"regression": "mae", "binary": "rocauc", "multiclass": "acc"}
"""The kinds of task and the metric of each, unless the data set has another."""


@dataclass(frozen=True)
class Task:
    """The targets of a data set.

    Args:
        kind: "regression", "binary" (labels 0 and 1) or "multiclass" (labels 0, 1, 2, ...).
        target_names: the columns of the labels.
        metric: "mae", "rmse", "rocauc", "ap" or "acc".
        unit: the unit of the labels, if they have one.
        num_classes: how many classes there are; 0 for a regression.
    """

    kind: str
    target_names: tuple[str, ...]
    metric: str
    unit: str = ""
    num_classes: int = 0

    @property
    def num_targets(self) -> int:
        """How many numbers are predicted for a molecule, classes not counted."""
        return len(self.target_names)

    def evaluator(self) -> Evaluator:
        """A new evaluator with the metric of this task."""
        return Evaluator(self.metric, self.num_targets, self.unit)


def task_of_labels(
    labels: np.ndarray, names: tuple[str, ...], kind: str | None = None, metric: str | None = None
) -> Task:
    """The task of a table: binary if every label is 0 or 1, else regression, unless `kind` says it.

    Whole numbers may be counts or classes, which only the user knows: they are a regression, and
    ``kind="multiclass"`` makes classes of them.

    Args:
        labels: ``[N, L]``, NaN where there is none.
        names: the names of the ``L`` labels.
        kind: "regression", "binary" or "multiclass".
        metric: another one than MAE for a regression, ROC-AUC for 0 and 1, accuracy for classes.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"task = {kind!r}, expected {', '.join(KINDS)}")
    known = labels[~np.isnan(labels)]
    if not len(known):
        raise ValueError(
            f"no molecule has a label in {', '.join(names)}"
            if names
            else "there are no labels; name their columns (targets)"
        )
    if kind is None:
        kind = "binary" if np.isin(known, (0, 1)).all() else "regression"
    classes = {"regression": 0, "binary": 2}.get(kind, int(known.max()) + 1)
    if kind != "regression":
        _check_classes(known, kind, classes)
    return Task(kind, names, metric or KINDS[kind], num_classes=classes)


def _check_classes(known: np.ndarray, kind: str, classes: int) -> None:
    wrong = known[~np.isin(known, np.arange(classes))]
    if len(wrong):
        raise ValueError(f"label {wrong[0]:g} in a {kind} task, expected 0 to {classes - 1}")
