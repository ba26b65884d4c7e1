"""Attention within packed sets, with a bias for every pair of rows."""

import math
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import choose, cpu, cpu_attention
from slicegraph.ops.dropout import draw_seed, dropout
from slicegraph.ops.operator import _watched
from slicegraph.ops.pair_mix import pair_mix_op, pair_outer_op
from slicegraph.ops.pair_sets import check_pairs


def pair_attention(qkv: Tensor, bias: Tensor, ptr: Tensor, p: float = 0.0) -> Tensor:
    r"""Averages the rows of each packed set by the likeness of queries and keys.

    .. math:: y_{ih} = \sum_j w_{hij} v_{jh}, \quad w_{hi} = \mathrm{drop}\big(\mathrm{softmax}_j
        (q_{ih} k_{jh} / \sqrt{D} + b_{hij})\big)

    for rows :math:`i, j` of one set and each head :math:`h` of :math:`D` channels. On a CPU, in
    float32 and float64, this is one kernel, which keeps nothing of the size of the pairs: the
    backward pass computes the weights, and what was dropped of them, once more. Everything else
    goes step by step.

    Args:
        qkv: ``[T, 3 C]``, floating point: queries, keys and values side by side; head ``h`` is the
            ``h``-th of ``H`` equal parts of each.
        bias: ``[B, H, N, N]``, of the same type, with a value far below all others in the columns
            beyond the rows of a set.
        ptr: ``[B + 1]``, int32 or int64: set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]``, at
            most ``N``.
        p: the probability with which a weight is dropped, at most 1, see
            :func:`~slicegraph.ops.dropout.dropout`.

    Shapes:
        output: ``[T, C]``.

    Example:
        >>> qkv, bias = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 4.0]]), torch.zeros(1, 1, 2, 2)
        >>> pair_attention(qkv, bias, torch.tensor([0, 2]))
        tensor([[3.],
                [3.]])
    """
    if qkv.dim() != 2 or qkv.shape[1] % 3:
        raise ValueError(f"pair_attention: qkv has shape {list(qkv.shape)}, expected [T, 3 C]")
    check_pairs("pair_attention", bias, qkv[:, : qkv.shape[1] // 3], ptr)
    return pair_attention_through(qkv, bias, ptr, p)[0]


def pair_attention_through(
    qkv: Tensor, bias: Tensor, ptr: Tensor, p: float
) -> tuple[Tensor, Tensor]:
    """:func:`pair_attention` and the bias, for the next layer that shares it; no checks.

    What goes through adds its gradient up on its way back, instead of one tensor of the size of the
    pairs for each layer.
    """
    if not has_kernel(qkv):
        return _step_by_step(qkv, bias, ptr, p, None), bias
    out, through = _PairAttention.apply(qkv, bias, ptr, draw_seed() if p else None, p)
    return out, through if bias.requires_grad and torch.is_grad_enabled() else bias


def has_kernel(qkv: Tensor) -> bool:
    """Whether :func:`pair_attention` of these rows is more than a few other operators."""
    return (
        qkv.is_cpu
        and qkv.dtype in cpu_attention.DTYPES
        and not _watched(qkv)
        and cpu_attention.kernel is not None
        and choose("cpu") is cpu
    )


def _step_by_step(qkv: Tensor, bias: Tensor, ptr: Tensor, p: float, seed: Tensor | None) -> Tensor:
    queries, keys, values = qkv.chunk(3, 1)
    heads, length = bias.shape[1:3]
    scaled = queries * math.sqrt(heads / queries.shape[1])
    scores = pair_outer_op(scaled, keys, ptr, heads, length) + bias
    weights = torch.ops.aten._safe_softmax(scores, -1)  # 0 where all of a row is forbidden
    weights = dropout(weights, p, seed) if p < 1 else weights * 0
    return pair_mix_op(weights, values, ptr, False)


class _PairAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, bias: Tensor, ptr: Tensor, seed: Tensor | None, p: float
    ) -> tuple[Tensor, Tensor]:
        out, totals = cpu_attention.pair_attention(qkv, bias, ptr, int(seed or 0), p)
        ctx.save_for_backward(qkv, bias, totals, ptr)
        ctx.seed, ctx.p = seed, p
        ctx.set_materialize_grads(False)
        return out, bias

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, added: Tensor | None) -> Any:
        if g is None:
            return None, added, None, None, None
        qkv, bias, totals, ptr = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated once more
            out = _step_by_step(qkv, bias, ptr, ctx.p, ctx.seed)
            inputs = [x for x in (qkv, bias) if x.requires_grad]
            found = iter(torch.autograd.grad(out, inputs, g, create_graph=True))
            of_qkv, of_bias = (next(found) if x.requires_grad else None for x in (qkv, bias))
            if of_bias is not None and added is not None:
                of_bias = of_bias + added
            return of_qkv, of_bias, None, None, None
        saved, seed = (qkv, bias, totals, ptr), int(ctx.seed or 0)
        both = cpu_attention.pair_attention_gradients(g, added, *saved, seed, ctx.p)
        return (*both, None, None, None)
