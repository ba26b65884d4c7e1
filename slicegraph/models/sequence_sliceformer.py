"""The Sliceformer on sequences, and the Transformer with it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.models.checkpoint import save
from slicegraph.models.sequence_batch import pack
from slicegraph.models.sequence_config import SequenceSliceformerConfig
from slicegraph.models.sequence_presets import sequence_preset
from slicegraph.nn.encoder_block import EncoderBlock, encode
from slicegraph.nn.padded_sets import PaddedSets
from slicegraph.nn.sequence_embedding import SequenceEmbedding
from slicegraph.nn.sequence_mixer import SequenceMixer
from slicegraph.nn.sequence_readout import SequenceReadout
from slicegraph.nn.set_attention import SetAttention
from slicegraph.nn.slice_sort import check_mask
from slicegraph.ops.dropout import dropout


class SequenceSliceformer(torch.nn.Module):
    r"""The sequence model of the `Sliceformer: Make Multi-head Attention as Simple as Sorting in
    Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper; with ``mixer="qkv"``, the
    encoder of `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_.

    .. math:: \hat{y} = \mathrm{head}(\mathrm{read}(\mathrm{LN}(f_L \circ \cdots \circ f_1 (X_0))))

    with blocks :math:`f_l` (:class:`~slicegraph.nn.EncoderBlock`). For pairs of sequences
    (``towers=2``) the head reads :math:`[a, b, a \odot b, a - b]` of their vectors.

    Padding is taken out before the first layer: it costs nothing, its contents are never read, and
    a prediction does not depend on the other sequences of the batch. The position of an element is
    its number among the real ones, wherever the padding is.

    Args:
        config: the configuration.

    Shapes:
        - **x**: ``[B, N]`` tokens or ``[B, N, in_channels]``; pairs are ``[B, 2, N]`` or
          ``[B, 2, N, in_channels]``.
        - **mask**: ``[B, N]`` (``[B, 2, N]``) bool, true at the real elements; all are if none.
        - **output**: ``[B, num_classes]``, logits.

    Example:
        >>> config = SequenceSliceformerConfig(num_layers=2, channels=16, ffn_channels=32)
        >>> model = SequenceSliceformer(config)
        >>> tokens = torch.tensor([[72, 105, 33], [72, 33, 0]])
        >>> model(tokens, mask=tokens > 0).shape
        torch.Size([2, 2])
    """

    def __init__(self, config: SequenceSliceformerConfig) -> None:
        super().__init__()
        self.config = c = config
        cls = c.readout == "cls"
        self.embedding = SequenceEmbedding(
            c.channels, c.vocabulary, c.in_channels, c.max_length, c.positions, cls
        )
        self.blocks = torch.nn.ModuleList(_block(c, layer) for layer in range(1, c.num_layers + 1))
        self.final_norm = None if c.post_norm else torch.nn.LayerNorm(c.channels)
        self.readout = SequenceReadout(c.channels, c.readout)
        width = c.channels * (1 if c.towers == 1 else 4)
        inner = c.head_channels
        self.head_in = None if inner is None else torch.nn.Linear(width, inner)
        self.head = torch.nn.Linear(width if inner is None else inner, c.num_classes)

    @classmethod
    def from_preset(cls, name: str, mixer: str = "sort", **overrides: Any) -> "SequenceSliceformer":
        """A new model of a preset's size, see :func:`slicegraph.models.sequence_preset`."""
        return cls(sequence_preset(name, mixer, **overrides))

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        for part in (self.embedding, *self.blocks, self.final_norm, self.head_in, self.head):
            if part is not None:
                part.reset_parameters()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        vectors = self.embed(x, mask)
        if self.config.towers == 2:
            a, b = vectors.unbind(1)
            vectors = torch.cat([a, b, a * b, a - b], dim=-1)
        if self.head_in is not None:
            vectors = functional.relu(self.head_in(vectors))
        return self.head(vectors)

    def score(self, batch: Any) -> Tensor:
        """``[B, 1, num_classes]``: the logits of a batch with ``x`` and ``mask``."""
        return self(batch.x, batch.mask).unsqueeze(1)

    def embed(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``[B, channels]``, for pairs ``[B, 2, channels]``: the vectors that the head reads."""
        self._check(x, mask)
        if self.config.towers == 1:
            return self._embed(x, mask)
        mask = None if mask is None else mask.flatten(0, 1)
        return self._embed(x.flatten(0, 1), mask).unflatten(0, (x.shape[0], 2))

    def _embed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        elements, ptr = pack(x, mask)
        rows = self.embedding(elements, ptr)
        if self.config.readout == "cls":
            ptr = ptr + torch.arange(ptr.numel(), device=ptr.device)
        if self.training:
            rows = dropout(rows, self.config.input_dropout)
        pairs = None
        if self.config.mixer == "qkv":
            pairs = SetAttention(PaddedSets(ptr), self.config.heads, rows)
        cls = self.config.readout == "cls"
        rows = encode(self.blocks, rows, ptr, pairs, first_rows=cls)
        rows = rows if self.final_norm is None else self.final_norm(rows)
        return rows if cls else self.readout(rows, ptr)

    def _check(self, x: Tensor, mask: Tensor | None) -> None:
        c = self.config
        expected: list[str | int] = ["B", "N"] if c.towers == 1 else ["B", 2, "N"]
        expected += [] if c.in_channels is None else [c.in_channels]
        fits = x.dim() == len(expected) and all(
            size in ("B", "N", actual) for size, actual in zip(expected, x.shape, strict=True)
        )
        if not fits or x.is_floating_point() == (c.in_channels is None):
            kind = "tokens" if c.in_channels is None else "floating-point numbers"
            raise ValueError(
                f"SequenceSliceformer: x of shape {list(x.shape)} and type {x.dtype}, expected "
                f"{kind} of shape [{', '.join(map(str, expected))}]"
            )
        if mask is not None:
            check_mask("SequenceSliceformer", mask, x.shape[: 1 + c.towers])

    def save(self, folder: str | Path) -> None:
        """Writes ``config.json`` and ``model.safetensors``, for :func:`slicegraph.models.load`."""
        save(self, folder)


def _block(config: SequenceSliceformerConfig, layer: int) -> EncoderBlock:
    mixer = SequenceMixer(
        config.channels,
        config.heads,
        config.mixer,
        config.order,
        layer,
        config.num_layers,
        config.hidden_channels,
        config.qkv_bias,
        config.attention_dropout,
    )
    return EncoderBlock(mixer, config.ffn_channels, config.dropout, config.post_norm)
