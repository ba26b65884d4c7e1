"""Distances, path edges and degrees as attributes of a PyG graph or batch."""

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import scatter

from slicegraph.ops.shortest_paths import MAX_DISTANCE, check_limits, shortest_paths

_MOST_DEGREE = torch.iinfo(torch.int16).max


class StructuralEncoding(BaseTransform):
    r"""The structural encodings of `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_ (Graphormer), as named attributes.

    Applied to a graph, to be stored with it or made while loading; or to a whole ``Batch``, so
    that nothing quadratic is stored. Both give the same numbers. For ``n`` nodes it writes

    - ``pair_distance``: ``[n * n]``, the hops from node ``i`` to node ``j`` in row ``i * n + j``;
    - ``pair_path``: ``[n * n, max_hops]``, the first edges of a shortest path from ``i`` to ``j``,
      by their number within the graph; -1 where there are no more;
    - ``in_degree``, ``out_degree``: ``[n]``, int16, at most 32,767.

    :func:`slicegraph.ops.shortest_paths` says which of several shortest paths is meant, and which
    integers are used. In a batch the pairs of the graphs follow one another. Where graphs of more
    than 32,767 edges (int32 paths) are batched with smaller ones (int16), encode the batch: a
    worker process of PyG's ``DataLoader`` collates to the type of the first graph.

    Args:
        max_distance: longer distances count as this one, and ``max_distance + 1`` means that there
            is no path. A shortest path visits a node once, so ``n`` nodes are at most ``n - 1``
            hops apart: the default, 254, clips nothing in a molecule of up to 255 atoms (OGB's
            PCQM4M has at most 51) and is the largest that fits a byte. Graphormer's table of 512
            distances, where 510 means no path, says nothing more about such molecules.
        max_hops: how many edges of each path to keep. Graphormer reads 5.

    Example:
        >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> StructuralEncoding()(data)
        Data(x=[3, 1], edge_index=[2, 4], pair_distance=[9], pair_path=[9, 5], in_degree=[3], out_degree=[3])
    """  # noqa: E501

    def __init__(self, max_distance: int = MAX_DISTANCE, max_hops: int = 5) -> None:
        check_limits("StructuralEncoding", max_distance, max_hops)
        self.max_distance = max_distance
        self.max_hops = max_hops

    def forward(self, data: Data) -> Data:
        if not isinstance(data, Data):
            raise TypeError(
                f"StructuralEncoding: {type(data).__name__} is not supported, expected a Data or a "
                "Batch of them; HeteroData.to_homogeneous() makes one"
            )
        edge_index, ptr = _edge_index(data), _ptr(data)
        paths = shortest_paths(edge_index, ptr, self.max_distance, self.max_hops)
        num_nodes = int(ptr[-1])
        values = {
            "pair_distance": (paths.distance, paths.pair_ptr),
            "pair_path": (paths.path, paths.pair_ptr),
            "in_degree": (_degree(edge_index[1], num_nodes), ptr),
            "out_degree": (_degree(edge_index[0], num_nodes), ptr),
        }
        for name, (value, _) in values.items():
            data[name] = value
        if isinstance(data, Batch):
            _make_separable(data, {name: offsets for name, (_, offsets) in values.items()})
        return data

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(max_distance={self.max_distance}, max_hops={self.max_hops})"


def _edge_index(data: Data) -> Tensor:
    if data.edge_index is not None:
        return data.edge_index
    if "adj_t" in data or "adj" in data:
        raise ValueError(
            "StructuralEncoding: the graph has an adjacency matrix and no edge_index; "
            "apply it before ToSparseTensor or ToDense"
        )
    return torch.empty(2, 0, dtype=torch.int64)


def _ptr(data: Data) -> Tensor:
    if "ptr" in data:
        return data.ptr
    if "batch" in data:
        raise ValueError(
            "StructuralEncoding: the graph has batch and no ptr; make it with Batch.from_data_list"
        )
    return torch.tensor([0, data.num_nodes])


def _degree(ends: Tensor, num_nodes: int) -> Tensor:
    count = scatter(torch.ones_like(ends), ends, dim_size=num_nodes)
    return count.clamp_(max=_MOST_DEGREE).to(torch.int16)


def _make_separable(batch: Batch, offsets: dict[str, Tensor]) -> None:
    """Tells where each graph's values begin, as `Batch.from_data_list` does for its attributes.

    Without it, `batch[0]` and `batch.to_data_list()` would leave the new attributes out.
    """
    if hasattr(batch, "_slice_dict"):
        zeros = torch.zeros(batch.num_graphs, dtype=torch.int64)
        batch._slice_dict = batch._slice_dict | offsets
        batch._inc_dict = batch._inc_dict | dict.fromkeys(offsets, zeros)
