"""The base class of the attentions written here: projections and heads."""

import torch
from torch import Tensor


class MultiHead(torch.nn.Module):
    r"""Projects the rows, applies attention in every head, and projects the result.

    Args:
        channels: the size of each row.
        heads: the number of heads, which divides ``channels``.
        inputs: the number of projections of ``x`` that :meth:`attend` takes: 3 for queries, keys
            and values.

    Shapes:
        - **x** and output: ``[B, N, channels]``.
        - input and output of :meth:`attend`: ``[B, heads, N, channels / heads]``.
    """

    def __init__(self, channels: int, heads: int, inputs: int = 3) -> None:
        super().__init__()
        self.heads, self.inputs = heads, inputs
        self.in_proj = torch.nn.Linear(channels, inputs * channels)
        self.out_proj = torch.nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        projected = self.in_proj(x).chunk(self.inputs, dim=-1)
        heads = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in projected)
        return self.out_proj(self.attend(*heads).transpose(1, 2).flatten(2))

    def attend(self, *inputs: Tensor) -> Tensor:
        """Apply the attention of the heads to the projections."""
        raise NotImplementedError
