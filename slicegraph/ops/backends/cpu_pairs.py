"""The C++ kernels for products within sets, in the library that `cpu` has loaded."""

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
    _call("pair_mix", (weights, values, out), ptr, transpose, *weights.shape[1:3])
    return out


def pair_outer(g: Tensor, values: Tensor, ptr: Tensor, heads: int, length: int) -> Tensor:
    """`out[i, j] = g[i] values[j]` in each set and head, 0 where there are no such rows."""
    if values.dtype not in _DTYPES:
        return reference_pairs.pair_outer(g, values, ptr, heads, length)
    check_products("pair_outer", g, values, ptr, heads)
    out = g.new_empty((ptr.shape[0] - 1, heads, length, length))
    _call("pair_outer", (g, values, out), ptr, False, heads, length)
    return out


def _call(
    name: str,
    tensors: tuple[Tensor, Tensor, Tensor],
    ptr: Tensor,
    transpose: bool,
    heads: int,
    length: int,
) -> None:
    left, right, out = (x.contiguous().resolve_neg() for x in tensors)
    ptr = ptr.long().contiguous()
    status = _kernel(
        _WORDS.pack(
            left.data_ptr(),
            right.data_ptr(),
            out.data_ptr(),
            transpose,
            name == "pair_outer",
            _DTYPES[right.dtype],
            ptr.data_ptr(),
            ptr.shape[0] - 1,
            right.shape[0],
            heads,
            right.shape[1] // heads,
            length,
            torch.get_num_threads(),
        )
    )
    if status == _BAD_SIZES:
        check_lengths(name, right, ptr, length)
    if status:
        raise MemoryError(f"{name}: no memory for rows of shape {list(right.shape)}")
