"""The sorting orders of the Sliceformer, applied to sets of rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from slicegraph.nn.layer import Layer
from slicegraph.nn.packed import gather_rows, scatter_rows, to_front
from slicegraph.ops.layout import can_read, set_of_row
from slicegraph.ops.sort import interleave_descending, sort_columns
from slicegraph.ops.sort import max_exchange_op as swap_maximum

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
            device = self.descending.device  # no weight tells where a module on meta will be
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
