"""What an encoder starts from: a vector for every node, and one for the graph."""

from collections.abc import Sequence

import torch
from torch import Tensor

from slicegraph.nn.feature_table import FeatureTable
from slicegraph.nn.padded_sets import spread_rows
from slicegraph.ops.sets import set_of_row


class GraphEmbedding(torch.nn.Module):
    r"""The input of Graphormer: node features and the centrality encoding of `"Do Transformers
    Really Perform Bad for Graph Representation?" <https://arxiv.org/abs/2106.05234>`_.

    .. math:: x_i = \sum_f T_f[z_{if}] + T_{in}[\deg^-_i] + T_{out}[\deg^+_i]

    Args:
        channels: the size of a vector.
        node_vocabulary: the number of categories of each node feature, for categorical ones.
        node_dim: the number of node features, for floating-point ones, which are projected.
        max_degree: larger degrees count as this one.
        token: whether every graph gets a learned row in front of its nodes.
        padding_row: whether the tables begin with a row for padding, as those of Graphormer v1 do.
        in_degree_twice: whether both degree tables are read at the in-degree, as in Graphormer v1.

    Shapes:
        - **features**: ``[T, F]``.
        - **in_degree, out_degree**: ``[T]``.
        - **ptr**: ``[B + 1]``.
        - **output**: ``[T, channels]``, or ``[T + B, channels]`` with a token: graph ``b`` is the
          rows ``ptr[b] + b`` to ``ptr[b + 1] + b + 1``.

    Example:
        >>> embedding = GraphEmbedding(16, node_vocabulary=[119, 5], token=True)
        >>> features, degree = torch.tensor([[6, 0], [8, 1]]), torch.tensor([1, 1])
        >>> embedding(features, degree, degree, ptr=torch.tensor([0, 2])).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        node_vocabulary: Sequence[int] | None = None,
        node_dim: int | None = None,
        max_degree: int = 63,
        token: bool = False,
        padding_row: bool = False,
        in_degree_twice: bool = False,
    ) -> None:
        super().__init__()
        if bool(node_vocabulary) == bool(node_dim):
            raise ValueError(
                f"GraphEmbedding: node_vocabulary = {node_vocabulary} (categorical features) and "
                f"node_dim = {node_dim} (float features), expected one of them"
            )
        self.max_degree, self.in_degree_twice = max_degree, in_degree_twice
        self.nodes: torch.nn.Module
        if node_vocabulary:
            self.nodes = FeatureTable(node_vocabulary, channels, padding_row=padding_row)
        else:
            self.nodes = torch.nn.Linear(node_dim or 0, channels)
        degrees = [max_degree + 1]
        self.in_degree = FeatureTable(degrees, channels, padding_row=padding_row)
        self.out_degree = FeatureTable(degrees, channels, padding_row=padding_row)
        self.token = torch.nn.Parameter(torch.empty(1, channels)) if token else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the tables anew."""
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]
        if self.token is not None:
            torch.nn.init.normal_(self.token, std=0.02)

    def forward(
        self, features: Tensor, in_degree: Tensor, out_degree: Tensor, ptr: Tensor
    ) -> Tensor:
        if self.in_degree_twice:
            out_degree = in_degree
        x = self.nodes(features)
        x = x + self.in_degree(in_degree.clamp(max=self.max_degree))
        x = x + self.out_degree(out_degree.clamp(max=self.max_degree))
        return x if self.token is None else self._with_tokens(x, self.token, ptr.long())

    @staticmethod
    def _with_tokens(x: Tensor, token: Tensor, ptr: Tensor) -> Tensor:
        num_nodes, num_graphs = x.shape[0], ptr.numel() - 1
        nodes = torch.arange(num_nodes, device=x.device) + set_of_row(ptr, num_nodes) + 1
        tokens = ptr[:-1] + torch.arange(num_graphs, device=x.device)
        rows = torch.cat([x, token.expand(num_graphs, -1)])
        return spread_rows(rows, torch.cat([nodes, tokens]), num_nodes + num_graphs)
