"""The layers, the encoder and the readout by name, for repositories that are built on GraphGym.

``import slicegraph.graphgym`` registers, for the configuration of PyG's GraphGym,

| option | name | what it is |
|---|---|---|
| ``gnn.layer_type`` | ``slicesortconv`` | :class:`~slicegraph.nn.SliceSortConv` |
| ``gnn.layer_type`` | ``slicesortgps`` | :class:`~slicegraph.nn.GPSLayer` of a ``SliceSortConv`` |
| ``dataset.node_encoder_name`` | ``SliceSortAtom`` | :class:`~slicegraph.nn.GraphEmbedding`, OGB's atoms and degrees |
| ``model.graph_pooling`` | ``slicesort`` | :class:`~slicegraph.nn.SliceSortAggregation`, the median |
| ``gnn.head`` | ``slicesort_graph`` | five quantiles of every channel, and a linear layer |
| ``model.type`` | ``graph_sliceformer`` | :class:`~slicegraph.models.GraphSliceformer` |

``gnn.att_heads`` is the number of heads. With ``dataset.edge_encoder`` the layers read the encoded
edge features.
"""  # noqa: E501

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.graphgym.config import cfg
from torch_geometric.graphgym.register import (
    register_head,
    register_layer,
    register_network,
    register_node_encoder,
    register_pooling,
)
from torch_geometric.utils import degree

from slicegraph.models.graph import GraphSliceformer, GraphSliceformerConfig
from slicegraph.nn.conv import GPSLayer, SliceSortConv
from slicegraph.nn.embedding import GraphEmbedding
from slicegraph.nn.readout import GraphReadout, SliceSortAggregation
from slicegraph.nn.slice_sort import Layer
from slicegraph.vocabulary import OGB_ATOMS

__all__ = [
    "AtomEncoder",
    "ConvLayer",
    "GPSConvLayer",
    "QuantileHead",
    "SliceformerNetwork",
    "median_pool",
]


def _edge_dim() -> int | None:
    """The size of the encoded edge features, if there are any."""
    return cfg.gnn.dim_inner if cfg.dataset.edge_encoder else None


@register_layer("slicesortconv")
class ConvLayer(Layer):
    """A :class:`~slicegraph.nn.SliceSortConv` on batches."""

    def __init__(self, layer_config: Any, **kwargs: Any) -> None:
        super().__init__()
        sizes = (layer_config.dim_in, layer_config.dim_out, cfg.gnn.att_heads, _edge_dim())
        self.model = SliceSortConv(*sizes, bias=layer_config.has_bias)

    def forward(self, batch: Data) -> Data:
        """Mixes the nodes ``batch.x`` of each graph."""
        edge_attr = batch.edge_attr if self.model.reads_edges else None
        batch.x = self.model(batch.x, batch.edge_index, edge_attr, batch.batch)
        return batch


@register_layer("slicesortgps")
class GPSConvLayer(Layer):
    """A :class:`~slicegraph.nn.GPSLayer` on batches."""

    def __init__(self, layer_config: Any, **kwargs: Any) -> None:
        super().__init__()
        size = layer_config.dim_out
        if layer_config.dim_in != size:
            raise ValueError(
                f"slicesortgps: dim_in = {layer_config.dim_in} and dim_out = {size} differ; "
                "use an encoder or gnn.layers_pre_mp"
            )
        conv = SliceSortConv(size, heads=cfg.gnn.att_heads, edge_dim=_edge_dim())
        self.reads_edges = conv.reads_edges
        self.model = GPSLayer(size, conv, dropout=layer_config.dropout)

    def forward(self, batch: Data) -> Data:
        """Mixes the nodes ``batch.x`` of each graph."""
        named = {"edge_attr": batch.edge_attr} if self.reads_edges else {}
        batch.x = self.model(batch.x, batch.edge_index, batch.batch, **named)
        return batch


@register_node_encoder("SliceSortAtom")
class AtomEncoder(Layer):
    """OGB's atom features and the degrees of a node, as in Graphormer."""

    def __init__(self, emb_dim: int) -> None:
        super().__init__()
        self.encoder = GraphEmbedding(emb_dim, OGB_ATOMS)

    def forward(self, batch: Data) -> Data:
        """Replaces the categories ``batch.x`` by vectors."""
        count = batch.x.shape[0]
        outgoing, incoming = (degree(ends, count, torch.long) for ends in batch.edge_index)
        batch.x = self.encoder(
            batch.x, incoming, outgoing, torch.tensor([0, count], device=batch.x.device)
        )
        return batch


def median_pool(x: Tensor, batch: Tensor | None = None, size: int | None = None) -> Tensor:
    """Returns the median of every channel of each graph, ``[B, C]``."""
    return SliceSortAggregation(1)(x, batch, dim_size=size)


register_pooling("slicesort", median_pool)


@register_head("slicesort_graph")
class QuantileHead(Layer):
    """Reads five quantiles of every channel of a graph, and predicts from them."""

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.read = GraphReadout(dim_in, "quantiles")
        self.linear = torch.nn.Linear(self.read.out_channels, dim_out)

    def forward(self, batch: Data) -> tuple[Tensor, Tensor]:
        """Returns the prediction for each graph, and ``batch.y``."""
        batch.graph_feature = self.linear(self.read(batch.x, batch.ptr))
        return batch.graph_feature, batch.y


@register_network("graph_sliceformer")
class SliceformerNetwork(Layer):
    """A :class:`~slicegraph.models.GraphSliceformer` of the sizes in ``gnn``.

    With ``dataset.node_encoder`` the features are OGB's atoms and bonds, otherwise ``dim_in``
    numbers per node.
    """

    def __init__(self, dim_in: int, dim_out: int, **kwargs: Any) -> None:
        super().__init__()
        size, categories = cfg.gnn.dim_inner, cfg.dataset.node_encoder
        self.model = GraphSliceformer(
            GraphSliceformerConfig(
                num_layers=cfg.gnn.layers_mp,
                channels=size,
                ffn_channels=size,
                heads=cfg.gnn.att_heads,
                mixer="quantile_attn",
                local="gine",
                readout="quantiles",
                node_dim=None if categories else dim_in,
                task_level="node" if cfg.dataset.task == "node" else "graph",
                num_targets=dim_out,
                dropout=cfg.gnn.dropout,
            )
        )

    def forward(self, batch: Data) -> tuple[Tensor, Tensor]:
        """Returns the prediction for each graph, or node, and ``batch.y``."""
        return self.model(batch), batch.y
