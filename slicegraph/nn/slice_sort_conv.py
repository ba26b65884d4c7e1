"""The Sliceformer's graph layer, for any PyG model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from slicegraph.nn.mixer import Mixer
from slicegraph.nn.packing import batch_to_ptr
from slicegraph.nn.pair_bias import PairBias
from slicegraph.nn.structural_bias import StructuralBias
from slicegraph.ops.shortest_paths import ShortestPaths, shortest_paths


class SliceSortConv(torch.nn.Module):
    r"""The graph layer of the `Sliceformer: Make Multi-head Attention as Simple as Sorting in
    Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper.

    .. math:: Y = \mathrm{Sort}_{\mathrm{col}}(\mathrm{softmax}(S + E) \, X W_V) \, W_O

    with S the distances and E the edges along the shortest paths, see
    :class:`~slicegraph.nn.StructuralBias`; for other formulas, ``mixer``. All nodes of a graph
    take part, whether there is a path between them or not.

    With ``align="rows"`` the j-th value of every channel lands at the j-th node of its graph: the
    output depends on how the nodes are numbered, so number them in a canonical way. With
    ``align="pivot"`` it lands at the node that ranks j-th in channel 0: renumbering the nodes
    renumbers the output and changes nothing else, unless values of channel 0 tie, as they do for
    symmetric nodes. Where shortest paths tie, the numbers of the nodes decide among them, so E
    depends on the numbering too.

    Args:
        channels: the size of each node's input and output.
        heads: the number of heads, which divides ``channels``.
        edge_dim: the number of edge features, for floating-point ``edge_attr``.
        edge_vocabulary: the number of categories of each edge feature, for categorical ones.
        max_distance: longer distances count as this one.
        max_hops: how many edges of a path count.
        mixer: ``"quantile_attn"``, ``"sort_attn"``, ``"attn_plus_sort"``, ``"sort"``, ``"attn"`` or
            ``"qkv"``, see :class:`~slicegraph.nn.Mixer`. ``"sort"`` does not look at edges, makes
            no pairs and takes :math:`O(N \log N)`; the others take memory for every pair of nodes.
        order: ``"ascending"``, ``"descending"``, ``"interleave"`` or ``"max_exchange"``.
        align: ``"rows"`` or ``"pivot"``.
        layer, num_layers: the number of this layer, from 1, and of all; for ``"interleave"``.
        bias: whether the projections have a bias.
        dropout: the probability with which a weight of the softmax is dropped in training.
        quantiles: how many quantiles of a sorted channel ``"quantile_attn"`` reads.

    Shapes:
        - **x**: ``[N, channels]``.
        - **edge_index**: ``[2, E]``.
        - **edge_attr**: ``[E, F]``, used if ``edge_dim`` or ``edge_vocabulary`` is given.
        - **batch**: ``[N]``, ascending: the graph of each node. One graph if not given.
        - **encoding**: from :func:`slicegraph.ops.shortest_paths.shortest_paths`, computed if not
          given. Layers of one model can share it.
        - **output**: ``[N, channels]``.

    Example:
        >>> conv = SliceSortConv(16, heads=4, edge_dim=3)
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> conv(torch.randn(3, 16), edge_index, torch.randn(4, 3)).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        edge_dim: int | None = None,
        edge_vocabulary: Sequence[int] | None = None,
        max_distance: int = 254,
        max_hops: int = 5,
        mixer: str = "sort_attn",
        order: str = "ascending",
        align: str = "rows",
        layer: int = 1,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        quantiles: int = 5,
    ) -> None:
        super().__init__()
        self.channels, self.heads, self.max_hops = channels, heads, max_hops
        self.mixer = Mixer(
            channels, heads, mixer, order, align, layer, num_layers, bias, dropout, quantiles
        )
        self.structural_bias = (
            StructuralBias(heads, max_distance, max_hops, edge_vocabulary, edge_dim)
            if self.mixer.needs_pairs
            else None
        )

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        self.mixer.reset_parameters()
        if self.structural_bias is not None:
            self.structural_bias.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        encoding: ShortestPaths | None = None,
    ) -> Tensor:
        self._check(x, batch)
        if self.structural_bias is None:
            ptr = _one_graph(x) if batch is None else batch_to_ptr(batch)
            return self.mixer(x, ptr)
        ptr = _one_graph(x) if batch is None else _graph_ptr(batch, encoding)
        return self.mixer(x, ptr, self._pairs(ptr, edge_index, edge_attr, batch, encoding))

    def _pairs(
        self,
        ptr: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None,
        batch: Tensor | None,
        encoding: ShortestPaths | None,
    ) -> PairBias:
        assert self.structural_bias is not None
        if encoding is None:
            edge_index, edge_attr = _by_graph(edge_index, edge_attr, batch)
            hops = max(1, self.max_hops)  # the first hop tells whether there is a path
            found = shortest_paths(
                edge_index.cpu(), ptr.cpu(), self.structural_bias.max_distance, hops
            )
            encoding = ShortestPaths(*(part.to(ptr.device) for part in found))
        return self.structural_bias(encoding, ptr, edge_attr)

    def _check(self, x: Tensor, batch: Tensor | None) -> None:
        if x.dim() != 2 or x.shape[1] != self.channels:
            raise ValueError(
                f"SliceSortConv: x has shape {list(x.shape)}, expected [N, {self.channels}]"
            )
        if x.shape[0] == 0:
            raise ValueError("SliceSortConv: x has no rows, expected at least one node")
        if batch is not None and batch.shape != x.shape[:1]:
            raise ValueError(
                f"SliceSortConv: batch has shape {list(batch.shape)}, expected [{x.shape[0]}], one "
                "per node"
            )

    def __repr__(self) -> str:
        mixer = self.mixer
        order = "" if mixer.order is None else f", order={mixer.order.name}, align={mixer.align}"
        return (
            f"{self.__class__.__name__}({self.channels}, heads={self.heads}, "
            f"mixer={mixer.mixer}{order})"
        )


def _one_graph(x: Tensor) -> Tensor:
    return torch.tensor([0, x.shape[0]], device=x.device)


def _graph_ptr(batch: Tensor, encoding: ShortestPaths | None) -> Tensor:
    """The first node of each graph. The encoding knows of empty graphs at the end."""
    batch_to_ptr(batch)  # raises unless sorted
    num_graphs = int(batch[-1]) + 1 if encoding is None else encoding.edge_ptr.numel() - 1
    graphs = torch.arange(num_graphs + 1, device=batch.device, dtype=batch.dtype)
    return torch.searchsorted(batch, graphs)


def _by_graph(
    edge_index: Tensor, edge_attr: Tensor | None, batch: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The edges of each graph next to each other, as they are in a PyG batch."""
    if batch is None:
        return edge_index, edge_attr
    graph = batch[edge_index[0]]
    if bool((graph[1:] >= graph[:-1]).all()):
        return edge_index, edge_attr
    order = torch.argsort(graph, stable=True)
    return edge_index[:, order], None if edge_attr is None else edge_attr[order]
