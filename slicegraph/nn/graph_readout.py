"""One vector for a graph, from the rows of its nodes."""

import torch
from torch import Tensor
from torch_geometric.utils import segment

from slicegraph.nn.aggregation import SliceSortAggregation
from slicegraph.nn.padded_sets import collect_rows

READOUTS = ("token", "mean", "sum", "quantiles")


class GraphReadout(torch.nn.Module):
    r"""Reads a graph off its first row (``token``), or off all of them.

    .. math:: y = x_1, \quad \frac{1}{n} \sum_i x_i, \quad \sum_i x_i, \quad \text{or} \quad
        \Big\Vert_{j=0}^{k-1} Q_{j/(k-1)}(x_1, \ldots, x_n)

    Args:
        channels: the size of a row.
        readout: ``"token"``, ``"mean"``, ``"sum"`` or ``"quantiles"``, the last by
            :class:`~slicegraph.nn.SliceSortAggregation`. A graph without rows gives zeros; it has
            no token.
        quantiles: the number :math:`k` of quantiles.

    Shapes:
        - **x**: ``[T, channels]``, packed sets with ``ptr`` ``[B + 1]``.
        - **output**: ``[B, out_channels]``, where ``out_channels`` is ``channels``, or
          ``quantiles * channels``.

    Example:
        >>> readout = GraphReadout(1, "mean")
        >>> readout(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 2, 3]))
        tensor([[2.],
                [5.]])
    """

    def __init__(self, channels: int, readout: str = "token", quantiles: int = 5) -> None:
        super().__init__()
        if readout not in READOUTS:
            expected = ", ".join(READOUTS)
            raise ValueError(
                f"GraphReadout: unknown readout {readout!r}, expected one of {expected}"
            )
        self.readout = readout
        self.quantiles = SliceSortAggregation(quantiles) if readout == "quantiles" else None
        self.out_channels = channels * (1 if self.quantiles is None else quantiles)

    def forward(self, x: Tensor, ptr: Tensor) -> Tensor:
        if self.quantiles is not None:
            return self.quantiles(x, ptr=ptr, dim=0)
        if self.readout == "token":
            return collect_rows(x, ptr[:-1])
        return segment(x, ptr, reduce=self.readout)

    def extra_repr(self) -> str:
        return self.readout
