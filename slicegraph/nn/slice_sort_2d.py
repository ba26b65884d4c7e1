"""The Sliceformer's replacement of attention, for feature maps."""

import torch
from torch import Tensor

from slicegraph.nn.slice_sort import SliceSort, check_mask


class SliceSort2d(torch.nn.Module):
    r"""The slicing-sorting layer of the `Sliceformer <https://arxiv.org/abs/2310.17683>`_ paper on
    images: the set of a map is its :math:`H \cdot W` positions, row by row.

    .. math:: Y_{b} = \mathrm{Sort}_{\mathrm{col}}(X_b W_V + b_V) \, W_O + b_O,
        \quad X_b \in \mathbb{R}^{H W \times C}

    An input in the memory format ``torch.channels_last`` is read without a copy, any other is
    copied once; the output is in ``torch.channels_last``.

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the output, ``in_channels`` if not given.
        order, layer, num_layers, bias, out_proj: as in :class:`~slicegraph.nn.SliceSort`.

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
        layer: int = 1,
        num_layers: int = 1,
        bias: bool = True,
        out_proj: bool = True,
    ) -> None:
        super().__init__()
        self.positions = SliceSort(
            in_channels, out_channels, order, layer, num_layers, bias, out_proj
        )

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        self.positions.reset_parameters()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if x.dim() != 4 or x.shape[1] != self.positions.in_channels:
            raise ValueError(
                f"SliceSort2d: x has shape {list(x.shape)}, expected "
                f"[B, {self.positions.in_channels}, H, W]"
            )
        if mask is not None:
            check_mask("SliceSort2d", mask, x.shape[:1] + x.shape[2:])
            mask = mask.flatten(1)
        rows = self.positions(x.permute(0, 2, 3, 1).flatten(1, 2), mask)
        return rows.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2)

    def __repr__(self) -> str:
        return repr(self.positions).replace("SliceSort", self.__class__.__name__, 1)
