"""The C++ kernel for attention within sets, in the library that `cpu` has loaded."""

from ctypes import c_char_p
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import cpu, reference_dropout
from slicegraph.ops.pair_sets import check_lengths

DTYPES = {torch.float32: 0, torch.float64: 1}
_WORDS = Struct("@17qd")  # `AttentionWords` in csrc/pair_attention_api.cpp
_BAD_SIZES = 1
kernel: Any = getattr(cpu._library, "slicegraph_pair_attention", None)
if kernel is not None:
    kernel.argtypes = (c_char_p,)


def pair_attention(
    qkv: Tensor, bias: Tensor, ptr: Tensor, seed: int, p: float
) -> tuple[Tensor, Tensor]:
    """`softmax(q k^T / sqrt(width) + bias) v` in each set and head, some weights dropped.

    Also the top and 1 / the sum of each softmax, for the gradients.
    """
    out = qkv.new_empty(qkv.shape[0], qkv.shape[1] // 3)
    totals = qkv.new_empty(qkv.shape[0], bias.shape[1], 2)
    _call(qkv, bias, totals, ptr, seed, p, out)
    return out, totals


def pair_attention_gradients(
    g: Tensor,
    added: Tensor | None,
    qkv: Tensor,
    bias: Tensor,
    totals: Tensor,
    ptr: Tensor,
    seed: int,
    p: float,
) -> tuple[Tensor, Tensor]:
    """Of `qkv` and of `bias`, the latter with `added` to it."""
    of_qkv, of_bias = qkv.new_empty(qkv.shape), bias.new_empty(bias.shape)
    g = g.contiguous().resolve_neg()
    added = None if added is None else added.contiguous().resolve_neg()
    _call(qkv, bias, totals, ptr, seed, p, of_qkv, g, added, of_bias)
    return of_qkv, of_bias


def _call(
    qkv: Tensor,
    bias: Tensor,
    totals: Tensor,
    ptr: Tensor,
    seed: int,
    p: float,
    out: Tensor,
    *gradients: Tensor | None,
) -> None:
    qkv, bias = (x.contiguous().resolve_neg() for x in (qkv, bias))
    ptr, heads = ptr.long().contiguous(), bias.shape[1]
    g, added, of_bias = (x.data_ptr() if x is not None else 0 for x in gradients or (None,) * 3)
    status = kernel(
        _WORDS.pack(
            qkv.data_ptr(),
            bias.data_ptr(),
            totals.data_ptr(),
            g,
            out.data_ptr(),
            added,
            of_bias,
            ptr.data_ptr(),
            ptr.shape[0] - 1,
            qkv.shape[0],
            heads,
            qkv.shape[1] // (3 * heads),
            bias.shape[2],
            seed,
            reference_dropout.dropped_below(p),
            DTYPES[qkv.dtype],
            torch.get_num_threads(),
            1 / (1 - p) if p < 1 else 0.0,
        )
    )
    if status == _BAD_SIZES:
        check_lengths("pair_attention", qkv, ptr, bias.shape[2])
    if status:
        raise MemoryError(f"pair_attention: no memory for rows of shape {list(qkv.shape)}")
