"""Layer norm and GELU of rows, with the gradients as functions of their own.

For layers that compute their gradients themselves: what nobody watches or differentiates goes to a
backend, everything else to torch's own functions, which compilers and derivatives know.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from slicegraph.ops.backends import implementation, reference_rows
from slicegraph.ops.operator import unobserved


def layer_norm(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    r"""Normalises every row.

    .. math:: y = s \, \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} + t

    Args:
        x: ``[T, C]``.
        scale, shift: ``[C]``.
        eps: what is added to the variance.

    Example:
        >>> layer_norm(torch.tensor([[1.0, 3.0]]), torch.ones(2), torch.zeros(2), 0.0)
        tensor([[-1.,  1.]])
    """
    return _function("layer_norm", x, scale, shift)(x, scale, shift, eps)


def layer_norm_gradients(
    g: Tensor, x: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What :func:`layer_norm` gives, and the gradients of ``x``, ``scale`` and ``shift``.

    The statistics are computed from ``x`` again, all in one pass over the rows. The sums over rows
    do not depend on the number of threads.

    Args:
        g: ``[T, C]``, the gradient of the output. It is used up: the gradient of ``x`` may be
            written over it.
        x, scale, shift, eps: as above.
    """
    return _function("layer_norm_gradients", g, x, scale, shift)(g, x, scale, shift, eps)


def gelu(x: Tensor) -> Tensor:
    r""":math:`x \, P(X \le x)` for a standard normal :math:`X`, entry by entry.

    The C++ kernel, for float32, is within ``5e-7 |y|`` of the exact value ``y`` for ``x >= -1``.
    Below, the rounding of :math:`x^2` weighs more and more: ``2e-7 (2 + x^2 / 2) |y|``. What is
    smaller than ``1e-37`` may become 0, and the infinities go to the limits. The slope is within
    ``2e-7``.

    Example:
        >>> gelu(torch.tensor([0.0, 100.0]))
        tensor([  0., 100.])
    """
    return _function("gelu", x)(x)


def gelu_gradients(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """What :func:`gelu` gives, and the gradient of ``x``, in one pass.

    Args:
        g: like ``x``, the gradient of the output. It is used up: the gradient of ``x`` may be
            written over it.
    """
    return _function("gelu_gradients", g, x)(g, x)


def _function(name: str, *tensors: Tensor) -> Callable[..., Any]:
    if unobserved(*tensors):
        return implementation(name, tensors[0])
    return getattr(reference_rows, name)
