"""The scores of a split as values, and how good they are."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from slicegraph.train.data import AnyDataSet
    from slicegraph.train.loss import Loss


class Evaluation(NamedTuple):
    """A split that was predicted.

    Args:
        values: ``[n, targets]``: in the unit of the targets, probabilities of class 1, or class
            numbers; in the order of the split.
        loss: the mean over the known labels; NaN if there are none.
        score: the metric of the data set; None if it is not defined.
        reason: why not.
    """

    values: np.ndarray
    loss: float
    score: float | None
    reason: str = ""


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, loss: "Loss", dataset: "AnyDataSet", split: str, scores: Tensor
) -> Evaluation:
    """What the scores of a split, ``[n, targets, ...]`` in its order, are worth."""
    labels = torch.from_numpy(dataset.labels(dataset.splits[split]))
    device = next(model.parameters()).device
    total, count = loss(model, scores.to(device), labels.to(device))
    values = as_values(model, dataset.task.kind, scores.to(device)).cpu().numpy()
    mean = float(total / count) if count else float("nan")
    try:
        return Evaluation(values, mean, score(dataset, labels.numpy(), values))
    except ValueError as error:
        return Evaluation(values, mean, None, str(error))


def as_values(model: Any, kind: str, scores: Tensor) -> Tensor:
    """Scores as values, probabilities or class numbers."""
    if kind == "multiclass":
        return scores.argmax(-1)
    return scores.double().sigmoid() if kind == "binary" else model.rescale(scores)


def score(dataset: "AnyDataSet", labels: np.ndarray, values: np.ndarray) -> float:
    """The metric of the data set, by OGB's evaluator."""
    dataset.evaluator.reset()
    dataset.evaluator.update(y_true=labels, y_pred=values)
    return dataset.evaluator.compute()


def check_defined(dataset: "AnyDataSet", split: str) -> None:
    """Raises if the metric cannot be computed for a split, before hours have gone into it."""
    labels = dataset.labels(dataset.splits[split])
    try:
        score(dataset, labels, np.zeros(labels.shape))
    except ValueError as error:
        raise ValueError(
            f"train: split {split!r} of {dataset.name} cannot be scored: {error}; choose another "
            "split, split_seed, fractions or metric"
        ) from None
