"""The Sliceformer's replacement of attention, for sequences and sets."""

import torch
from torch import Tensor

from slicegraph.nn.order import Order
from slicegraph.nn.packing import batch_to_ptr


class SliceSort(torch.nn.Module):
    r"""The slicing-sorting layer of the `Sliceformer: Make Multi-head Attention as Simple as
    Sorting in Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper.

    .. math:: Y = \mathrm{Sort}_{\mathrm{col}}(X W_V + b_V) \, W_O + b_O

    Every channel of the projected set is sorted by itself, in :math:`O(N \log N)`. A result does
    not depend on padding, nor on the other sets of the batch, and except for the order
    ``max_exchange`` it does not depend on the order of the rows either.

    Args:
        in_channels: the size of each input row.
        out_channels: the size of each output row, ``in_channels`` if not given. The value
            projection goes from ``in_channels`` to ``out_channels``, the output projection from
            ``out_channels`` to ``out_channels``.
        order: ``"ascending"``, ``"descending"``, ``"interleave"`` (a direction per channel, from
            :func:`~slicegraph.ops.interleave_descending`) or ``"max_exchange"`` (each channel's
            maximum swaps places with its first row, in :math:`O(N)`).
        layer: the number of this layer in its model, from 1 to ``num_layers``; ``"interleave"``
            takes the directions from it.
        num_layers: the number of layers of the model.
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
        layer: int = 1,
        num_layers: int = 1,
        bias: bool = True,
        out_proj: bool = True,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = in_channels if out_channels is None else out_channels
        self.value_proj = torch.nn.Linear(in_channels, self.out_channels, bias)
        self.order = Order(order, self.out_channels, layer, num_layers)
        self.out_proj = (
            torch.nn.Linear(self.out_channels, self.out_channels, bias) if out_proj else None
        )

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        self.value_proj.reset_parameters()
        self.order.reset_parameters()
        if self.out_proj is not None:
            self.out_proj.reset_parameters()

    def forward(self, x: Tensor, mask: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        self._check(x, mask, batch)
        if mask is not None:
            return self._forward_masked(x, mask)
        ptr = None if batch is None else batch_to_ptr(batch)
        x = self.order(self.value_proj(x), ptr=ptr)
        return x if self.out_proj is None else self.out_proj(x)

    def _forward_masked(self, x: Tensor, mask: Tensor) -> Tensor:
        real = mask.unsqueeze(-1)
        # A NaN in the padding would reach the gradient of the weight as 0 * NaN.
        x = self.order.masked(self.value_proj(torch.where(real, x, 0)), mask)
        return x if self.out_proj is None else torch.where(real, self.out_proj(x), 0)

    def _check(self, x: Tensor, mask: Tensor | None, batch: Tensor | None) -> None:
        if x.dim() < 2 or x.shape[-1] != self.in_channels:
            raise ValueError(
                f"SliceSort: x has shape {list(x.shape)}, expected [..., N, {self.in_channels}] or "
                f"[T, {self.in_channels}]"
            )
        if mask is not None and batch is not None:
            raise ValueError("SliceSort: give mask (dense sets) or batch (packed sets), not both")
        if mask is not None:
            check_mask("SliceSort", mask, x.shape[:-1])
        if batch is not None:
            _check_batch(batch, x)

    def __repr__(self) -> str:
        order = self.order
        layers = f", layer={order.layer}, num_layers={order.num_layers}"
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, "
            f"order={order.name}{layers if order.name == 'interleave' else ''})"
        )


def check_mask(name: str, mask: Tensor, shape: torch.Size) -> None:
    """Raises unless `mask` is boolean and has a value for every position."""
    if mask.dtype != torch.bool:
        raise TypeError(f"{name}: mask is {mask.dtype}, expected bool, true at the real positions")
    if mask.shape != shape:
        raise ValueError(
            f"{name}: mask has shape {list(mask.shape)}, expected {list(shape)}, one per position"
        )


def _check_batch(batch: Tensor, x: Tensor) -> None:
    if batch.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"SliceSort: batch is {batch.dtype}, expected int64 or int32")
    if x.dim() != 2 or batch.shape != x.shape[:1]:
        raise ValueError(
            f"SliceSort: batch of shape {list(batch.shape)} with x of shape {list(x.shape)}, "
            "expected batch [T] and x [T, C]"
        )
