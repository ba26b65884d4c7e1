"""What a graph model is made of."""

from dataclasses import dataclass, fields
from typing import Any

from slicegraph.nn.local_branch import LOCALS

OGB_ATOMS = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""The number of categories of OGB's atom features, as `ogb.utils.features` counts them."""

OGB_BONDS = (5, 6, 2)
"""The number of categories of OGB's bond features."""

TASKS = ("regression", "binary", "multiclass")


@dataclass(frozen=True)
class GraphSliceformerConfig:
    """The configuration of :class:`~slicegraph.models.GraphSliceformer`.

    Args:
        num_layers, channels, ffn_channels, heads: the size of the encoder.
        mixer, order, align: what replaces attention, see :class:`~slicegraph.nn.Mixer`.
        local: ``"gine"`` puts messages along the edges beside every mixer, see
            :class:`~slicegraph.nn.LocalBranch`; ``"none"``.
        node_vocabulary: the number of categories of each node feature; none for float features.
        node_dim: the number of float node features; then there is no ``node_vocabulary``.
        edge_vocabulary, edge_dim: the same for edges; with neither, edge features are not read.
        max_distance, max_hops, max_degree: longer distances, later edges of a path and larger
            degrees are not told apart.
        readout: ``"token"`` gives every graph a token and reads it; ``"mean"``, ``"sum"`` and
            ``"quantiles"`` read the nodes, and there is no token.
        quantiles: how many quantiles of each channel are read, by this readout and by the mixer
            ``"quantile_attn"``.
        num_targets: how many numbers are predicted for a graph.
        task: ``"regression"``; ``"binary"``, a logit for each target; ``"multiclass"``,
            ``num_classes`` logits for each target.
        num_classes: the number of classes of a ``"multiclass"`` target.
        dropout, attention_dropout, input_dropout: probabilities in training, of the branches of a
            block, of the weights of a softmax, and of the embedding.
        recompute: what a training step computes twice to save memory, see
            :class:`~slicegraph.nn.EncoderBlock`.
        target_names, unit: what is predicted, and in which unit; for those who read it.
        target_mean, target_std: of each target of a regression. The head predicts the target less
            the mean, divided by the deviation; the model gives it back in its unit.
        padding_row, hop_blocks: the tables of Graphormer v1 begin with a row for padding and have
            room for 128 hops; neither is used by a model trained here.
        empty_hops, in_degree_twice: what the code of Graphormer v1 computes, and its weights were
            trained for: the slots after a path's last edge add the edge table's padding row, and
            both degree tables are read at the in-degree.
        post_norm, embedding_norm, final_transform: what the Graphormer of the transformers library
            has: the norms of a block after its sums, one norm more after the embedding, and a
            linear layer with GELU before the final norm.
    """

    num_layers: int = 12
    channels: int = 768
    ffn_channels: int = 768
    heads: int = 32
    mixer: str = "sort_attn"
    order: str = "ascending"
    align: str = "rows"
    local: str = "none"
    node_vocabulary: tuple[int, ...] | None = OGB_ATOMS
    node_dim: int | None = None
    edge_vocabulary: tuple[int, ...] | None = OGB_BONDS
    edge_dim: int | None = None
    max_distance: int = 254
    max_hops: int = 5
    max_degree: int = 63
    readout: str = "token"
    quantiles: int = 5
    num_targets: int = 1
    task: str = "regression"
    num_classes: int = 2
    dropout: float = 0.0
    attention_dropout: float = 0.0
    input_dropout: float = 0.0
    recompute: str = "none"
    target_names: tuple[str, ...] = ()
    unit: str = ""
    target_mean: tuple[float, ...] | None = None
    target_std: tuple[float, ...] | None = None
    padding_row: bool = False
    hop_blocks: int | None = None
    empty_hops: bool = False
    in_degree_twice: bool = False
    post_norm: bool = False
    embedding_norm: bool = False
    final_transform: bool = False

    def __post_init__(self) -> None:
        for name in ("node_vocabulary", "edge_vocabulary", *_PER_TARGET):
            if (sizes := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(sizes))
        self._check_numbers()
        for name in ("num_layers", "channels", "ffn_channels", "heads", "num_targets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{_NAME}: {name} = {getattr(self, name)} must be at least 1")
        for name in ("dropout", "attention_dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{_NAME}: {name} = {getattr(self, name)} is not in 0..1")
        for name, known in (("task", TASKS), ("local", LOCALS)):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"{_NAME}: {name} = {value!r}, expected one of {', '.join(known)}")
        if self.task == "multiclass" and self.num_classes < 2:
            raise ValueError(f"{_NAME}: num_classes = {self.num_classes} must be at least 2")
        self._check_targets()

    def _check_numbers(self) -> None:
        for field in fields(self):
            kinds: dict[str, Any] = {"int": int, "float": (int, float)}
            name, value = getattr(field.type, "__name__", ""), getattr(self, field.name)
            if name in kinds and (isinstance(value, bool) or not isinstance(value, kinds[name])):
                expected = "a whole number" if name == "int" else "a number"
                raise ValueError(f"{_NAME}: {field.name} = {value!r}, expected {expected}")

    def _check_targets(self) -> None:
        for name in _PER_TARGET:
            values = getattr(self, name)
            if values and len(values) != self.num_targets:
                raise ValueError(
                    f"{_NAME}: {name} has {len(values)} values for {self.num_targets} targets"
                )
        if (self.target_mean is None) != (self.target_std is None):
            raise ValueError(f"{_NAME}: target_mean and target_std, expected both or neither")
        if self.target_std is not None and self.task != "regression":
            raise ValueError(f"{_NAME}: target_std is for a regression, task is {self.task!r}")
        if self.target_std is not None and not min(self.target_std) > 0:
            raise ValueError(f"{_NAME}: target_std = {self.target_std} must be above 0")

    @property
    def token(self) -> bool:
        """Whether every graph has a token."""
        return self.readout == "token"

    @property
    def num_outputs(self) -> int:
        """How many numbers the head computes for a graph."""
        return self.num_targets * (self.num_classes if self.task == "multiclass" else 1)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "GraphSliceformerConfig":
        """The configuration with these values, such as those of a JSON file."""
        known = [field.name for field in fields(cls)]
        if unknown := [name for name in values if name not in known]:
            raise ValueError(
                f"{_NAME}: unknown field {unknown[0]!r}, expected one of {', '.join(known)}"
            )
        return cls(**values)


_NAME = "GraphSliceformerConfig"
_PER_TARGET = ("target_names", "target_mean", "target_std")
