"""The Sliceformer's graph layer for any PyG model, and a container that hands `batch` on."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn.inits import reset
from torch_geometric.nn.resolver import activation_resolver, normalization_resolver
from torch_geometric.utils import is_sparse

from slicegraph.nn.attention import SliceSortAttention
from slicegraph.nn.bias import StructuralBias
from slicegraph.nn.mixer import Mixer
from slicegraph.nn.packed import PaddedSets, batch_to_ptr, check_batch
from slicegraph.nn.slice_sort import Layer
from slicegraph.ops.layout import can_read
from slicegraph.ops.paths import ShortestPaths

__all__ = ["GPSLayer", "SliceSortConv"]


class SliceSortConv(Layer):
    r"""The graph layer of the `Sliceformer: Make Multi-head Attention as Simple as Sorting in
    Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper, with a mixer that does not
    depend on the numbers of the nodes.

    .. math:: Y = \mathrm{Q}(\mathrm{softmax}(S + E) \, X W_V) \, W_O

    with S the distances and E the edges along the shortest paths, see
    :class:`~slicegraph.nn.StructuralBias`, and Q the sorted channels read at some quantiles, see
    :class:`~slicegraph.nn.QuantileContext`. The formula of the paper, with Sort in place of Q, is
    ``mixer="sort_attn"``.

    The mixers that do not sort, such as ``"quantile_attn"`` and ``"slice_attn"``, are
    permutation-equivariant. Those that sort are not with ``align="rows"``, where the j-th value of
    every channel lands at the j-th node of its graph: number the nodes in a canonical way. With
    ``align="pivot"`` it lands at the node that ranks j-th in channel 0, which is equivariant unless
    values of channel 0 tie, as they do for symmetric nodes. Edge features are taken along one
    shortest path, and where several are equally short the numbers of the nodes choose between them.

    .. note::
        Without ``batch`` all nodes are one graph: the layer mixes every pair of nodes, so it cannot
        tell the graphs of a batch apart by their edges. PyG's ``GPSConv`` and ``BasicGNN`` do not
        hand ``batch`` on to their convolutions; use :class:`~slicegraph.nn.GPSLayer`, or PyG's
        ``Sequential("x, edge_index, edge_attr, batch", ...)``.

    Args:
        in_channels: the size of each input row; -1 to read it off the first input.
        out_channels: the size of each output row; ``in_channels`` if None.
        heads: the number of heads, which divides ``out_channels``.
        edge_dim: the number of edge features, for floating-point ``edge_attr``.
        edge_vocabulary: the number of categories of each edge feature, for categorical ones.
        mixer: the formula, see :class:`~slicegraph.nn.Mixer`. ``"sort"``, ``"quantile"`` and
            ``"slice"`` ignore edges and take :math:`O(N \log N)`; the others take memory for every
            pair of nodes.
        max_distance: longer distances count as this one.
        max_hops: how many edges of a path count.
        **options: ``order``, ``align``, ``layer``, ``num_layers``, ``bias``, ``dropout`` and
            ``quantiles``, see :class:`~slicegraph.nn.Mixer`.

    Shapes:
        - **x**: ``[N, in_channels]``; **edge_index**: ``[2, E]``; **edge_attr**: ``[E, F]``.
        - **output**: ``[N, out_channels]``.

    Example:
        >>> conv = SliceSortConv(16, 32, heads=4, edge_dim=3)
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> conv(torch.randn(3, 16), edge_index, torch.randn(4, 3)).shape
        torch.Size([3, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        heads: int = 1,
        edge_dim: int | None = None,
        *,
        edge_vocabulary: Sequence[int] | None = None,
        mixer: str = "quantile_attn",
        max_distance: int = 254,
        max_hops: int = 5,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(in_channels, int):
            raise ValueError(
                f"SliceSortConv: in_channels = {in_channels!r}, expected a number: every node is "
                "mixed with every other, so there are no bipartite graphs"
            )
        if out_channels is None:
            if in_channels == -1:
                raise ValueError("SliceSortConv: in_channels = -1 needs out_channels")
            out_channels = in_channels
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.reads_edges = bool(edge_dim or edge_vocabulary)
        self.mixer = Mixer(in_channels, heads, mixer, out_channels=out_channels, **options)
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
        *,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Mixes the nodes of each graph.

        Args:
            x: ``[N, in_channels]``, the nodes.
            edge_index: ``[2, E]``, the edges.
            edge_attr: ``[E, F]``, the edge features, if ``edge_dim`` or ``edge_vocabulary`` is
                given.
            batch: ``[N]``, ascending: the graph of each node. One graph if None.
            encoding: from :func:`slicegraph.ops.shortest_paths`, computed if None. Layers of one
                model can share it.
            edge_weight: refused: weights are edge features, ``edge_weight.unsqueeze(-1)`` with
                ``edge_dim=1``.
        """
        self._check(x, edge_index, edge_attr, batch, edge_weight)
        if self.in_channels == -1:
            m = self.mixer
            for linear in (m.value_proj, m.query_proj, m.key_proj, m.slice_proj):
                if linear is not None:
                    linear(x[:0])  # takes the size
            self.in_channels = self.mixer.channels = x.shape[1]
        bias = self.structural_bias
        if batch is None:
            ptr, pairs = torch.tensor([0, x.shape[0]], device=x.device), x.shape[0] ** 2
        else:
            ptr, pairs = batch_to_ptr(batch), None
        if bias is None:
            return self.mixer(x, ptr)
        packed = can_read(x) or x.shape[0] == 0  # there is no set to pad
        # Pairs are padded per graph, and a given encoding counts graphs without nodes too.
        if batch is not None and not (packed and encoding is None):
            graphs = int(batch[-1]) + 1 if encoding is None else encoding.edge_ptr.numel() - 1
            numbers = torch.arange(graphs + 1, device=batch.device, dtype=batch.dtype)
            ptr = torch.searchsorted(batch, numbers)
        if encoding is None:
            if batch is not None:  # edges are grouped by graph, as in a PyG batch
                order = torch.argsort(batch[edge_index[0]], stable=True)
                edge_index = edge_index[:, order]
                edge_attr = None if edge_attr is None else edge_attr[order]
            encoding = bias.find_paths(edge_index, ptr, pairs)
        if packed:
            return self.mixer(x, ptr, bias(encoding, ptr, edge_attr, self.mixer.kind.needs_softmax))
        length = x.shape[0] if batch is None else encoding.max_nodes
        sets = PaddedSets(ptr, length, x.shape[0])
        found = bias(encoding, ptr, edge_attr, self.mixer.kind.needs_softmax, sets=sets)
        return sets.unpad(self.mixer(sets.pad(x), pairs=found, lengths=sets.lengths))

    def _check(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None,
        batch: Tensor | None,
        edge_weight: Tensor | None,
    ) -> None:
        problem = None
        if not isinstance(x, Tensor):
            problem = (
                f"x is a {type(x).__name__}, expected one tensor: there are no bipartite graphs"
            )
        elif is_sparse(edge_index):
            problem = (
                "edge_index is a sparse adjacency matrix, expected [2, E]; "
                "torch_geometric.utils.to_edge_index(adj) makes one"
            )
        elif self.structural_bias is not None and not isinstance(edge_index, Tensor):
            problem = f"edge_index is a {type(edge_index).__name__}, expected a tensor [2, E]"
        elif edge_weight is not None:
            problem = (
                "edge_weight is given; weights are edge features: "
                "edge_attr=edge_weight.unsqueeze(-1) with edge_dim=1"
            )
        elif x.dim() != 2 or (self.in_channels != -1 and x.shape[1] != self.in_channels):
            problem = f"x has shape {list(x.shape)}, expected [N, {self.in_channels}]"
        elif edge_attr is not None and edge_attr.dim() == 1 and not edge_attr.is_floating_point():
            problem = (
                f"edge_attr is {edge_attr.dtype} of shape {list(edge_attr.shape)}, expected "
                "[E, F]; give the graphs of the nodes by name, as batch=batch"
            )
        elif edge_attr is not None and not self.reads_edges:
            problem = (
                f"edge_attr of shape {list(edge_attr.shape)} is given, and the layer was made "
                "without edge_dim (floating-point features) and edge_vocabulary (categories)"
            )
        elif edge_attr is not None and edge_attr.shape[0] != edge_index.shape[-1]:
            problem = (
                f"edge_attr has shape {list(edge_attr.shape)}, expected a row for each of the "
                f"{edge_index.shape[-1]} edges"
            )
        if problem is not None:
            raise ValueError(f"SliceSortConv: {problem}")
        if batch is not None:
            check_batch("SliceSortConv", batch, x)

    def __repr__(self) -> str:
        mixer = self.mixer
        order = "" if mixer.order is None else f", order={mixer.order.name}, align={mixer.align}"
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, "
            f"heads={self.heads}, mixer={mixer.mixer}{order})"
        )


class GPSLayer(Layer):
    r"""The layer of `"Recipe for a General, Powerful, Scalable Graph Transformer"
    <https://arxiv.org/abs/2205.12454>`_ with sorting as its global part.

    .. math::
        X_M &= \mathrm{norm}(X + \mathrm{conv}(X, A)) \\
        X_T &= \mathrm{norm}(X + \mathrm{attn}(X)) \\
        Y &= \mathrm{norm}(X_M + X_T + \mathrm{MLP}(X_M + X_T))

    PyG's ``GPSConv`` does the same, but does not hand ``batch`` on to its convolution, so that a
    convolution that mixes all nodes of a graph would mix the graphs of a batch. Here every part
    whose ``forward`` has an argument ``batch`` receives it.

    Args:
        channels: the size of each row.
        conv: any PyG layer from ``channels`` to ``channels``, such as ``GINEConv`` or
            :class:`~slicegraph.nn.SliceSortConv`; no local part if None.
        attn: a module that is called as ``attn(x, batch=batch)``;
            :class:`~slicegraph.nn.SliceSortAttention` if None.
        dropout: the dropout probability of all parts.
        act, norm: activation and norm, as in PyG's ``GPSConv``.
        norm_kwargs: further arguments of the norms.

    Shapes:
        - **x** and **output**: ``[N, channels]``; **edge_index**: ``[2, E]``.

    Example:
        >>> layer = GPSLayer(32, SliceSortConv(32, heads=4))
        >>> x, edge_index = torch.randn(3, 32), torch.tensor([[0, 1], [1, 0]])
        >>> layer(x, edge_index, batch=torch.tensor([0, 0, 1])).shape
        torch.Size([3, 32])
    """

    def __init__(
        self,
        channels: int,
        conv: torch.nn.Module | None = None,
        attn: torch.nn.Module | None = None,
        dropout: float = 0.0,
        *,
        act: str | Callable = "relu",
        norm: str | None = "batch_norm",
        norm_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.channels, self.dropout = channels, dropout
        self.conv = conv
        self.attn = SliceSortAttention(channels) if attn is None else attn
        if not _takes_batch(self.attn):
            name = type(self.attn).__name__
            raise TypeError(f"GPSLayer: attn is a {name}, whose forward has no argument batch")
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(channels, 2 * channels),
            activation_resolver(act),
            torch.nn.Dropout(dropout),
            torch.nn.Linear(2 * channels, channels),
            torch.nn.Dropout(dropout),
        )
        self.local_norm = None if conv is None else _norm(norm, channels, norm_kwargs)
        self.attn_norm = _norm(norm, channels, norm_kwargs)
        self.mlp_norm = _norm(norm, channels, norm_kwargs)

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        for part in self.children():
            reset(part)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        """Mixes the nodes of each graph, locally and globally.

        Args:
            x: ``[N, channels]``, the nodes.
            edge_index: ``[2, E]``, the edges.
            batch: ``[N]``, ascending: the graph of each node. One graph if None.
            **kwargs: further arguments of the convolution, such as ``edge_attr``.
        """
        mixed = x + self._drop(self.attn(x, batch=batch))
        out = _apply(self.attn_norm, mixed, batch)
        if self.conv is not None:
            if _takes_batch(self.conv):
                kwargs["batch"] = batch
            local = x + self._drop(self.conv(x, edge_index, **kwargs))
            out = out + _apply(self.local_norm, local, batch)
        return _apply(self.mlp_norm, out + self.mlp(out), batch)

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout, self.training)


def _takes_batch(module: torch.nn.Module) -> bool:
    kind: Any = type(module)
    return _has_batch(kind)


@functools.cache
def _has_batch(kind: Any) -> bool:
    return "batch" in inspect.signature(kind.forward).parameters


def _norm(norm: str | None, channels: int, options: dict[str, Any] | None) -> Any:
    return None if norm is None else normalization_resolver(norm, channels, **(options or {}))


def _apply(norm: torch.nn.Module | None, x: Tensor, batch: Tensor | None) -> Tensor:
    if norm is None:
        return x
    return norm(x, batch=batch) if _takes_batch(norm) else norm(x)
