"""Attention along slices, and sorting in the attention slot of other libraries: PyG's GPSConv,
torch's encoder, timm's ViT."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn.attention import PerformerAttention

from slicegraph.nn.mixer import MIXERS, Mixer, SliceKernel, along_slices
from slicegraph.nn.packed import batch_to_ptr, check_batch, pack, scatter_rows
from slicegraph.nn.slice_sort import Layer, SliceSort, SliceSort2d, check_mask, masked_rows
from slicegraph.ops.layout import can_read

__all__ = [
    "MultiheadSliceSort",
    "SetMixer",
    "SliceAttention",
    "SliceAttention2d",
    "SliceSortAttention",
    "TokenSliceSort",
]


class SliceAttention(SliceSort):
    r"""Attention along learned slices: a :class:`~slicegraph.nn.SliceSort` whose sort is smooth.

    .. math:: Y = \mathrm{SliceKernel}(X \bar W_Q, X \bar W_K, X W_V) \, W_O

    with one scalar query and key for each row and slice, along directions :math:`\bar w = w / |w|`
    of length 1, and a learned width :math:`\tau` for each slice: :math:`\tau \to 0` leaves every
    row alone, :math:`\tau \to \infty` averages all rows. It takes :math:`O(N \log N)` time and
    :math:`O(N)` memory, is permutation-equivariant, and does not depend on padding or on the other
    sets of the batch.

    Args:
        in_channels: the size of each input row.
        out_channels: the size of each output row, and of the projected values; ``in_channels`` if
            None.
        slices: the number of slices, which divides ``out_channels``; with ``out_channels`` of them
            every channel has its own key.
        queries: whether the queries have their own projection; otherwise they are the keys.
        tau: the initial width, in units of the spread of the keys of normalised rows.
        kernel: ``"laplace"``, or ``"relu"`` for `Sliced ReLU attention
            <https://arxiv.org/abs/2512.11411>`_, which has no width.
        bias: whether the projections of values and output have a bias.
        out_proj: whether there is an output projection.

    Shapes:
        as in :class:`~slicegraph.nn.SliceSort`.

    Example:
        >>> layer = SliceAttention(16, 32, slices=8)
        >>> x = torch.randn(2, 5, 16)
        >>> mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
        >>> layer(x, mask).shape
        torch.Size([2, 5, 32])
        >>> layer(x[mask], batch=torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])).shape
        torch.Size([8, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        slices: int = 4,
        *,
        queries: bool = False,
        tau: float = 0.5,
        kernel: str = "laplace",
        bias: bool = True,
        out_proj: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, bias=bias, out_proj=out_proj)
        if slices < 1 or self.out_channels % slices:
            raise ValueError(
                f"SliceAttention: slices = {slices} does not divide out_channels = "
                f"{self.out_channels}"
            )
        # The same distance added to all queries and keys changes nothing: keys have no bias.
        self.key_proj = torch.nn.Linear(in_channels, slices, bias=False)
        self.query_proj = torch.nn.Linear(in_channels, slices) if queries else None
        self.kernel = SliceKernel(slices, tau, kernel)

    def mix(self, x: Tensor, lengths: Tensor | None = None, ptr: Tensor | None = None) -> Tensor:
        """Projects and averages the rows of each set."""
        queries = None if self.query_proj is None else along_slices(self.query_proj, x)
        keys, values = along_slices(self.key_proj, x), self.value_proj(x)
        return self.kernel(keys, values, queries, lengths=lengths, ptr=ptr)

    def __repr__(self) -> str:
        name, kernel = type(self).__name__, self.kernel
        queries = ", queries=True" if self.query_proj is not None else ""
        sizes = f"{self.in_channels}, {self.out_channels}, slices={kernel.slices}"
        return f"{name}({sizes}, kernel={kernel.kernel}{queries})"


class SliceAttention2d(SliceSort2d):
    r"""A :class:`~slicegraph.nn.SliceAttention` over the :math:`H \cdot W` positions of a feature
    map.

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the output, ``in_channels`` if not given.
        slices: the number of slices, which divides ``out_channels``.
        **options: ``queries``, ``tau``, ``kernel``, ``bias`` and ``out_proj`` of
            :class:`~slicegraph.nn.SliceAttention`.

    Shapes:
        as in :class:`~slicegraph.nn.SliceSort2d`.

    Example:
        >>> SliceAttention2d(16, 32)(torch.randn(2, 16, 8, 8)).shape
        torch.Size([2, 32, 8, 8])
    """

    def __init__(
        self, in_channels: int, out_channels: int | None = None, slices: int = 4, **options: Any
    ) -> None:
        super().__init__(in_channels, out_channels)
        self.positions = SliceAttention(in_channels, out_channels, slices, **options)


SET_MIXERS = {name: MIXERS[name] for name in ("quantile", "sort")}


class SetMixer(Mixer):
    r"""A :class:`~slicegraph.nn.Mixer` for sets without a graph, in :math:`O(N \log N)`.

    .. math::
        M = \begin{cases}
        \mathrm{Q}(V) & \text{quantile, equivariant} \\
        \mathrm{Sort}(V) & \text{sort, the paper's}
        \end{cases}

    where :math:`\mathrm{Q}` is a :class:`~slicegraph.nn.QuantileContext`.

    Example:
        >>> SetMixer(16)(torch.randn(5, 16), torch.tensor([0, 2, 5])).shape
        torch.Size([5, 16])
    """

    kinds = SET_MIXERS

    def __init__(self, channels: int, heads: int = 1, mixer: str = "quantile", **options: Any):
        super().__init__(channels, heads, mixer, **options)


class SliceSortAttention(PerformerAttention):
    r"""Sorting as the global attention of PyG's :class:`~torch_geometric.nn.conv.GPSConv`.

    .. math:: Y = \mathrm{Q}(X W_V) \, W_O, \quad
        \mathrm{Q}(v)_{ic} = v_{ic} + \sum_{j=0}^{k-1} w_{jc} \, Q_{j/(k-1)}(v_{1c}, \ldots, v_{nc})

    ``GPSConv`` chooses what to call by the class of its ``attn``, and skips a class that it does
    not know without an error. This one is a ``PerformerAttention`` by name only: it has the same
    call, and none of its parameters. With the default mixer it is permutation-equivariant.

    Args:
        channels: the size of each row.
        heads: as in ``PerformerAttention``; the channels are sorted one by one, whatever it is.
        mixer: ``"quantile"``, the formula above, or ``"sort"``, :math:`\mathrm{Sort}(X W_V) W_O`.
        dropout: the dropout probability of the output.
        **options: ``quantiles``, ``bias``; for ``"sort"`` also ``order``, ``align``
            (``"pivot"`` by default, see :class:`~slicegraph.nn.Mixer`), ``layer`` and
            ``num_layers``.

    Example:
        >>> conv = GPSConv(32, GCNConv(32, 32), heads=4)
        >>> conv.attn = SliceSortAttention(32)
        >>> x, edge_index = torch.randn(3, 32), torch.tensor([[0, 1], [1, 0]])
        >>> conv(x, edge_index, batch=torch.tensor([0, 0, 1])).shape
        torch.Size([3, 32])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        mixer: str = "quantile",
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        torch.nn.Module.__init__(self)  # without the parameters of a PerformerAttention
        options = {"align": "pivot"} | options  # which only a mixer with an order reads
        self.channels, self.heads, self.dropout = channels, heads, dropout
        self.mixer = SetMixer(channels, heads, mixer, **options)

    def forward(self, x: Tensor, mask: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Mixes the rows of each set.

        Args:
            x: ``[B, N, channels]``, dense sets, or ``[T, channels]``, packed ones.
            mask: ``[B, N]`` bool, true at the real rows of dense sets; all are if None. The other
                rows come out as zeros.
            batch: ``[T]``, ascending: the set of each packed row; one set if None.
        """
        size, dense = self.channels, x.dim() == 3
        if x.dim() not in (2, 3) or x.shape[-1] != size:
            raise ValueError(
                f"SliceSortAttention: x has shape {list(x.shape)}, expected [B, N, {size}] or "
                f"[T, {size}]"
            )
        if (mask if not dense else batch) is not None:
            raise ValueError(
                f"SliceSortAttention: {'batch' if dense else 'mask'} with x of shape "
                f"{list(x.shape)}, expected mask for [B, N, {size}] and batch for [T, {size}]"
            )
        if mask is not None:
            check_mask("SliceSortAttention", mask, x.shape[:2])
        if mask is not None and not can_read(mask):
            x = torch.where(mask.unsqueeze(-1), x, 0)
            out = masked_rows(lambda x, lengths: self.mixer(x, lengths=lengths), x, mask)
            out = torch.where(mask.unsqueeze(-1), out, 0)
            return functional.dropout(out, self.dropout, self.training)
        if batch is not None:
            check_batch("SliceSortAttention", batch, x)
            rows, ptr = x, batch_to_ptr(batch)
        else:
            rows, ptr = pack(x if dense else x.unsqueeze(0), mask)
        rows = functional.dropout(self.mixer(rows, ptr), self.dropout, self.training)
        if mask is not None:
            places = mask.flatten().nonzero().squeeze(1)
            rows = scatter_rows(rows, places, mask.numel())
        return rows.view(x.shape)

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        self.mixer.reset_parameters()

    _reset_parameters = reset_parameters  # the name that GPSConv calls

    def redraw_projection_matrix(self) -> None:
        """Does nothing: there are no random projections."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channels}, mixer={self.mixer.mixer})"


class MultiheadSliceSort(Layer):
    r"""A :class:`~slicegraph.nn.SliceSort` with the call of :class:`torch.nn.MultiheadAttention`,
    for the ``self_attn`` of a :class:`torch.nn.TransformerEncoderLayer`.

    .. math:: Y = \mathrm{Sort}_{\mathrm{col}}(X W_V + b_V) \, W_O + b_O

    Args:
        embed_dim: the size of each row.
        num_heads: as in ``MultiheadAttention``; the channels are sorted one by one, whatever it is.
        bias: whether the projections have a bias.
        batch_first: whether the input is ``[B, N, embed_dim]``, or ``[N, B, embed_dim]``.
        **options: ``order``, ``layer`` and ``num_layers`` of :class:`~slicegraph.nn.SliceSort`.

    Example:
        >>> layer = torch.nn.TransformerEncoderLayer(32, nhead=4, batch_first=True)
        >>> layer.self_attn = MultiheadSliceSort(32, order="interleave")
        >>> layer(torch.randn(2, 5, 32)).shape
        torch.Size([2, 5, 32])
    """

    # TransformerEncoderLayer looks at these before it calls the module, to use a kernel of its own.
    in_proj_bias = None
    _qkv_same_embed_dim = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.slice_sort = SliceSort(embed_dim, bias=bias, **options)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """Sorts the rows of each sequence, and returns them with None in place of weights.

        Args:
            query, key, value: three times the same, ``[B, N, embed_dim]`` or ``[N, embed_dim]``.
            key_padding_mask: ``[B, N]``, true (or -inf) at the padding, whose rows become zeros.
            need_weights, average_attn_weights: not used, as there are no weights.
            attn_mask, is_causal: refused, as there is no attention to mask.
        """
        name = type(self).__name__
        if query is not key or key is not value:
            raise ValueError(f"{name}: query, key and value differ; sorting has one input")
        if attn_mask is not None or is_causal:
            raise ValueError(f"{name}: attn_mask is given; sorting has no weights to mask")
        x = query if self.batch_first or query.dim() == 2 else query.transpose(0, 1)
        mask = None
        if key_padding_mask is not None:
            boolean = key_padding_mask.dtype == torch.bool
            mask = ~key_padding_mask if boolean else key_padding_mask == 0
        x = self.slice_sort(x, mask)
        return x if self.batch_first or query.dim() == 2 else x.transpose(0, 1), None


class TokenSliceSort(Layer):
    r"""A :class:`~slicegraph.nn.SliceSort` with the constructor of timm's attention layers, for
    ``attn_layer`` of its vision transformers (timm 1.0.23 and later).

    .. math:: Y = \mathrm{Sort}_{\mathrm{col}}(X W_V + b_V) \, W_O + b_O

    Args:
        dim: the size of each token.
        num_heads: as in timm; the channels are sorted one by one, whatever it is.
        qkv_bias, proj_bias: whether the value and the output projection have a bias.
        proj_drop: the dropout probability of the output.
        order: as in :class:`~slicegraph.nn.SliceSort`.
        device, dtype: of the parameters.
        **others: arguments of timm that concern queries and keys; ignored.

    Example:
        >>> model = timm.create_model("vit_tiny_patch16_224", attn_layer=TokenSliceSort)
        >>> model(torch.randn(1, 3, 224, 224)).shape
        torch.Size([1, 1000])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        qkv_bias: bool = False,
        proj_bias: bool = True,
        proj_drop: float = 0.0,
        order: str = "ascending",
        device: Any = None,
        dtype: Any = None,
        **others: Any,
    ) -> None:
        super().__init__()
        self.num_heads, self.proj_drop = num_heads, proj_drop
        self.slice_sort = SliceSort(dim, order=order, bias=qkv_bias, out_proj=False)
        self.proj = torch.nn.Linear(dim, dim, proj_bias)
        self.to(device=device, dtype=dtype)

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Sorts the tokens of each image.

        Args:
            x: ``[B, N, dim]``.
            attn_mask, is_causal: refused, as there is no attention to mask.
        """
        if attn_mask is not None or is_causal:
            raise ValueError("TokenSliceSort: attn_mask is given; sorting has no weights to mask")
        return functional.dropout(self.proj(self.slice_sort(x)), self.proj_drop, self.training)
