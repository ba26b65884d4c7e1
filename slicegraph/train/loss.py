"""What is minimised: a sum over the labels that there are, and how many these are."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.models import GraphSliceformer

Loss = Callable[[Any, Tensor, Tensor], "LossSum"]


class LossSum(NamedTuple):
    """The sum of the losses of all known labels, and their number."""

    total: Tensor
    count: Tensor  # type: ignore[assignment]


def loss_of(task: str, metric: str) -> Loss:
    """The loss of a task: the absolute error, or the squared one if that is what is scored; the
    cross entropy of classes.

    The loss takes the model, its scores ``[B, targets]`` (``[B, targets, classes]`` for several
    classes) and the labels ``[B, targets]``, in which NaN is a gap and does not count.
    """
    if task == "regression":
        return _squared_error if metric == "rmse" else _absolute_error
    return _binary_entropy if task == "binary" else _cross_entropy


def _absolute_error(model: GraphSliceformer, scores: Tensor, labels: Tensor) -> LossSum:
    return _sum(functional.l1_loss, scores, _standardised(model, labels))


def _squared_error(model: GraphSliceformer, scores: Tensor, labels: Tensor) -> LossSum:
    return _sum(functional.mse_loss, scores, _standardised(model, labels))


def _binary_entropy(model: GraphSliceformer, scores: Tensor, labels: Tensor) -> LossSum:
    return _sum(functional.binary_cross_entropy_with_logits, scores, labels)


def _cross_entropy(model: torch.nn.Module, scores: Tensor, labels: Tensor) -> LossSum:
    known = ~labels.isnan()
    classes = torch.where(known, labels, -1).long()
    total = functional.cross_entropy(
        scores.flatten(0, 1).float(), classes.flatten(), ignore_index=-1, reduction="sum"
    )
    return LossSum(total, known.sum())


def _standardised(model: GraphSliceformer, labels: Tensor) -> Tensor:
    if model.target_mean is None or model.target_std is None:
        return labels
    return (labels - model.target_mean) / model.target_std


def _sum(loss: Callable[..., Tensor], scores: Tensor, labels: Tensor) -> LossSum:
    known = ~labels.isnan()
    each = loss(scores.float(), torch.where(known, labels, 0).float(), reduction="none")
    return LossSum(torch.where(known, each, 0).sum(), known.sum())
