"""Weights of pairs that several layers mix by, whose gradient is made of all of them at once.

The gradient of the weights is the largest tensor of a layer. To make one for every layer and to add
them up takes longer than the products of the layer; one pass over all layers writes it once.
"""

from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import implementation
from slicegraph.ops.operator import _watched
from slicegraph.ops.pair_mix import pair_mix_op, pair_outer_op

_backward_pass = torch._C._current_graph_task_id


class SharedWeights:
    """Mixes as :func:`~slicegraph.ops.pair_mix`, any number of times, by the same weights.

    Args:
        weights: ``[B, H, N, N]``.
        ptr: ``[B + 1]``, int64, the sets. They are not checked.

    Example:
        >>> shared = SharedWeights(torch.ones(1, 1, 2, 2), torch.tensor([0, 2]))
        >>> shared.mix(torch.tensor([[1.0], [2.0]]))
        tensor([[3.],
                [3.]])
    """

    def __init__(self, weights: Tensor, ptr: Tensor) -> None:
        self._weights, self._ptr = weights, ptr
        self._waiting: _Waiting = {}
        self._one: Tensor | None = None

    def mix(self, values: Tensor) -> Tensor:
        """``[T, C]``: every row the sum of its set's, by the weights."""
        is_plain = not torch.is_grad_enabled() or not self._weights.requires_grad
        if is_plain or _watched(values) or _watched(self._weights):
            return pair_mix_op(self._weights, values, self._ptr, False)
        if self._one is None:
            self._one = _Share.apply(self._weights, self._ptr, self._waiting)
        return _Mix.apply(self._one, values, self._ptr, self._waiting)


_Waiting = dict[int, list[tuple[Tensor, Tensor]]]
"""By backward pass: of each layer the gradient of its output, and its values."""


class _Share(torch.autograd.Function):
    """The weights themselves. Its gradient is asked for when all layers have theirs."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, ptr: Tensor, waiting: _Waiting) -> Tensor:
        ctx.set_materialize_grads(False)
        # Nothing is saved: the first layer that asks may be one that is computed once more later.
        ctx.ptr, ctx.shape, ctx.waiting = ptr, weights.shape, waiting
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, None, None]:
        layers = ctx.waiting.pop(_backward_pass(), [])
        if layers:
            gradients, values = map(list, zip(*layers, strict=True))
            run = implementation("pair_outer_sum", values[0])
            of_weights = run(gradients, values, ctx.ptr, *ctx.shape[1:3])
            g = of_weights if g is None else g + of_weights
        return g, None, None


class _Mix(torch.autograd.Function):
    """Leaves its part of the gradient of the weights to `_Share`, if nobody differentiates it."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, values: Tensor, ptr: Tensor, waiting: _Waiting
    ) -> Tensor:
        ctx.save_for_backward(weights, values, ptr)
        ctx.waiting = waiting
        return pair_mix_op(weights, values, ptr, False)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        weights, values, ptr = ctx.saved_tensors
        of_weights = None
        if torch.is_grad_enabled() or _watched(g):
            of_weights = pair_outer_op(g, values, ptr, *weights.shape[1:3])
        else:
            ctx.waiting.setdefault(_backward_pass(), []).append((g, values))
        of_values = pair_mix_op(weights, g, ptr, True) if ctx.needs_input_grad[1] else None
        return of_weights, of_values, None, None
