"""A readout that describes a set by the quantiles of its channels."""

import math

import torch
from torch import Tensor
from torch_geometric.nn.aggr import Aggregation

from slicegraph.ops.column_sort import sort_columns


class SliceSortAggregation(Aggregation):
    r"""Sorts each channel within a set, as in the `Sliceformer
    <https://arxiv.org/abs/2310.17683>`_ paper, and reads it out at :math:`k` fixed quantiles.

    .. math:: y_{jc} = Q_{q_j}(x_{1c}, \ldots, x_{nc}), \quad q_j = j / (k - 1), \quad
        j = 0, \ldots, k - 1

    with linear interpolation between neighbours, as in :func:`torch.quantile`: ``k = 2`` gives the
    minimum and the maximum, ``k = 3`` the median between them, and ``k = 1`` the median alone. The
    result does not depend on the order of the elements. A set without elements gives zeros, one
    with a single element gives it :math:`k` times; NaN counts as the largest value.

    ``index`` need not be sorted, but elements that are grouped by set (``data.sort(
    sort_by_row=False)`` for messages) save a copy; so does ``ptr``.

    Args:
        k: the number of quantiles.

    Shapes:
        - **x**: ``[*, T, C]``, with ``index`` ``[T]`` or ``ptr`` ``[num_sets + 1]``.
        - **output**: ``[*, num_sets, k * C]``, quantile by quantile: channel ``c`` of quantile
          ``j`` is at ``j * C + c``. For another ``dim`` the quantiles join the dimension after it.

    Example:
        >>> x = torch.tensor([[1.0, 10.0], [3.0, 30.0], [2.0, 20.0], [7.0, 70.0]])
        >>> SliceSortAggregation(k=3)(x, index=torch.tensor([0, 0, 0, 1]))
        tensor([[ 1., 10.,  2., 20.,  3., 30.],
                [ 7., 70.,  7., 70.,  7., 70.]])
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"SliceSortAggregation: k = {k} must be at least 1")
        self.k = k

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> Tensor:
        dim = dim % x.dim()
        rows = x.movedim(dim, 0)
        rest = rows.shape[1:]
        rows = rows.reshape(rows.shape[0], math.prod(rest))
        if ptr is None:
            if index is None or dim_size is None:
                raise ValueError("SliceSortAggregation: give ptr, or index with dim_size")
            rows, ptr = _group(rows, index, dim_size)
        rows = sort_columns(rows, None, ptr, descending=False, return_indices=False)
        out = self._read(rows, ptr.long()).view(ptr.numel() - 1, self.k, *rest)
        out = out.movedim((0, 1), (dim, dim + 1))
        return out.flatten(dim + 1, dim + 2) if dim + 2 < out.dim() else out

    def _read(self, rows: Tensor, ptr: Tensor) -> Tensor:
        """`[num_sets, k, C]`: sorted, packed rows at the k quantiles of each set."""
        sizes = ptr.diff().unsqueeze(-1)
        if rows.shape[0] == 0:
            return rows.new_zeros(sizes.shape[0], self.k, rows.shape[1])
        # Whole numbers, so that no rank of a large set is rounded: q_j = steps[j] / parts.
        first, parts = (0, self.k - 1) if self.k > 1 else (1, 2)
        steps = torch.arange(first, first + self.k, device=rows.device)
        ranks = (sizes - 1).clamp(min=0) * steps
        below = (ptr[:-1].unsqueeze(-1) + ranks // parts).clamp(max=rows.shape[0] - 1)
        weight = (ranks % parts / parts).to(rows.dtype)
        low, high = (
            rows.index_select(0, at.flatten()).view(*at.shape, rows.shape[1])
            for at in (below, below + (ranks % parts > 0))
        )
        return torch.where(sizes.unsqueeze(-1) > 0, low.lerp(high, weight.unsqueeze(-1)), 0)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(k={self.k})"


def _group(rows: Tensor, index: Tensor, num_sets: int) -> tuple[Tensor, Tensor]:
    """The rows of each set next to each other, and the ptr to them."""
    if index.shape != rows.shape[:1]:
        raise ValueError(
            f"SliceSortAggregation: index has shape {list(index.shape)}, expected "
            f"[{rows.shape[0]}], one per element"
        )
    can_look = index.is_cpu and not torch.compiler.is_compiling()
    if not (can_look and bool((index[1:] >= index[:-1]).all())):
        index, order = torch.sort(index, stable=True)
        rows = rows.index_select(0, order)
    ptr = torch.searchsorted(index, torch.arange(num_sets + 1, device=index.device).to(index.dtype))
    if can_look and index.numel() and not 0 <= int(index[0]) <= int(index[-1]) < num_sets:
        raise IndexError(
            f"SliceSortAggregation: index goes from {int(index[0])} to {int(index[-1])}, expected "
            f"values in 0..{num_sets - 1}"
        )
    return rows, ptr
