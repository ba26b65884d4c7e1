"""The C++ kernels for tables, in the library that `cpu` has loaded."""

from ctypes import c_char_p
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import cpu, reference_tables

_WORDS = Struct("@9q")  # `SumWords` in csrc/gather_sum_api.cpp
_DTYPES = (torch.float32, torch.float64)
_BAD_PLACES = 1


def gather_sum(table: Tensor, places: Tensor) -> Tensor:
    """`out[p] = table[places[p, 0]] + table[places[p, 1]] + ...`"""
    if table.dtype not in _DTYPES:
        return reference_tables.gather_sum(table, places)
    table, places = table.contiguous(), places.contiguous()
    sums = table.new_empty(places.shape[0], table.shape[1])
    _call("gather_sum", table, places, sums)
    return sums


def scatter_sum(g: Tensor, places: Tensor, rows: int) -> Tensor:
    """`out[places[p, k]] += g[p]`, from zeros."""
    if g.dtype not in _DTYPES:
        return reference_tables.scatter_sum(g, places, rows)
    g, places = g.contiguous(), places.contiguous()
    table = g.new_empty(rows, g.shape[1])
    _call("scatter_sum", table, places, g)
    return table


def _call(name: str, table: Tensor, places: Tensor, sums: Tensor) -> None:
    kernel: Any = getattr(cpu._library, f"slicegraph_{name}")
    kernel.argtypes = (c_char_p,)
    status = kernel(
        _WORDS.pack(
            *table.shape,
            places.data_ptr(),
            *places.shape,
            table.data_ptr(),
            sums.data_ptr(),
            table.element_size(),
            torch.get_num_threads(),
        )
    )
    if status == _BAD_PLACES:
        reference_tables.check_places(name, places, table.shape[0])
    if status:
        raise MemoryError(f"{name}: no memory for {list(sums.shape)} sums")
