"""What a model of sequences is made of."""

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

Config = TypeVar("Config", bound="EncoderConfig")


@dataclass(frozen=True)
class EncoderConfig:
    """What the models of sequences and of images have in common.

    Args:
        num_layers, channels, ffn_channels, heads: the size of the encoder.
        hidden_channels: the size of what a layer mixes, all heads together; ``channels`` if none.
        mixer: ``"sort"``, or ``"qkv"`` for the Transformer, see
            :class:`~slicegraph.nn.SequenceMixer`.
        order: how ``"sort"`` orders each channel, see :class:`~slicegraph.nn.Order`.
        readout: ``"cls"`` puts a learned row before every sequence and reads it; ``"mean"`` and
            ``"max"`` read all rows.
        num_classes: how many numbers are predicted: the logits of the classes.
        head_channels: the inner size of a head of two layers; none for a linear one.
        post_norm: whether the norms of a block come after its sums; then there is no final norm.
        qkv_bias: whether the projections of queries, keys and values have a bias.
        dropout, attention_dropout, input_dropout: probabilities in training, of the branches of a
            block, of the weights of a softmax, and of the embedding.
        class_names: what the classes are; for those who read it.
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
        object.__setattr__(self, "class_names", tuple(self.class_names))
        for name in ("num_layers", "channels", "ffn_channels", "heads", "num_classes"):
            self._at_least_one(name)
        for name in ("dropout", "attention_dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{self._name}: {name} = {getattr(self, name)} is not in 0..1")
        if self.class_names and len(self.class_names) != self.num_classes:
            raise ValueError(
                f"{self._name}: {len(self.class_names)} class_names for {self.num_classes} classes"
            )

    def _at_least_one(self, name: str) -> None:
        if getattr(self, name) < 1:
            raise ValueError(f"{self._name}: {name} = {getattr(self, name)} must be at least 1")

    @property
    def _name(self) -> str:
        return type(self).__name__

    @classmethod
    def from_dict(cls: type[Config], values: dict[str, Any]) -> Config:
        """The configuration with these values, such as those of a JSON file."""
        known = [each.name for each in fields(cls)]
        if unknown := [name for name in values if name not in known]:
            raise ValueError(
                f"{cls.__name__}: unknown field {unknown[0]!r}, expected one of {', '.join(known)}"
            )
        return cls(**values)


@dataclass(frozen=True)
class SequenceSliceformerConfig(EncoderConfig):
    """The configuration of :class:`~slicegraph.models.SequenceSliceformer`.

    Args:
        num_layers ... class_names: see :class:`EncoderConfig`.
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
    words: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "words", tuple(self.words))
        self._at_least_one("max_length")
        if bool(self.vocabulary) == bool(self.in_channels):
            raise ValueError(
                f"{self._name}: vocabulary = {self.vocabulary} (tokens) and in_channels = "
                f"{self.in_channels} (vectors), expected one of them"
            )
        if self.towers not in (1, 2):
            raise ValueError(f"{self._name}: towers = {self.towers}, expected 1 or 2")
        if len(self.words) > (self.vocabulary or 0):
            raise ValueError(
                f"{self._name}: {len(self.words)} words for vocabulary = {self.vocabulary}"
            )
