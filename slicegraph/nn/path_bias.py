"""What every edge says about the two ends of a path that it lies on, per attention head."""

from collections.abc import Sequence

import torch
from torch import Tensor

from slicegraph.nn.feature_table import FeatureTable


class PathBias(torch.nn.Module):
    r"""The terms of the edge encoding of `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_ (Graphormer).

    .. math:: E_{ij} = \frac{1}{\max(1, \min(d_{ij}, K))}
        \sum_{k=1}^{\min(d_{ij}, K)} e_{ij}^{(k)} W_k

    where :math:`e_{ij}^{(k)}` describes the k-th edge of the path: its float features, or the
    average of the vectors of its categories. Every edge is multiplied by every :math:`W_k` once; a
    pair only looks up and adds, by :func:`~slicegraph.ops.structural_bias.structural_bias`.

    Args:
        heads, max_hops, edge_vocabulary, edge_dim, hop_blocks, padding_row, empty_hops: as in
            :class:`~slicegraph.nn.StructuralBias`.

    Shapes:
        - **edge_attr**: ``[E, F]``.
        - **output**: ``[E, max_hops, heads]``; with ``empty_hops``, one row more for what an empty
          slot adds.

    Example:
        >>> PathBias(heads=4, max_hops=5, edge_dim=3)(torch.randn(2, 3)).shape
        torch.Size([2, 5, 4])
    """

    def __init__(
        self,
        heads: int,
        max_hops: int,
        edge_vocabulary: Sequence[int] | None = None,
        edge_dim: int | None = None,
        hop_blocks: int | None = None,
        padding_row: bool = False,
        empty_hops: bool = False,
    ) -> None:
        super().__init__()
        blocks = max_hops if hop_blocks is None else hop_blocks
        if max_hops > blocks:
            raise ValueError(f"PathBias: max_hops = {max_hops} exceeds hop_blocks = {blocks}")
        if bool(edge_vocabulary) == bool(edge_dim):
            raise ValueError(
                f"PathBias: edge_vocabulary = {edge_vocabulary} (categorical edge_attr) and "
                f"edge_dim = {edge_dim} (float edge_attr), expected one of them"
            )
        if empty_hops and not (edge_vocabulary and padding_row):
            raise ValueError("PathBias: empty_hops needs edge_vocabulary and padding_row")
        self.heads, self.max_hops, self.empty_hops = heads, max_hops, empty_hops
        self.edge_table = (
            FeatureTable(edge_vocabulary, heads, mean=True, padding_row=padding_row)
            if edge_vocabulary
            else None
        )
        self.edge_dim = edge_dim or heads
        self.weight = torch.nn.Parameter(torch.empty(blocks, self.edge_dim, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights anew, with the deviation of Graphormer's."""
        torch.nn.init.normal_(self.weight, std=0.02)
        if self.edge_table is not None:
            self.edge_table.reset_parameters()

    def forward(self, edge_attr: Tensor) -> Tensor:
        edges = self._vectors(edge_attr)
        if self.empty_hops and self.edge_table is not None:
            # Graphormer v1 adds its padding row, but never trains it.
            edges = torch.cat([edges, self.edge_table.weight[:1].detach()])
        weight = self.weight[: self.max_hops].transpose(0, 1).flatten(1)
        return (edges @ weight).unflatten(-1, (self.max_hops, self.heads))

    def _vectors(self, edge_attr: Tensor) -> Tensor:
        if self.edge_table is not None:
            return self.edge_table(edge_attr)
        if edge_attr.dim() == 1 and self.edge_dim == 1:
            edge_attr = edge_attr.unsqueeze(-1)
        if edge_attr.dim() != 2 or edge_attr.shape[1] != self.edge_dim:
            raise ValueError(
                f"PathBias: edge_attr has shape {list(edge_attr.shape)}, expected "
                f"[E, {self.edge_dim}]"
            )
        return edge_attr.to(self.weight.dtype)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, max_hops={self.max_hops}"
