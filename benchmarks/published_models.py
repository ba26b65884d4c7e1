"""The models of `benchmarks.published`: ours, ours with readouts of PyG, and PyG's GPS."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv, GPSConv, aggr, global_add_pool, global_mean_pool

from benchmarks.published_data import Graphs, Task
from slicegraph.models import GraphSliceformer
from slicegraph.models.graph import GraphSliceformerConfig, pair_rows
from slicegraph.nn.embedding import FeatureTable, WalkEncoder
from slicegraph.ops.layout import set_of_row
from slicegraph.transforms import RingNodes
from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS


class GPS(torch.nn.Module):
    """PyG's `GPSConv` as in `"Recipe for a General, Powerful, Scalable Graph Transformer"
    <https://arxiv.org/abs/2205.12454>`_: GINE and attention, RWSE, batch norm, a sum or mean of the
    nodes.

    It reads the sizes, the vocabularies, the walks and the target from the configuration of one of
    our models; of its channels, 28 are for the walks.
    """

    def __init__(self, config: GraphSliceformerConfig) -> None:
        super().__init__()
        self.config, c, walks = config, config.channels, 28
        self.nodes = FeatureTable(config.node_vocabulary or (), c - walks)
        self.walks = WalkEncoder(config.walk_length - 1, walks)  # no step always leads back
        self.edges = FeatureTable(config.edge_vocabulary or (), c)
        self.layers = torch.nn.ModuleList(self._layer() for _ in range(config.num_layers))
        sizes, relu = (c, c // 2, c // 4), torch.nn.ReLU()
        hidden = [part for pair in pairwise(sizes) for part in (torch.nn.Linear(*pair), relu)]
        self.head = torch.nn.Sequential(*hidden, torch.nn.Linear(sizes[-1], config.num_targets))
        for name, values in config.pick("target_mean", "target_std").items():
            buffer = None if values is None else torch.tensor(values)
            self.register_buffer(name, buffer, persistent=False)

    def _layer(self) -> GPSConv:
        c, linear = self.config.channels, torch.nn.Linear
        gine = GINEConv(torch.nn.Sequential(linear(c, c), torch.nn.ReLU(), linear(c, c)))
        return GPSConv(
            *(c, gine, self.config.heads),
            dropout=self.config.dropout,
            norm="batch_norm",
            attn_kwargs={"dropout": self.config.attention_dropout},
        )

    def score(self, batch: Data) -> Tensor:
        """Predict standardised targets, or logits."""
        graph = set_of_row(batch.ptr, len(batch.x))
        walks = self.walks(batch.pair_walk[pair_rows(batch.ptr, len(batch.x))][:, 1:])
        x, edges = torch.cat([self.nodes(batch.x), walks], 1), self.edges(batch.edge_attr)
        for layer in self.layers:
            x = layer(x, batch.edge_index, graph, edge_attr=edges)
        pool = global_mean_pool if self.config.readout == "mean" else global_add_pool
        return self.head(pool(x, graph))

    def forward(self, batch: Data) -> Tensor:
        scores = self.score(batch)
        return scores if self.target_std is None else scores * self.target_std + self.target_mean


class Pool(torch.nn.Module):
    """A readout of our models that is an aggregation of PyG."""

    def __init__(self, aggregation: aggr.Aggregation) -> None:
        super().__init__()
        self.aggregation = aggregation

    def forward(self, x: Tensor, ptr: Tensor) -> Tensor:
        return self.aggregation(x, set_of_row(ptr, len(x)), dim_size=len(ptr) - 1)


def attention_pooled(config: GraphSliceformerConfig) -> GraphSliceformer:
    """Make our model with attention pooling instead of a readout of its size."""
    model, c = GraphSliceformer(config), config.channels
    gate = torch.nn.Sequential(torch.nn.Linear(c, c), torch.nn.ReLU(), torch.nn.Linear(c, 1))
    model.readout = Pool(aggr.AttentionalAggregation(gate))
    return model


def multi_aggregated(config: GraphSliceformerConfig) -> GraphSliceformer:
    """Make our model with five aggregations of PyG instead of five quantiles."""
    if (config.readout, config.quantiles) != ("quantiles", 5):
        found = f"readout = {config.readout!r} and quantiles = {config.quantiles}"
        raise ValueError(f"multi_aggregated: {found}, expected 'quantiles' and 5")
    model = GraphSliceformer(config)
    model.readout = Pool(aggr.MultiAggregation(["mean", "sum", "std", "min", "max"]))
    return model


class NoMixer(torch.nn.Module):
    """Stands in for the mixer of a block, and adds nothing."""

    active_dropout = 0.0

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        return x.new_zeros(())


def local_only(config: GraphSliceformerConfig) -> GraphSliceformer:
    """Make our model without mixers: nodes exchange information along edges only."""
    model = GraphSliceformer(config)
    for block in model.blocks:
        block.mixer = NoMixer()
    return model


MODELS: dict[str, Callable[[GraphSliceformerConfig], Any]] = {
    "ours": GraphSliceformer,
    "gps": GPS,
    "local only": local_only,
    "attention pooling": attention_pooled,
    "multi aggregation": multi_aggregated,
}
"""How a model is made, by the field `kind` of a row."""


def ring_nodes(fields: dict[str, Any], task: Task) -> RingNodes | None:
    """Return what adds rings as nodes, if the row has the field `rings`, the longest of them."""
    longest = fields.get("rings", 0)
    nodes, edges = _vocabularies(fields, task)
    return RingNodes(longest, nodes[0], edges[0]) if longest else None


def _vocabularies(fields: dict[str, Any], task: Task) -> list[tuple[int, ...]]:
    names = {"node_vocabulary": OGB_ATOMS, "edge_vocabulary": OGB_BONDS}
    return [(task.fields | fields).get(name, sizes) for name, sizes in names.items()]


def make_model(row: str, fields: dict[str, Any], task: Task, train: Graphs) -> Any:
    """Make the model of a row; that of a regression predicts standardised targets.

    Args:
        row: the name of the row, for messages.
        fields: those of its configuration, `kind` and `rings`.
        task: the data set.
        train: its training part, for the mean and the deviation of the target.
    """
    fields = task.fields | fields
    if rings := ring_nodes(fields, task):
        nodes, edges = _vocabularies(fields, task)
        fields["node_vocabulary"] = (nodes[0] + rings.max_length - 2, *nodes[1:])
        fields["edge_vocabulary"] = (edges[0] + 1, *edges[1:])
    fields.pop("rings", None)
    if fields.get("task", "regression") == "regression":
        y = train.y.astype(np.float64)
        target = {"target_mean": (float(y.mean()),), "target_std": (float(y.std()),)}
        fields = target | fields
    kind = MODELS[fields.pop("kind", "ours")]
    model = kind(GraphSliceformerConfig.from_dict(fields))
    most = task.most_parameters
    if most is not None and (found := count_parameters(model)) > most:
        raise ValueError(f"{row}: {found} parameters, expected at most {most}")
    return model


def count_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
