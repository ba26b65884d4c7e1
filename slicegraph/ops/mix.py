"""The mixers of the graph models on dense sets, in one kernel for each set and head."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from slicegraph.ops import reference, triton
from slicegraph.ops.layout import OptTensor, check_dense, check_layout, on_cpu
from slicegraph.ops.operator import (
    Operator,
    differentiate,
    has_kernel,
    implementation,
    is_transformed,
    observed,
)
from slicegraph.ops.pairs import draw_seed


def dense_mix(
    values: Tensor,
    bias: Tensor,
    lengths: Tensor,
    *,
    sort: bool = False,
    descending: bool | Tensor = False,
    weight: OptTensor = None,
    softmax: bool = True,
    p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    r"""Mixes the rows of each dense set, then sorts every channel or adds weighted quantiles.

    .. math:: a_{ih} = \sum_j \mathrm{drop}(\mathrm{softmax}_j(b_{hij})) v_{jh}, \quad
        y = a, \quad \mathrm{sort}(a) \quad \text{or} \quad y_{ic} = a_{ic} + \sum_k w_{kc} Q_k(a_c)

    for rows :math:`i, j` of one set, each head :math:`h` and each channel :math:`c`. Triton
    computes this in one kernel, and the gradient in another, which stores nothing of the size of
    the pairs but the gradient of the bias.

    Args:
        values: ``[B, N, C]``, floating point, ``N`` at most 256; head ``h`` is the ``h``-th of
            ``H`` equal parts of the channels. Rows beyond a set's length are not read.
        bias: ``[B, H, N, N]``, floating point; pairs with a row beyond the length are not read.
        lengths: ``[B]``, int32 or int64, the rows of each set; the others come out as zeros.
        sort: whether to sort every channel, as :func:`~slicegraph.ops.column_sort` does.
        descending: the direction of the sort, for all channels or for each.
        weight: ``[K, C]``, adds K quantiles of each channel by these weights; not with ``sort``.
        softmax: whether the weights of the pairs are the softmax of the bias, or the bias itself.
        p: the probability with which a weight of a pair is dropped, from 0 to 1. One seed is drawn
            from torch's generator, and a hash of it and of the position of a weight decides.

    Returns:
        The output, like ``values``, and the bias, for the next layer that shares it: its gradient
        is then added up from layer to layer, without a tensor for each of them.

    Example:
        >>> bias, lengths = torch.zeros(1, 1, 3, 3), torch.tensor([2])
        >>> values = torch.tensor([[[2.0, 4.0], [4.0, 8.0], [9.0, 9.0]]])
        >>> dense_mix(values, bias, lengths)[0]
        tensor([[[3., 6.],
                 [3., 6.],
                 [0., 0.]]])
    """
    options: Any = {"sort": sort, "descending": descending, "weight": weight, "p": p}
    _check(values, bias, lengths, **options)
    return mix_sets(values, bias, lengths, softmax=softmax, **options)


def mix_sets(
    values: Tensor,
    bias: Tensor,
    lengths: Tensor,
    *,
    sort: bool = False,
    descending: bool | Tensor = False,
    weight: OptTensor = None,
    softmax: bool = True,
    p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`dense_mix` for callers whose sets are right by construction: never waits for a GPU."""
    seed = None
    if p and torch.compiler.is_compiling():  # which would break the graph to read a number
        seed = torch.randint(2**63 - 1, (), device=values.device)
    elif p:
        seed = draw_seed()
    mask, down = (None, descending) if isinstance(descending, bool) else (descending, False)
    inputs = (values, bias, weight, lengths, mask, seed, down, sort, softmax, p)
    recording = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (values, bias, weight)
    )
    if not (recording and bias.requires_grad) or is_transformed():
        return dense_mix_op(*inputs, recording)[0], bias
    run = dense_mix_op.runner(values) if observed(values) else implementation("dense_mix", values)
    return _MixThrough.apply(run, *inputs, True)


def fuses_mix(bias: Tensor, dtype: torch.dtype) -> bool:
    """Whether :func:`dense_mix` of values of this type is a kernel rather than steps of torch."""
    return (
        not on_cpu(bias)
        and has_kernel("dense_mix", bias.device.type, dtype)
        and bias.shape[-1] <= triton.MIX_ROWS
    )


def _check(
    values: Tensor,
    bias: Tensor,
    lengths: Tensor,
    *,
    sort: bool,
    descending: bool | Tensor,
    weight: OptTensor,
    p: float,
) -> None:
    """Raise unless the arguments fit together."""
    check_dense("dense_mix", "bias", bias)
    check_layout("dense_mix", values, lengths, None, "values")
    shape, of_bias = list(values.shape), list(bias.shape)
    if len(shape) != 3 or shape[1] > 256:
        raise ValueError(f"dense_mix: values has shape {shape}, expected [B, N <= 256, C]")
    if len(of_bias) != 4 or of_bias != [shape[0], of_bias[1], shape[1], shape[1]]:
        expected = f"[{shape[0]}, H, {shape[1]}, {shape[1]}]"
        raise ValueError(f"dense_mix: bias has shape {of_bias}, expected {expected}")
    if of_bias[1] < 1 or shape[2] % of_bias[1]:
        raise ValueError(
            f"dense_mix: values has shape {shape}, expected channels that are a multiple of the "
            f"{of_bias[1]} heads"
        )
    if weight is not None and (sort or weight.dim() != 2 or weight.shape[1] != shape[2]):
        raise ValueError(
            f"dense_mix: weight of shape {list(weight.shape)} with sort = {sort}, expected "
            f"[K, {shape[2]}] without sort"
        )
    if not 0 <= p <= 1:
        raise ValueError(f"dense_mix: p = {p} is not in 0..1")
    if isinstance(descending, Tensor) and (
        descending.dtype != torch.bool or list(descending.shape) != shape[2:]
    ):
        raise ValueError(
            f"dense_mix: descending is {descending.dtype} of shape {list(descending.shape)}, "
            f"expected a bool or one per channel, [{shape[2]}]"
        )


def _fake(
    values: Tensor, bias: Tensor, weight: OptTensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *_, sort, _, _, keep = rest
    of_ranks = values.shape if keep and (sort or weight is not None) else (0,)
    sets, channels = values.shape[0], values.shape[2]
    of_quantiles = (sets, weight.shape[0], channels) if keep and weight is not None else (0,)
    ranks = values.new_empty(of_ranks, dtype=torch.uint8)
    return values.new_empty(values.shape), ranks, values.new_empty(of_quantiles)


def _fake_backward(
    grad_out: Tensor, values: Tensor, bias: Tensor, weight: OptTensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    grad_bias = bias.new_empty(bias.shape) if rest[-1] else values.new_empty(0)
    grad_weight = values.new_empty(0) if weight is None else weight.new_empty(weight.shape)
    return values.new_empty(values.shape), grad_bias, grad_weight


_INPUTS, _THREE = "Tensor values, Tensor bias, Tensor? weight", "(Tensor, Tensor, Tensor)"
dense_mix_op = Operator(
    "dense_mix",
    f"{_INPUTS}, Tensor lengths, Tensor? mask, Tensor? seed, bool descending, bool sort, "
    "bool softmax, float p, bool keep",
    _THREE,
    _fake,
    gradients=3,
    inlined=triton.dense_mix,
)
dense_mix_backward_op = Operator(
    "dense_mix_backward",
    f"Tensor grad_out, {_INPUTS}, Tensor? added, Tensor ranks, Tensor quantiles, Tensor lengths, "
    "Tensor? seed, bool sort, bool softmax, float p, bool with_bias",
    _THREE,
    _fake_backward,
    inlined=triton.dense_mix_backward,
)


def _run(ctx: Any, run: Any, inputs: tuple[Any, ...]) -> tuple[Tensor, Tensor, Tensor]:
    found = run(*inputs)
    ctx.save_for_backward(*inputs[:6], *found[1:])
    ctx.options = inputs[6:]
    return found


def _gradients(ctx: Any, grad_out: Tensor, added: OptTensor) -> tuple[Any, ...]:
    *inputs, ranks, quantiles = ctx.saved_tensors  # a recomputed layer may read them once
    values, bias, weight, lengths, _, seed = inputs
    _, sort, softmax, p, _ = ctx.options
    needed = ctx.needs_input_grad[1:4]
    if (
        torch.is_grad_enabled() and not torch.compiler.is_compiling()
    ):  # the gradient will be differentiated again
        arguments = (*inputs, *ctx.options)
        grads = differentiate(lambda *x: reference.dense_mix(*x)[0], arguments, needed, grad_out)
        if grads[1] is not None and added is not None:
            grads[1] = grads[1] + added
    else:
        found = dense_mix_backward_op(
            *(grad_out, values, bias, weight, added, ranks, quantiles, lengths, seed),
            *(sort, softmax, p, needed[1]),
        )
        grads = [grad if need else None for grad, need in zip(found, needed, strict=True)]
    return None, *grads, *(None,) * 8


@dense_mix_op.differentiate_with
class _DenseMix(Function):
    @staticmethod
    def forward(ctx: Any, run: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        found = _run(ctx, run, inputs)
        ctx.mark_non_differentiable(*found[1:])
        return found

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, *_: OptTensor) -> tuple[Any, ...]:
        return _gradients(ctx, grad_out, None)


class _MixThrough(Function):
    @staticmethod
    def forward(ctx: Any, run: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return _run(ctx, run, inputs)[0], inputs[1]

    @staticmethod
    def backward(ctx: Any, grad_out: OptTensor, added: OptTensor) -> tuple[Any, ...]:
        if grad_out is None:
            return None, None, added, *(None,) * 9
        return _gradients(ctx, grad_out, added)
