"""Attention along slices: a kernel of the distance between scalar queries and keys, by a sort."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from slicegraph.ops import reference
from slicegraph.ops.layout import OptTensor, check_dense, check_layout
from slicegraph.ops.operator import Operator, differentiate, observed

KERNELS = {"laplace": True, "relu": False}  # whether a kernel has a width


def slice_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: OptTensor = None,
    ptr: OptTensor = None,
    tau: float | Tensor = 1.0,
    kernel: str = "laplace",
) -> Tensor:
    r"""Attends along slices: the weight of a pair of rows depends on the distance between a scalar
    query and a scalar key, in :math:`O(N \log N)` time and :math:`O(N)` memory.

    For each set and each head, with the rows :math:`i, j` of the set,

    .. math::
        y_i &= \frac{\sum_j e^{-|q_i - k_j| / \tau} \, v_j}{\sum_j e^{-|q_i - k_j| / \tau}}
        & \text{laplace} \\
        y_i &= \frac{\sum_j \max(q_i - k_j, 0) \, (v_j - \bar v)}{\sum_j |q_i - k_j|}
        & \text{relu}

    where :math:`\bar v` is the mean of the set. The second is the `Sliced ReLU attention
    <https://arxiv.org/abs/2512.11411>`_; it does not depend on :math:`\tau`, and is 0 where all
    keys equal the query. Both are exact: in the order of the keys, each sum is a scan upwards plus
    a scan downwards whose factors :math:`e^{-(k_{j+1} - k_j) / \tau}` are at most 1.

    Where a query equals a key, :math:`|q_i - k_j|` has no derivative. The key then counts as below
    the query; among equal keys with ``q is k``, those of earlier rows do.

    Args:
        q: ``[..., N, H]`` or ``[T, H]``: a query for each row and head. Passing the same tensor as
            ``k`` saves time.
        k: like ``q``: a key for each row and head. With as many heads as ``v`` has channels, every
            channel has a key.
        v: float32, float64, bfloat16 or float16, like ``q`` and ``k``. Dense sets ``[..., N, C]``,
            or packed sets ``[T, C]`` together with ``ptr``; head ``h`` is the ``h``-th of ``H``
            equal parts of the channels. Half precision is summed up in float32.
        lengths: ``[...]``, int32 or int64: how many rows of each dense set are real. The other
            rows come out as zeros, and their contents are not read.
        ptr: ``[B + 1]``, int32 or int64: set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]``.
        tau: the positive width of the kernel, a number or a tensor ``[H]``.
        kernel: ``"laplace"`` or ``"relu"``.

    Shapes:
        output: like ``v``.

    Example:
        >>> k, v = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([[1.0], [2.0], [5.0]])
        >>> slice_attention(k, k, v, tau=0.01)
        tensor([[1.],
                [2.],
                [5.]])
        >>> slice_attention(k, k, v, kernel="relu")
        tensor([[ 0.0000],
                [-0.1852],
                [-1.2549]])
    """
    sets: Any = {"lengths": lengths, "ptr": ptr}
    tau = _checked(q, k, v, tau=tau, kernel=kernel, **sets)
    return attend_sets(q, k, v, tau=tau, kernel=kernel, **sets)


def attend_sets(
    q: Tensor, k: Tensor, v: Tensor, *, lengths: OptTensor, ptr: OptTensor, tau: Tensor, kernel: str
) -> Tensor:
    """`slice_attention` for callers whose input is right by construction; `tau` is `[H]`."""
    queries = None if q is k else q
    return slice_attention_op(v, k, queries, tau, lengths, ptr, not KERNELS[kernel])[0]


def _checked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    lengths: OptTensor,
    ptr: OptTensor,
    tau: float | Tensor,
    kernel: str,
) -> Tensor:
    """Raise unless the arguments fit together; returns `tau` for each head."""
    name = "slice_attention"
    if kernel not in KERNELS:
        raise ValueError(f"{name}: unknown kernel {kernel!r}, expected one of {', '.join(KERNELS)}")
    check_dense(name, "v", v)
    check_layout(name, v, lengths, ptr, "v")
    for argument, x in (("q", q), ("k", k)):
        check_dense(name, argument, x)
        if x.dtype != v.dtype or x.device != v.device:
            raise TypeError(
                f"{name}: {argument} is {x.dtype} on {x.device}, but v is {v.dtype} on {v.device}"
            )
        if x.shape[:-1] != v.shape[:-1] or x.shape != k.shape:
            raise ValueError(
                f"{name}: {argument} has shape {list(x.shape)}, expected one number a head for "
                f"each row of v of shape {list(v.shape)}, and q like k"
            )
    heads = k.shape[-1]
    if heads < 1 or v.shape[-1] % heads:
        raise ValueError(
            f"{name}: v has shape {list(v.shape)}, expected a multiple of the {heads} heads of k "
            "as its last size"
        )
    accumulator = torch.promote_types(v.dtype, torch.float32)
    if not isinstance(tau, Tensor):
        if not tau > 0:
            raise ValueError(f"{name}: tau = {tau}, expected a positive number")
        return torch.full((heads,), tau, dtype=accumulator, device=v.device)
    if tau.shape not in ((), (1,), (heads,)) or tau.device != v.device:
        raise ValueError(
            f"{name}: tau of shape {list(tau.shape)} on {tau.device}, expected a number or "
            f"[{heads}] on {v.device}"
        )
    if tau.is_cpu and not observed(tau) and not bool((tau > 0).all()):
        raise ValueError(f"{name}: tau = {tau.detach().tolist()}, expected positive numbers")
    return tau.to(accumulator).expand(heads)


def _fake(v: Tensor, k: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return v.new_empty(v.shape), k.new_empty(k.shape, dtype=torch.int32)


def _fake_backward(
    grad_out: Tensor, v: Tensor, k: Tensor, q: OptTensor, tau: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (v, k, k.new_empty(0) if q is None else q, tau))


_INPUTS, _SETS = "Tensor v, Tensor k, Tensor? q, Tensor tau", "Tensor? lengths, Tensor? ptr"
slice_attention_op = Operator(
    "slice_attention",
    f"{_INPUTS}, {_SETS}, bool relu",
    "(Tensor, Tensor)",
    _fake,
    gradients=4,
)
slice_attention_backward_op = Operator(
    "slice_attention_backward",
    f"Tensor grad_out, {_INPUTS}, Tensor order, {_SETS}, bool relu",
    "(Tensor, Tensor, Tensor, Tensor)",
    _fake_backward,
    gradients=5,
)


@slice_attention_op.differentiate_with
class _SliceAttention(Function):
    @staticmethod
    def forward(ctx: Any, run, v, k, q, tau, lengths, ptr, relu):
        out, order = run(v, k, q, tau, lengths, ptr, relu)
        ctx.mark_non_differentiable(order)
        ctx.save_for_backward(v, k, q, tau, order, lengths, ptr)
        ctx.relu = relu
        return out, order

    @staticmethod
    def backward(ctx: Any, grad_out, _):
        saved = ctx.saved_tensors  # a recomputed layer may read them once
        grads = slice_attention_backward_op(grad_out, *saved, ctx.relu)
        needed = zip(ctx.needs_input_grad[1:5], grads, strict=True)
        return None, *(grad if need else None for need, grad in needed), None, None, None


@slice_attention_backward_op.differentiate_with
class _SliceAttentionBackward(Function):
    @staticmethod
    def forward(ctx: Any, run, grad_out, v, k, q, tau, order, lengths, ptr, relu):
        ctx.save_for_backward(grad_out, v, k, q, tau, order, lengths, ptr)
        ctx.relu = relu
        return run(grad_out, v, k, q, tau, order, lengths, ptr, relu)

    @staticmethod
    def backward(ctx: Any, *grads_out: Tensor):
        inputs = (*ctx.saved_tensors, ctx.relu)
        needed = ctx.needs_input_grad[1:6]
        grads = differentiate(reference.slice_attention_backward, inputs, needed, *grads_out)
        return None, *grads, *(None,) * 4
