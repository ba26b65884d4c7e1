"""The C++ kernels for products within sets, in the library that `cpu` has loaded."""

from array import array
from ctypes import c_char_p
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import cpu, reference_pairs
from slicegraph.ops.pair_sets import check_lengths, check_pairs, check_products

_WORDS = Struct("@13q")  # `PairWords` in csrc/pair_mix_api.cpp
_DTYPES = {torch.float32: 0, torch.float64: 1}
_BAD_SIZES = 1
_kernel: Any = getattr(cpu._library, "slicegraph_pair_mix", None)
if _kernel is not None:
    _kernel.argtypes = (c_char_p,)


def pair_mix(weights: Tensor, values: Tensor, ptr: Tensor, transpose: bool) -> Tensor:
    """`out[i] = sum_j weights[i, j] values[j]` in each set and head; or by `weights[j, i]`."""
    if values.dtype not in _DTYPES:
        return reference_pairs.pair_mix(weights, values, ptr, transpose)
    check_pairs("pair_mix", weights, values, ptr)
    out = values.new_empty(values.shape)
    left = weights.contiguous().resolve_neg()
    _call("pair_mix", left.data_ptr(), [values], out, ptr, transpose, *weights.shape[1:3])
    return out


def pair_outer(g: Tensor, values: Tensor, ptr: Tensor, heads: int, length: int) -> Tensor:
    """`out[i, j] = g[i] values[j]` in each set and head, 0 where there are no such rows."""
    return pair_outer_sum([g], [values], ptr, heads, length)


def pair_outer_sum(
    g: list[Tensor], values: list[Tensor], ptr: Tensor, heads: int, length: int
) -> Tensor:
    """The sum of `pair_outer` of each of `g` and of `values`, which are all alike."""
    if values[0].dtype not in _DTYPES:
        return reference_pairs.pair_outer_sum(g, values, ptr, heads, length)
    for pair in zip(g, values, strict=True):
        check_products("pair_outer", *pair, ptr, heads)
    out = g[0].new_empty((ptr.shape[0] - 1, heads, length, length))
    lefts = [x.contiguous().resolve_neg() for x in g]
    addresses = array("q", [x.data_ptr() for x in lefts])
    _call("pair_outer", addresses.buffer_info()[0], values, out, ptr, False, heads, length)
    return out


def _call(
    name: str,
    left: int,
    values: list[Tensor],
    out: Tensor,
    ptr: Tensor,
    transpose: bool,
    heads: int,
    length: int,
) -> None:
    rights = [x.contiguous().resolve_neg() for x in values]
    addresses = array("q", [x.data_ptr() for x in rights])
    outer = len(rights) if name == "pair_outer" else 0
    rows, channels = rights[0].shape
    ptr = ptr.long().contiguous()
    status = _kernel(
        _WORDS.pack(
            left,
            addresses.buffer_info()[0] if outer else addresses[0],
            out.data_ptr(),
            transpose,
            outer,
            _DTYPES[out.dtype],
            ptr.data_ptr(),
            ptr.shape[0] - 1,
            rows,
            heads,
            channels // heads,
            length,
            torch.get_num_threads(),
        )
    )
    if status == _BAD_SIZES:
        check_lengths(name, rights[0], ptr, length)
    if status:
        raise MemoryError(f"{name}: no memory for rows of shape {list(rights[0].shape)}")
