"""Message passing along the edges, added to a mixer, which does not see neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.embedding import FeatureTable, feature_encoder
from slicegraph.nn.layer import NORMS, Layer
from slicegraph.nn.packed import gather_rows
from slicegraph.ops.paths import edge_sum


@dataclass
class Edges:
    """Edges between rows: ``index [2, E]``, source and target; ``attr [E, F]`` or None.

    ``state`` ``[E, C]`` are vectors that :class:`LocalBranch` adds to those of the features, and
    that :class:`GatedBranch` updates from layer to layer.
    """

    index: Tensor
    attr: Tensor | None
    state: Tensor | None = None


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

    keeps_state = False  # the vectors of the edges are those of the features in every layer

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
            table = self.edge(attr)
            codes = torch.arange(attr.shape[0], device=x.device).unsqueeze(-1)
        if edges.state is not None:
            more = torch.arange(edges.state.shape[0], device=x.device) + table.shape[0]
            codes = torch.cat([codes, more.unsqueeze(-1)], 1)
            table = torch.cat([table.to(x.dtype), edges.state.to(x.dtype)])
        messages = edge_sum(x, table.to(x.dtype), codes, index)  # autocast may have changed it
        out = torch.addcmul(messages, 1 + self.epsilon, x)
        out = out if rows is None else gather_rows(out, rows)
        return self.outer(functional.relu(self.inner(out)))


class GatedBranch(Layer):
    r"""One message-passing step with a state for every edge: the gated layer of `"Residual Gated
    Graph ConvNets" <https://arxiv.org/abs/1711.07553>`_ (GatedGCN).

    .. math::
        z_{ji} &= A x_i + B x_j + C e_{ji} \\
        y_i &= U x_i + \frac{\sum_{j \to i} \sigma(z_{ji}) \odot V x_j}
            {\sum_{j \to i} \sigma(z_{ji}) + 10^{-6}} \\
        e_{ji} &\leftarrow e_{ji} + \mathrm{ReLU}(\mathrm{norm}(z_{ji}))

    Args:
        channels: the size of each row and of the state of an edge, which begins as the vector of
            its features.
        norm: the norm of the states, ``"layer"`` or ``"batch"``.
        update: whether to update the states; the last layer of an encoder does not.

    Shapes:
        Those of :class:`LocalBranch`, where the ``state`` of ``edges`` is replaced by the new one.

    Example:
        >>> edges = Edges(torch.tensor([[0, 1], [1, 0]]), None, state=torch.randn(2, 16))
        >>> GatedBranch(16)(torch.randn(3, 16), edges).shape
        torch.Size([3, 16])
    """

    keeps_state = True

    def __init__(self, channels: int, norm: str = "layer", update: bool = True) -> None:
        super().__init__()
        self._check_choice("norm", norm, NORMS)
        self.nodes = torch.nn.Linear(channels, 4 * channels)
        self.edge = torch.nn.Linear(channels, channels, bias=False)
        self.edge_norm = NORMS[norm](channels) if update else None

    def forward(self, x: Tensor, edges: Edges, rows: Tensor | None = None) -> Tensor:
        """Passes messages along the edges, and updates their states.

        Args:
            x: ``[T, channels]``, the rows.
            edges: the edges between them, with a state.
            rows: the rows of the output to compute, each at most once; all if None.
        """
        if edges.state is None:
            raise ValueError("GatedBranch: edges.state is missing, expected a vector per edge")
        source, target = edges.index
        own, at_target, sent = self.nodes(x).split([x.shape[1], x.shape[1], 2 * x.shape[1]], 1)
        at_source, values = sent.index_select(0, source).chunk(2, 1)
        z = self.edge(edges.state) + at_target.index_select(0, target) + at_source
        gates = z.sigmoid()
        sums = torch.cat([gates * values, gates], 1)
        sums = sums.new_zeros(x.shape[0], sums.shape[1]).index_add(0, target, sums)
        messages, total = sums.chunk(2, 1)
        if self.edge_norm is not None:
            edges.state = edges.state + functional.relu(self.edge_norm(z))
        out = own + messages / (total + 1e-6)
        return out if rows is None else gather_rows(out, rows)


LOCALS: dict[str, type[LocalBranch] | type[GatedBranch] | None] = {
    "none": None,
    "gine": LocalBranch,
    "gated": GatedBranch,
}
