"""One vector for a graph, a sequence or any set, from its rows; and the head with kernels."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import aggr
from torch_geometric.utils import segment

from slicegraph.nn.packed import PaddedSets, gather_rows
from slicegraph.nn.slice_sort import Layer
from slicegraph.ops.layout import can_read, quantile_positions
from slicegraph.ops.sort import sort_columns


class SliceSortAggregation(aggr.MultiAggregation):
    r"""Sorts each channel within a set, as in the `Sliceformer
    <https://arxiv.org/abs/2310.17683>`_ paper, and reads it out at :math:`k` fixed quantiles.

    .. math:: y_{jc} = Q_{q_j}(x_{1c}, \ldots, x_{nc}), \quad q_j = j / (k - 1), \quad
        j = 0, \ldots, k - 1

    with linear interpolation between neighbours, as in :func:`torch.quantile`: ``k = 2`` gives the
    minimum and the maximum, ``k = 3`` the median between them, and ``k = 1`` the median alone. The
    result does not depend on the order of the elements. A set without elements gives zeros, one
    with a single element gives it :math:`k` times; NaN counts as the largest value.

    ``index`` need not be sorted, but elements that are grouped by set save a copy; so does ``ptr``.

    Importing :mod:`slicegraph.nn` makes it known to PyG: ``aggr="slicesort"`` (with
    ``aggr_kwargs={"k": 3}`` for more than the median) chooses it in any message passing layer. It
    is the concatenation of ``k`` aggregations, a ``MultiAggregation`` for PyG, so that ``SAGEConv``
    and ``GENConv`` count its channels. Layers that aggregate ``[E, heads, C]``, such as
    ``PNAConv``, have room for ``k = 1``.

    Args:
        k: the number of quantiles.

    Shapes:
        - **x**: ``[*, T, C]``, with ``index`` ``[T]`` or ``ptr`` ``[num_sets + 1]``.
        - **output**: ``[*, num_sets, k * C]``, quantile by quantile: channel ``c`` of quantile
          ``j`` is at ``j * C + c``.

    Example:
        >>> x = torch.tensor([[1.0, 10.0], [3.0, 30.0], [2.0, 20.0], [7.0, 70.0]])
        >>> SliceSortAggregation(k=3)(x, index=torch.tensor([0, 0, 0, 1]))
        tensor([[ 1., 10.,  2., 20.,  3., 30.],
                [ 7., 70.,  7., 70.,  7., 70.]])
    """

    def __init__(self, k: int = 1) -> None:
        aggr.Aggregation.__init__(self)  # it has no parts
        if not isinstance(k, int) or k < 1:
            raise ValueError(f"SliceSortAggregation: k = {k!r}, expected a number of at least 1")
        self.k = k

    def reset_parameters(self) -> None:
        """Does nothing: there are no parameters."""

    def get_out_channels(self, in_channels: int) -> int:
        """Returns the channels of the output; -1, still unknown, for -1."""
        return in_channels if in_channels == -1 else self.k * in_channels

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> Tensor:
        """Aggregates the elements of each set.

        Args:
            x: ``[*, T, C]``, the elements; at ``dim = -1``, ``[*, T]``.
            index: ``[T]``, the set of each element; one set if there is no ``ptr`` either.
            ptr: ``[num_sets + 1]``, the first element of each set, for elements grouped by set.
            dim_size: the number of sets.
            dim: the dimension of the elements. At -1 the quantiles become a dimension after it.
        """
        dim = dim % x.dim()
        if not x.is_floating_point():
            raise TypeError(f"SliceSortAggregation: x is {x.dtype}, expected floating point")
        if self.k > 1 and dim < x.dim() - 2:
            raise ValueError(
                f"SliceSortAggregation: k = {self.k} quantiles of x of shape {list(x.shape)} at "
                f"dim = {dim}: a layer with heads or towers has room for one; use k = 1"
            )
        rows = x.movedim(dim, 0)
        rest = rows.shape[1:]
        rows = rows.reshape(rows.shape[0], math.prod(rest))
        if ptr is None:
            if index is None or dim_size is None:
                raise ValueError("SliceSortAggregation: give ptr, or index with dim_size")
            rows, ptr = _group(rows, index, dim_size)
        rows = sort_columns(rows, None, ptr, descending=False, return_indices=False)
        out = self._interpolate(rows, ptr.long()).view(ptr.numel() - 1, self.k, *rest)
        out = out.movedim((0, 1), (dim, dim + 1))
        return out.flatten(dim + 1, dim + 2) if dim + 2 < out.dim() else out

    def of_dense(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Aggregates dense sets ``[B, N, C]`` with ``lengths`` ``[B]`` to ``[B, k, C]``."""
        return _quantiles_of_dense(x, lengths, self.k)

    def _interpolate(self, rows: Tensor, ptr: Tensor) -> Tensor:
        """Reads sorted, packed rows at the k quantiles of each set: `[num_sets, k, C]`."""
        sizes = ptr.diff()
        if rows.shape[0] == 0:
            return rows.new_zeros(len(sizes), self.k, rows.shape[1])
        below, above, weight = quantile_positions(sizes, self.k)
        low, high = (
            rows.index_select(0, at.flatten()).view(*at.shape, rows.shape[1])
            for at in ((ptr[:-1, None] + x).clamp(max=rows.shape[0] - 1) for x in (below, above))
        )
        between = low.lerp(high, weight.to(rows.dtype).unsqueeze(-1))
        return torch.where(sizes.view(-1, 1, 1) > 0, between, 0)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(k={self.k})"


def _quantiles_of_dense(x: Tensor, lengths: Tensor | None, k: int) -> Tensor:
    rows = sort_columns(x, lengths, None, descending=False, return_indices=False)
    if lengths is None:
        lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)
    below, above, weight = quantile_positions(lengths, k)
    low, high = (
        rows.gather(1, at.clamp(max=x.shape[1] - 1).unsqueeze(-1).expand(-1, -1, x.shape[2]))
        for at in (below, above)
    )
    out = low.lerp(high, weight.to(x.dtype).unsqueeze(-1))
    return torch.where(lengths.view(-1, 1, 1) > 0, out, 0)


# PyG's resolver reads this namespace: `aggr="slicesort"`.
if not hasattr(aggr, "SliceSortAggregation"):
    aggr.SliceSortAggregation = SliceSortAggregation


def _group(rows: Tensor, index: Tensor, num_sets: int) -> tuple[Tensor, Tensor]:
    """Sorts the rows by their set, and returns the ptr of the sets."""
    if index.shape != rows.shape[:1]:
        raise ValueError(
            f"SliceSortAggregation: index has shape {list(index.shape)}, expected [{len(rows)}]"
        )
    readable = can_read(index)
    if not (readable and bool((index[1:] >= index[:-1]).all())):
        index, order = torch.sort(index, stable=True)
        rows = rows.index_select(0, order)
    ptr = torch.searchsorted(index, torch.arange(num_sets + 1, device=index.device).to(index.dtype))
    if readable and index.numel() and not 0 <= int(index[0]) <= int(index[-1]) < num_sets:
        raise IndexError(
            f"SliceSortAggregation: index goes from {int(index[0])} to {int(index[-1])}, expected "
            f"values in 0..{num_sets - 1}"
        )
    return rows, ptr


class ReadoutKind(NamedTuple):
    """One readout; its function maps packed rows, ``ptr`` and ``quantiles`` to a row per set, and
    ``dense`` does so for dense rows and their layout."""

    function: Callable[[Tensor, Tensor, int], Tensor]
    dense: Callable[[Tensor, PaddedSets, int], Tensor]
    token: bool = False  # it reads a row that the model puts in front of every set
    parts: Callable[[int], int] = lambda k: 1  # how many times the channels, for k quantiles


def _maximum(x: Tensor, ptr: Tensor, _: int) -> Tensor:
    sets = PaddedSets(ptr)
    return x.new_zeros(sets.num_sets, x.shape[1]) if not sets.length else _max(sets.pad(x), sets, 0)


def _max(x: Tensor, sets: PaddedSets, _: int) -> Tensor:
    highest = x.masked_fill(~sets.real.unsqueeze(-1), -torch.inf).amax(1)
    return torch.where(sets.sizes.unsqueeze(-1) > 0, highest, 0)


def _dense_sum(x: Tensor, sets: PaddedSets, _: int) -> Tensor:
    return (x if sets.full else torch.where(sets.real.unsqueeze(-1), x, 0)).sum(1)


def _both(one: ReadoutKind, other: ReadoutKind) -> ReadoutKind:
    """Two readouts, concatenated."""
    return ReadoutKind(
        lambda x, ptr, k: torch.cat([one.function(x, ptr, k), other.function(x, ptr, k)], 1),
        lambda x, sets, k: torch.cat([one.dense(x, sets, k), other.dense(x, sets, k)], 1),
        parts=lambda k: one.parts(k) + other.parts(k),
    )


_SUM = ReadoutKind(lambda x, ptr, k: segment(x, ptr, reduce="sum"), _dense_sum)
_MEAN = ReadoutKind(
    lambda x, ptr, k: segment(x, ptr, reduce="mean"),
    lambda x, sets, k: _dense_sum(x, sets, k) / sets.sizes.clamp(min=1).unsqueeze(-1),
)
_QUANTILES = ReadoutKind(
    lambda x, ptr, k: SliceSortAggregation(k)(x, ptr=ptr, dim=0),
    lambda x, sets, k: _quantiles_of_dense(x, sets.lengths, k).flatten(1),
    parts=lambda k: k,
)
READOUTS = {
    "token": ReadoutKind(
        lambda x, ptr, k: gather_rows(x, ptr[:-1]), lambda x, sets, k: x[:, 0], token=True
    ),
    "mean": _MEAN,
    "sum": _SUM,
    "quantiles": _QUANTILES,
    "sum_mean": _both(_SUM, _MEAN),
    "sum_quantiles": _both(_SUM, _QUANTILES),
}
SEQUENCE_READOUTS = {
    "cls": READOUTS["token"],
    "mean": READOUTS["mean"],
    "max": ReadoutKind(_maximum, _max),
}


class GraphReadout(Layer):
    r"""Reads a graph from its first row (``token``), or from all rows.

    .. math:: y = x_1, \quad \frac{1}{n} \sum_i x_i, \quad \sum_i x_i, \quad \text{or} \quad
        \|_{j=0}^{k-1} Q_{j/(k-1)}(x_1, \ldots, x_n)

    Args:
        channels: the size of a row.
        readout: ``"token"``, ``"mean"``, ``"sum"``, ``"quantiles"`` by
            :class:`~slicegraph.nn.SliceSortAggregation`, or two of them concatenated:
            ``"sum_mean"``, ``"sum_quantiles"``. A graph without rows gives zeros; it has no token.
        quantiles: the number :math:`k` of quantiles.

    Shapes:
        - **x**: ``[T, channels]``, packed sets with ``ptr`` ``[B + 1]``.
        - **output**: ``[B, out_channels]``, where ``out_channels`` is ``channels``, twice that for
          ``"sum_mean"``, ``quantiles * channels`` or ``(1 + quantiles) * channels``.

    Example:
        >>> readout = GraphReadout(1, "mean")
        >>> readout(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 2, 3]))
        tensor([[2.],
                [5.]])
    """

    kinds = READOUTS

    def __init__(self, channels: int, readout: str = "token", quantiles: int = 5) -> None:
        super().__init__()
        self._check_choice("readout", readout, self.kinds)
        self.readout, self.quantiles = readout, quantiles
        self.out_channels = channels * self.kinds[readout].parts(quantiles)

    def forward(
        self, x: Tensor, ptr: Tensor | None = None, sets: PaddedSets | None = None
    ) -> Tensor:
        """Reads one vector from each set.

        Args:
            x: ``[T, channels]``, packed sets, or ``[B, N, channels]``, dense ones.
            ptr: ``[B + 1]``, the rows of each packed set.
            sets: the layout of dense sets.
        """
        kind = self.kinds[self.readout]
        if sets is not None:
            return kind.dense(x, sets, self.quantiles)
        assert ptr is not None
        return kind.function(x, ptr, self.quantiles)

    def extra_repr(self) -> str:
        return self.readout


class SequenceReadout(GraphReadout):
    r"""Reads a sequence from its first row (``cls``), or from all rows.

    .. math:: y = x_1, \quad \frac{1}{n} \sum_i x_i \quad \text{or} \quad \max_i x_i

    Args:
        channels: the size of a row.
        readout: ``"cls"``, ``"mean"`` or ``"max"``. A sequence without rows gives zeros.

    Shapes are those of :class:`~slicegraph.nn.GraphReadout`.
    """

    kinds = SEQUENCE_READOUTS

    def __init__(self, channels: int, readout: str = "mean") -> None:
        super().__init__(channels, readout)


class Closeness(NamedTuple):
    """How close molecules ``[B]`` are to those of a `KernelHead` ``[N]``, in each of its views.

    Squared distances ``[B, N]``, of which the mean over the molecules of the training is 1, and the
    Tanimoto similarity ``[B, N]`` of the counts; None for a view without numbers.
    """

    vectors: Tensor
    columns: Tensor | None
    descriptors: Tensor | None
    counts: Tensor | None

    def each(self, change: Callable[[str, Tensor], Tensor]) -> "Closeness":
        """Change each of them, by its name and what it is."""
        found: Any = {name: one for name, one in self._asdict().items() if one is not None}
        return self._replace(**{name: change(name, one) for name, one in found.items()})


class KernelHead(torch.nn.Module):
    r"""Predicts by a sum over stored training molecules: a Gaussian process on several views.

    .. math:: y(x) = b + \sum_n w_n k(x, x_n), \quad k = k_p \cdot \left(v_0 + v_1
        \frac{\sum_i \min(c_i, c'_i)}{\sum_i \max(c_i, c'_i)} + v_2 k_d + v_3 k_e\right)

    with the counts :math:`c` of Morgan neighbourhoods (their Tanimoto similarity), the descriptors
    :math:`d`, the vector of the encoder :math:`e` and the columns of a table :math:`p`. Each of
    the other kernels is Matern's with 3/2, :math:`(1 + \sqrt{3} r / l) \exp(-\sqrt{3} r / l)`.
    Far away from the training molecules the prediction is :math:`b + v_0 \sum_n w_n`. The variances
    :math:`v` and the noise are in the square of the unit of the labels.

    :func:`slicegraph.train.head.solve_kernel` solves it; there is nothing that a gradient trains.

    Args:
        rows: how many training molecules are stored.
        sizes: how many numbers the vector, the columns, the descriptors and the counts have; they
            are joined in this order, and the counts are given as :math:`\operatorname{asinh}(c)`.
        targets: each has a kernel of its own.
        outputs: of each target.

    Shapes:
        - **x**: ``[B, sum(sizes)]``.
        - **output**: ``[B, targets * outputs]``.
    """

    VARIANCES = ("constant", "counts", "descriptors", "vectors")
    MOST_COMPARED = 3_000  # stored molecules of `with_deviation`: its matrix of all pairs is kept
    SETTINGS = (*VARIANCES, "vectors_length", "columns_length", "descriptors_length", "noise")

    weight: Tensor
    bias: Tensor
    points: Tensor
    counts: Tensor
    shift: Tensor
    scale: Tensor
    log_settings: Tensor

    def __init__(
        self, rows: int, sizes: tuple[int, int, int, int], targets: int = 1, outputs: int = 1
    ) -> None:
        super().__init__()
        self.sizes, self.outputs, floats = sizes, outputs, sum(sizes[:3])
        self.in_features = sum(sizes)
        buffers = {
            "weight": torch.zeros(targets * outputs, rows),
            "bias": torch.zeros(targets * outputs),
            "points": torch.zeros(rows, floats),
            "counts": torch.zeros(rows, sizes[3], dtype=torch.uint8),
            "shift": torch.zeros(floats),
            "scale": torch.zeros(floats),
            "log_settings": torch.zeros(targets, len(self.SETTINGS)),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value)
        self._factors: list[tuple[Tensor, Tensor]] = []  # of each target, made when needed

    def extra_repr(self) -> str:
        return f"{len(self.points)} rows, {self.sizes}"

    @torch.no_grad()
    def store(self, x: Tensor) -> None:
        """Store training molecules ``[rows, sum(sizes)]``, and scale all numbers by them.

        Channels of the vector are standardised. Columns and descriptors have been scaled before, so
        that a descriptor with long tails keeps them.
        """
        floats, counts = x[:, : len(self.shift)].double(), x[:, len(self.shift) :]
        deviation = floats.std(0, correction=0)
        scale = (deviation > 1e-6).double()
        scale[: self.sizes[0]] /= deviation[: self.sizes[0]].clamp(min=1e-6)
        views = zip(scale.split(self.sizes[:3]), deviation.split(self.sizes[:3]), strict=True)
        for own, spread in views:  # the mean squared distance of two molecules becomes 1
            own /= (2 * (own * spread).square().sum()).sqrt().clamp(min=1e-6)
        self._factors = []
        self.points.copy_(floats)
        self.counts.copy_(counts.sinh().round().clamp(0, 255))
        self.shift.copy_(floats.mean(0))
        self.scale.copy_(scale)

    def forward(self, x: Tensor) -> Tensor:
        """Predicts the outputs of molecules.

        Args:
            x: ``[B, sum(sizes)]``, the numbers of each in the order of ``sizes``.
        """
        return self._outputs(self.closeness(x)).to(x.dtype)

    def _outputs(self, found: Closeness) -> Tensor:
        each = zip(self.log_settings, self.weight.split(self.outputs), strict=True)
        outputs = [
            self.kernel(found, settings) @ weight.to(found.vectors.dtype).T
            for settings, weight in each
        ]
        return torch.cat(outputs, -1) + self.bias

    @torch.no_grad()
    def with_deviation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        r"""Predicts the outputs, and the standard deviation of a new label of each target.

        .. math:: s^2(x) = k(x, x) - k_x^T (K + \sigma^2 I)^{-1} k_x + \sigma^2

        with the kernel K of the stored molecules that have a label, and the noise :math:`\sigma^2`
        of a label of weight 1. Of many molecules only some are compared, and s is a little larger.

        Args:
            x: as in :meth:`forward`.

        Shapes:
            - output: ``[B, targets * outputs]`` and ``[B, targets]``; 0 for a target that had no
              labels, or equal ones.
        """
        found, spread = self.closeness(x), []
        if not self._factors or self._factors[0][1].device != found.vectors.device:
            self._factors = self._factorised()
        itself = dict.fromkeys(Closeness._fields[:3], 0.0) | {"counts": 1.0}
        same = found.each(lambda name, one: one.new_full((1, 1), itself[name]))
        for settings, (rows, factor) in zip(self.log_settings, self._factors, strict=True):
            near = self.kernel(found, settings)[:, rows].T
            known = torch.linalg.solve_triangular(factor, near, upper=False).square().sum(0)
            left = (self.kernel(same, settings)[0, 0] - known).clamp(min=0)
            spread.append((left + settings[-1].to(left).exp()).sqrt() * bool(len(rows)))
        return self._outputs(found).to(x.dtype), torch.stack(spread, -1).to(x.dtype)

    def _factorised(self) -> list[tuple[Tensor, Tensor]]:
        """The molecules that each target is compared with, and Cholesky's factor of theirs."""
        most = round(self.MOST_COMPARED / len(self.log_settings) ** 0.5)
        last, device = len(self.points) - 1, self.points.device
        few = torch.linspace(0, last, min(most, last + 1), device=device).long()
        stored, found = torch.cat([self.points, self.counts.to(self.points).asinh()], 1), []
        near = self.closeness(stored[few]).each(lambda _, one: one[:, few])
        weights = self.weight.split(self.outputs)
        for settings, weight in zip(self.log_settings, weights, strict=True):
            known = (weight[:, few] != 0).any(0)
            kernel = self.kernel(near, settings)[known][:, known]
            kernel.diagonal().add_(settings[-1].to(kernel).exp())
            found.append((few[known], torch.linalg.cholesky(kernel)))
        return found

    def closeness(self, x: Tensor) -> Closeness:
        """Compare molecules ``[B, sum(sizes)]`` with the stored ones, in double precision."""
        wide = torch.float32 if x.device.type == "mps" else torch.float64  # which mps lacks
        floats, counts = x[:, : len(self.shift)].to(wide), x[:, len(self.shift) :]
        views = [
            ((one.to(wide) - self.shift) * self.scale).split(self.sizes[:3], 1)
            for one in (floats, self.points)
        ]
        squares = [
            _squared_distance(*pair) if size else None
            for size, *pair in zip(self.sizes, *views, strict=False)
        ]
        vectors, columns, descriptors = squares
        assert vectors is not None
        similar = None
        if self.sizes[3]:
            similar = _tanimoto(counts.sinh().round().clamp(0, 255), self.counts).to(wide)
        return Closeness(vectors, columns, descriptors, similar)

    def kernel(self, found: Closeness, log_settings: Tensor) -> Tensor:
        """Compute the kernel ``[B, N]`` of the logarithms of `SETTINGS`, but for the noise."""
        own = dict(zip(self.SETTINGS, log_settings.to(found.vectors.dtype).exp(), strict=True))
        total = own["constant"] + own["vectors"] * matern(found.vectors, own["vectors_length"])
        if found.descriptors is not None:
            near = matern(found.descriptors, own["descriptors_length"])
            total = total + own["descriptors"] * near
        if found.counts is not None:
            total = total + own["counts"] * found.counts
        if found.columns is not None:
            total = total * matern(found.columns, own["columns_length"])
        return total


def matern(squares: Tensor, length: Tensor) -> Tensor:
    """Matern's kernel with 3/2, of squared distances."""
    far = (3 * squares + 1e-12).sqrt() / length  # the root has no gradient at 0
    return (1 + far) * (-far).exp()


def _squared_distance(x: Tensor, y: Tensor) -> Tensor:
    squares = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T
    return squares.clamp(min=0)


def _tanimoto(x: Tensor, y: Tensor) -> Tensor:
    """Return sum min(x, y) / sum max(x, y) of counts ``[B, F]`` and ``[N, F]``; 1 for no counts.

    A count c is the sum over levels l = 1, 2, ... of [c >= l], so the minimum of two is a product
    of matrices of these, with a column for every level that a count of y has.
    """
    most = y.amax(0).long()
    column = torch.repeat_interleave(torch.arange(len(most), device=x.device), most)
    level = torch.arange(len(column), device=x.device) - (most.cumsum(0) - most)[column] + 1
    reached = [(counts[:, column] >= level).float() for counts in (x, y)]
    shared = reached[0] @ reached[1].T
    total = x.float().sum(1)[:, None] + y.float().sum(1) - shared
    return torch.where(total > 0, shared / total.clamp(min=1), 1.0)
