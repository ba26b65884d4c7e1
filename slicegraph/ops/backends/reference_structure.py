"""Shortest paths in plain Python: the specification."""

from array import array

import torch
from torch import Tensor

from slicegraph.ops.graph_batch import graph_offsets

__all__ = ["graph_offsets", "shortest_paths"]


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
    max_hops = path.shape[1]
    for b in range(len(ptr) - 1):
        edges = edge_index[:, int(edge_ptr[b]) : int(edge_ptr[b + 1])] - ptr[b]
        neighbours = _neighbours(int(ptr[b + 1] - ptr[b]), *edges.tolist())
        row = int(pair_ptr[b])
        for source in range(len(neighbours)):
            hops, found = _search(neighbours, source, max_hops)
            clipped = [max_distance + 1 if h < 0 else min(h, max_distance) for h in hops]
            end = row + len(neighbours)
            distance[row:end] = torch.tensor(clipped)
            path[row:end] = torch.tensor(found.tolist()).view(end - row, max_hops)
            row = end


def _neighbours(num_nodes: int, starts: list[int], ends: list[int]) -> list[list[tuple[int, int]]]:
    """Each node's neighbours in ascending order, each with the first edge that leads to it."""
    first: list[dict[int, int]] = [{} for _ in range(num_nodes)]
    for edge, (start, end) in enumerate(zip(starts, ends, strict=True)):
        first[start].setdefault(end, edge)
    return [sorted(edges.items()) for edges in first]


def _search(
    neighbours: list[list[tuple[int, int]]], source: int, max_hops: int
) -> tuple[list[int], array]:
    """Breadth first: the number of hops to each node, or -1, and the first edges on the way.

    Nodes enter the queue in the lexicographic order of their paths, so that whoever finds a node
    first extends the smallest path to it.
    """
    hops = [-1] * len(neighbours)
    hops[source] = 0
    path = array("i", [-1]) * (len(neighbours) * max_hops)
    queue = [source]
    for node in queue:
        for end, edge in neighbours[node]:
            if hops[end] >= 0:
                continue
            known, row = node * max_hops, end * max_hops
            path[row : row + max_hops] = path[known : known + max_hops]
            if hops[node] < max_hops:
                path[row + hops[node]] = edge
            hops[end] = hops[node] + 1
            queue.append(end)
    return hops, path
