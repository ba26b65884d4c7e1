"""Products within sets, in plain torch: the specification, on any device."""

import torch
from torch import Tensor

from slicegraph.ops.pair_sets import check_lengths, check_pairs, check_products
from slicegraph.ops.sets import set_of_row


def pair_mix(weights: Tensor, values: Tensor, ptr: Tensor, transpose: bool) -> Tensor:
    """`out[i] = sum_j weights[i, j] values[j]` in each set and head; or by `weights[j, i]`."""
    check_pairs("pair_mix", weights, values, ptr)
    num_sets, heads, length, _ = weights.shape
    slots = _slots("pair_mix", values, ptr, length)
    if transpose:
        weights = weights.transpose(2, 3)
    # What meets the zeros of padding may be infinite, and is not to be read.
    weights = weights.masked_fill(_padding(ptr, length)[:, None, None], 0)
    mixed = _matmul(weights, _spread(values, slots, num_sets, heads, length))
    places = mixed.transpose(1, 2).reshape(num_sets * length, values.shape[1])
    return places.index_select(0, slots)


def pair_outer(g: Tensor, values: Tensor, ptr: Tensor, heads: int, length: int) -> Tensor:
    """`out[i, j] = g[i] values[j]` in each set and head, 0 where there are no such rows."""
    check_products("pair_outer", g, values, ptr, heads)
    slots, num_sets = _slots("pair_outer", values, ptr, length), ptr.shape[0] - 1
    left, right = (_spread(rows, slots, num_sets, heads, length) for rows in (g, values))
    padding = _padding(ptr, length)[:, None]
    outside = padding.unsqueeze(-1) | padding.unsqueeze(-2)
    return _matmul(left, right.transpose(2, 3)).masked_fill_(outside, 0)


def pair_outer_sum(
    g: list[Tensor], values: list[Tensor], ptr: Tensor, heads: int, length: int
) -> Tensor:
    """The sum of `pair_outer` of each of `g` and of `values`, which are all alike."""
    # Side by side in every head, they are one product.
    left, right = (
        torch.cat([x.unflatten(1, (heads, -1)) for x in rows], 2).flatten(1) for rows in (g, values)
    )
    return pair_outer(left, right, ptr, heads, length)


def _slots(name: str, rows: Tensor, ptr: Tensor, length: int) -> Tensor:
    """`[T]`: the place of each row among `[B * length]`."""
    if rows.is_cpu:
        check_lengths(name, rows, ptr, length)
    sets = set_of_row(ptr, rows.shape[0])
    return sets * length + torch.arange(rows.shape[0], device=rows.device) - ptr[sets]


def _padding(ptr: Tensor, length: int) -> Tensor:
    """`[B, length]`, true where a set has no row."""
    return torch.arange(length, device=ptr.device) >= ptr.diff().unsqueeze(-1)


def _spread(rows: Tensor, slots: Tensor, num_sets: int, heads: int, length: int) -> Tensor:
    """`[T, H * D]` to `[B, H, length, D]`, with zeros in the places that no row takes."""
    width = rows.shape[1] // heads
    places = rows.new_zeros(num_sets * length, rows.shape[1]).index_copy_(0, slots, rows)
    return places.view(num_sets, length, heads, width).transpose(1, 2)


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    # The type of the result is that of the operands, whatever autocast would make of them.
    with torch._C._DisableAutocast():
        return torch.matmul(a, b)
