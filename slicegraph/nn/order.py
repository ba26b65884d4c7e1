"""The four sorting orders of the Sliceformer, applied to sets of rows."""

import torch
from torch import Tensor

from slicegraph.ops import library
from slicegraph.ops.column_sort import sort_columns
from slicegraph.ops.interleave import interleave_descending

ORDERS = ("ascending", "descending", "interleave", "max_exchange")


class Order(torch.nn.Module):
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

    def __init__(self, order: str, channels: int, layer: int = 1, num_layers: int = 1) -> None:
        super().__init__()
        if order not in ORDERS:
            raise ValueError(f"Order: unknown order {order!r}, expected one of {', '.join(ORDERS)}")
        if not 1 <= layer <= num_layers:
            raise ValueError(f"Order: layer = {layer} is not in 1..{num_layers}")
        self.name, self.channels, self.layer, self.num_layers = order, channels, layer, num_layers
        self.exchanges = order == "max_exchange"
        self.descending: bool | Tensor
        if order == "interleave":
            self.register_buffer("descending", self._interleave(), persistent=False)
        else:
            self.descending = order == "descending"

    def _interleave(self) -> Tensor:
        return interleave_descending(self.channels, self.layer, self.num_layers)

    def reset_parameters(self) -> None:
        """Fills the directions again, which a module built on the meta device needs."""
        if isinstance(self.descending, Tensor):
            self.descending.copy_(self._interleave())

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, ptr: Tensor | None = None
    ) -> Tensor:
        """Orders every set; `lengths` and `ptr` are as in `column_sort`, and not checked."""
        if self.exchanges:
            return library.max_exchange(x, lengths, ptr)[0]
        return sort_columns(x, lengths, ptr, self.descending, return_indices=False)

    def masked(self, x: Tensor, mask: Tensor) -> Tensor:
        """Orders the rows of ``x`` ``[..., N, C]`` that ``mask`` ``[..., N]`` marks as real.

        They are taken to be a set of their own, from the first real position to the last; the
        other positions come out as zeros.
        """
        lengths = mask.sum(-1)
        if _is_known_prefix(mask):
            return self(x, lengths)
        to_front, back = _compaction(mask, lengths)
        return _take_rows(self(_take_rows(x, to_front), lengths), back)

    def extra_repr(self) -> str:
        layers = f", layer={self.layer}/{self.num_layers}" if self.name == "interleave" else ""
        return f"{self.name}, {self.channels}{layers}"


def _is_known_prefix(mask: Tensor) -> bool:
    # Looking would wait for a GPU and break a compiled graph, so there every mask is compacted.
    if torch.compiler.is_compiling() or not mask.is_cpu:
        return False
    return not bool((mask[..., 1:] > mask[..., :-1]).any())


def _compaction(mask: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Two inverse permutations of all rows: real rows to the front of their set, and back."""
    target = torch.where(mask, mask.cumsum(-1), lengths.unsqueeze(-1) + (~mask).cumsum(-1)) - 1
    rows = torch.arange(mask.numel(), device=mask.device).view(mask.shape)
    return rows.scatter(-1, target, rows), rows.gather(-1, target)


def _take_rows(x: Tensor, rows: Tensor) -> Tensor:
    return x.flatten(0, -2).index_select(0, rows.flatten()).view(x.shape)
