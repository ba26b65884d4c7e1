"""Layer norm and GELU, in plain torch: the specification, on any device."""

import torch
from torch import Tensor
from torch.nn import functional


def layer_norm(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    """`scale * (x - mean) / sqrt(variance + eps) + shift`, of each row."""
    return functional.layer_norm(x, scale.shape, scale, shift, eps)


def layer_norm_gradients(
    g: Tensor, x: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The norm once more, and the gradients of `x`, `scale` and `shift`."""
    y, mean, deviation = torch.native_layer_norm(x, scale.shape, scale, shift, eps)
    of_x, of_scale, of_shift = torch.ops.aten.native_layer_norm_backward(
        g.to(x.dtype), x, scale.shape, mean, deviation, scale, shift, (True, True, True)
    )
    return y, of_x, of_scale, of_shift


def gelu(x: Tensor) -> Tensor:
    """`x / 2 * (1 + erf(x / sqrt(2)))`."""
    return functional.gelu(x)


def gelu_gradients(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """GELU once more, and the gradient of `x`."""
    return functional.gelu(x), torch.ops.aten.gelu_backward(g, x)
