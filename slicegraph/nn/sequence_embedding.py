"""What an encoder of sequences starts from: a vector for every element, with its place."""

import math

import torch
from torch import Tensor

from slicegraph.nn.feature_table import FeatureTable
from slicegraph.nn.padded_sets import spread_rows
from slicegraph.ops.sets import set_of_row

POSITIONS = ("learned", "sinusoidal", "none")


class SequenceEmbedding(torch.nn.Module):
    r"""Embeds tokens or vectors, and adds where in its sequence each of them is.

    .. math:: x_i = T[z_i] + P_i \quad \text{or} \quad x_i = z_i W + b + P_i

    Args:
        channels: the size of a vector.
        vocabulary: the number of tokens, for sequences of tokens.
        in_channels: the size of an element, for sequences of vectors.
        max_length: the length of the longest sequence.
        positions: ``"learned"``, a table; ``"sinusoidal"``, the fixed waves of `"Attention Is All
            You Need" <https://arxiv.org/abs/1706.03762>`_; or ``"none"``.
        token: whether every sequence gets a learned row (CLS) in front, which has a position too.

    Shapes:
        - **elements**: ``[T]`` integers or ``[T, in_channels]``, packed sequences.
        - **ptr**: ``[B + 1]``.
        - **output**: ``[T, channels]``, or ``[T + B, channels]`` with a token: sequence ``b`` is
          the rows ``ptr[b] + b`` to ``ptr[b + 1] + b + 1``.

    Example:
        >>> embedding = SequenceEmbedding(16, vocabulary=256, max_length=4, token=True)
        >>> embedding(torch.tensor([72, 105, 33]), ptr=torch.tensor([0, 2, 3])).shape
        torch.Size([5, 16])
    """

    waves: Tensor

    def __init__(
        self,
        channels: int,
        vocabulary: int | None = None,
        in_channels: int | None = None,
        max_length: int = 512,
        positions: str = "learned",
        token: bool = False,
    ) -> None:
        super().__init__()
        _check(vocabulary, in_channels, positions)
        self.channels, self.max_length, self.positions = channels, max_length, positions
        self.elements: torch.nn.Module
        if vocabulary:
            self.elements = FeatureTable([vocabulary], channels)
        else:
            self.elements = torch.nn.Linear(in_channels or 0, channels)
        self.num_places = max_length + token
        self.places = FeatureTable([self.num_places], channels) if positions == "learned" else None
        if positions == "sinusoidal":
            self.register_buffer("waves", sinusoids(self.num_places, channels), persistent=False)
        self.token = torch.nn.Parameter(torch.empty(1, channels)) if token else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the tables anew; next to waves of size 1 a token needs a vector of that size."""
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]
        if self.positions == "sinusoidal":
            if isinstance(self.elements, FeatureTable):
                torch.nn.init.normal_(self.elements.weight)
            if not self.waves.is_meta:
                self.waves.copy_(sinusoids(self.num_places, self.channels))
        if self.token is not None:
            torch.nn.init.normal_(self.token, std=0.02)

    def forward(self, elements: Tensor, ptr: Tensor) -> Tensor:
        self._check_lengths(ptr)
        x = self.elements(elements)
        if self.token is not None:
            x, ptr = _with_tokens(x, self.token, ptr.long())
        if self.positions == "none":
            return x
        rows = torch.arange(x.shape[0], device=x.device)
        places = rows - ptr.long()[set_of_row(ptr.long(), x.shape[0])]
        return x + (self.waves[places] if self.places is None else self.places(places))

    def _check_lengths(self, ptr: Tensor) -> None:
        if self.positions == "none" or not ptr.is_cpu or torch.compiler.is_compiling():
            return
        lengths = ptr.diff()
        if lengths.numel() and int(longest := lengths.max()) > self.max_length:
            raise ValueError(
                f"SequenceEmbedding: sequence {int(lengths.argmax())} has {int(longest)} elements, "
                f"max_length is {self.max_length}; cut it, or make a model for longer ones"
            )


def sinusoids(length: int, channels: int) -> Tensor:
    """``[length, channels]``: sines in the even channels, cosines in the odd ones."""
    rates = torch.exp(torch.arange(0, channels, 2) * (-math.log(10000.0) / channels))
    angles = torch.arange(length).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :channels]


def _with_tokens(x: Tensor, token: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    num_rows, num_sets = x.shape[0], ptr.numel() - 1
    ahead = torch.arange(num_sets + 1, device=x.device)
    rows = torch.arange(num_rows, device=x.device) + set_of_row(ptr, num_rows) + 1
    places = torch.cat([rows, ptr[:-1] + ahead[:-1]])
    x = torch.cat([x, token.expand(num_sets, -1).to(x.dtype)])
    return spread_rows(x, places, num_rows + num_sets), ptr + ahead


def _check(vocabulary: int | None, in_channels: int | None, positions: str) -> None:
    if bool(vocabulary) == bool(in_channels):
        raise ValueError(
            f"SequenceEmbedding: vocabulary = {vocabulary} (tokens) and in_channels = "
            f"{in_channels} (vectors), expected one of them"
        )
    if positions not in POSITIONS:
        expected = ", ".join(POSITIONS)
        raise ValueError(
            f"SequenceEmbedding: unknown positions {positions!r}, expected one of {expected}"
        )
