"""The Sliceformer on sequences and images, the Transformer and the ViT."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.models.base import Config, Model
from slicegraph.models.presets import SEQUENCE_PRESETS, VISION_PRESETS, find_preset
from slicegraph.nn.bias import SetAttention
from slicegraph.nn.block import EncoderBlock, encode
from slicegraph.nn.embedding import SequenceEmbedding
from slicegraph.nn.mixer import SEQUENCE_MIXERS, SequenceMixer
from slicegraph.nn.packed import DenseSets, PaddedSets, pack, to_front, token_ptr
from slicegraph.nn.readout import SEQUENCE_READOUTS, SequenceReadout
from slicegraph.nn.slice_sort import check_mask
from slicegraph.ops.layout import can_read
from slicegraph.ops.pairs import dropout


@dataclass(frozen=True)
class EncoderConfig(Config):
    """The fields that the models of sequences and of images share.

    Args:
        num_layers, channels, ffn_channels, heads: the size of the encoder.
        hidden_channels: the size of what a layer mixes, all heads together; ``channels`` if none.
        mixer: ``"sort"``, ``"slice"``, or ``"qkv"`` for the Transformer, see
            :class:`~slicegraph.nn.SequenceMixer`.
        order: how ``"sort"`` orders each channel, see :class:`~slicegraph.nn.Order`.
        readout: ``"cls"`` puts a token before every sequence and reads it; ``"mean"`` and
            ``"max"`` read all rows.
        num_classes: how many numbers are predicted: the logits of the classes.
        head_channels: the inner size of a head of two layers; none for a linear one.
        post_norm: whether the norms of a block come after its sums; then there is no final norm.
        qkv_bias: whether the projections of queries, keys and values have a bias.
        dropout, attention_dropout, input_dropout: the dropout probabilities of the branches of a
            block, of the weights of a softmax, and of the embedding.
        class_names: the names of the classes; for display only.
    """

    num_layers: int = 4
    channels: int = 256
    ffn_channels: int = 1024
    heads: int = 4
    hidden_channels: int | None = None
    mixer: str = "sort"
    order: str = "ascending"
    readout: str = "mean"
    num_classes: int = 2
    head_channels: int | None = None
    post_norm: bool = False
    qkv_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    input_dropout: float = 0.0
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_at_least_one("num_layers", "channels", "ffn_channels", "heads", "num_classes")
        self._check_one_of(mixer=SEQUENCE_MIXERS, readout=SEQUENCE_READOUTS)
        if self.class_names and len(self.class_names) != self.num_classes:
            counts = f"{len(self.class_names)} class_names for {self.num_classes} classes"
            raise ValueError(f"{type(self).__name__}: {counts}")


@dataclass(frozen=True)
class SequenceSliceformerConfig(EncoderConfig):
    """The configuration of :class:`~slicegraph.models.SequenceSliceformer`.

    Args:
        num_layers, ..., class_names: see :class:`EncoderConfig`.
        vocabulary: the number of tokens; none for sequences of vectors.
        in_channels: the size of a vector; then there is no ``vocabulary``.
        max_length: the length of the longest sequence.
        positions: ``"learned"``, ``"sinusoidal"`` or ``"none"``, see
            :class:`~slicegraph.nn.SequenceEmbedding`.
        towers: 1, or 2 for pairs of sequences, which are encoded by the same weights and compared
            by the head.
        words: what the tokens 0, 1, ... are, if they are words; with it the model reads texts.
    """

    vocabulary: int | None = 256
    in_channels: int | None = None
    max_length: int = 1024
    positions: str = "learned"
    towers: int = 1
    words: tuple[str, ...] = dataclasses.field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_at_least_one("max_length")
        if bool(self.vocabulary) == bool(self.in_channels):
            vectors = f"in_channels = {self.in_channels} (vectors)"
            raise self._error("vocabulary", f" (tokens) and {vectors}, expected one of them")
        if self.towers not in (1, 2):
            raise self._error("towers", ", expected 1 or 2")
        if len(self.words) > (self.vocabulary or 0):
            counts = f"{len(self.words)} words for vocabulary = {self.vocabulary}"
            raise ValueError(f"{type(self).__name__}: {counts}")


def sequence_preset(name: str, mixer: str = "sort", **overrides: Any) -> SequenceSliceformerConfig:
    """Returns the configuration of a preset of sequences.

    Args:
        name: a name from :obj:`SEQUENCE_PRESETS`.
        mixer: ``"sort"``, or ``"qkv"`` for the Transformer of the same size.
        **overrides: fields of the configuration to change, such as ``order``.

    Example:
        >>> sequence_preset("lra-text", order="interleave", max_length=1000).channels
        256
    """
    fields = find_preset(name, SEQUENCE_PRESETS)
    return SequenceSliceformerConfig.from_dict(fields | {"mixer": mixer} | overrides)


class SequenceSliceformer(Model, config=SequenceSliceformerConfig, preset=sequence_preset):
    r"""The sequence model of the `Sliceformer: Make Multi-head Attention as Simple as Sorting in
    Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper; with ``mixer="qkv"``, the
    encoder of `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_.

    .. math:: \hat{y} = \mathrm{head}(\mathrm{read}(\mathrm{LN}(f_L \circ \cdots \circ f_1 (X_0))))

    with blocks :math:`f_l` (:class:`~slicegraph.nn.EncoderBlock`). For pairs of sequences
    (``towers=2``) the head reads :math:`[a, b, a \odot b, a - b]` of their vectors.

    Padding is taken out before the first layer on a CPU, where it costs nothing, and moved behind
    the real elements elsewhere. Its contents are never read, and a prediction does not depend on
    the other sequences of the batch. The position of an element is
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
        self.token, self.input_dropout = SEQUENCE_READOUTS[c.readout].token, c.input_dropout
        options = c.pick("vocabulary", "in_channels", "max_length", "positions")
        self.embedding = SequenceEmbedding(c.channels, token=self.token, **options)
        self.blocks = torch.nn.ModuleList()
        options = c.pick("heads", "mixer", "order", "num_layers", "hidden_channels", "qkv_bias")
        for layer in range(1, c.num_layers + 1):
            mixer = SequenceMixer(c.channels, layer=layer, dropout=c.attention_dropout, **options)
            block = EncoderBlock(mixer, c.ffn_channels, c.dropout, post_norm=c.post_norm)
            self.blocks.append(block)
        self.final_norm = None if c.post_norm else torch.nn.LayerNorm(c.channels)
        self.readout = SequenceReadout(c.channels, c.readout)
        width, inner = c.channels * (1 if c.towers == 1 else 4), c.head_channels
        self.head_in = None if inner is None else torch.nn.Linear(width, inner)
        self.head = torch.nn.Linear(width if inner is None else inner, c.num_classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Computes the logits.

        Args:
            x: ``[B, N]`` tokens or ``[B, N, in_channels]``; pairs have a dimension of 2 after B.
            mask: ``[B, N]`` bool, true at the real elements; all are if None.
        """
        vectors = self.embed(x, mask)
        if self.config.towers == 2:
            a, b = vectors.unbind(1)
            vectors = torch.cat([a, b, a * b, a - b], dim=-1)
        if self.head_in is not None:
            vectors = functional.relu(self.head_in(vectors))
        return self.head(vectors)

    def score(self, batch: Any) -> Tensor:
        """Computes the logits of a batch with ``x`` and ``mask``: ``[B, 1, num_classes]``."""
        return self(batch.x, batch.mask).unsqueeze(1)

    def embed(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Computes the vectors that the head reads: ``[B, channels]``, or ``[B, 2, channels]``."""
        c, samples, pairs = self.config, x.shape[:1], None
        self._check(x, mask)
        if c.towers == 2:
            x, mask = x.flatten(0, 1), None if mask is None else mask.flatten(0, 1)
        sets: PaddedSets | None = None
        # On a CPU the rows are packed; elsewhere, and in a compiled graph, they stay padded.
        if can_read(x):
            elements, ptr = pack(x, mask)
            rows, ptr = self.embedding(elements, ptr), token_ptr(ptr) if self.token else ptr
            options: dict[str, Any] = {"ptr": ptr}
        else:
            elements, lengths = _real_in_front(x, mask)
            rows = self.embedding(elements)
            lengths = lengths if lengths is None else lengths + int(self.token)
            sets = DenseSets(rows, lengths)
            options = {"sets": sets}
        if self.training:
            rows = dropout(rows, self.input_dropout)
        if SEQUENCE_MIXERS[c.mixer].needs_pairs:
            pairs = SetAttention(PaddedSets(ptr) if sets is None else sets, c.heads, rows)
        rows = encode(self.blocks, rows, pairs=pairs, first_rows=self.token, **options)
        rows = rows if self.final_norm is None else self.final_norm(rows)
        vectors = rows if self.token else self.readout(rows, **options)
        return vectors if c.towers == 1 else vectors.unflatten(0, (*samples, 2))

    def _check(self, x: Tensor, mask: Tensor | None) -> None:
        c = self.config
        expected: list[str | int] = ["B", "N"] if c.towers == 1 else ["B", 2, "N"]
        expected += [] if c.in_channels is None else [c.in_channels]
        fits = x.is_floating_point() != (c.in_channels is None) and x.dim() == len(expected)
        sizes = zip(expected, x.shape, strict=True)
        if not fits or any(not isinstance(a, str) and a != b for a, b in sizes):
            kind = "tokens" if c.in_channels is None else "floating-point numbers"
            raise ValueError(
                f"SequenceSliceformer: x of shape {list(x.shape)} and type {x.dtype}, expected "
                f"{kind} of shape [{', '.join(map(str, expected))}]"
            )
        if mask is not None:
            check_mask("SequenceSliceformer", mask, x.shape[: 1 + c.towers])


def _real_in_front(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Moves the real elements of ``[B, N, ...]`` to the front of their sequence, with zeros after
    them, and counts them."""
    if mask is None:
        return x, None
    lengths, front = mask.sum(1), to_front(mask)[0]
    elements = x.flatten(0, 1).index_select(0, front).view(x.shape)
    real = torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(-1)
    return torch.where(real.unsqueeze(-1) if x.dim() == 3 else real, elements, 0), lengths


@dataclass(frozen=True)
class VisionSliceformerConfig(EncoderConfig):
    """The configuration of :class:`~slicegraph.models.VisionSliceformer`.

    Args:
        num_layers, ..., class_names: see :class:`EncoderConfig`.
        image_size: the height and width of an image.
        patch_size: the height and width of a patch, which divides ``image_size``.
        image_channels: the number of colours.
    """

    image_size: int = 224
    patch_size: int = 16
    image_channels: int = 3
    readout: str = "cls"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_at_least_one("image_size", "patch_size", "image_channels")
        if self.image_size % self.patch_size:
            raise self._error("patch_size", f" does not divide image_size = {self.image_size}")

    @property
    def num_patches(self) -> int:
        """The number of patches of an image."""
        return (self.image_size // self.patch_size) ** 2


def vision_preset(name: str, mixer: str = "sort", **overrides: Any) -> VisionSliceformerConfig:
    """Returns the configuration of a preset of images.

    Args:
        name: a name from :obj:`VISION_PRESETS`.
        mixer: ``"sort"``, or ``"qkv"`` for the ViT of the same size.
        **overrides: fields of the configuration to change, such as ``order``.

    Example:
        >>> vision_preset("vit-cifar10", "qkv").num_patches
        256
    """
    fields = find_preset(name, VISION_PRESETS)
    return VisionSliceformerConfig.from_dict(fields | {"mixer": mixer} | overrides)


class VisionSliceformer(Model, config=VisionSliceformerConfig, preset=vision_preset):
    r"""The image model of the `Sliceformer: Make Multi-head Attention as Simple as Sorting in
    Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper; with ``mixer="qkv"``, the ViT
    of `"An Image is Worth 16x16 Words" <https://arxiv.org/abs/2010.11929>`_.

    An image is cut into patches, row by row, which are the vectors of a
    :class:`~slicegraph.models.SequenceSliceformer` with learned positions.

    Args:
        config: the configuration.

    Shapes:
        - **x**: ``[B, image_channels, image_size, image_size]``.
        - **output**: ``[B, num_classes]``, logits.

    Example:
        >>> model = VisionSliceformer.from_preset("vit-mnist", num_layers=1)
        >>> model(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, config: VisionSliceformerConfig) -> None:
        super().__init__()
        self.config = c = config
        options = c.pick(*(field.name for field in dataclasses.fields(EncoderConfig)))
        options |= {"in_channels": c.image_channels * c.patch_size**2, "max_length": c.num_patches}
        self.patches = SequenceSliceformer(SequenceSliceformerConfig(vocabulary=None, **options))

    def forward(self, x: Tensor) -> Tensor:
        """Computes the logits.

        Args:
            x: ``[B, image_channels, image_size, image_size]``.
        """
        return self.patches(self.cut(x))

    def score(self, batch: Any) -> Tensor:
        """Computes the logits of a batch with ``x``: ``[B, 1, num_classes]``."""
        return self(batch.x).unsqueeze(1)

    def embed(self, x: Tensor) -> Tensor:
        """Computes the vector of each image that the head reads: ``[B, channels]``."""
        return self.patches.embed(self.cut(x))

    def cut(self, x: Tensor) -> Tensor:
        """Cuts images into patches: ``[B, num_patches, image_channels * patch_size ** 2]``."""
        c = self.config
        if x.dim() != 4 or x.shape[1:] != (c.image_channels, c.image_size, c.image_size):
            raise ValueError(
                f"VisionSliceformer: x has shape {list(x.shape)}, expected "
                f"[B, {c.image_channels}, {c.image_size}, {c.image_size}]"
            )
        # An empty batch has no size to infer: all sizes are written out.
        size = (x.shape[0], c.image_channels * c.patch_size**2, c.num_patches)
        return functional.pixel_unshuffle(x, c.patch_size).reshape(size).transpose(1, 2)
