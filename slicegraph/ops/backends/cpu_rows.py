"""The C++ kernels for layer norm and GELU, in the library that `cpu` has loaded."""

from ctypes import c_char_p
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import cpu, reference_rows

# `GeluWords` in csrc/gelu_api.cpp, `NormWords` in csrc/layer_norm_api.cpp.
_GELU_WORDS, _NORM_WORDS = Struct("@6q"), Struct("@11qd")
_DTYPES = {torch.float32: 0, torch.float64: 1}
_gelu_kernel: Any = getattr(cpu._library, "slicegraph_gelu", None)
_norm_kernel: Any = getattr(cpu._library, "slicegraph_layer_norm", None)
for _kernel in (_gelu_kernel, _norm_kernel):
    if _kernel is not None:
        _kernel.argtypes = (c_char_p,)


def layer_norm(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    """`scale * (x - mean) / sqrt(variance + eps) + shift`, of each row."""
    if not _alike(x, scale, shift):
        return reference_rows.layer_norm(x, scale, shift, eps)
    x = x.contiguous()
    y = torch.empty_like(x)
    _norm(x, scale, shift, eps, y)
    return y


def layer_norm_gradients(
    g: Tensor, x: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The norm once more, and the gradients of `x` (in the place of `g`), `scale` and `shift`."""
    if not _alike(g, x, scale, shift):
        return reference_rows.layer_norm_gradients(g, x, scale, shift, eps)
    g, x = g.contiguous(), x.contiguous()
    y, of_scale = torch.empty_like(x), x.new_empty((2, x.shape[-1]))
    _norm(x, scale, shift, eps, y, g, of_scale)
    return y, g, of_scale[0], of_scale[1]


def gelu(x: Tensor) -> Tensor:
    """`x P(X <= x)` for a standard normal `X`."""
    if x.dtype != torch.float32:
        return reference_rows.gelu(x)
    x = x.contiguous()
    y = torch.empty_like(x)
    _gelu(x, y)
    return y


def gelu_gradients(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """GELU once more, and the gradient of `x` (in the place of `g`)."""
    if not g.dtype == x.dtype == torch.float32:
        return reference_rows.gelu_gradients(g, x)
    g, x = g.contiguous(), x.contiguous()
    y = torch.empty_like(x)
    _gelu(x, y, g)
    return y, g


def _alike(*tensors: Tensor) -> bool:
    dtype = tensors[0].dtype
    return dtype in _DTYPES and all(x.dtype == dtype for x in tensors)


def _gelu(x: Tensor, y: Tensor, g: Tensor | None = None) -> None:
    of_x = 0 if g is None else g.data_ptr()
    words = (x.data_ptr(), of_x, y.data_ptr(), of_x, x.numel(), torch.get_num_threads())
    if _gelu_kernel(_GELU_WORDS.pack(*words)):
        raise MemoryError(f"gelu: no memory for {list(x.shape)} entries")


def _norm(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    eps: float,
    y: Tensor,
    g: Tensor | None = None,
    of_scale: Tensor | None = None,
) -> None:
    scale, shift, width = scale.contiguous(), shift.contiguous(), x.shape[-1]
    of_x = 0 if g is None else g.data_ptr()
    words = _NORM_WORDS.pack(
        x.data_ptr(),
        scale.data_ptr(),
        shift.data_ptr(),
        of_x,
        y.data_ptr(),
        of_x,
        0 if of_scale is None else of_scale.data_ptr(),
        x.numel() // max(width, 1),
        width,
        _DTYPES[x.dtype],
        torch.get_num_threads(),
        eps,
    )
    if _norm_kernel(words):
        raise MemoryError(f"layer_norm: no memory for rows of shape {list(x.shape)}")
