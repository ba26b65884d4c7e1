"""What the structure of a graph says about each pair of its nodes, per attention head."""

from collections.abc import Sequence

import torch
from torch import Tensor

from slicegraph.nn.padded_sets import PaddedSets
from slicegraph.nn.pair_bias import PairBias, padding_value
from slicegraph.nn.path_bias import PathBias
from slicegraph.ops.shortest_paths import ShortestPaths
from slicegraph.ops.structural_bias import structural_bias


class StructuralBias(torch.nn.Module):
    r"""The spatial and edge encoding of `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_ (Graphormer): S + E, per head.

    .. math:: b_{ij} = S[d_{ij}] + \frac{1}{\max(1, \min(d_{ij}, K))}
        \sum_{k=1}^{\min(d_{ij}, K)} e_{ij}^{(k)} W_k

    where :math:`d_{ij}` is the distance from node i to node j and :math:`e_{ij}^{(k)}` describes
    the k-th edge of a shortest path: its float features, or the average of the vectors of its
    categories.

    Args:
        heads: the number of heads.
        max_distance: longer distances share the entry of this one. Unreachable pairs have their
            own.
        max_hops: how many edges of a path count, :math:`K`.
        edge_vocabulary: the number of categories of each edge feature, for categorical
            ``edge_attr``.
        edge_dim: the number of edge features, for floating-point ``edge_attr``. With neither, E
            is left out.
        token: whether every graph has a token as its first row, at a virtual distance of its own
            from all rows.
        hop_blocks: how many :math:`W_k` to store, ``max_hops`` if not given. Graphormer v1 stores
            128 and reads 5.
        padding_row: whether the tables begin with a row for padding, as those of Graphormer v1 do.
        empty_hops: whether the slots after a path's last edge add the edge table's padding row
            to the sum, as in Graphormer v1, whose initialisation fills that row with noise.

    Shapes:
        - **encoding**: from :func:`slicegraph.ops.shortest_paths.shortest_paths`, with at least
          ``max_hops`` hops and a ``max_distance`` of at least this one's.
        - **ptr**: ``[B + 1]``, the nodes of each graph.
        - **edge_attr**: ``[E, F]``.
        - **output**: a :class:`~slicegraph.nn.PairBias` for sets of ``n`` rows, or ``n + 1`` with a
          token.

    Example:
        >>> edge_index, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 2, 3])
        >>> encoding = shortest_paths(edge_index, ptr)
        >>> StructuralBias(heads=4, token=True)(encoding, ptr).bias.shape
        torch.Size([2, 4, 3, 3])
    """

    def __init__(
        self,
        heads: int,
        max_distance: int = 254,
        max_hops: int = 5,
        edge_vocabulary: Sequence[int] | None = None,
        edge_dim: int | None = None,
        token: bool = False,
        hop_blocks: int | None = None,
        padding_row: bool = False,
        empty_hops: bool = False,
    ) -> None:
        super().__init__()
        if not 0 <= max_hops <= max_distance:
            raise ValueError(
                f"StructuralBias: max_hops = {max_hops} is not in 0..max_distance = {max_distance}"
            )
        self.heads, self.max_distance, self.max_hops = heads, max_distance, max_hops
        self.padding_row = padding_row
        self.distance = torch.nn.Parameter(torch.empty(max_distance + 2 + padding_row, heads))
        self.virtual_distance = torch.nn.Parameter(torch.empty(1, heads)) if token else None
        paths = max_hops > 0 and bool(edge_vocabulary or edge_dim)
        details = (edge_vocabulary, edge_dim, hop_blocks, padding_row, empty_hops)
        self.path_bias = PathBias(heads, max_hops, *details) if paths else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the tables anew, with the deviation of Graphormer's."""
        torch.nn.init.normal_(self.distance, std=0.02)
        if self.padding_row:
            with torch.no_grad():
                self.distance[0] = 0
        if self.virtual_distance is not None:
            torch.nn.init.normal_(self.virtual_distance, std=0.02)
        if self.path_bias is not None:
            self.path_bias.reset_parameters()

    def forward(
        self, encoding: ShortestPaths, ptr: Tensor, edge_attr: Tensor | None = None
    ) -> PairBias:
        ptr, token = ptr.long(), self.virtual_distance is not None
        _check_pairs(encoding, ptr.diff(), self.max_hops if self.path_bias is not None else 0)
        sets = PaddedSets(ptr + int(token) * torch.arange(ptr.numel(), device=ptr.device))
        table = self._table()
        bias = structural_bias(
            table,
            self._products(edge_attr).to(table.dtype),
            encoding,
            ptr,
            sets.length,
            self.max_distance,
            token,
            self.path_bias is not None and self.path_bias.empty_hops,
            padding_value(table.dtype),
        )
        return PairBias(bias, sets)

    def _table(self) -> Tensor:
        """The entries of all distances, then the token's."""
        own = self.distance[int(self.padding_row) :]
        return own if self.virtual_distance is None else torch.cat([own, self.virtual_distance])

    def _products(self, edge_attr: Tensor | None) -> Tensor:
        if self.path_bias is None:
            return self.distance.new_zeros(0, 0, self.heads)
        if edge_attr is None:
            raise ValueError("StructuralBias: edge_attr is missing, expected edge features")
        return self.path_bias(edge_attr)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, max_distance={self.max_distance}"


def _check_pairs(encoding: ShortestPaths, sizes: Tensor, max_hops: int) -> None:
    expected, hops = int(sizes.square().sum()), encoding.path.shape[1]
    if not encoding.distance.shape[0] == encoding.path.shape[0] == expected:
        raise ValueError(
            f"StructuralBias: {encoding.distance.shape[0]} distances and {encoding.path.shape[0]} "
            f"paths, expected {expected}, one for each pair of nodes of a graph"
        )
    if hops < max_hops:
        raise ValueError(
            f"StructuralBias: the encoding has paths of {hops} hops, expected at least max_hops = "
            f"{max_hops}"
        )
