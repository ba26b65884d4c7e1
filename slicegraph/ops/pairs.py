"""Weighted sums over the pairs of rows of packed sets, attention with a bias for every pair, and
dropout, whose mask is a hash of the position: nothing is stored."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from slicegraph.ops import cpu, reference, triton
from slicegraph.ops.layout import (
    OptTensor,
    can_read,
    check_dense,
    check_lengths,
    check_pairs,
    on_cpu,
    plain,
)
from slicegraph.ops.operator import (
    Operator,
    differentiate,
    has_kernel,
    may_call_kernel,
    may_hook_saved,
)


def pair_mix(weights: Tensor, values: Tensor, ptr: Tensor) -> Tensor:
    r"""Adds up the rows of each packed set, by the weights of their pairs.

    .. math:: y_{ih} = \sum_j w_{hij} v_{jh}

    for rows :math:`i, j` of one set and each head :math:`h`. Nothing is padded on a CPU, in float32
    and float64; other tensors are padded for :func:`torch.matmul`.

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
    check_pairs("pair_mix", weights, values, ptr)
    if not values.is_cpu and not torch.compiler.is_compiling():
        check_lengths("pair_mix", values, ptr, weights.shape[-1])
    return pair_mix_op(weights, values, ptr.long(), False)


pair_mix_op = Operator(
    "pair_mix",
    "Tensor weights, Tensor values, Tensor ptr, bool transpose",
    fake=lambda weights, values, *rest: values.new_empty(values.shape),
    gradients=2,
)
pair_outer_op = Operator(
    "pair_outer",
    "Tensor left, Tensor right, Tensor ptr, SymInt heads, SymInt length",
    fake=lambda left, _, ptr, heads, n: left.new_empty((ptr.shape[0] - 1, heads, n, n)),
    gradients=2,
)


@pair_mix_op.differentiate_with
class _PairMix(Function):
    @staticmethod
    def forward(ctx: Any, run, weights, values, ptr, transpose):
        ctx.save_for_backward(weights, values, ptr)
        ctx.transpose = transpose
        return run(weights, values, ptr, transpose)

    @staticmethod
    def backward(ctx: Any, grad_out):
        weights, values, ptr = ctx.saved_tensors
        needed, transpose = ctx.needs_input_grad, ctx.transpose
        pair = (values, grad_out) if transpose else (grad_out, values)
        grad_weights = pair_outer_op(*pair, ptr, *weights.shape[1:3]) if needed[1] else None
        grad_values = pair_mix_op(weights, grad_out, ptr, not transpose) if needed[2] else None
        return None, grad_weights, grad_values, None, None


@pair_outer_op.differentiate_with
class _PairOuter(Function):
    @staticmethod
    def forward(ctx: Any, run, left, right, ptr, heads, length):
        ctx.save_for_backward(left, right, ptr)
        return run(left, right, ptr, heads, length)

    @staticmethod
    def backward(ctx: Any, grad_out):
        left, right, ptr = ctx.saved_tensors
        needed = ctx.needs_input_grad
        grad_left = pair_mix_op(grad_out, right, ptr, False) if needed[1] else None
        grad_right = pair_mix_op(grad_out, left, ptr, True) if needed[2] else None
        return None, grad_left, grad_right, None, None, None


def pair_mix_through(weights: Tensor, values: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    """Computes :func:`pair_mix` without its checks, for one of several layers that share weights.

    Returns:
        The output ``[T, C]``, and the weights, for the next layer, as in :func:`pair_attention`.
    """
    # A recomputed layer, whose hooks see what is saved, would keep its second graph alive.
    shared = weights.requires_grad and torch.is_grad_enabled() and may_hook_saved(values)
    if not (shared and may_call_kernel("pair_mix", weights, values)):
        return pair_mix_op(weights, values, ptr, False), weights
    return _PairMixThrough.apply(weights, values, ptr)


class _PairMixThrough(Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(weights, values, ptr)
        ctx.set_materialize_grads(False)
        return cpu.pair_mix(weights, values, ptr, False), weights

    @staticmethod
    def backward(ctx: Any, grad_out: OptTensor, added: OptTensor) -> Any:
        if grad_out is None:
            return added, None, None
        weights, values, ptr = ctx.saved_tensors
        heads, length = weights.shape[1:3]
        if not torch.is_grad_enabled() and may_call_kernel("pair_outer", grad_out):
            grad_weights = cpu.pair_outer(grad_out, values, ptr, heads, length, added)
        else:
            grad_weights = pair_outer_op(grad_out, values, ptr, heads, length)
            grad_weights = grad_weights if added is None else grad_weights + added
        needed = ctx.needs_input_grad[1]
        return grad_weights, pair_mix_op(weights, grad_out, ptr, True) if needed else None, None


def pair_attention(qkv: Tensor, bias: Tensor, ptr: Tensor, p: float = 0.0) -> tuple[Tensor, Tensor]:
    r"""Scaled dot-product attention within each packed set, with a bias for every pair.

    .. math:: y_{ih} = \sum_j w_{hij} v_{jh}, \quad w_{hi} = \mathrm{drop}\big(\mathrm{softmax}_j
        (q_{ih} k_{jh} / \sqrt{D} + b_{hij})\big)

    for rows :math:`i, j` of one set and each head :math:`h` of :math:`D` channels. On a CPU, in
    float32 and float64, this is one kernel, which stores nothing of the size of the pairs: the
    backward pass computes the weights again, and drops the same ones. Otherwise it is computed step
    by step.

    Args:
        qkv: ``[T, 3 C]``, floating point: queries, keys and values side by side; head ``h`` is the
            ``h``-th of ``H`` equal parts of each.
        bias: ``[B, H, N, N]``, of the same type, with a value far below all others in the columns
            beyond the rows of a set.
        ptr: ``[B + 1]``, int32 or int64: set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]``, at
            most ``N``.
        p: the probability with which a weight is dropped, from 0 to 1. One seed is drawn from
            torch's generator, and a hash of it and of the position of a weight decides.

    Returns:
        The output ``[T, C]``, and the bias, for the next layer that shares it: its gradient is then
        added up from layer to layer, without a tensor of the size of the pairs for each of them.
    """
    check_dense("pair_attention", "qkv", qkv)
    ptr = plain(ptr)
    if qkv.dim() != 2 or qkv.shape[1] % 3:
        raise ValueError(f"pair_attention: qkv has shape {list(qkv.shape)}, expected [T, 3 C]")
    if not 0 <= p <= 1:
        raise ValueError(f"pair_attention: p = {p} is not in 0..1")
    check_pairs("pair_attention", bias, qkv[:, : qkv.shape[1] // 3], ptr)
    seed = draw_seed() if p else None
    if not may_call_kernel("pair_attention", qkv, bias):
        return _attend(qkv, bias, ptr, seed, p), bias
    out, passed_on = _PairAttention.apply(qkv, bias, ptr, seed, p)
    return out, passed_on if bias.requires_grad and torch.is_grad_enabled() else bias


def _attend(qkv: Tensor, bias: Tensor, ptr: Tensor, seed: OptTensor, p: float) -> Tensor:
    queries, keys, values = qkv.chunk(3, 1)
    heads, length = bias.shape[1:3]
    scaled = queries * math.sqrt(heads / queries.shape[1])
    scores = pair_outer_op(scaled, keys, ptr, heads, length) + bias
    forbidden = (scores == -torch.inf).all(-1, keepdim=True)  # such a row has no weights
    weights = scores.masked_fill(forbidden, 0).softmax(-1).masked_fill(forbidden, 0)
    if seed is not None:
        weights = reference.dropout(weights, seed, p)
    return pair_mix_op(weights, values, ptr, False)


class _PairAttention(Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, bias: Tensor, ptr: Tensor, seed: OptTensor, p: float
    ) -> tuple[Tensor, Tensor]:
        out, totals = cpu.pair_attention(qkv, bias, ptr, int(seed or 0), p)
        ctx.save_for_backward(qkv, bias, totals, ptr)
        ctx.seed, ctx.p = seed, p
        ctx.set_materialize_grads(False)
        return out, bias

    @staticmethod
    def backward(ctx: Any, grad_out: OptTensor, added: OptTensor) -> Any:
        if grad_out is None:
            return None, added, None, None, None
        saved = ctx.saved_tensors  # a recomputed layer may read them once
        if not torch.is_grad_enabled():
            grads = cpu.pair_attention_gradients(grad_out, added, saved, int(ctx.seed or 0), ctx.p)
            return (*grads, None, None, None)
        qkv, bias, _, ptr = saved  # the gradient will be differentiated again
        inputs, needed = (qkv, bias, ptr, ctx.seed, ctx.p), ctx.needs_input_grad[:2]
        grad_qkv, grad_bias = differentiate(_attend, inputs, needed, grad_out)
        if grad_bias is not None and added is not None:
            grad_bias = grad_bias + added
        return grad_qkv, grad_bias, None, None, None


def dropout(x: Tensor, p: float) -> Tensor:
    """Zeroes every entry with probability ``p`` and divides the others by ``1 - p``.

    On a CPU :func:`torch.nn.functional.dropout` draws its random numbers one after another, in one
    thread: a third to a half of the time of a training step of a slim model. Here one seed is drawn
    from torch's generator, and an entry is dropped if a hash of its position and the seed is small.
    The backward pass computes the hash again. Other devices, compiled graphs, and types other than
    float32 and float64 use torch's dropout.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p = {p}, expected at least 0 and less than 1")
    if p == 0:
        return x
    if not can_read(x) or x.dtype not in (torch.float32, torch.float64):
        return functional.dropout(x, p)
    return _dropout(x, draw_seed(), p)


def dropout_add(x: Tensor, added: Tensor, p: float) -> Tensor:
    """Computes ``dropout(x, p) + added``, which Triton does in one kernel without a mask to keep.

    Compilers fuse torch's own operators just as well.
    """
    fused = 0 < p < 1 and not on_cpu(x) and not torch.compiler.is_compiling()
    if not (fused and x.shape == added.shape and has_kernel("dropout_add", x.device.type, x.dtype)):
        return dropout(x, p) + added
    return dropout_add_op(x, added.to(torch.promote_types(x.dtype, added.dtype)), draw_seed(), p)


def dropout_add_norm(
    x: Tensor, added: Tensor, p: float, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Computes ``dropout(x, p) + added`` and its layer norm, which Triton does in one kernel.

    Its gradient is a second kernel; neither keeps a mask, nor the statistics of the norm.
    """
    fused = p < 1 and x.shape == added.shape and x.shape[-1] <= triton.NORM_CHANNELS
    fused = fused and not on_cpu(x) and not torch.compiler.is_compiling()
    if not (fused and has_kernel("dropout_add_norm", x.device.type, x.dtype)):
        total = dropout_add(x, added, p)
        return total, functional.layer_norm(total, weight.shape, weight, bias, eps)
    added = added.to(torch.promote_types(x.dtype, added.dtype))
    return dropout_add_norm_op(x, added, weight, bias, draw_seed() if p else None, p, eps)


def draw_seed() -> Tensor:
    """Draw a seed from torch's generator of the CPU, which a GPU need not wait for."""
    return torch.randint(2**63 - 1, ())


_dropout = Operator("dropout", "Tensor x, Tensor seed, float p")


@_dropout.differentiate_with
class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, run: Any, x: Tensor, seed: Tensor, p: float) -> Tensor:
        ctx.save_for_backward(seed)
        ctx.p = p
        return run(x, seed, p)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        return None, _dropout(grad_out, *ctx.saved_tensors, ctx.p), None, None


dropout_add_op = Operator(
    "dropout_add",
    "Tensor x, Tensor added, Tensor seed, float p",
    fake=lambda x, added, *rest: added.new_empty(added.shape),
    gradients=2,
)


@dropout_add_op.differentiate_with
class _DropoutAdd(Function):
    @staticmethod
    def forward(ctx: Any, run: Any, x: Tensor, added: Tensor, seed: Tensor, p: float) -> Tensor:
        ctx.save_for_backward(seed)
        ctx.p, ctx.dtype = p, x.dtype
        return run(x, added, seed, p)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        needed, grad_x = ctx.needs_input_grad[1], None
        if needed:
            grad_x = _dropout(grad_out.to(ctx.dtype), *ctx.saved_tensors, ctx.p)
        return None, grad_x, grad_out, None, None


_NORM = "Tensor weight, {}Tensor? seed, float p, float eps"
dropout_add_norm_op = Operator(
    "dropout_add_norm",
    "Tensor x, Tensor added, " + _NORM.format("Tensor bias, "),
    "(Tensor, Tensor)",
    lambda x, added, *rest: (added.new_empty(added.shape), added.new_empty(added.shape)),
    gradients=4,
)
dropout_add_norm_backward_op = Operator(
    "dropout_add_norm_backward",
    "Tensor grad_total, Tensor grad_out, Tensor total, " + _NORM.format(""),
    "(Tensor, Tensor, Tensor)",
    lambda grad_total, _, total, weight, seed, *rest: (
        total.new_empty(total.shape),
        total.new_empty(0 if seed is None else total.shape),
        weight.new_empty((2, *weight.shape)),
    ),
)


@dropout_add_norm_op.differentiate_with
class _DropoutAddNorm(Function):
    @staticmethod
    def forward(ctx: Any, run: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        total, out = run(*inputs)
        ctx.save_for_backward(total, inputs[2], inputs[4])
        ctx.options, ctx.dtype = inputs[5:], inputs[0].dtype
        return total, out

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, grad_out: Tensor) -> tuple[Any, ...]:
        total, weight, seed = ctx.saved_tensors
        again = torch.is_grad_enabled()  # the formula has all derivatives, the kernel has not
        run = reference.dropout_add_norm_backward if again else dropout_add_norm_backward_op
        grad_added, grad_x, sums = run(grad_total, grad_out, total, weight, seed, *ctx.options)
        grad_x = grad_added if seed is None else grad_x
        return None, grad_x.to(ctx.dtype), grad_added, *sums.unbind(0), None, None, None
