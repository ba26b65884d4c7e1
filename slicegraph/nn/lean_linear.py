"""Linear layers after a norm or an activation, whose input is not kept for the backward pass.

A norm and an activation cost little and keep their own input; the linear layer after them would
keep their output too, a tensor as large. Here it is computed once more instead.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.ops import rows


def norm_linear(x: Tensor, norm: torch.nn.LayerNorm, *linears: torch.nn.Linear) -> Tensor:
    """``linear(norm(x))``, which keeps ``x`` and nothing else; of several layers side by side.

    Shapes:
        x: ``[T, C]``.

    Example:
        >>> norm_linear(torch.randn(5, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)).shape
        torch.Size([5, 3])
    """
    return _NormLinear.apply(x, norm.weight, norm.bias, *side_by_side(linears), norm.eps)


def side_by_side(linears: Sequence[torch.nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """The weight and the bias of one layer whose output is that of all, one after another."""
    first = linears[0]
    if len(linears) == 1:
        return first.weight, first.bias
    biases = None if first.bias is None else torch.cat([linear.bias for linear in linears])
    return torch.cat([linear.weight for linear in linears]), biases


def gelu_linear(x: Tensor, linear: torch.nn.Linear) -> Tensor:
    """``linear(gelu(x))``, which keeps ``x`` and nothing else.

    Shapes:
        x: ``[T, C]``.

    Example:
        >>> gelu_linear(torch.randn(5, 8), torch.nn.Linear(8, 3)).shape
        torch.Size([5, 3])
    """
    return _GeluLinear.apply(x, linear.weight, linear.bias)


class _NormLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor | None, eps: float
    ) -> Tensor:
        return functional.linear(rows.layer_norm(x, scale, shift, eps), weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, scale, shift, weight, bias, ctx.eps = inputs
        ctx.save_for_backward(x, scale, shift, weight)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, scale, shift, weight = ctx.saved_tensors
        of_y = _input_gradient(g, weight, x)
        y, *of_norm = rows.layer_norm_gradients(of_y, x, scale, shift, ctx.eps)
        return (*of_norm, *_weight_gradients(g, y, weight, ctx.biased), None)


class _GeluLinear(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(rows.gelu(x), weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        y, of_x = rows.gelu_gradients(_input_gradient(g, weight, x), x)
        return (of_x, *_weight_gradients(g, y, weight, ctx.biased))


# The products are in the precision of g: under autocast that of the forward pass.


def _input_gradient(g: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    return (g @ weight.to(g.dtype)).to(x.dtype)


def _weight_gradients(
    g: Tensor, y: Tensor, weight: Tensor, biased: bool
) -> tuple[Tensor, Tensor | None]:
    of_weight = (g.T @ y.to(g.dtype)).to(weight.dtype)
    return of_weight, g.sum(0).to(weight.dtype) if biased else None
