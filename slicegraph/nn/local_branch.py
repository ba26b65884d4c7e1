"""Messages along the edges, beside the mixer: a sort looks at all rows and at no neighbour."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.utils import scatter

from slicegraph.nn.feature_table import FeatureTable
from slicegraph.nn.padded_sets import collect_rows
from slicegraph.ops.edge_sum import edge_sum, has_kernel
from slicegraph.ops.gather_sum import gather_sum

LOCALS = ("none", "gine")


@dataclass(frozen=True)
class Edges:
    """Edges between rows: ``index [2, E]``, from and to; ``attr [E, F]``, if they have features."""

    index: Tensor
    attr: Tensor | None


class LocalBranch(torch.nn.Module):
    r"""A step of message passing: the GINE layer of `"Strategies for Pre-training Graph Neural
    Networks" <https://arxiv.org/abs/1905.12265>`_, with a scale for each channel.

    .. math:: y_i = W_2 \, \mathrm{ReLU} \Big( W_1 \Big( (1 + \epsilon) \odot x_i +
        \sum_{j \to i} \mathrm{ReLU}(x_j + e_{ji}) \Big) \Big)

    Args:
        channels: the size of each row.
        edge_vocabulary: the number of categories of each edge feature, for categorical ones; an
            edge is the sum of their vectors.
        edge_dim: the number of edge features, for floating-point ones, which are projected. With
            neither, :math:`e` is 0.

    Shapes:
        - **x**: ``[T, channels]``.
        - **edges**: an :class:`Edges` between these rows; a row without edges, such as a token,
          hears of itself only.
        - **rows**: the rows of the output to compute, each at most once; all if not given.
        - **output**: ``[T, channels]``, or ``[rows, channels]``.

    Example:
        >>> branch = LocalBranch(16, edge_vocabulary=[5, 6, 2])
        >>> edges = Edges(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 0, 0]] * 2))
        >>> branch(torch.randn(3, 16), edges).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        edge_vocabulary: Sequence[int] | None = None,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.edge: torch.nn.Module | None = None
        if edge_vocabulary:
            self.edge = FeatureTable(edge_vocabulary, channels)
        elif edge_dim:
            self.edge = torch.nn.Linear(edge_dim, channels)
        self.epsilon = torch.nn.Parameter(torch.zeros(channels))
        self.inner = torch.nn.Linear(channels, channels)
        self.outer = torch.nn.Linear(channels, channels)

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        torch.nn.init.zeros_(self.epsilon)
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Tensor, edges: Edges, rows: Tensor | None = None) -> Tensor:
        heard = torch.addcmul(self._messages(x, edges), 1 + self.epsilon, x)
        if rows is not None:
            heard = collect_rows(heard, rows)
        return self.outer(functional.relu(self.inner(heard)))

    def _messages(self, x: Tensor, edges: Edges) -> Tensor:
        table, codes = self._kinds(x, edges)
        if has_kernel(x, table):
            return edge_sum(x, table, codes, edges.index)
        source, target = edges.index
        message = x.index_select(0, source) + gather_sum(table, codes)
        return scatter(functional.relu(message), target, dim_size=x.shape[0], reduce="sum")

    def _kinds(self, x: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        """A table of vectors, and for each edge those that it is the sum of."""
        index, attr = edges.index, edges.attr
        if self.edge is None:
            return x.new_empty(0, x.shape[1]), index.new_empty(index.shape[1], 0)
        if attr is None:
            raise ValueError("LocalBranch: edge_attr is missing, expected edge features")
        if isinstance(self.edge, FeatureTable):
            return self.edge.weight, self.edge.places(attr)
        return self.edge(attr), torch.arange(index.shape[1], device=x.device).unsqueeze(-1)
