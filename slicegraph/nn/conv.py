"""The Sliceformer's graph layer, for any PyG model."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from slicegraph.nn.bias import StructuralBias, find_paths
from slicegraph.nn.layer import Layer
from slicegraph.nn.mixer import Mixer
from slicegraph.nn.packed import batch_to_ptr
from slicegraph.ops.paths import ShortestPaths


class SliceSortConv(Layer):
    r"""The graph layer of the `Sliceformer: Make Multi-head Attention as Simple as Sorting in
    Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper.

    .. math:: Y = \mathrm{Sort}_{\mathrm{col}}(\mathrm{softmax}(S + E) \, X W_V) \, W_O

    with S the distances and E the edges along the shortest paths, see
    :class:`~slicegraph.nn.StructuralBias`; for other formulas, ``mixer``.

    With ``align="rows"`` the j-th value of every channel lands at the j-th node of its graph, so
    number the nodes in a canonical way. With ``align="pivot"`` it lands at the node that ranks j-th
    in channel 0, which is permutation-equivariant unless values of channel 0 tie, as they do for
    symmetric nodes. Among shortest paths of the same length, the numbers of the nodes decide.

    Args:
        channels: the size of each node's input and output.
        heads: the number of heads, which divides ``channels``.
        edge_dim: the number of edge features, for floating-point ``edge_attr``.
        edge_vocabulary: the number of categories of each edge feature, for categorical ones.
        max_distance: longer distances count as this one.
        max_hops: how many edges of a path count.
        **options: ``mixer`` (``"sort_attn"`` by default), ``order``, ``align``, ``layer``,
            ``num_layers``, ``bias``, ``dropout`` and ``quantiles``, see
            :class:`~slicegraph.nn.Mixer`. The mixer ``"sort"`` ignores edges and takes
            :math:`O(N \log N)`; the others take memory for every pair of nodes.

    Shapes:
        - **x**: ``[N, channels]``; **edge_index**: ``[2, E]``.
        - **edge_attr**: ``[E, F]``, used if ``edge_dim`` or ``edge_vocabulary`` is given.
        - **batch**: ``[N]``, ascending: the graph of each node. One graph if not given.
        - **encoding**: from :func:`slicegraph.ops.paths.shortest_paths`, computed if not
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
        *,
        max_distance: int = 254,
        max_hops: int = 5,
        **options: Any,
    ) -> None:
        super().__init__()
        self.channels, self.heads, self.max_hops = channels, heads, max_hops
        self.mixer = Mixer(channels, heads, **options)
        self.structural_bias = None
        if self.mixer.kind.needs_pairs:
            self.structural_bias = StructuralBias(
                heads, max_distance, max_hops, edge_vocabulary, edge_dim=edge_dim
            )

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        encoding: ShortestPaths | None = None,
    ) -> Tensor:
        if x.dim() != 2 or x.shape[1] != self.channels:
            raise ValueError(
                f"SliceSortConv: x has shape {list(x.shape)}, expected [N, {self.channels}]"
            )
        if x.shape[0] == 0:
            raise ValueError("SliceSortConv: x has no rows, expected at least one node")
        if batch is not None and batch.shape != x.shape[:1]:
            raise ValueError(
                f"SliceSortConv: batch has shape {list(batch.shape)}, expected [{x.shape[0]}]"
            )
        bias = self.structural_bias
        if batch is None:
            ptr = torch.tensor([0, x.shape[0]], device=x.device)
        else:
            ptr = batch_to_ptr(batch)
        if bias is None:
            return self.mixer(x, ptr)
        if batch is not None:  # pairs are padded per graph, and the encoding counts empty ones
            graphs = int(batch[-1]) + 1 if encoding is None else encoding.edge_ptr.numel() - 1
            numbers = torch.arange(graphs + 1, device=batch.device, dtype=batch.dtype)
            ptr = torch.searchsorted(batch, numbers)
        if encoding is None:
            if batch is not None:  # edges are grouped by graph, as in a PyG batch
                order = torch.argsort(batch[edge_index[0]], stable=True)
                edge_index = edge_index[:, order]
                edge_attr = None if edge_attr is None else edge_attr[order]
            encoding = find_paths(edge_index, ptr, bias.max_distance, self.max_hops)
        return self.mixer(x, ptr, bias(encoding, ptr, edge_attr, self.mixer.kind.needs_softmax))

    def __repr__(self) -> str:
        mixer = self.mixer
        order = "" if mixer.order is None else f", order={mixer.order.name}, align={mixer.align}"
        return (
            f"{self.__class__.__name__}({self.channels}, heads={self.heads}, "
            f"mixer={mixer.mixer}{order})"
        )
