"""Losses against torch, on the labels that are there."""

import pytest
import torch
from torch.nn import functional

from slicegraph.models import GraphSliceformer
from slicegraph.train.loss import loss_of

NAN = float("nan")


def model(**fields) -> GraphSliceformer:
    return GraphSliceformer.from_preset("mini", num_layers=1, **fields)


def mean(loss, *arguments) -> torch.Tensor:
    total, count = loss(*arguments)
    return total / count


@pytest.mark.parametrize(
    ("metric", "expected"), [("mae", functional.l1_loss), ("rmse", functional.mse_loss)]
)
def test_regression_is_on_standardised_targets(metric, expected):
    net = model(num_targets=2, target_mean=(1.0, -2.0), target_std=(2.0, 4.0))
    scores, labels = torch.randn(5, 2), torch.randn(5, 2)
    standard = (labels - torch.tensor([1.0, -2.0])) / torch.tensor([2.0, 4.0])
    found = mean(loss_of("regression", metric), net, scores, labels)
    torch.testing.assert_close(found, expected(scores, standard))


def test_binary_is_the_cross_entropy_of_logits():
    scores, labels = torch.randn(6, 3), torch.randint(0, 2, (6, 3)).float()
    found = mean(loss_of("binary", "rocauc"), model(task="binary"), scores, labels)
    torch.testing.assert_close(found, functional.binary_cross_entropy_with_logits(scores, labels))


def test_multiclass_is_the_cross_entropy_of_each_target():
    scores, labels = torch.randn(6, 2, 4), torch.randint(0, 4, (6, 2))
    found = mean(loss_of("multiclass", "acc"), model(), scores, labels.float())
    torch.testing.assert_close(
        found, functional.cross_entropy(scores.reshape(12, 4), labels.reshape(12))
    )


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
def test_a_gap_in_the_labels_does_not_count(task):
    shape = (4, 2, 3) if task == "multiclass" else (4, 2)
    scores = torch.randn(shape, requires_grad=True)
    labels = torch.tensor([[0.0, NAN], [1.0, 1.0], [NAN, NAN], [NAN, 0.0]])
    total, count = loss_of(task, "mae")(model(), scores, labels)
    total.backward()
    assert count == 4
    assert total.isfinite()
    touched = scores.grad.reshape(4, 2, -1).abs().sum(-1) > 0
    assert torch.equal(touched, ~labels.isnan())


def test_the_model_gives_targets_in_their_unit():
    torch.manual_seed(0)
    plain = model(num_targets=2)
    scaled = model(num_targets=2, target_mean=(1.0, -2.0), target_std=(2.0, 4.0))
    scaled.load_state_dict(plain.state_dict())
    scores = torch.randn(3, 2)
    expected = scores * torch.tensor([2.0, 4.0]) + torch.tensor([1.0, -2.0])
    assert torch.equal(scaled.rescale(scores), expected)
    assert torch.equal(plain.rescale(scores), scores)
