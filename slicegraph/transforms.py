"""PyG transforms: distances, path edges, walks and degrees as attributes; rings as nodes."""

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from slicegraph.ops.paths import (
    MAX_DISTANCE,
    check_limits,
    random_walks,
    rings,
    shortest_paths,
)

__all__ = ["RingNodes", "StructuralEncoding"]

STRUCTURE = ("pair_distance", "pair_path", "pair_walk", "in_degree", "out_degree")
"""The attributes that :class:`StructuralEncoding` writes."""


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
        edge_index, ptr = _edges(data, "StructuralEncoding")
        paths = shortest_paths(edge_index, ptr, self.max_distance, self.max_hops)
        data.pair_distance, data.pair_path = paths.distance, paths.path
        for name, ends in (("in_degree", edge_index[1]), ("out_degree", edge_index[0])):
            count = ends.bincount(minlength=int(ptr[-1]))
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


def _edges(data: Data, caller: str) -> tuple[Tensor, Tensor]:
    """Return `edge_index` and `ptr` of a graph or batch; a single graph may have neither."""
    if not isinstance(data, Data):
        kind = f"{type(data).__name__} is not supported, expected a Data or a Batch of them"
        raise TypeError(f"{caller}: {kind}; HeteroData.to_homogeneous() makes one")
    problem = None
    if data.edge_index is None and ("adj_t" in data or "adj" in data):
        problem = "an adjacency matrix and no edge_index; apply it before ToSparseTensor or ToDense"
    elif "batch" in data and "ptr" not in data:
        problem = "batch and no ptr; make it with Batch.from_data_list"
    if problem:
        raise ValueError(f"{caller}: the graph has {problem}")
    none = torch.empty(2, 0, dtype=torch.int64)
    edge_index = none if data.edge_index is None else data.edge_index
    return edge_index, data.ptr if "ptr" in data else torch.tensor([0, data.num_nodes])


class RingNodes(BaseTransform):
    """Adds a node for every ring of a molecule, with an edge from and to each of its atoms, so that
    messages pass through rings as in `"Weisfeiler and Lehman Go Cellular: CW Networks"
    <https://arxiv.org/abs/2106.12575>`_ (CIN).

    Rings are those of :func:`slicegraph.ops.rings`, and are found from the edges alone. They come
    after the nodes of their graph, and their edges after its edges. The category of a ring tells
    its length. The attribute ``num_rings`` ``[B]`` counts them.

    Applied to a graph, or to a whole ``Batch``; before what else is computed from the edges.
    Attributes of nodes and edges other than ``x`` and ``edge_attr`` are left as they are.

    Args:
        max_length: longer rings are not added.
        node_categories: how many categories the first node feature has. Rings of 3, 4, ...
            nodes get the next ones, so a model needs ``node_categories + max_length - 2``. Other
            features of a ring are 0.
        edge_categories: how many categories the first edge feature has. The edges of rings get the
            next one, so a model needs one more. Other features are 0. With 0, they
            may be missing.

    Example:
        >>> ring = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
        >>> data = Data(x=torch.zeros(3, 1).long(), edge_index=ring, edge_attr=ring.new_zeros(6, 1))
        >>> RingNodes(8, node_categories=28, edge_categories=4)(data)
        Data(x=[4, 1], edge_index=[2, 12], edge_attr=[12, 1], num_rings=[1])
    """

    def __init__(self, max_length: int, node_categories: int, edge_categories: int) -> None:
        if max_length < 3:
            raise ValueError(f"RingNodes: max_length = {max_length}, expected at least 3")
        self.max_length = max_length
        self.node_categories, self.edge_categories = node_categories, edge_categories

    def forward(self, data: Data) -> Data:
        edge_index, ptr = _edges(data, "RingNodes")
        if data.x is None or data.x.is_floating_point():
            raise TypeError("RingNodes: expected x, the categories of the features of each node")
        if self.edge_categories and data.edge_attr is None:
            raise ValueError("RingNodes: edge_attr is missing, expected edge features")
        if "pair_distance" in data:
            raise ValueError("RingNodes: apply it before StructuralEncoding, which writes pairs")
        ptr = ptr.long()
        found, nodes = rings(edge_index, ptr, self.max_length), len(data.x)
        lengths, data.num_rings = found.ring_ptr.diff(), found.graph_ptr.diff()
        # First with all rings and their edges at the end, then in the order of the graphs.
        graph = torch.repeat_interleave(torch.cat([ptr.diff(), data.num_rings]))
        graph = graph % max(1, len(data.num_rings))
        own = torch.repeat_interleave(lengths) + nodes
        inward, outward = torch.stack([found.nodes, own]), torch.stack([own, found.nodes])
        edges = torch.cat([edge_index, inward, outward], 1)
        order, edge_order = graph.argsort(stable=True), graph[edges[0]].argsort(stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        data.x = _extended(data.x, lengths + (self.node_categories - 3))[order]
        if data.edge_attr is not None:
            categories = lengths.new_full((2 * len(own),), self.edge_categories)
            data.edge_attr = _extended(data.edge_attr, categories)[edge_order]
        data.edge_index = place[edges[:, edge_order]]
        self._renumber(data, ptr + found.graph_ptr, graph[order])
        return data

    @staticmethod
    def _renumber(data: Data, ptr: Tensor, graph: Tensor) -> None:
        """Write which nodes belong to a graph, where the data has it."""
        for name, value in {"ptr": ptr, "batch": graph}.items():
            if name in data:
                data[name] = value
        if "max_nodes" in data:
            data.max_nodes = int(ptr.diff().max())
        if hasattr(data, "_slice_dict"):  # see StructuralEncoding
            each, zeros = torch.arange(len(ptr)), torch.zeros(len(ptr) - 1, dtype=torch.int64)
            edge_ptr = torch.searchsorted(graph[data.edge_index[0]], each)
            slices = {"x": ptr, "edge_index": edge_ptr, "edge_attr": edge_ptr, "num_rings": each}
            known = {name: value for name, value in slices.items() if name in data}
            data._slice_dict = data._slice_dict | known
            data._inc_dict = data._inc_dict | {"edge_index": ptr[:-1], "num_rings": zeros}

    def __repr__(self) -> str:
        sizes = f"{self.max_length}, {self.node_categories}, {self.edge_categories}"
        return f"{type(self).__name__}({sizes})"


def _extended(features: Tensor, categories: Tensor) -> Tensor:
    """Append rows with these categories of the first feature, and 0 for the others."""
    rows = categories.new_zeros(len(categories), features.shape[1])
    rows[:, 0] = categories
    if len(rows) and int(rows.max()) > torch.iinfo(features.dtype).max:
        features = features.long()
    return torch.cat([features, rows.to(features.dtype)])
