"""Noise on the atoms that makes the loss larger: the augmentation of FLAG, one way of it."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from slicegraph.models import GraphSliceformer


def adversarial_loss(
    model: GraphSliceformer, loss: Callable[[], Tensor], steps: int, size: float
) -> Tensor:
    """The loss with noise on the embedding, which has climbed it for ``steps`` steps.

    The noise begins uniform in ``-size..size`` and each step adds ``size`` with the sign of its
    gradient, as in `"Robust Optimization as Data Augmentation for Large-scale Graphs"
    <https://arxiv.org/abs/2010.09891>`_; the weights learn from the last step alone.

    Args:
        model: whose embedding is disturbed.
        loss: computes it, with a forward pass of the model.
        steps: how often the noise is changed, at least 1.
        size: how large a step is.
    """
    noise: list[Tensor] = []
    with _added_to_embedding(model, noise, size):
        for _ in range(steps):
            (slope,) = torch.autograd.grad(loss(), noise[0])
            noise[0] = (noise[0].detach() + size * slope.sign()).requires_grad_()
        noise[0] = noise[0].detach()
        return loss()


@contextmanager
def _added_to_embedding(model: GraphSliceformer, noise: list[Tensor], size: float) -> Any:
    def add(module: torch.nn.Module, inputs: Any, x: Tensor) -> Tensor:
        if not noise:
            noise.append(torch.empty_like(x).uniform_(-size, size).detach().requires_grad_())
        return x + noise[0]

    handle = model.embedding.register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()
