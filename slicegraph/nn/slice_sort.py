"""The Sliceformer's replacement of attention, for sequences, sets and feature maps."""

from typing import Any

import torch
from torch import Tensor

from slicegraph.nn.layer import Layer
from slicegraph.nn.order import Order, masked_rows
from slicegraph.nn.packed import batch_to_ptr, check_batch


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
