"""Attention, and the sort in its place, where heads have a size of their own."""

import torch

from slicegraph.nn.mixer import Mixer

SEQUENCE_MIXERS = ("sort", "qkv")


class SequenceMixer(Mixer):
    r"""A :class:`~slicegraph.nn.Mixer` for rows without a graph, between projections to
    ``hidden_channels`` and back, as in a vision Transformer.

    .. math:: Y = \mathrm{Sort}(X W_V) \, W_O \quad \text{or} \quad
        Y = \mathrm{softmax}(X W_Q (X W_K)^T / \sqrt{D}) \, X W_V \, W_O

    where :math:`W_Q, W_K, W_V` are :math:`C \times H` and :math:`W_O` is :math:`H \times C`.

    Args:
        channels: the size :math:`C` of each row.
        heads: the number of heads, which divides ``hidden_channels``.
        mixer: ``"sort"`` or ``"qkv"``.
        order, layer, num_layers, dropout: as in :class:`~slicegraph.nn.Mixer`.
        hidden_channels: the size :math:`H` of what is mixed, ``channels`` if not given.
        qkv_bias: whether the projections of queries, keys and values have a bias; that of the
            output always has.

    Shapes:
        - **x**: ``[T, channels]``, packed sets.
        - **ptr**: ``[B + 1]``.
        - **pairs**: a :class:`~slicegraph.nn.SetAttention`, which ``"qkv"`` needs.
        - **output**: ``[T, channels]``.

    Example:
        >>> mixer = SequenceMixer(16, hidden_channels=64, order="interleave")
        >>> mixer(torch.randn(5, 16), torch.tensor([0, 2, 5])).shape
        torch.Size([5, 16])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        mixer: str = "sort",
        order: str = "ascending",
        layer: int = 1,
        num_layers: int = 1,
        hidden_channels: int | None = None,
        qkv_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        if mixer not in SEQUENCE_MIXERS:
            expected = ", ".join(SEQUENCE_MIXERS)
            raise ValueError(f"SequenceMixer: unknown mixer {mixer!r}, expected one of {expected}")
        hidden = channels if hidden_channels is None else hidden_channels
        super().__init__(
            hidden, heads, mixer, order, layer=layer, num_layers=num_layers, dropout=dropout
        )
        self.channels, self.hidden_channels = channels, hidden
        self.value_proj = torch.nn.Linear(channels, hidden, qkv_bias)
        if mixer == "qkv":
            self.query_proj = torch.nn.Linear(channels, hidden, qkv_bias)
            self.key_proj = torch.nn.Linear(channels, hidden, qkv_bias)
        self.out_proj = torch.nn.Linear(hidden, channels)

    def extra_repr(self) -> str:
        hidden = f", hidden_channels={self.hidden_channels}"
        return f"{self.mixer}, {self.channels}, heads={self.heads}{hidden}"
