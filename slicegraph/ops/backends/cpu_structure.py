"""The C++ kernels for graphs, in the library that `cpu` has loaded."""

from ctypes import c_int, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops import graph_batch
from slicegraph.ops.backends import cpu

_graph_offsets: Any = getattr(cpu._library, "slicegraph_graph_offsets", None)
_shortest_paths: Any = getattr(cpu._library, "slicegraph_shortest_paths", None)
if _shortest_paths is not None:
    _graph_offsets.argtypes = (c_void_p, c_int64, c_void_p, c_int64, c_void_p)
    _shortest_paths.argtypes = (
        *(c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_void_p),
        *(c_int64, c_int64, c_void_p, c_int, c_void_p, c_int, c_int),
    )


def available() -> bool:
    """Whether the library was built, with these kernels."""
    return _shortest_paths is not None


def graph_offsets(name: str, edge_index: Tensor, ptr: Tensor) -> Tensor:
    """`[2, B + 1]`, the first pair and the first edge of each graph; raises if one lies astray."""
    offsets = torch.empty(2, ptr.shape[0], dtype=torch.int64)
    graphs = (edge_index.data_ptr(), edge_index.shape[1], ptr.data_ptr(), ptr.shape[0] - 1)
    if _graph_offsets(*graphs, offsets.data_ptr()):
        return graph_batch.graph_offsets(name, edge_index, ptr)  # says what is wrong
    return offsets


def shortest_paths(
    edge_index: Tensor,
    ptr: Tensor,
    max_distance: int,
    distance: Tensor,
    path: Tensor,
    pair_ptr: Tensor,
    edge_ptr: Tensor,
) -> None:
    """Fills `distance` and `path` (see `slicegraph.ops.shortest_paths`)."""
    status = _shortest_paths(
        edge_index.data_ptr(),
        edge_index.shape[1],
        ptr.data_ptr(),
        ptr.shape[0] - 1,
        pair_ptr.data_ptr(),
        edge_ptr.data_ptr(),
        max_distance,
        path.shape[1],
        distance.data_ptr(),
        distance.element_size(),
        path.data_ptr(),
        path.element_size(),
        torch.get_num_threads(),
    )
    if status:
        raise MemoryError(f"shortest_paths: no memory to search {ptr.shape[0] - 1} graphs")
