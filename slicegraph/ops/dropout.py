"""Dropout whose mask is a hash of the position: nothing is stored."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from slicegraph.ops import triton
from slicegraph.ops.layout import can_read, on_cpu
from slicegraph.ops.operator import Operator, choose


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
    fused = fused and x.shape == added.shape and x.dtype in triton.DTYPES["dropout_add"]
    if not (fused and choose(x.device.type) is triton):
        return dropout(x, p) + added
    return dropout_add_op(x, added.to(torch.promote_types(x.dtype, added.dtype)), draw_seed(), p)


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
