"""PyG transforms: distances, path edges, walks and degrees as attributes of a graph or batch."""

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import scatter

from slicegraph.ops.paths import MAX_DISTANCE, check_limits, random_walks, shortest_paths

__all__ = ["StructuralEncoding"]


class StructuralEncoding(BaseTransform):
    r"""The structural encodings of `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_ (Graphormer), as named attributes.

    Applied to a graph, to be stored with it or made while loading; or to a whole ``Batch``, so
    that nothing quadratic is stored. Both give the same numbers. For ``n`` nodes it writes

    - ``pair_distance``: ``[n * n]``, the hops from node ``i`` to node ``j`` in row ``i * n + j``;
    - ``pair_path``: ``[n * n, max_hops]``, the first edges of a shortest path from ``i`` to ``j``,
      by their number within the graph; -1 where there are no more;
    - ``in_degree``, ``out_degree``: ``[n]``, int16, at most 32,767;
    - ``pair_walk``, if asked for: ``[n * n, walk_length]``, the probabilities that a random walk of
      0, 1, ... steps leads from ``i`` to ``j``, by :func:`slicegraph.ops.paths.random_walks`.

    :func:`slicegraph.ops.shortest_paths` defines which of several shortest paths is taken, and
    which integers are used. In a batch the pairs of the graphs follow one another. Where graphs of
    more than 32,767 edges (int32 paths) are batched with smaller ones (int16), encode the batch: a
    worker process of PyG's ``DataLoader`` collates to the type of the first graph.

    Args:
        max_distance: longer distances count as this one, and ``max_distance + 1`` means that there
            is no path. A shortest path visits a node once, so ``n`` nodes are at most ``n - 1``
            hops apart: the default, 254, clips nothing in a molecule of up to 255 atoms (OGB's
            PCQM4M has at most 51) and is the largest that fits a byte. Graphormer's table of 512
            distances, where 510 means no path, adds nothing for such molecules.
        max_hops: how many edges of each path to keep. Graphormer reads 5.
        walk_length: how many powers of the random walk to write; 0 writes none.

    Example:
        >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> StructuralEncoding()(data)
        Data(x=[3, 1], edge_index=[2, 4], pair_distance=[9], pair_path=[9, 5], in_degree=[3], out_degree=[3])
    """  # noqa: E501

    def __init__(
        self, max_distance: int = MAX_DISTANCE, max_hops: int = 5, walk_length: int = 0
    ) -> None:
        check_limits("StructuralEncoding", max_distance, max_hops)
        if walk_length < 0:
            raise ValueError(f"StructuralEncoding: walk_length = {walk_length} is negative")
        self.max_distance, self.max_hops, self.walk_length = max_distance, max_hops, walk_length

    def forward(self, data: Data) -> Data:
        edge_index, ptr = _edges(data)
        paths = shortest_paths(edge_index, ptr, self.max_distance, self.max_hops)
        data.pair_distance, data.pair_path = paths.distance, paths.path
        for name, ends in (("in_degree", edge_index[1]), ("out_degree", edge_index[0])):
            count = scatter(torch.ones_like(ends), ends, dim_size=int(ptr[-1]))
            data[name] = count.clamp_(max=torch.iinfo(torch.int16).max).to(torch.int16)
        if self.walk_length:
            data.pair_walk = random_walks(edge_index, ptr.long(), self.walk_length)
        if hasattr(data, "_slice_dict"):
            # A batch: `batch[0]` and `to_data_list()` read where the values of each graph begin,
            # and leave an attribute out otherwise.
            pairs = ("pair_distance", "pair_path") + ("pair_walk",) * (self.walk_length > 0)
            nodes = ("in_degree", "out_degree")
            offsets = dict.fromkeys(pairs, paths.pair_ptr) | dict.fromkeys(nodes, ptr)
            zeros = torch.zeros(data.num_graphs, dtype=torch.int64)
            data._slice_dict = data._slice_dict | offsets
            data._inc_dict = data._inc_dict | dict.fromkeys(offsets, zeros)
        return data

    def __repr__(self) -> str:
        name = type(self).__name__
        walks = f", walk_length={self.walk_length}" if self.walk_length else ""
        return f"{name}(max_distance={self.max_distance}, max_hops={self.max_hops}{walks})"


def _edges(data: Data) -> tuple[Tensor, Tensor]:
    """Return `edge_index` and `ptr` of a graph or batch; a single graph may have neither."""
    if not isinstance(data, Data):
        kind = f"{type(data).__name__} is not supported, expected a Data or a Batch of them"
        raise TypeError(f"StructuralEncoding: {kind}; HeteroData.to_homogeneous() makes one")
    problem = None
    if data.edge_index is None and ("adj_t" in data or "adj" in data):
        problem = "an adjacency matrix and no edge_index; apply it before ToSparseTensor or ToDense"
    elif "batch" in data and "ptr" not in data:
        problem = "batch and no ptr; make it with Batch.from_data_list"
    if problem:
        raise ValueError(f"StructuralEncoding: the graph has {problem}")
    none = torch.empty(2, 0, dtype=torch.int64)
    edge_index = none if data.edge_index is None else data.edge_index
    return edge_index, data.ptr if "ptr" in data else torch.tensor([0, data.num_nodes])
