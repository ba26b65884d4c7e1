"""Loss, schedule, weight decay, mean over labels and adversarial noise, each by its formula."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch_geometric.data import Data

from slicegraph.models import GraphSliceformer
from slicegraph.train.module import (
    LabelMean,
    adversarial_loss,
    loss_of,
    scores_in_order,
)

NAN = float("nan")


def model(**fields) -> GraphSliceformer:
    return GraphSliceformer.from_preset("mini", num_layers=1, channels=8, heads=2, **fields)


def mean_loss(kind: str, metric: str, net, scores, labels) -> torch.Tensor:
    total, count = loss_of(SimpleNamespace(kind=kind, metric=metric), net, scores, labels)
    return total / count


@pytest.mark.parametrize(
    ("metric", "expected"), [("mae", functional.l1_loss), ("rmse", functional.mse_loss)]
)
def test_regression_is_on_standardised_targets(metric, expected):
    net = model(num_targets=2, target_mean=(1.0, -2.0), target_std=(2.0, 4.0))
    scores, labels = torch.randn(5, 2), torch.randn(5, 2)
    standard = (labels - torch.tensor([1.0, -2.0])) / torch.tensor([2.0, 4.0])
    found = mean_loss("regression", metric, net, scores, labels)
    torch.testing.assert_close(found, expected(scores, standard))
    torch.testing.assert_close(net.rescale(standard), labels)


def test_classes_have_the_cross_entropy():
    scores, labels = torch.randn(6, 3), torch.randint(0, 2, (6, 3)).float()
    found = mean_loss("binary", "rocauc", model(task="binary"), scores, labels)
    torch.testing.assert_close(found, functional.binary_cross_entropy_with_logits(scores, labels))
    scores, labels = torch.randn(6, 2, 4), torch.randint(0, 4, (6, 2))
    found = mean_loss("multiclass", "acc", model(), scores, labels.float())
    expected = functional.cross_entropy(scores.reshape(12, 4), labels.reshape(12))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_missing_labels_do_not_count(kind):
    shape = (4, 2, 3) if kind == "multiclass" else (4, 2)
    scores = torch.randn(shape, requires_grad=True)
    labels = torch.tensor([[0.0, NAN], [1.0, 1.0], [NAN, NAN], [NAN, 0.0]])
    task = SimpleNamespace(kind=kind, metric="mae")
    total, count = loss_of(task, model(), scores, labels)
    total.backward()
    assert count == 4
    assert total.isfinite()
    touched = scores.grad.reshape(4, 2, -1).abs().sum(-1) > 0
    assert torch.equal(touched, ~labels.isnan())


@pytest.mark.parametrize("metric", ["mae", "rmse"])
def test_a_limit_has_a_loss_on_its_wrong_side_alone(metric):
    net = model(target_mean=(10.0,), target_std=(2.0,))
    # Standardised, the labels are 1 and -1; the loss of ">12" is that of scores below 1.
    labels = torch.tensor([[12.0], [12.0], [8.0], [8.0], [12.0], [NAN]])
    bounds = torch.tensor([[1], [1], [-1], [-1], [0], [1]], dtype=torch.int8)
    scores = torch.tensor([[0.5], [3.0], [0.5], [-3.0], [3.0], [5.0]], requires_grad=True)
    task = SimpleNamespace(kind="regression", metric=metric)
    total, count = loss_of(task, net, scores, labels, bounds)
    errors = torch.tensor([0.5, 0.0, 1.5, 0.0, 2.0])
    expected = (errors**2 if metric == "rmse" else errors).sum()
    torch.testing.assert_close(total, expected)
    assert count == 5
    total.backward()
    assert scores.grad.flatten().sign().tolist() == [-1, 0, 1, 0, 1, 0]
    exact, _ = loss_of(task, net, scores, labels, torch.zeros_like(bounds))
    torch.testing.assert_close(exact, loss_of(task, net, scores, labels)[0])


def test_parts_with_more_labels_count_more():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(3, dtype=torch.float64))
    parts = [torch.randn(count, 3, dtype=torch.float64) for count in (2, 0, 5)]
    (torch.cat(parts) @ weight).square().mean().backward()
    expected, weight.grad = weight.grad, None
    mean = LabelMean(world=1, parts=3)
    for part in parts:
        total = (part @ weight).square().sum() * mean.weight(torch.tensor(len(part)))
        (total / 3).backward()  # as Lightning does
    mean.finish([weight])
    torch.testing.assert_close(weight.grad, expected)


def test_adversarial_noise_increases_the_loss_and_is_removed():
    torch.manual_seed(0)
    atom = [5, 0, 4, 5, 3, 0, 2, 0, 0]
    graph = Data(
        x=torch.tensor([atom, atom, [7, 0, 2, 5, 1, 0, 2, 0, 0]]),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        edge_attr=torch.zeros(4, 3, dtype=torch.long),
    )
    net = model().double()

    def loss() -> tuple[torch.Tensor, torch.Tensor]:
        return (net.score(graph) - 1).square().sum(), torch.tensor(1)

    plain, (worse, count) = loss()[0], adversarial_loss(net, loss, 3, 0.01)
    assert worse > plain
    assert count == 1
    worse.backward()
    assert all(parameter.grad is not None for parameter in net.head.parameters())
    assert torch.equal(loss()[0], plain)


def test_scores_are_put_in_order_and_a_missing_one_is_an_error():
    batches = [(np.array([7, 2]), np.array([[7.0], [2.0]])), (np.array([5]), np.array([[5.0]]))]
    assert scores_in_order(batches, np.array([2, 5, 7])).flatten().tolist() == [2, 5, 7]
    with pytest.raises(RuntimeError, match="3 predictions for 2 samples"):
        scores_in_order(batches, np.array([2, 5]))
