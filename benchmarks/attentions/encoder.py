"""The encoder around a mixer: the same for every row of the table."""

from collections.abc import Callable

import torch
from torch import Tensor

CHANNELS, HEADS, LAYERS, FFN = 256, 4, 4, 1024
"""The size of the encoder of the Text task of the Long Range Arena."""
VOCABULARY, CLASSES = 256, 2


class Block(torch.nn.Module):
    r"""A pre-norm block.

    .. math:: X' = X + \mathrm{Mix}(\mathrm{LN}(X)), \quad Y = X' + \mathrm{FFN}(\mathrm{LN}(X'))

    Args:
        mixer: maps ``[B, N, channels]`` to the same shape.
    """

    def __init__(self, mixer: torch.nn.Module) -> None:
        super().__init__()
        self.mixer_norm, self.mixer = torch.nn.LayerNorm(CHANNELS), mixer
        self.ffn = torch.nn.Sequential(
            torch.nn.LayerNorm(CHANNELS),
            torch.nn.Linear(CHANNELS, FFN),
            torch.nn.GELU(),
            torch.nn.Linear(FFN, CHANNELS),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.ffn(x)


class Encoder(torch.nn.Module):
    """Bytes with learned positions, blocks, a norm, the mean of all rows, two logits.

    Args:
        length: the length of all sequences.
        mixer: returns the mixer of a layer, given the number of the layer, 1 to ``LAYERS``.

    Shapes:
        tokens: ``[B, length]``; output: ``[B, 2]``.
    """

    def __init__(self, length: int, mixer: Callable[[int], torch.nn.Module]) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, CHANNELS)
        self.positions = torch.nn.Parameter(0.02 * torch.randn(length, CHANNELS))
        self.blocks = torch.nn.Sequential(*(Block(mixer(n)) for n in range(1, LAYERS + 1)))
        self.norm = torch.nn.LayerNorm(CHANNELS)
        self.head = torch.nn.Linear(CHANNELS, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.blocks(self.tokens(tokens) + self.positions)
        return self.head(self.norm(x).mean(dim=1))
