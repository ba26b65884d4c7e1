"""Stacks of PyG's layers, with the interface that the training code needs."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.nn import GINEConv, GPSConv, global_mean_pool

from slicegraph.models import GraphSliceformerConfig
from slicegraph.nn import FeatureTable


class PyGStack(torch.nn.Module):
    """GINE layers with a residual sum, or GPS layers around them, and a mean of the nodes.

    Args:
        fields: ``kind``, ``"gine"`` or ``"gps"``; ``channels``, ``num_layers``, ``heads``.
        config: the configuration of one of our models, for the vocabularies and for the mean and
            standard deviation of the target.
    """

    def __init__(self, fields: dict[str, Any], config: GraphSliceformerConfig) -> None:
        super().__init__()
        self.config = config
        c = fields["channels"]
        self.nodes = FeatureTable(config.node_vocabulary or (), c)
        self.edges = FeatureTable(config.edge_vocabulary or (), c)
        self.residual = fields["kind"] == "gine"
        self.layers = torch.nn.ModuleList(_layer(fields) for _ in range(fields["num_layers"]))
        norms = (torch.nn.LayerNorm(c) for _ in self.layers if self.residual)  # GPS has its own
        self.norms = torch.nn.ModuleList(norms)
        self.head = torch.nn.Linear(c, 1)
        mean, deviation = config.target_mean or (0.0,), config.target_std or (1.0,)
        self.register_buffer("target_mean", torch.tensor(mean))
        self.register_buffer("target_std", torch.tensor(deviation))

    def score(self, batch: Batch) -> Tensor:
        """Predict the standardised target."""
        x, edge_attr = self.nodes(batch.x), self.edges(batch.edge_attr)
        for number, layer in enumerate(self.layers):
            if self.residual:
                x = x + layer(self.norms[number](x), batch.edge_index, edge_attr)
            else:
                x = layer(x, batch.edge_index, batch.batch, edge_attr=edge_attr)
        return self.head(global_mean_pool(x, batch.batch))

    def rescale(self, scores: Tensor) -> Tensor:
        """Convert standardised predictions to the unit of the target."""
        return scores * self.target_std + self.target_mean

    def standardise(self, targets: Tensor) -> Tensor:
        """Convert targets to what :meth:`score` predicts."""
        return (targets - self.target_mean) / self.target_std


def _layer(fields: dict[str, Any]) -> torch.nn.Module:
    c = fields["channels"]
    transform = torch.nn.Sequential(torch.nn.Linear(c, c), torch.nn.ReLU(), torch.nn.Linear(c, c))
    gine = GINEConv(transform, train_eps=True)
    return gine if fields["kind"] == "gine" else GPSConv(c, gine, fields["heads"])
