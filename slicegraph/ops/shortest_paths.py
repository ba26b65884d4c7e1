"""All-pairs shortest paths of a batch of small graphs: distances, and the edges along one path."""

from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from slicegraph.ops.backends import choose, cpu, cpu_structure, reference_structure
from slicegraph.ops.graph_batch import check_graphs

MAX_DISTANCE = 254
"""The default of `max_distance`: the largest whose distances, unreachable included, fit a byte."""


class ShortestPaths(NamedTuple):
    """The pairs of graph ``b`` are the rows ``pair_ptr[b]`` to ``pair_ptr[b + 1]``, row major."""

    distance: Tensor
    path: Tensor
    pair_ptr: Tensor
    edge_ptr: Tensor


def shortest_paths(
    edge_index: Tensor, ptr: Tensor, max_distance: int = MAX_DISTANCE, max_hops: int = 5
) -> ShortestPaths:
    r"""The distance of every pair of nodes of a graph, and the edges along one shortest path.

    These are the structural encodings of `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_ (Graphormer), for a whole batch at once.

    .. math:: d_{ij} = \min \{ k : i = v_0 \to v_1 \to \ldots \to v_k = j \}

    Among equally short paths the one whose node sequence :math:`(v_0, v_1, \ldots, v_k)` is
    lexicographically smallest is taken: every step goes to the lowest-numbered node that lies on a
    shortest path to :math:`j`. Among parallel edges the first is taken. So the nodes of the path
    do not depend on the order of the edges, and the rest of a path is the path of the rest.

    Args:
        edge_index: ``[2, E]``, int64, node numbers of the whole batch. Edges are directed; self
            loops and parallel edges are allowed. The edges of a graph follow one another, in the
            order of the graphs, as in a PyG ``Batch``.
        ptr: ``[B + 1]``, int32 or int64: graph ``b`` is the nodes ``ptr[b]`` to ``ptr[b + 1]``.
        max_distance: longer distances are clipped to this one; at most 32,766.
        max_hops: how many edges of each path to return, from its beginning.

    Shapes:
        With :math:`P = \sum_b n_b^2`, pair ``(i, j)`` of graph ``b`` in row
        ``pair_ptr[b] + i * n_b + j``:

        - distance: ``[P]``, 0 from a node to itself, ``max_distance + 1`` where there is no path;
          uint8 if that fits, else int16.
        - path: ``[P, max_hops]``, the numbers of the edges within their graph (the position in
          ``edge_index`` less ``edge_ptr[b]``), -1 after the end of the path and where there is
          none; int16, or int32 if a graph has more than 32,767 edges. A path whose distance was
          clipped has its first edges all the same.
        - pair_ptr, edge_ptr: ``[B + 1]``, int64, the first pair and the first edge of each graph.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> paths = shortest_paths(edge_index, ptr=torch.tensor([0, 3]), max_hops=2)
        >>> paths.distance.view(3, 3)
        tensor([[0, 1, 2],
                [1, 0, 1],
                [2, 1, 0]], dtype=torch.uint8)
        >>> paths.path.view(3, 3, 2)[0]
        tensor([[-1, -1],
                [ 0, -1],
                [ 0,  2]], dtype=torch.int16)
    """
    check_graphs("shortest_paths", edge_index, ptr)
    check_limits("shortest_paths", max_distance, max_hops)
    edge_index, ptr = edge_index.contiguous(), ptr.long().contiguous()
    backend = _backend()
    pair_ptr, edge_ptr = backend.graph_offsets("shortest_paths", edge_index, ptr)
    num_pairs = int(pair_ptr[-1])
    distance = torch.empty(num_pairs, dtype=torch.uint8 if max_distance < 255 else torch.int16)
    path = torch.empty(num_pairs, max_hops, dtype=_path_dtype(edge_ptr))
    backend.shortest_paths(edge_index, ptr, max_distance, distance, path, pair_ptr, edge_ptr)
    return ShortestPaths(distance, path, pair_ptr, edge_ptr)


def check_limits(name: str, max_distance: int, max_hops: int) -> None:
    """Raises unless distances fit an int16 and hops can be counted."""
    if not 1 <= max_distance <= 32766:
        raise ValueError(f"{name}: max_distance = {max_distance} is not in 1..32766")
    if max_hops < 0:
        raise ValueError(f"{name}: max_hops = {max_hops} is negative")


def _backend() -> ModuleType:
    compiled = choose("cpu") is cpu and cpu_structure.available()
    return cpu_structure if compiled else reference_structure


def _path_dtype(edge_ptr: Tensor) -> torch.dtype:
    most = 1 << 15
    few = int(edge_ptr[-1]) < most or int(edge_ptr.diff().amax()) < most
    return torch.int16 if few else torch.int32
