"""The base class of all layers, the sorting orders, and the Sliceformer's replacement of attention
for sequences, sets and feature maps."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn.inits import reset

from slicegraph.nn.packed import batch_to_ptr, check_batch, gather_rows, scatter_rows, to_front
from slicegraph.ops.layout import can_read, set_of_row
from slicegraph.ops.pairs import dropout_add_norm
from slicegraph.ops.sort import interleave_descending, sort_columns
from slicegraph.ops.sort import max_exchange_op as swap_maximum


class LayerNorm(torch.nn.LayerNorm):
    """Torch's layer norm, which can also add a branch to its input first."""

    def forward(self, x: Tensor, branch: Tensor | None = None, dropout: float = 0.0) -> Any:
        """Normalises rows.

        Args:
            x: ``[..., channels]``, the rows.
            branch: like ``x``; then the output is a pair, the sum of both and its norm.
            dropout: the probability with which an entry of the branch is dropped.
        """
        if branch is None:
            return super().forward(x)
        return dropout_add_norm(branch, x, dropout, self.weight, self.bias, self.eps)


class BatchNorm(torch.nn.BatchNorm1d):
    """Torch's batch norm over the rows of all sets of a batch. A single row, which has no
    deviation, is normalised by the running means, which it does not change."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalises rows.

        Args:
            x: ``[T, channels]``, the rows.
        """
        if self.training and x.shape[0] < 2:
            means = self.running_mean, self.running_var
            return functional.batch_norm(x, *means, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


NORMS: dict[str, type[torch.nn.Module]] = {"layer": LayerNorm, "batch": BatchNorm}


class Layer(torch.nn.Module):
    """A module with the ``reset_parameters`` of PyG's layers."""

    def __init__(self) -> None:
        super().__init__()
        if type(self).fill_buffers is not Layer.fill_buffers:
            self.register_load_state_dict_post_hook(_fill_buffers)

    def fill_buffers(self) -> None:
        """Computes the buffers that checkpoints do not contain.

        This also happens after a checkpoint was loaded: a module that was built on the meta device
        or moved by ``to_empty`` has no values yet.
        """

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        for child in self.children():
            reset(child)

    def _check_choice(self, what: str, value: str, known: Iterable[str]) -> None:
        if value not in (names := list(known)):
            owner, expected = type(self).__name__, ", ".join(names)
            raise ValueError(f"{owner}: unknown {what} {value!r}, expected one of {expected}")


def _fill_buffers(layer: Layer, _: Any) -> None:
    layer.fill_buffers()


# Whether an order sorts downwards: for all channels, or by channels, layer and num_layers; None if
# it exchanges the maximum with the first row.
ORDERS: dict[str, bool | Callable[[int, int, int], Tensor] | None] = {
    "ascending": False,
    "descending": True,
    "interleave": interleave_descending,
    "max_exchange": None,
}


class Order(Layer):
    r"""One of the sorting orders of the `Sliceformer <https://arxiv.org/abs/2310.17683>`_ paper.

    .. math:: y_{\cdot c} = P_c \, x_{\cdot c}

    where :math:`P_c` permutes the rows of a set: it sorts channel :math:`c` upwards
    (``ascending``), downwards (``descending``), in the direction of
    :func:`~slicegraph.ops.interleave_descending` (``interleave``), or only swaps the channel's
    first maximum with its first row (``max_exchange``).

    Args:
        order: the name of the order, one of :obj:`ORDERS`.
        channels: the number of channels :math:`C`.
        layer: the number of the layer that sorts, from 1 to ``num_layers``; only ``interleave``
            depends on it.
        num_layers: the number of layers.

    Shapes:
        input and output: ``[..., N, C]`` dense sets, or ``[T, C]`` packed sets with ``ptr``.

    Example:
        >>> Order("descending", channels=1)(torch.tensor([[1.0], [3.0], [2.0]])).flatten()
        tensor([3., 2., 1.])
    """

    descending: bool | Tensor

    def __init__(self, order: str, channels: int, layer: int = 1, num_layers: int = 1) -> None:
        super().__init__()
        self._check_choice("order", order, ORDERS)
        if not 1 <= layer <= num_layers:
            raise ValueError(f"Order: layer = {layer} is not in 1..{num_layers}")
        self.name, self.channels, self.layer, self.num_layers = order, channels, layer, num_layers
        kind = ORDERS[order]
        self.exchanges, self.depends_on_layer = kind is None, callable(kind)
        if callable(kind):
            self.register_buffer("descending", kind(channels, layer, num_layers), persistent=False)
        else:
            self.descending = bool(kind)

    def reset_parameters(self) -> None:
        """Computes the directions again."""
        self.fill_buffers()

    def fill_buffers(self) -> None:
        """Computes the direction of each channel."""
        function = ORDERS[self.name]
        if callable(function) and isinstance(self.descending, Tensor):
            with torch.device("cpu"):
                directions = function(self.channels, self.layer, self.num_layers)
            device = self.descending.device  # a module on meta has its device later
            self.descending = directions.to("cpu" if device.type == "meta" else device)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, ptr: Tensor | None = None
    ) -> Tensor:
        """Orders every set.

        Args:
            x: ``[..., N, C]`` dense sets, or ``[T, C]`` packed ones.
            lengths, ptr: the sizes of the sets, as in :func:`slicegraph.ops.column_sort`; they are
                not checked.
        """
        if self.exchanges:
            return swap_maximum(x, lengths, ptr)[0]
        return sort_columns(x, lengths, ptr, self.descending, return_indices=False)

    def masked(self, x: Tensor, mask: Tensor) -> Tensor:
        """Orders the rows of ``x`` where ``mask`` ``[..., N]`` is true; the others become zeros."""
        return masked_rows(self, x, mask)

    def pivoted(
        self, x: Tensor, ptr: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        r"""Orders sets and assigns the result to the nodes by their rank in channel 0.

        .. math:: y = P_0^{-1} \, \mathrm{Order}(x), \quad
            P_0 x_{\cdot 0} = \mathrm{Order}(x)_{\cdot 0}

        The node that ranks r-th in channel 0 receives every channel's r-th value; for
        ``max_exchange``, the node with the largest value in channel 0 receives the maximum of every
        channel. This is permutation-equivariant, unless values of channel 0 (for ``max_exchange``,
        maxima of any channel) tie: tied nodes are ranked in row order.

        Example:
            >>> x = torch.tensor([[3.0, 10.0], [1.0, 30.0], [2.0, 20.0]])
            >>> Order("ascending", channels=2).pivoted(x, torch.tensor([0, 3]))
            tensor([[ 3., 30.],
                    [ 1., 10.],
                    [ 2., 20.]])
        """
        pivot = x.detach()[..., :1].contiguous()
        down = self.descending[:1] if isinstance(self.descending, Tensor) else self.descending
        if ptr is None:
            if not self.exchanges:
                ranks = sort_columns(pivot, lengths, None, down, return_indices=True)[1]
            else:  # a swap of two rows is its own inverse
                top = swap_maximum(pivot, lengths, None)[1].unsqueeze(-2)
                rows = torch.arange(x.shape[-2], device=x.device).unsqueeze(-1)
                ranks = torch.where(rows == 0, top, torch.where(rows == top, 0, rows))
                x = x.gather(-2, ranks.expand_as(x))
            ranks = ranks.expand_as(x)
            return torch.zeros_like(x).scatter(-2, ranks, self(x, lengths))
        sets = set_of_row(ptr, x.shape[0])
        first = ptr[sets].long()
        if self.exchanges:
            top = first + swap_maximum(pivot, None, ptr)[1].flatten()[sets]
            rows = torch.arange(x.shape[0], device=x.device)
            swap = torch.where(rows == first, top, torch.where(rows == top, first, rows))
            return gather_rows(self(gather_rows(x, swap), ptr=ptr), swap)
        ranks = sort_columns(pivot, None, ptr, down, return_indices=True)[1].flatten()
        return scatter_rows(self(x, ptr=ptr), ranks + first, x.shape[0])

    def extra_repr(self) -> str:
        layers = f", layer={self.layer}/{self.num_layers}" if self.depends_on_layer else ""
        return f"{self.name}, {self.channels}{layers}"


def masked_rows(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, mask: Tensor) -> Tensor:
    """Calls a function of dense sets and their lengths on the rows where ``mask`` ``[..., N]`` is
    true, wherever they are."""
    lengths = mask.sum(-1)
    if can_read(mask) and not bool((mask[..., 1:] > mask[..., :-1]).any()):
        return function(x, lengths)
    front, back = to_front(mask)
    out = function(x.flatten(0, -2).index_select(0, front).view(x.shape), lengths)
    return out.flatten(0, -2).index_select(0, back).view(out.shape)


class SliceSort(Layer):
    r"""The slicing-sorting layer of the `Sliceformer: Make Multi-head Attention as Simple as
    Sorting in Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper.

    .. math:: Y = \mathrm{Sort}_{\mathrm{col}}(X W_V + b_V) \, W_O + b_O

    Every channel of the projected set is sorted by itself, in :math:`O(N \log N)`. A result does
    not depend on padding, nor on the other sets of the batch, and except for the order
    ``max_exchange`` it does not depend on the order of the rows either.

    Args:
        in_channels: the size of each input row.
        out_channels: the size of each output row, and of the projected values; ``in_channels`` if
            None.
        order: ``"ascending"``, ``"descending"``, ``"interleave"`` or ``"max_exchange"``, see
            :class:`~slicegraph.nn.Order`.
        layer, num_layers: the number of this layer, from 1, and of all; for ``"interleave"``.
        bias: whether the projections have a bias.
        out_proj: whether there is an output projection.

    Shapes:
        - **x**: ``[..., N, in_channels]``, dense sets (``[N, in_channels]`` is one set), or
          ``[T, in_channels]``, packed sets with ``batch``.
        - **mask**: ``[..., N]`` bool, true at the real positions, which may be any positions. The
          j-th value of the order lands in the j-th real position; the other positions come out as
          zeros, whatever they contained.
        - **batch**: ``[T]`` int64 or int32, ascending: the set of each row, as in PyG.
        - **output**: like ``x``, with ``out_channels`` channels.

    Example:
        >>> layer = SliceSort(16, 32, order="interleave", layer=1, num_layers=4)
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
        order: str = "ascending",
        *,
        layer: int = 1,
        num_layers: int = 1,
        bias: bool = True,
        out_proj: bool = True,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = size = in_channels if out_channels is None else out_channels
        self.value_proj = torch.nn.Linear(in_channels, size, bias)
        self.order = Order(order, size, layer, num_layers)
        self.out_proj = torch.nn.Linear(size, size, bias) if out_proj else None

    def forward(self, x: Tensor, mask: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Sorts every channel of each set, between two projections.

        Args:
            x: ``[..., N, in_channels]``, dense sets, or ``[T, in_channels]``, packed ones.
            mask: ``[..., N]`` bool, true at the real positions of dense sets; all are if None.
            batch: ``[T]``, ascending: the set of each packed row.
        """
        name, size, shape = type(self).__name__, self.in_channels, list(x.shape)
        if x.dim() < 2 or shape[-1] != size:
            raise ValueError(
                f"{name}: x has shape {shape}, expected [..., N, {size}] or [T, {size}]"
            )
        if batch is not None:
            check_batch(name, batch, x)
        if mask is None:
            ptr = None if batch is None else batch_to_ptr(batch)
            x = self.mix(x, ptr=ptr)
            return x if self.out_proj is None else self.out_proj(x)
        if batch is not None:
            raise ValueError(f"{name}: give mask (dense sets) or batch (packed sets), not both")
        check_mask(name, mask, x.shape[:-1])
        real = mask.unsqueeze(-1)
        # A NaN in the padding would reach the gradient of the weight as 0 * NaN.
        x = masked_rows(self.mix, torch.where(real, x, 0), mask)
        return x if self.out_proj is None else torch.where(real, self.out_proj(x), 0)

    def mix(self, x: Tensor, lengths: Tensor | None = None, ptr: Tensor | None = None) -> Tensor:
        """Projects and sorts the rows of each set."""
        return self.order(self.value_proj(x), lengths, ptr)

    def __repr__(self) -> str:
        order = self.order
        layers = f", layer={order.layer}, num_layers={order.num_layers}"
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, "
            f"order={order.name}{layers if order.depends_on_layer else ''})"
        )


class SliceSort2d(Layer):
    r"""The slicing-sorting layer of the `Sliceformer <https://arxiv.org/abs/2310.17683>`_ paper on
    feature maps: the set of a map is its :math:`H \cdot W` positions, row by row.

    .. math:: Y_{b} = \mathrm{Sort}_{\mathrm{col}}(X_b W_V + b_V) \, W_O + b_O,
        \quad X_b \in \mathbb{R}^{H W \times C}

    An input in the memory format ``torch.channels_last`` is read without a copy, any other is
    copied once; the output is in ``torch.channels_last``.

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the output, ``in_channels`` if not given.
        order: as in :class:`~slicegraph.nn.SliceSort`.
        **options: ``layer``, ``num_layers``, ``bias`` and ``out_proj`` of
            :class:`~slicegraph.nn.SliceSort`.

    Shapes:
        - **x**: ``[B, in_channels, H, W]``.
        - **mask**: ``[B, H, W]`` bool, true at the real positions; the others come out as zeros.
        - **output**: ``[B, out_channels, H, W]``.

    Example:
        >>> layer = SliceSort2d(16, 32, order="descending")
        >>> layer(torch.randn(2, 16, 8, 8)).shape
        torch.Size([2, 32, 8, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        order: str = "ascending",
        **options: Any,
    ) -> None:
        super().__init__()
        self.positions = SliceSort(in_channels, out_channels, order, **options)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Sorts every channel over the positions of each map.

        Args:
            x: ``[B, in_channels, H, W]``.
            mask: ``[B, H, W]`` bool, true at the real positions; all are if None.
        """
        if x.dim() != 4 or x.shape[1] != self.positions.in_channels:
            raise ValueError(
                f"{type(self).__name__}: x has shape {list(x.shape)}, expected "
                f"[B, {self.positions.in_channels}, H, W]"
            )
        if mask is not None:
            check_mask(type(self).__name__, mask, x.shape[:1] + x.shape[2:])
            mask = mask.flatten(1)
        rows = self.positions(x.permute(0, 2, 3, 1).flatten(1, 2), mask)
        return rows.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2)

    def __repr__(self) -> str:
        return repr(self.positions).replace(type(self.positions).__name__, type(self).__name__, 1)


def check_mask(name: str, mask: Tensor, shape: torch.Size) -> None:
    """Raises unless `mask` is boolean and has a value for every position."""
    if mask.dtype != torch.bool:
        raise TypeError(f"{name}: mask is {mask.dtype}, expected bool, true at the real positions")
    if mask.shape != shape:
        raise ValueError(
            f"{name}: mask has shape {list(mask.shape)}, expected {list(shape)}, one per position"
        )
