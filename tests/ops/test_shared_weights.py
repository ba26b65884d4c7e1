"""Weights that several layers share: the same results and gradients as without sharing."""

import gc
import weakref

import pytest
import torch
from support.variants import VARIANTS, running
from torch import Tensor

from slicegraph.ops import pair_mix
from slicegraph.ops.backends import implementation
from slicegraph.ops.shared_weights import SharedWeights

PTR = torch.tensor([0, 3, 3, 4, 30])


@pytest.fixture(params=[variant for variant in VARIANTS if variant != "triton"])
def backend(request):
    with running(request.param):
        yield request.param


def case() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    weights = torch.rand(4, 2, 26, 26, dtype=torch.float64)
    values = torch.randn(30, 6, dtype=torch.float64)
    return weights.requires_grad_(), values.requires_grad_()


def layers(mix, values: Tensor, count: int = 3) -> Tensor:
    x = values
    for _ in range(count):
        x = torch.tanh(mix(x) * 0.1) + values
    return x.square().sum()


def plainly(weights: Tensor, values: Tensor, count: int = 3) -> Tensor:
    return layers(lambda x: pair_mix(weights, x, PTR), values, count)


def shared(weights: Tensor, values: Tensor, count: int = 3) -> Tensor:
    return layers(SharedWeights(weights, PTR).mix, values, count)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_and_gradients_are_those_of_separate_mixes(backend, count):
    inputs = case()
    out, expected = shared(*inputs, count), plainly(*inputs, count)
    torch.testing.assert_close(out, expected)
    found = torch.autograd.grad(out, inputs)
    torch.testing.assert_close(found, torch.autograd.grad(expected, inputs))


def test_the_gradient_of_the_values_alone_leaves_nothing_behind():
    weights, values = case()
    out = shared(weights, values)
    (first,) = torch.autograd.grad(out, values, retain_graph=True)
    both = torch.autograd.grad(out, (weights, values))
    expected = torch.autograd.grad(plainly(weights, values), (weights, values))
    torch.testing.assert_close((first, *both), (expected[1], *expected))


def test_two_backward_passes_add_up_to_twice_the_gradient():
    weights, values = case()
    out = shared(weights, values)
    out.backward(retain_graph=True)
    once = weights.grad.clone()
    out.backward()
    torch.testing.assert_close(weights.grad, 2 * once)


def test_gradients_can_be_differentiated_again():
    weights, values = case()
    assert torch.autograd.gradgradcheck(
        lambda w, v: SharedWeights(w, PTR).mix(SharedWeights(w, PTR).mix(v).sin()),
        (weights[:, :1].detach().requires_grad_(), values[:, :2].detach().requires_grad_()),
        fast_mode=True,
    )


def test_weights_that_are_also_used_otherwise_have_both_gradients():
    weights, values = case()
    found = torch.autograd.grad(shared(weights, values) + weights.square().sum(), weights)
    expected = torch.autograd.grad(plainly(weights, values) + weights.square().sum(), weights)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("which", [0, 1])
def test_one_of_the_two_may_need_no_gradient(which):
    inputs = list(case())
    inputs[which] = inputs[which].detach()
    found = torch.autograd.grad(shared(*inputs), inputs[1 - which])
    torch.testing.assert_close(found, torch.autograd.grad(plainly(*inputs), inputs[1 - which]))


def test_a_mix_that_no_loss_depends_on_adds_nothing():
    weights, values = case()
    sharing = SharedWeights(weights, PTR)
    sharing.mix(values)
    found = torch.autograd.grad(sharing.mix(values).sum(), weights)
    expected = torch.autograd.grad(pair_mix(weights, values, PTR).sum(), weights)
    torch.testing.assert_close(found, expected)


def test_nothing_is_kept_after_the_backward_pass():
    weights, values = case()
    sharing = SharedWeights(weights, PTR)
    out = sharing.mix(values)
    kept = weakref.ref(out)
    out.sum().backward()
    del out
    gc.collect()
    assert kept() is None
    assert not sharing._waiting


@pytest.mark.parametrize("length", [26, 40])
def test_a_sum_of_outer_products_is_that_of_each(backend, length):
    torch.manual_seed(0)
    left, right = ([torch.randn(30, 6) for _ in range(3)] for _ in range(2))
    run, one = (implementation(name, left[0]) for name in ("pair_outer_sum", "pair_outer"))
    expected = sum(one(g, v, PTR, 2, length) for g, v in zip(left, right, strict=True))
    torch.testing.assert_close(run(left, right, PTR, 2, length), expected)
    # Only rows of one set meet.
    assert not expected[0, :, 3:].any()
    torch.testing.assert_close(
        expected[2, 1, 0, 0],
        sum((g[3, 3:] * v[3, 3:]).sum() for g, v in zip(left, right, strict=True)),
    )
