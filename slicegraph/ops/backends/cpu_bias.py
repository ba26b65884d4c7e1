"""The C++ kernel for S + E, in the library that `cpu` has loaded."""

from ctypes import c_char_p, c_int64
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.backends import cpu, reference_bias

_WORDS = Struct("@20qd")  # `BiasWords` in csrc/structural_bias_api.cpp
_DTYPES = (torch.float32, torch.float64)
_BAD_ENCODING = 1


def structural_bias(
    table: Tensor,
    products: Tensor,
    distance: Tensor,
    path: Tensor,
    ptr: Tensor,
    edge_ptr: Tensor,
    length: int,
    max_distance: int,
    token: bool,
    empty: bool,
    padding: float,
) -> Tensor:
    """`out[b, :, i, j] = table[distance] + (products[edge 0, 0] + products[edge 1, 1] ...) / k`"""
    encoding, options = (distance, path, ptr, edge_ptr), (max_distance, token, empty)
    if not _has_kernel(table, *encoding):
        return reference_bias.structural_bias(table, products, *encoding, length, *options, padding)
    bias = table.new_empty(ptr.shape[0] - 1, table.shape[1], length, length)
    table, products = table.contiguous(), products.contiguous()
    _call("structural_bias", (table, products, bias), encoding, options, padding)
    return bias


def structural_bias_gradients(
    g: Tensor,
    distance: Tensor,
    path: Tensor,
    ptr: Tensor,
    edge_ptr: Tensor,
    edges: int,
    hops: int,
    max_distance: int,
    token: bool,
    empty: bool,
) -> tuple[Tensor, Tensor]:
    """Of the table and of the products, in one pass over the pairs."""
    encoding, options = (distance, path, ptr, edge_ptr), (max_distance, token, empty)
    if not _has_kernel(g, *encoding):
        return reference_bias.structural_bias_gradients(g, *encoding, edges, hops, *options)
    of_table = g.new_empty(max_distance + 2 + token, g.shape[1])
    of_products = g.new_empty(edges, hops, g.shape[1])
    tensors = (of_table, of_products, g.contiguous())
    _call("structural_bias_gradients", tensors, encoding, options, 0.0)
    return of_table, of_products


def _has_kernel(x: Tensor, distance: Tensor, path: Tensor, *offsets: Tensor) -> bool:
    return (
        x.dtype in _DTYPES
        and distance.dtype in (torch.uint8, torch.int16)
        and path.dtype in (torch.int16, torch.int32)
        and hasattr(cpu._library, "slicegraph_structural_bias")
    )


def _call(
    name: str,
    tensors: tuple[Tensor, Tensor, Tensor],
    encoding: tuple[Tensor, Tensor, Tensor, Tensor],
    options: tuple[int, bool, bool],
    padding: float,
) -> None:
    table, products, bias = tensors
    distance, path, ptr, edge_ptr = (x.contiguous() for x in encoding)
    kernel: Any = getattr(cpu._library, f"slicegraph_{name}")
    kernel.argtypes = (c_char_p, c_int64)
    words = _WORDS.pack(
        ptr.shape[0] - 1,
        bias.shape[-1],
        bias.shape[1],
        *products.shape[:2],
        *options,
        *path.shape,
        distance.element_size(),
        path.element_size(),
        *(x.data_ptr() for x in (distance, path, ptr, edge_ptr, table, products, bias)),
        torch.get_num_threads(),
        padding,
    )
    status = kernel(words, table.element_size())
    if status == _BAD_ENCODING:
        edges, hops = products.shape[:2]
        sizes = (bias.shape[-1], edges - options[2], hops, options[1])
        reference_bias.check_encoding(path, ptr, edge_ptr, *sizes)
    if status:
        raise MemoryError(f"{name}: no memory for a bias of shape {list(bias.shape)}")
