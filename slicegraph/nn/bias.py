"""S + E: the structure of a graph as a bias for each pair of its nodes, per attention head."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from slicegraph.nn.embedding import FeatureTable
from slicegraph.nn.packed import PaddedSets, token_ptr
from slicegraph.nn.slice_sort import BatchNorm, Layer
from slicegraph.ops.layout import can_read, on_cpu, set_of_row
from slicegraph.ops.mix import fuses_mix, mix_sets
from slicegraph.ops.operator import is_transformed, may_call_kernel
from slicegraph.ops.pairs import dropout as drop
from slicegraph.ops.pairs import pair_attention, pair_mix_op, pair_mix_through
from slicegraph.ops.paths import ShortestPaths, shortest_paths, structural_bias

PAIR_WEIGHTS: dict[str, Callable[[Tensor, PaddedSets], Tensor]] = {
    "softmax": lambda bias, sets: bias.softmax(-1),
    # A graph convolution: weights of any sign, and a mean over the rows of a set.
    "kernel": lambda bias, sets: (
        torch.where((sets.real.unsqueeze(1) & sets.real.unsqueeze(2)).unsqueeze(1), bias, 0)
        / sets.sizes.clamp(min=1).view(-1, 1, 1, 1)
    ),
}
"""The weights by which rows are mixed, from the bias of their pairs."""


class PairBias:
    r"""The output of :class:`~slicegraph.nn.StructuralBias`, shared by all layers of a model.

    .. math:: \mathrm{mix}(V) = \mathrm{softmax}(B) V, \quad
        \mathrm{attend}(Q, K, V) = \mathrm{softmax}(Q K^T / \sqrt{D} + B) \, V

    ``bias`` is ``[B, H, N, N]``, far below all other values where a column is padding. Its softmax,
    which only :meth:`mix` needs, is computed once for all layers. If ``layers`` has a tensor of the
    same shape for each layer, it is added to the bias of this layer alone. ``kind`` chooses other
    weights than the softmax, one of :obj:`PAIR_WEIGHTS`.
    """

    def __init__(
        self,
        bias: Tensor,
        sets: PaddedSets,
        softmax: bool = True,
        *,
        layers: Sequence[Tensor] = (),
        kind: str = "softmax",
    ) -> None:
        self.bias, self.sets, self.softmax = bias, sets, softmax
        self.layers, self.kind, self.weights = layers, kind, None
        self.fused = softmax and kind == "softmax" and fuses_mix(bias, product_type(bias))
        if not layers:  # in the type of the products: one cast for all layers, and one backward
            dtype = product_type(bias)
            if self.fused:
                pass  # the kernel of each layer computes its softmax
            elif softmax:
                self.weights = PAIR_WEIGHTS[kind](bias, sets).to(dtype)
            else:
                self.bias = _cast(bias, dtype)

    def for_layer(self, number: int) -> "PairBias":
        """Returns the bias of a layer, from 0; the same for all layers unless each has its own."""
        if not self.layers:
            return self
        return PairBias(self.bias + self.layers[number], self.sets, self.softmax, kind=self.kind)

    def fuses(self, values: Tensor) -> bool:
        """Whether :meth:`mix` is one kernel, which can sort the rows or read quantiles as well."""
        return self.fused and values.dim() == 3

    def mix(self, values: Tensor, dropout: float = 0.0, **reading: Any) -> Tensor:
        """Averages ``values``, packed ``[T, C]`` or dense ``[B, N, C]``; each head has its part of
        the channels. If it :meth:`fuses`, ``reading`` are options of
        :func:`slicegraph.ops.dense_mix`."""
        if self.fuses(values):
            # The next layer goes on from here, so that the gradients of all layers add up.
            out, self.bias = mix_sets(values, self.bias, self.sets.sizes, p=dropout, **reading)
            return out
        if self.fused and self.weights is None:
            self.weights = PAIR_WEIGHTS[self.kind](self.bias, self.sets)
        if self.weights is None:
            raise ValueError("PairBias: mix needs the weights; make it with softmax=True")
        if values.dim() == 3:
            weights = drop(self.weights.to(values.dtype), dropout)
            heads = values.unflatten(2, (weights.shape[1], -1)).transpose(1, 2)
            return torch.matmul(weights, heads).transpose(1, 2).flatten(2)
        # The sets are right by construction: no check, which would wait for a GPU.
        if not dropout and self.weights.dtype == values.dtype:
            out, self.weights = pair_mix_through(self.weights, values, self.sets.ptr)
            return out
        weights = drop(self.weights.to(values.dtype), dropout)
        return pair_mix_op(weights, values, self.sets.ptr, False)

    def attend(self, qkv: Tensor, dropout: float = 0.0) -> Tensor:
        """Computes attention within each set from ``qkv`` ``[T, 3 C]`` or ``[B, N, 3 C]``,
        concatenated."""
        bias = _cast(self.bias, qkv.dtype)
        if qkv.dim() == 3:
            return self._dense_attention(qkv, bias, dropout)
        # Torch's attention is slower on a CPU with dropout: step by step, and with padding.
        if may_call_kernel("pair_attention", qkv) or (dropout and on_cpu(qkv)) or is_transformed():
            out, bias = pair_attention(qkv, bias, self.sets.ptr, dropout)
            # The next layer goes on from here, so that the gradients of all layers add up in place.
            self.bias = bias if bias.dtype == self.bias.dtype else self.bias
            return out
        return self._dense_attention(qkv, bias, dropout)

    def _dense_attention(self, qkv: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        packed = qkv.dim() == 2
        q, k, v = (
            (self.sets.pad(part) if packed else part)
            .unflatten(-1, (self.bias.shape[1], -1))
            .transpose(1, 2)
            for part in qkv.chunk(3, -1)
        )
        # Of torch's kernels, only this one has all derivatives.
        with sdpa_kernel(SDPBackend.MATH) if is_transformed() else nullcontext():
            out = functional.scaled_dot_product_attention(q, k, v, mask, dropout)
        out = out.transpose(1, 2).flatten(2)
        return self.sets.unpad(out) if packed else out


class SetAttention(PairBias):
    r"""Attention without a bias, :math:`\mathrm{softmax}(Q K^T / \sqrt{D}) V`, within each set.

    It stores nothing of the size of all pairs, and sets of one size need no mask. ``like`` has the
    dtype and the device of the rows.
    """

    def __init__(self, sets: PaddedSets, heads: int, like: Tensor) -> None:
        super().__init__(like.new_empty(0, heads), sets, softmax=False)  # no values, only heads
        # The padding of a set without rows attends to itself: a softmax over nothing is NaN.
        seen = sets.real | (sets.sizes == 0).unsqueeze(-1)
        self.mask = None if sets.full else seen[:, None, None]

    def attend(self, qkv: Tensor, dropout: float = 0.0) -> Tensor:
        """Computes attention within each set from ``qkv`` ``[T, 3 C]`` or ``[B, N, 3 C]``,
        concatenated."""
        return self._dense_attention(qkv, self.mask, dropout)


def padding_value(dtype: torch.dtype) -> float:
    """Returns a number that is 0 after softmax and does not overflow when scores are added."""
    return torch.finfo(dtype).min / 2


def product_type(x: Tensor) -> torch.dtype:
    """Returns the type in which products of `x` are computed, with autocast or without."""
    device = x.device.type
    enabled = x.is_floating_point() and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if enabled else x.dtype


def _cast(bias: Tensor, dtype: torch.dtype) -> Tensor:
    if bias.dtype == dtype:
        return bias
    return bias.clamp(min=padding_value(dtype)).to(dtype)  # a row of -inf has no softmax


class PathBias(Layer):
    """Multiplies every edge by every :math:`W_k` of :class:`StructuralBias`."""

    def __init__(self, heads: int, blocks: int, table: FeatureTable | None, edge_dim: int) -> None:
        super().__init__()
        self.edge_table, self.edge_dim = table, edge_dim
        self.weight = torch.nn.Parameter(torch.empty(blocks, edge_dim, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters, with the standard deviation of Graphormer's."""
        torch.nn.init.normal_(self.weight, std=0.02)
        super().reset_parameters()

    def forward(self, edge_attr: Tensor, max_hops: int, empty_hops: bool) -> Tensor:
        """Returns ``[E, max_hops, heads]``; with ``empty_hops``, one more row for empty slots.

        Args:
            edge_attr: ``[E, F]``, the edge features.
            max_hops: how many edges of a path count.
            empty_hops: whether the slots after the last edge of a path count too.
        """
        if self.edge_table is not None:
            edges = self.edge_table(edge_attr)
        else:
            edges = edge_attr.to(self.weight.dtype)
            edges = edges.unsqueeze(-1) if edges.dim() == 1 else edges
            if edges.dim() != 2 or edges.shape[1] != self.edge_dim:
                shape, expected = list(edge_attr.shape), f"[E, {self.edge_dim}]"
                raise ValueError(f"PathBias: edge_attr has shape {shape}, expected {expected}")
        if empty_hops and self.edge_table is not None:
            # Graphormer v1 adds its padding row, but never trains it.
            edges = torch.cat([edges, self.edge_table.weight[:1].detach()])
        weight = self.weight[:max_hops].transpose(0, 1).flatten(1)
        return (edges @ weight).unflatten(-1, (max_hops, self.weight.shape[2]))


class WalkBias(Layer):
    r"""R: a bias for each pair from its random-walk probabilities, per head and per layer.

    .. math:: r_{ij} = W_2 \, \mathrm{GELU}(W_1 \hat{p}_{ij} + b_1)

    where :math:`\hat{p}` are the probabilities of :func:`slicegraph.ops.paths.random_walks`, each
    standardised by the mean and deviation of the training batches. Only :math:`W_2` differs from
    layer to layer.

    Args:
        heads: the number of heads.
        length: the number of probabilities of a pair.
        layers: how many layers get a bias of their own.
        channels: the size of the hidden vector.

    Shapes:
        - **walks**: ``[P, length]``, the pairs of all graphs one after the other; **sets**: the
          padded layout of their rows, where **token** is whether each graph has one row more.
        - **output**: for each layer ``[B, heads, N, N]``.
    """

    def __init__(self, heads: int, length: int, layers: int = 1, channels: int = 32) -> None:
        super().__init__()
        self.heads, self.layers = heads, layers
        self.norm = BatchNorm(length, affine=False)
        self.inner = torch.nn.Linear(length, channels)
        self.outer = torch.nn.Linear(channels, layers * heads, bias=False)

    def forward(self, walks: Tensor, sets: PaddedSets, token: bool) -> tuple[Tensor, ...]:
        """Computes the bias of each layer.

        Args:
            walks: ``[P, length]``, the probabilities of all pairs.
            sets: the padded layout of the rows of each graph.
            token: whether each graph has one row more than nodes.
        """
        n = sets.length
        # The walks are data: they are padded before the first product, which needs no gradient.
        rows = self.norm(walks.to(self.inner.weight.dtype))
        padded = rows.new_zeros(sets.num_sets * n * n, rows.shape[1])
        padded.index_copy_(0, pair_slots(sets, token, rows.shape[0]), rows)
        hidden = functional.gelu(self.inner(padded.view(sets.num_sets, n * n, -1)))
        # Torch would compute `weight @ hidden` as one product and transpose its large result.
        weight = self.outer.weight.expand(sets.num_sets, -1, -1)
        out = torch.bmm(weight, hidden.transpose(1, 2))
        return out.view(sets.num_sets, self.layers, self.heads, n, n).unbind(1)


def pair_slots(sets: PaddedSets, token: bool, num_pairs: int) -> Tensor:
    """Returns where the pairs of all graphs are in a flat ``[B, N, N]``; a token has none."""
    sizes, n = sets.sizes - int(token), sets.length
    num_nodes = sets.num_rows - int(token) * sets.num_sets
    graph = set_of_row(functional.pad(sizes.cumsum(0), (1, 0)), num_nodes)
    row = torch.arange(num_nodes, device=sizes.device) - (sizes.cumsum(0) - sizes)[graph]
    start = (graph * n + row + int(token)) * n + int(token)
    pairs = sizes[graph]  # of each node
    first = start - (pairs.cumsum(0) - pairs)
    each = torch.arange(num_pairs, device=sizes.device)
    return each + first.repeat_interleave(pairs, output_size=num_pairs)


class StructuralBias(Layer):
    r"""The spatial and edge encoding of `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_ (Graphormer): S + E, per head.

    .. math:: b_{ij} = S[d_{ij}] + \frac{1}{\max(1, \min(d_{ij}, K))}
        \sum_{k=1}^{\min(d_{ij}, K)} e_{ij}^{(k)} W_k

    where :math:`d_{ij}` is the distance from node i to node j and :math:`e_{ij}^{(k)}` describes
    the k-th edge of a shortest path: its float features, or the average of the vectors of its
    categories.

    Args:
        heads: the number of heads.
        max_distance: longer distances share this entry; unreachable pairs have their own.
        max_hops: how many edges of a path count, :math:`K`.
        edge_vocabulary: the number of categories of each edge feature, for categorical ones.
        edge_dim: the number of floating-point edge features. With neither, E is left out.
        token: whether every graph has a token as its first row, at a virtual distance of its own.
        hop_blocks: how many :math:`W_k` to store, ``max_hops`` if None; Graphormer v1 stores 128.
        padding_row: whether the tables begin with a row for padding, as in Graphormer v1.
        empty_hops: whether the slots after a path's last edge add the edge table's padding row, as
            in Graphormer v1.
        walk_length: how many random-walk probabilities of a pair to read, by a :class:`WalkBias`
            that is added to the bias; 0 for none.
        layers: how many layers have a :class:`WalkBias` of their own; 0 if they share one.
        weights: ``"softmax"``; or ``"kernel"``, the bias itself over the number of rows, as in
            `"CKGConv: General Graph Convolution with Continuous Kernels"
            <https://arxiv.org/abs/2404.13604>`_.

    Shapes:
        - **encoding**: from :func:`slicegraph.ops.paths.shortest_paths`, with at least
          ``max_hops`` hops and a ``max_distance`` of at least this one's.
        - **ptr**: ``[B + 1]``, the nodes of each graph; **edge_attr**: ``[E, F]``.
        - **output**: a :class:`~slicegraph.nn.PairBias` for sets of ``n`` rows, or ``n + 1`` with a
          token.

    Example:
        >>> edge_index, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 2, 3])
        >>> encoding = shortest_paths(edge_index, ptr)
        >>> StructuralBias(heads=4, token=True)(encoding, ptr).bias.shape
        torch.Size([2, 4, 3, 3])
    """

    def __init__(
        self,
        heads: int,
        max_distance: int = 254,
        max_hops: int = 5,
        edge_vocabulary: Sequence[int] | None = None,
        *,
        edge_dim: int | None = None,
        token: bool = False,
        hop_blocks: int | None = None,
        padding_row: bool = False,
        empty_hops: bool = False,
        walk_length: int = 0,
        layers: int = 0,
        weights: str = "softmax",
    ) -> None:
        super().__init__()
        self._check_choice("weights", weights, PAIR_WEIGHTS)
        self.weights = weights
        if not 0 <= max_hops <= max_distance:
            raise ValueError(
                f"StructuralBias: max_hops = {max_hops} is not in 0..max_distance = {max_distance}"
            )
        self.heads, self.max_distance, self.max_hops = heads, max_distance, max_hops
        self.padding_row, self.empty_hops = padding_row, empty_hops
        self.distance = torch.nn.Parameter(torch.empty(max_distance + 2 + padding_row, heads))
        self.virtual_distance = torch.nn.Parameter(torch.empty(1, heads)) if token else None
        self.path_bias = None
        if max_hops > 0 and (edge_vocabulary or edge_dim):
            blocks, table = max_hops if hop_blocks is None else hop_blocks, None
            if max_hops > blocks:
                raise ValueError(
                    f"StructuralBias: max_hops = {max_hops} exceeds hop_blocks = {blocks}"
                )
            if edge_vocabulary and edge_dim:
                raise ValueError(
                    f"StructuralBias: edge_vocabulary = {edge_vocabulary} and edge_dim = "
                    f"{edge_dim}, expected one of them"
                )
            if empty_hops and not (edge_vocabulary and padding_row):
                raise ValueError("StructuralBias: empty_hops needs edge_vocabulary and padding_row")
            if edge_vocabulary:
                table = FeatureTable(edge_vocabulary, heads, mean=True, padding_row=padding_row)
            self.path_bias = PathBias(heads, blocks, table, edge_dim or heads)
        self.walk_length, self.own_layers = walk_length, layers > 0
        self.walk_bias = WalkBias(heads, walk_length, max(1, layers)) if walk_length else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters, with the standard deviation of Graphormer's."""
        torch.nn.init.normal_(self.distance, std=0.02)
        torch.nn.init.zeros_(self.distance[: int(self.padding_row)])
        if self.virtual_distance is not None:
            torch.nn.init.normal_(self.virtual_distance, std=0.02)
        super().reset_parameters()

    def find_paths(
        self, edge_index: Tensor, ptr: Tensor, num_pairs: int | None = None
    ) -> ShortestPaths:
        """Computes the encoding of a batch on the CPU, and moves it to the device of ``ptr``.

        Args:
            edge_index: ``[2, E]``, grouped by graph as in a PyG ``Batch``.
            ptr: ``[B + 1]``, the nodes of each graph.
            num_pairs: as in :func:`slicegraph.ops.shortest_paths`.
        """
        hops = max(1, self.max_hops)  # without a first hop there is no path
        edge_index, device, ptr = edge_index.cpu(), ptr.device, ptr.cpu()
        if can_read(ptr) and len(ptr) > 1:
            sizes = ptr.diff()
            self._check_memory(device, len(sizes), int(sizes.max()), int(ptr[-1]), sizes, hops)
        found = shortest_paths(edge_index, ptr, self.max_distance, hops, num_pairs)
        distance, path, pair_ptr, edge_ptr = (x.to(device) for x in found[:4])
        return ShortestPaths(distance, path, pair_ptr, edge_ptr, found.max_nodes)

    def forward(
        self,
        encoding: ShortestPaths,
        ptr: Tensor,
        edge_attr: Tensor | None = None,
        softmax: bool = True,
        values: Tensor | None = None,
        walks: Tensor | None = None,
        sets: PaddedSets | None = None,
    ) -> PairBias:
        """Computes S + E of each graph.

        Args:
            encoding: the distances and paths of all pairs of nodes.
            ptr: ``[B + 1]``, the nodes of each graph.
            edge_attr: ``[E, F]``, the edge features.
            softmax: whether to compute the softmax of the bias; ``"qkv"`` does not need it.
            values: ``[P, heads]``, added to the pairs, which are in the order of
                :func:`slicegraph.nn.all_pairs`.
            walks: ``[P, walk_length]`` or more columns, their random-walk probabilities, if these
                are read.
            sets: the padded layout of the rows of each graph, with the token if there is one;
                found out from ``ptr`` if None, which waits for a GPU.
        """
        ptr, paths, token = ptr.long(), self.path_bias, self.virtual_distance is not None
        if sets is None:
            sets = PaddedSets(token_ptr(ptr) if token else ptr)
        pairs, hops = encoding.distance.shape[0], encoding.path.shape[1]
        nodes = sets.num_rows - token * sets.num_sets
        self._check_memory(ptr.device, sets.num_sets, sets.length, nodes, pairs, 0, softmax)
        found = [pairs, encoding.path.shape[0]]
        pairs = int(ptr.diff().square().sum()) if can_read(ptr) else pairs
        if found != [pairs, pairs]:
            raise ValueError(
                f"StructuralBias: {found} distances and paths, expected {pairs}, one for each pair"
            )
        if paths is not None and hops < self.max_hops:
            raise ValueError(
                f"StructuralBias: the encoding has paths of {hops} hops, expected at least "
                f"max_hops = {self.max_hops}"
            )
        table = self.distance[int(self.padding_row) :]
        if self.virtual_distance is not None:
            table = torch.cat([table, self.virtual_distance])
        if paths is None:
            products = table.new_zeros(0, 0, self.heads)
        elif edge_attr is None:
            raise ValueError("StructuralBias: edge_attr is missing, expected edge features")
        else:
            products = paths(edge_attr, self.max_hops, self.empty_hops).to(table.dtype)
        bias = structural_bias(
            table,
            products,
            encoding,
            ptr,
            length=sets.length,
            max_distance=self.max_distance,
            token=token,
            empty=paths is not None and self.empty_hops,
            padding=padding_value(table.dtype),
        )
        if values is not None:
            self._check_shape("values", values, pairs, self.heads)
            dense = bias.new_zeros(sets.num_sets * sets.length**2, self.heads)
            dense = dense.index_copy(0, pair_slots(sets, token, pairs), values.to(bias.dtype))
            bias = bias + dense.view(-1, sets.length, sets.length, self.heads).permute(0, 3, 1, 2)
        if self.walk_bias is None:
            return PairBias(bias, sets, softmax, kind=self.weights)
        walks = None if walks is None else walks[:, : self.walk_length]
        self._check_shape("walks", walks, pairs, self.walk_length)
        added = self.walk_bias(walks, sets, token)
        if self.own_layers:
            return PairBias(bias, sets, softmax, layers=added, kind=self.weights)
        return PairBias(bias + added[0], sets, softmax, kind=self.weights)

    def _check_memory(
        self,
        device: torch.device,
        graphs: int,
        largest: int,
        nodes: int,
        pairs: int | Tensor,
        hops: int,
        softmax: bool = False,
    ) -> None:
        """Raises if the pairs of the graphs need more memory than the device has.

        That is memory for the first edges of every path if there are ``hops``, and for the bias,
        twice with its softmax. ``pairs`` is their number, or the nodes of each graph.
        """
        if torch.compiler.is_compiling():
            return
        pairs = int(pairs.square().sum()) if isinstance(pairs, Tensor) else pairs
        # Distances and paths of all pairs, then the bias, padded to the largest graph.
        bias = self.heads * graphs * largest**2 * self.distance.dtype.itemsize
        needed = pairs * (1 + 2 * hops) * (hops > 0) + (1 + softmax) * bias
        if needed < _SMALL or needed <= (free := _free_memory(device)):
            return
        raise MemoryError(
            f"StructuralBias: {nodes:,} nodes (at most {largest:,} in a graph) have {pairs:,} "
            f"pairs, which need at least {needed / 1e9:,.0f} GB; {free / 1e9:,.0f} GB are free on "
            f'{device}. mixer="sort" needs no pairs; or take smaller graphs, or fewer in a batch'
        )

    def _check_shape(self, name: str, of_pairs: Tensor | None, *expected: int) -> None:
        if of_pairs is None or of_pairs.shape != expected:
            shape = None if of_pairs is None else list(of_pairs.shape)
            raise ValueError(f"StructuralBias: {name} has shape {shape}, expected {list(expected)}")


_SMALL = 1 << 28  # bytes that are not worth the time to look at the memory


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil  # which PyG needs, and which takes time to import

    return psutil.virtual_memory().available + psutil.swap_memory().free
