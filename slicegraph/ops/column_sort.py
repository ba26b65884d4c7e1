"""The column sort: every channel of every set, sorted by itself."""

from collections.abc import Sequence
from typing import Literal, overload

import torch
from torch import Tensor

from slicegraph.ops import library
from slicegraph.ops.sets import check_layout, check_sizes

Direction = bool | Tensor | Sequence[bool]


@overload
def column_sort(
    x: Tensor,
    lengths: Tensor | None = None,
    ptr: Tensor | None = None,
    descending: Direction = False,
    return_indices: Literal[True] = True,
) -> tuple[Tensor, Tensor]: ...
@overload
def column_sort(
    x: Tensor,
    lengths: Tensor | None = None,
    ptr: Tensor | None = None,
    descending: Direction = False,
    *,
    return_indices: Literal[False],
) -> Tensor: ...
@overload
def column_sort(
    x: Tensor,
    lengths: Tensor | None = None,
    ptr: Tensor | None = None,
    descending: Direction = False,
    return_indices: bool = True,
) -> Tensor | tuple[Tensor, Tensor]: ...
def column_sort(
    x: Tensor,
    lengths: Tensor | None = None,
    ptr: Tensor | None = None,
    descending: Direction = False,
    return_indices: bool = True,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Sorts every column of every set, the operator of the Sliceformer paper.

    .. math:: y_{\cdot c} = \mathrm{sort}(x_{1c}, \ldots, x_{nc})

    Values and indices equal those of ``torch.sort(stable=True)`` on each set to the bit: ties stay
    in row order, NaN comes last when ascending and first when descending.

    Args:
        x: float32, float64, bfloat16 or float16. Dense sets ``[..., N, C]``, or packed sets
            ``[T, C]`` together with ``ptr``.
        lengths: ``[...]``, int32 or int64: how many rows of each dense set are real. The other
            rows come out as zeros, their indices are their own row numbers.
        ptr: ``[B + 1]``, int32 or int64: set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]``.
        descending: one direction for all channels, or one for each of the ``C`` channels.
        return_indices: whether to return ``(values, indices)`` or the values alone.

    Shapes:
        values and indices: like ``x``; indices are int64 and local to their set.

    Example:
        >>> values, indices = column_sort(torch.tensor([[3.0, 1.0], [2.0, 5.0]]))
        >>> values
        tensor([[2., 1.],
                [3., 5.]])
        >>> indices
        tensor([[1, 0],
                [0, 1]])
    """
    check_layout("column_sort", x, lengths, ptr)
    if not x.is_cpu and not torch.compiler.is_compiling():
        check_sizes("column_sort", x, lengths, ptr)
    return sort_columns(x, lengths, ptr, descending, return_indices)


@overload
def sort_columns(
    x: Tensor,
    lengths: Tensor | None,
    ptr: Tensor | None,
    descending: Direction,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def sort_columns(
    x: Tensor,
    lengths: Tensor | None,
    ptr: Tensor | None,
    descending: Direction,
    return_indices: Literal[False],
) -> Tensor: ...
@overload
def sort_columns(
    x: Tensor,
    lengths: Tensor | None,
    ptr: Tensor | None,
    descending: Direction,
    return_indices: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...
def sort_columns(
    x: Tensor,
    lengths: Tensor | None,
    ptr: Tensor | None,
    descending: Direction,
    return_indices: bool,
) -> Tensor | tuple[Tensor, Tensor]:
    """`column_sort` for callers whose sets are right by construction: never waits for a GPU."""
    mask = None if isinstance(descending, bool) else _direction_mask(descending, x)
    down = descending is True
    if return_indices:
        return library.column_sort(x, lengths, ptr, mask, down, 8)
    return library.column_sort_values(x, lengths, ptr, mask, down)


def _direction_mask(descending: Tensor | Sequence[bool], x: Tensor) -> Tensor:
    mask = torch.as_tensor(descending, device=x.device)
    if mask.dtype != torch.bool:
        raise TypeError(f"column_sort: descending is {mask.dtype}, expected bool")
    if mask.shape != x.shape[-1:]:
        raise ValueError(
            f"column_sort: descending has shape {list(mask.shape)}, expected a bool or one per "
            f"channel, [{x.shape[-1]}]"
        )
    return mask
