"""The C++ kernel for messages along edges, in the library that `cpu` has loaded."""

from ctypes import c_char_p
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import cpu, reference_edges

DTYPES = (torch.float32, torch.float64)
_WORDS = Struct("@14q")  # `EdgeWords` in csrc/edge_sum_api.cpp
_BAD_PLACES = 1
kernel: Any = getattr(cpu._library, "slicegraph_edge_sum", None)
if kernel is not None:
    kernel.argtypes = (c_char_p,)


def edge_sum(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    """`out[target] += relu(x[source] + table[code 0] + table[code 1] + ...)`, from zeros."""
    if x.dtype not in DTYPES or kernel is None:
        return reference_edges.edge_sum(x, table, codes, index)
    sums = x.new_empty(x.shape)
    _call(x, table, codes, index, sums, None, None)
    return sums


def edge_sum_gradients(
    g: Tensor, x: Tensor, table: Tensor, codes: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    """Of `x` and of `table`, in one pass over the edges."""
    if x.dtype not in DTYPES or kernel is None:
        return reference_edges.edge_sum_gradients(g, x, table, codes, index)
    of_x, of_table = x.new_empty(x.shape), table.new_empty(table.shape)
    _call(x, table, codes, index, g.contiguous(), of_x, of_table)
    return of_x, of_table


def _call(
    x: Tensor,
    table: Tensor,
    codes: Tensor,
    index: Tensor,
    sums: Tensor,
    of_x: Tensor | None,
    of_table: Tensor | None,
) -> None:
    x, table, codes, index = (part.contiguous() for part in (x, table, codes, index))
    status = kernel(
        _WORDS.pack(
            *x.shape,
            table.shape[0],
            *codes.shape,
            x.data_ptr(),
            table.data_ptr(),
            codes.data_ptr(),
            index.data_ptr(),
            sums.data_ptr(),
            0 if of_x is None else of_x.data_ptr(),
            0 if of_table is None else of_table.data_ptr(),
            x.element_size(),
            torch.get_num_threads(),
        )
    )
    if status == _BAD_PLACES:
        reference_edges.check(x, table, codes, index)
    if status:
        raise MemoryError(f"edge_sum: no memory for {list(x.shape)} sums")
