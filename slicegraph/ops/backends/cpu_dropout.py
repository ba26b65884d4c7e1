"""The C++ kernel for dropout, in the library that `cpu` has loaded."""

from ctypes import c_char_p
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import cpu, reference_dropout

_WORDS = Struct("@7qd")  # `DropoutWords` in csrc/dropout_api.cpp
_DTYPES = {torch.float32: 0, torch.float64: 1}
_kernel: Any = getattr(cpu._library, "slicegraph_dropout", None)
if _kernel is not None:
    _kernel.argtypes = (c_char_p,)


def dropout(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """`out[i] = x[i] / (1 - p)`, or 0 where the hash of `i` and the seed is small."""
    if x.dtype not in _DTYPES:
        return reference_dropout.dropout(x, seed, p)
    x = x.contiguous().resolve_neg()
    out = torch.empty_like(x)
    status = _kernel(
        _WORDS.pack(
            x.data_ptr(),
            out.data_ptr(),
            x.numel(),
            int(seed),
            reference_dropout.dropped_below(p),
            _DTYPES[x.dtype],
            torch.get_num_threads(),
            1 / (1 - p),
        )
    )
    if status:
        raise MemoryError(f"dropout: no memory for {list(x.shape)} entries")
    return out
