"""The Sliceformer on graphs, and Graphormer with it."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data

from slicegraph.models.checkpoint import save
from slicegraph.models.config import GraphSliceformerConfig
from slicegraph.models.graph_batch import GraphBatch, read_batch, read_encoding
from slicegraph.models.graphormer_v1 import read_graphormer_v1
from slicegraph.models.huggingface import read_huggingface
from slicegraph.models.huggingface_weights import load_weights
from slicegraph.models.presets import preset
from slicegraph.nn.encoder_block import EncoderBlock, encode
from slicegraph.nn.graph_embedding import GraphEmbedding
from slicegraph.nn.graph_readout import GraphReadout
from slicegraph.nn.local_branch import Edges, LocalBranch
from slicegraph.nn.mixer import Mixer
from slicegraph.nn.pair_bias import PairBias
from slicegraph.nn.structural_bias import StructuralBias
from slicegraph.ops.dropout import dropout
from slicegraph.ops.sets import set_of_row


class GraphSliceformer(torch.nn.Module):
    r"""The graph model of the `Sliceformer: Make Multi-head Attention as Simple as Sorting in
    Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper; with ``mixer="qkv"``, the
    Graphormer of `"Do Transformers Really Perform Bad for Graph Representation?"
    <https://arxiv.org/abs/2106.05234>`_.

    .. math:: \hat{y} = \mu + \sigma \, W \, \mathrm{read}(\mathrm{LN}(f_L \circ \cdots \circ f_1
        (X_0, S + E)))

    with the mean and the deviation of the targets (0 and 1 if there are none) and blocks
    :math:`f_l` (:class:`~slicegraph.nn.EncoderBlock`). Softmax(S+E) is computed once and shared by
    all of them. A prediction does not depend on the other graphs of the batch.

    Args:
        config: the configuration.

    Shapes:
        - **batch**: a PyG ``Batch`` (or one graph) with ``x``, ``edge_index`` and ``edge_attr``,
          that went through :class:`~slicegraph.transforms.StructuralEncoding`; what it would have
          written is computed if it is missing.
        - **output**: ``[B, num_targets]``, or ``[B, num_targets, num_classes]`` logits for the task
          ``"multiclass"``.

    Example:
        >>> model = GraphSliceformer.from_preset("mini")
        >>> edge_index, edge_attr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 0, 0]] * 2)
        >>> x = torch.tensor([[5, 0, 4, 5, 3, 0, 2, 0, 0], [7, 0, 2, 5, 1, 0, 2, 0, 0]])
        >>> model(Data(x=x, edge_index=edge_index, edge_attr=edge_attr)).shape
        torch.Size([1, 1])
    """

    target_mean: Tensor | None
    target_std: Tensor | None

    def __init__(self, config: GraphSliceformerConfig) -> None:
        super().__init__()
        self.config = c = config
        self.embedding = GraphEmbedding(
            c.channels,
            c.node_vocabulary,
            c.node_dim,
            c.max_degree,
            c.token,
            c.padding_row,
            c.in_degree_twice,
        )
        self.embedding_norm = torch.nn.LayerNorm(c.channels) if c.embedding_norm else None
        self.blocks = torch.nn.ModuleList(_block(c, layer) for layer in range(1, c.num_layers + 1))
        self.structural_bias = _bias(c) if c.mixer != "sort" else None
        self.final_transform = (
            torch.nn.Linear(c.channels, c.channels) if c.final_transform else None
        )
        self.final_norm = torch.nn.LayerNorm(c.channels)
        self.readout = GraphReadout(c.channels, c.readout, c.quantiles)
        self.head = torch.nn.Linear(self.readout.out_channels, c.num_outputs)
        for name in ("target_mean", "target_std"):
            self.register_buffer(name, self._per_target(name), persistent=False)
        self.reset_parameters()

    def _per_target(self, name: str) -> Tensor | None:
        values = getattr(self.config, name)
        return None if values is None else torch.tensor(values, dtype=torch.get_default_dtype())

    @classmethod
    def from_preset(
        cls, name: str, vocabulary: str = "ogb", **overrides: Any
    ) -> "GraphSliceformer":
        """A new model of a preset's size, see :func:`slicegraph.models.preset`."""
        return cls(preset(name, vocabulary, **overrides))

    @classmethod
    def from_graphormer_v1(
        cls, state_dict: dict[str, Tensor], mixer: str = "qkv", **overrides: Any
    ) -> "GraphSliceformer":
        """The model of the official Graphormer v1 or Sliceformer code, with its weights.

        Sizes are read off the weights. A mixer without queries and keys leaves them out, so a
        Graphormer can start a Sliceformer.

        Args:
            state_dict: the tensors under their official names.
            mixer: the formula the weights are for, or the one to go on with.
            **overrides: other fields of the configuration, such as ``max_hops`` and ``dropout``.
        """
        config, weights = read_graphormer_v1(state_dict, mixer, **overrides)
        model = cls(config)
        model.load_state_dict(weights)
        return model

    @classmethod
    def from_huggingface(
        cls, path: str | Path, mixer: str = "qkv", **overrides: Any
    ) -> "GraphSliceformer":
        """The Graphormer of the transformers library, with its weights, in evaluation mode.

        With ``mixer="qkv"`` it predicts what ``GraphormerForGraphClassification`` does (and
        :meth:`embed` gives the first row of ``GraphormerModel``) for undirected graphs with the
        same features and paths. Other mixers start from all weights but the queries and keys.

        Args:
            path: a folder with ``config.json`` and ``model.safetensors``. Nothing is downloaded.
            mixer: the formula the weights are for, or the one to go on with.
            **overrides: other fields of the configuration, such as ``dropout``; ``task`` if
                several outputs are not binary targets; ``node_vocabulary`` and
                ``edge_vocabulary`` if the features are not 512 categories each. A head of
                another size (``num_targets``) is drawn anew, as it is if the folder has none.
        """
        config, weights = read_huggingface(path, mixer, **overrides)
        model = cls(config)
        load_weights(model, weights)
        return model.eval()

    def reset_parameters(self) -> None:
        """Draws the weights anew, as Graphormer does: tables and matrices by a narrow normal."""
        norms = (self.embedding_norm, self.final_norm)
        for part in (self.embedding, self.structural_bias, *self.blocks, *norms):
            if part is not None:
                part.reset_parameters()
        deviation = 0.02 / math.sqrt(self.config.num_layers)
        for module in self.modules():
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.normal_(module.weight, std=deviation)
                if module.bias is not None:
                    torch.nn.init.zeros_(module.bias)
        for name in ("target_mean", "target_std"):
            buffer, values = getattr(self, name), self._per_target(name)
            if buffer is not None and values is not None and not buffer.is_meta:
                buffer.copy_(values)

    def forward(self, batch: Data) -> Tensor:
        return self.rescale(self.score(batch))

    def rescale(self, scores: Tensor) -> Tensor:
        """What :meth:`score` gives, in the unit of the targets."""
        if self.target_mean is None or self.target_std is None:
            return scores
        return scores * self.target_std + self.target_mean

    def score(self, batch: Data) -> Tensor:
        """The output of the head: standardised targets, or logits; what a loss is made of."""
        out = self.head(self.embed(batch))
        if self.config.task == "multiclass":
            return out.unflatten(-1, (self.config.num_targets, self.config.num_classes))
        return out

    def embed(self, batch: Data) -> Tensor:
        """``[B, out_channels]``: the vector of each graph that the head reads."""
        graphs = read_batch(batch)
        pairs = self.pair_bias(batch, graphs)
        x = self.embedding(graphs.features, graphs.in_degree, graphs.out_degree, graphs.ptr)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        if self.training:
            x = dropout(x, self.config.input_dropout)
        ptr, token = graphs.ptr, self.config.token
        if token:
            ptr = ptr + torch.arange(ptr.numel(), device=ptr.device)
        x = self._finish(encode(self.blocks, x, ptr, pairs, token, self._edges(graphs)))
        return x if token else self.readout(x, ptr)

    def _edges(self, graphs: GraphBatch) -> Edges | None:
        """The edges between the rows of the encoder."""
        if self.config.local == "none":
            return None
        index = graphs.edge_index
        if self.config.token:
            index = index + set_of_row(graphs.ptr, graphs.features.shape[0])[index] + 1
        return Edges(index, graphs.edge_attr)

    def _finish(self, x: Tensor) -> Tensor:
        if self.final_transform is not None:
            x = functional.gelu(self.final_transform(x))
        return self.final_norm(x)

    def pair_bias(self, batch: Data, graphs: GraphBatch | None = None) -> PairBias | None:
        """S + E of a batch; none for the mixer ``"sort"``."""
        if self.structural_bias is None:
            return None
        graphs = read_batch(batch) if graphs is None else graphs
        c = self.config
        encoding = read_encoding(batch, graphs, c.max_distance, c.max_hops)
        return self.structural_bias(encoding, graphs.ptr, graphs.edge_attr)

    def save(self, folder: str | Path) -> None:
        """Writes ``config.json`` and ``model.safetensors``, for :func:`slicegraph.load`."""
        save(self, folder)


def _block(config: GraphSliceformerConfig, layer: int) -> EncoderBlock:
    mixer = Mixer(
        config.channels,
        config.heads,
        config.mixer,
        config.order,
        config.align,
        layer,
        config.num_layers,
        dropout=config.attention_dropout,
        quantiles=config.quantiles,
    )
    local = None
    if config.local != "none":
        local = LocalBranch(config.channels, config.edge_vocabulary, config.edge_dim)
    return EncoderBlock(
        mixer, config.ffn_channels, config.dropout, config.post_norm, config.recompute, local
    )


def _bias(config: GraphSliceformerConfig) -> StructuralBias:
    return StructuralBias(
        config.heads,
        config.max_distance,
        config.max_hops,
        config.edge_vocabulary,
        config.edge_dim,
        config.token,
        config.hop_blocks,
        config.padding_row,
        config.empty_hops,
    )
