"""Dropout whose mask is computed where it is needed, and never stored."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.ops.operator import Gradient, Operator

_DTYPES = (torch.float32, torch.float64)
_SEEDS = 2**63 - 1


def dropout(x: Tensor, p: float, seed: Tensor | None = None) -> Tensor:
    """Zeroes every entry with probability ``p`` and divides the others by ``1 - p``.

    On a CPU, :func:`torch.nn.functional.dropout` draws its random numbers one after another, in one
    thread: a third of the time of a training step of a slim model. Here one seed is drawn from
    torch's generator, and an entry is dropped if a hash of its place and the seed is small. The
    backward pass computes the hash again, so that no mask is kept. Other devices and types go to
    torch's own dropout.

    Args:
        x: any shape.
        p: at least 0, less than 1.
        seed: what decides instead of torch's generator, from :func:`draw_seed`; CPU only.

    Example:
        >>> dropout(torch.ones(4), 0.0)
        tensor([1., 1., 1., 1.])
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p = {p}, expected at least 0 and less than 1")
    if p == 0:
        return x
    if not x.is_cpu or x.dtype not in _DTYPES:
        return functional.dropout(x, p)
    return _dropout(x, draw_seed() if seed is None else seed, p)


def draw_seed() -> Tensor:
    """A number from torch's generator that decides which entries :func:`dropout` drops."""
    return torch.randint(_SEEDS, ())


def _fake_dropout(x: Tensor, seed: Tensor, p: float) -> Tensor:
    return x.new_empty(x.shape)


_dropout = Operator("dropout", "Tensor x, Tensor seed, float p", "Tensor", _fake_dropout)


class _Dropout(Gradient):
    operator = "dropout"

    @staticmethod
    def forward(ctx: Any, run, x, seed, p):
        ctx.save_for_backward(seed)
        ctx.p = p
        return run(x, seed, p)

    @staticmethod
    def backward(ctx: Any, g):
        return None, _dropout(g, *ctx.saved_tensors, ctx.p), None, None


_dropout.differentiate_with(_Dropout)
