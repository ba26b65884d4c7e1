"""What a graph model reads from a PyG batch."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import scatter

from slicegraph.ops.sets import set_of_row
from slicegraph.ops.shortest_paths import ShortestPaths, shortest_paths


class GraphBatch(NamedTuple):
    """The tensors of a batch: ``features [T, F]``, ``ptr [B + 1]``, edges, degrees ``[T]``."""

    features: Tensor
    ptr: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    in_degree: Tensor
    out_degree: Tensor


def read_batch(data: Data) -> GraphBatch:
    """The tensors of a ``Batch``, or of a single graph; raises if there is nothing in it."""
    if data.x is None:
        raise ValueError("the batch has no x, the features of the nodes")
    if "ptr" in data:
        ptr = data.ptr
    elif data.batch is not None:
        raise ValueError("the batch has batch and no ptr; make it with Batch.from_data_list")
    else:
        ptr = torch.tensor([0, data.x.shape[0]], device=data.x.device)
    if ptr.numel() < 2 or data.x.shape[0] == 0:
        raise ValueError(
            f"the batch is empty: {ptr.numel() - 1} graphs with {data.x.shape[0]} nodes in all"
        )
    edge_index = data.edge_index
    if edge_index is None:
        edge_index = ptr.new_empty(2, 0)
    degrees = (
        data[name]
        if name in data
        else scatter(torch.ones_like(ends), ends, dim_size=data.x.shape[0])
        for name, ends in (("in_degree", edge_index[1]), ("out_degree", edge_index[0]))
    )
    return GraphBatch(data.x, ptr, edge_index, data.edge_attr, *degrees)


def read_encoding(data: Data, batch: GraphBatch, max_distance: int, max_hops: int) -> ShortestPaths:
    """What ``StructuralEncoding`` wrote into the batch; computed here if it did not."""
    ptr = batch.ptr
    if "pair_distance" not in data or "pair_path" not in data:
        hops = max(1, max_hops)  # the first hop tells whether there is a path
        found = shortest_paths(batch.edge_index.cpu(), ptr.cpu(), max_distance, hops)
        return ShortestPaths(*(part.to(ptr.device) for part in found))
    graphs = set_of_row(ptr, batch.features.shape[0])[batch.edge_index[0]]
    edge_ptr = torch.searchsorted(graphs, torch.arange(ptr.numel(), device=ptr.device))
    pairs = ptr.diff().square().cumsum(0)
    pair_ptr = torch.cat([pairs.new_zeros(1), pairs])
    return ShortestPaths(data.pair_distance, data.pair_path, pair_ptr, edge_ptr)
