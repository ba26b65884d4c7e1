"""One vector for a sequence, from its rows."""

import torch
from torch import Tensor

from slicegraph.nn.graph_readout import GraphReadout
from slicegraph.nn.padded_sets import PaddedSets

SEQUENCE_READOUTS = ("cls", "mean", "max")


class SequenceReadout(torch.nn.Module):
    r"""Reads a sequence off its first row (``cls``), or off all of them.

    .. math:: y = x_1, \quad \frac{1}{n} \sum_i x_i \quad \text{or} \quad \max_i x_i

    Args:
        channels: the size of a row.
        readout: ``"cls"``, ``"mean"`` or ``"max"``. A sequence without rows gives zeros.

    Shapes:
        - **x**: ``[T, channels]``, packed sequences with ``ptr`` ``[B + 1]``.
        - **output**: ``[B, channels]``.

    Example:
        >>> readout = SequenceReadout(1, "max")
        >>> readout(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 2, 3]))
        tensor([[3.],
                [5.]])
    """

    def __init__(self, channels: int, readout: str = "mean") -> None:
        super().__init__()
        if readout not in SEQUENCE_READOUTS:
            expected = ", ".join(SEQUENCE_READOUTS)
            raise ValueError(
                f"SequenceReadout: unknown readout {readout!r}, expected one of {expected}"
            )
        self.readout = readout
        self.rows = None
        if readout != "max":
            self.rows = GraphReadout(channels, "token" if readout == "cls" else "mean")

    def forward(self, x: Tensor, ptr: Tensor) -> Tensor:
        return _maximum(x, ptr) if self.rows is None else self.rows(x, ptr)

    def extra_repr(self) -> str:
        return self.readout


def _maximum(x: Tensor, ptr: Tensor) -> Tensor:
    sets = PaddedSets(ptr)
    if sets.length == 0:
        return x.new_zeros(sets.num_sets, x.shape[1])
    real = sets.real.unsqueeze(-1)
    highest = sets.pad(x).masked_fill(~real, -torch.inf).amax(1)
    return torch.where(sets.sizes.unsqueeze(-1) > 0, highest, 0)
