"""Message passing along the edges, added to a mixer, which does not see neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.embedding import FeatureTable, feature_encoder
from slicegraph.nn.layer import Layer
from slicegraph.nn.packed import gather_rows
from slicegraph.ops.edges import edge_sum


@dataclass(frozen=True)
class Edges:
    """Edges between rows: ``index [2, E]``, source and target; ``attr [E, F]`` or None."""

    index: Tensor
    attr: Tensor | None


class LocalBranch(Layer):
    r"""One message-passing step: the GINE layer of `"Strategies for Pre-training Graph Neural
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
          receives no message.
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
        self.edge = None
        if edge_vocabulary or edge_dim:
            self.edge = feature_encoder(channels, edge_vocabulary, edge_dim)
        self.epsilon = torch.nn.Parameter(torch.zeros(channels))
        self.inner = torch.nn.Linear(channels, channels)
        self.outer = torch.nn.Linear(channels, channels)

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        torch.nn.init.zeros_(self.epsilon)
        super().reset_parameters()

    def forward(self, x: Tensor, edges: Edges, rows: Tensor | None = None) -> Tensor:
        """Passes messages along the edges.

        Args:
            x: ``[T, channels]``, the rows.
            edges: the edges between them.
            rows: the rows of the output to compute, each at most once; all if None.
        """
        index, attr = edges.index, edges.attr
        # For each edge, `codes` lists the rows of `table` that add up to its vector.
        if self.edge is None:
            table, codes = x.new_empty(0, x.shape[1]), index.new_empty(index.shape[1], 0)
        elif attr is None:
            raise ValueError("LocalBranch: edge_attr is missing, expected edge features")
        elif isinstance(self.edge, FeatureTable):
            table, codes = self.edge.weight, self.edge.places(attr)
        else:
            table, codes = self.edge(attr), torch.arange(len(attr), device=x.device).unsqueeze(-1)
        messages = edge_sum(x, table.to(x.dtype), codes, index)  # autocast may have changed it
        out = torch.addcmul(messages, 1 + self.epsilon, x)
        out = out if rows is None else gather_rows(out, rows)
        return self.outer(functional.relu(self.inner(out)))


LOCALS: dict[str, type[LocalBranch] | None] = {"none": None, "gine": LocalBranch}
