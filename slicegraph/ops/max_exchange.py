"""The max exchange: the cheapest of the sorting orders."""

import torch
from torch import Tensor

from slicegraph.ops import library
from slicegraph.ops.sets import check_layout, check_sizes


def max_exchange(x: Tensor, lengths: Tensor | None = None, ptr: Tensor | None = None) -> Tensor:
    r"""Swaps each column's first maximum with its first row, in :math:`O(N)`.

    The "max-exchange" order of the Sliceformer paper: everything else stays where it is. NaN counts
    as the largest value, as in :func:`torch.argmax`.

    Args:
        x: float32, float64, bfloat16 or float16. Dense sets ``[..., N, C]``, or packed sets
            ``[T, C]`` together with ``ptr``.
        lengths: ``[...]``, int32 or int64: how many rows of each dense set are real. The other
            rows come out as zeros.
        ptr: ``[B + 1]``, int32 or int64: set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]``.

    Shapes:
        output: like ``x``.

    Example:
        >>> max_exchange(torch.tensor([[1.0, 9.0], [2.0, 5.0], [7.0, 9.0]]))
        tensor([[7., 9.],
                [2., 5.],
                [1., 9.]])
    """
    check_layout("max_exchange", x, lengths, ptr)
    if not x.is_cpu and not torch.compiler.is_compiling():
        check_sizes("max_exchange", x, lengths, ptr)
    return library.max_exchange(x, lengths, ptr)[0]
