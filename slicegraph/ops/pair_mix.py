"""Rows of a set averaged by weights for each pair of them: attention with the weights at hand."""

from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.operator import Gradient, Operator
from slicegraph.ops.pair_sets import check_lengths, check_pairs


def pair_mix(weights: Tensor, values: Tensor, ptr: Tensor) -> Tensor:
    r"""Adds up the rows of each packed set, by the weights of their pairs.

    .. math:: y_{ih} = \sum_j w_{hij} v_{jh}

    for rows :math:`i, j` of one set and each head :math:`h`. Nothing is padded on a CPU, in float32
    and float64; everything else is laid out side by side for :func:`torch.matmul`.

    Args:
        weights: ``[B, H, N, N]``, floating point. Set ``b`` of ``n`` rows has its weights in
            ``weights[b, :, :n, :n]``; the others are not read, and have a gradient of 0.
        values: ``[T, C]``, of the same type; head ``h`` is the ``h``-th of ``H`` equal parts of the
            channels.
        ptr: ``[B + 1]``, int32 or int64: set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]``, at
            most ``N``.

    Shapes:
        output: like ``values``.

    Example:
        >>> weights = torch.tensor([[[[0.5, 0.5], [0.0, 1.0]]], [[[3.0, 0.0], [0.0, 0.0]]]])
        >>> pair_mix(weights, torch.tensor([[2.0], [4.0], [1.0]]), torch.tensor([0, 2, 3]))
        tensor([[3.],
                [4.],
                [3.]])
    """
    for argument, value in (("weights", weights), ("values", values), ("ptr", ptr)):
        if not isinstance(value, Tensor):
            raise TypeError(f"pair_mix: {argument} is {type(value).__name__}, expected a tensor")
    check_pairs("pair_mix", weights, values, ptr)
    if not values.is_cpu and not torch.compiler.is_compiling():
        check_lengths("pair_mix", values, ptr, weights.shape[-1])
    return pair_mix_op(weights, values, ptr.long(), False)


def _fake_mix(weights: Tensor, values: Tensor, ptr: Tensor, transpose: bool) -> Tensor:
    return values.new_empty(values.shape)


def _fake_outer(g: Tensor, values: Tensor, ptr: Tensor, heads: int, length: int) -> Tensor:
    return g.new_empty((ptr.shape[0] - 1, heads, length, length))


pair_mix_op = Operator(
    "pair_mix",
    "Tensor weights, Tensor values, Tensor ptr, bool transpose",
    "Tensor",
    _fake_mix,
    two=True,
)
pair_outer_op = Operator(
    "pair_outer",
    "Tensor g, Tensor values, Tensor ptr, SymInt heads, SymInt length",
    "Tensor",
    _fake_outer,
    two=True,
)


class _PairMix(Gradient):
    operator = "pair_mix"

    @staticmethod
    def forward(ctx: Any, run, weights, values, ptr, transpose):
        ctx.save_for_backward(weights, values, ptr)
        ctx.transpose = transpose
        return run(weights, values, ptr, transpose)

    @staticmethod
    def backward(ctx: Any, g):
        weights, values, ptr = ctx.saved_tensors
        of_weights = of_values = None
        if ctx.needs_input_grad[1]:
            pair = (values, g) if ctx.transpose else (g, values)
            of_weights = pair_outer_op(*pair, ptr, weights.shape[1], weights.shape[2])
        if ctx.needs_input_grad[2]:
            of_values = pair_mix_op(weights, g, ptr, not ctx.transpose)
        return None, of_weights, of_values, None, None


class _PairOuter(Gradient):
    operator = "pair_outer"

    @staticmethod
    def forward(ctx: Any, run, g, values, ptr, heads, length):
        ctx.save_for_backward(g, values, ptr)
        return run(g, values, ptr, heads, length)

    @staticmethod
    def backward(ctx: Any, weights):
        g, values, ptr = ctx.saved_tensors
        of_g = of_values = None
        if ctx.needs_input_grad[1]:
            of_g = pair_mix_op(weights, values, ptr, False)
        if ctx.needs_input_grad[2]:
            of_values = pair_mix_op(weights, g, ptr, True)
        return None, of_g, of_values, None, None, None


pair_mix_op.differentiate_with(_PairMix)
pair_outer_op.differentiate_with(_PairOuter)
