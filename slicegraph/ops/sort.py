"""The sorting orders of the Sliceformer: column sort, max exchange, interleaved directions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from slicegraph.ops import reference
from slicegraph.ops.layout import INDEX_DTYPES, OptTensor, can_read, check_layout, padding_rows
from slicegraph.ops.operator import Operator

Direction = bool | Tensor | Sequence[bool]


def column_sort(
    x: Tensor,
    lengths: OptTensor = None,
    ptr: OptTensor = None,
    descending: Direction = False,
    return_indices: bool = True,
) -> Any:
    r"""Sorts every column of every set, the operator of the Sliceformer paper.

    .. math:: y_{\cdot c} = \mathrm{sort}(x_{1c}, \ldots, x_{nc})

    Values and indices equal those of ``torch.sort(stable=True)`` on each set to the bit: ties stay
    in row order, NaN comes last when ascending and first when descending.

    Args:
        x: float32, float64, bfloat16 or float16. Dense sets ``[..., N, C]``, or packed sets
            ``[T, C]`` together with ``ptr``.
        lengths: ``[...]``, int32 or int64: how many rows of each dense set are real. The other
            rows come out as zeros, their indices are their own row numbers.
        ptr: ``[B + 1]``, int32 or int64: set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]``.
        descending: one direction for all channels, or one for each of the ``C`` channels.
        return_indices: whether to return ``(values, indices)`` or the values only.

    Shapes:
        values and indices: like ``x``; indices are int64 and local to their set.

    Example:
        >>> values, indices = column_sort(torch.tensor([[3.0, 1.0], [2.0, 5.0]]))
        >>> values
        tensor([[2., 1.],
                [3., 5.]])
        >>> indices
        tensor([[1, 0],
                [0, 1]])
    """
    check_layout("column_sort", x, lengths, ptr)
    return sort_columns(x, lengths, ptr, descending, return_indices)


def sort_columns(
    x: Tensor, lengths: OptTensor, ptr: OptTensor, descending: Direction, return_indices: bool
) -> Any:
    """`column_sort` for callers whose sets are right by construction: never waits for a GPU."""
    mask = None
    if not isinstance(descending, bool):
        mask = torch.as_tensor(descending, device=x.device)
        if mask.dtype != torch.bool:
            raise TypeError(f"column_sort: descending is {mask.dtype}, expected bool")
        if mask.shape != x.shape[-1:]:
            raise ValueError(
                f"column_sort: descending has shape {list(mask.shape)}, expected a bool or one per "
                f"channel, [{x.shape[-1]}]"
            )
    if return_indices:
        return column_sort_op(x, lengths, ptr, mask, descending is True, 8)
    return column_sort_values_op(x, lengths, ptr, mask, descending is True)


def max_exchange(x: Tensor, lengths: OptTensor = None, ptr: OptTensor = None) -> Tensor:
    r"""Swaps each column's first maximum with its first row, in :math:`O(N)`.

    The "max-exchange" order of the Sliceformer paper: everything else stays where it is. NaN counts
    as the largest value, as in :func:`torch.argmax`.

    Args:
        x, lengths, ptr: dense or packed sets, as in :func:`column_sort`.

    Shapes:
        output: like ``x``.

    Example:
        >>> max_exchange(torch.tensor([[1.0, 9.0], [2.0, 5.0], [7.0, 9.0]]))
        tensor([[7., 9.],
                [2., 5.],
                [1., 9.]])
    """
    check_layout("max_exchange", x, lengths, ptr)
    return max_exchange_op(x, lengths, ptr)[0]


def interleave_descending(num_channels: int, layer: int, num_layers: int) -> Tensor:
    r"""The interleaved order of the Sliceformer paper, as a direction per channel.

    Column :math:`i = 1..C` of layer :math:`n = 1..L` is sorted in ascending order where
    :math:`\sin(2^{L-n} \pi i / C) \ge 0` and in descending order elsewhere. The sign is taken
    exactly: with :math:`q = 2^{L-n} i` the sine is negative iff ``q % C != 0`` and ``q // C`` is
    odd.

    Args:
        num_channels: the number of columns :math:`C`.
        layer: the number of this layer, from 1 to ``num_layers``.
        num_layers: the number of layers :math:`L`.

    Returns:
        A bool tensor of shape ``[num_channels]``, true where the column descends.

    Example:
        >>> interleave_descending(num_channels=4, layer=1, num_layers=2)
        tensor([False, False,  True, False])
    """
    if num_channels < 0:
        raise ValueError(f"interleave_descending: num_channels = {num_channels} is negative")
    if num_layers < 1:
        raise ValueError(f"interleave_descending: num_layers = {num_layers} must be at least 1")
    if not 1 <= layer <= num_layers:
        raise ValueError(f"interleave_descending: layer = {layer} is not in 1..{num_layers}")
    # Python integers: 2^(L-n) has no largest value, and sin is periodic in 2C.
    step = pow(2, num_layers - layer, 2 * num_channels) if num_channels else 0
    products = [step * i % (2 * num_channels) for i in range(1, num_channels + 1)]
    return torch.tensor([q > num_channels for q in products], dtype=torch.bool)


def decompositions() -> dict[Any, Any]:
    """Returns operators of slicegraph in terms of those of torch, for dense sets without NaN.

    They replace ``column_sort``, which other runtimes do not have, in an exported program; a
    file for ONNX needs them.

    Example:
        >>> program = torch.export.export(SliceSort(16).eval(), (torch.randn(2, 5, 16),))
        >>> program = program.run_decompositions(decompositions())
        >>> torch.onnx.export(program, f="layer.onnx")
    """
    return {
        column_sort_values_op.op: _dense_sort,
        column_sort_values_op.kernel: _dense_sort,
        column_sort_op.op: _dense_sort_with_indices,
        column_sort_op.kernel: _dense_sort_with_indices,
    }


def _dense_sort(x: Tensor, lengths: OptTensor, ptr: OptTensor, mask: OptTensor, *rest: Any) -> Any:
    if ptr is not None:
        raise ValueError("decompositions: packed sets (ptr), expected dense ones (lengths)")
    padding = None if lengths is None else padding_rows(x, lengths)

    def one_way(down: bool) -> Tensor:
        last = -torch.inf if down else torch.inf
        rows = x if padding is None else x.masked_fill(padding, last)
        return torch.sort(rows, dim=-2, descending=down).values

    out = one_way(rest[0]) if mask is None else torch.where(mask, one_way(True), one_way(False))
    return out if padding is None else out.masked_fill(padding, 0)


def _dense_sort_with_indices(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    # A program that only predicts does not read the rows, which its gradient would need.
    return _dense_sort(x, *rest), x.new_zeros(x.shape, dtype=INDEX_DTYPES[rest[-1]])


def _fake_column_sort(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=INDEX_DTYPES[rest[-1]])


def _fake_max_exchange(x: Tensor, lengths: Any, ptr: OptTensor) -> tuple[Tensor, Tensor]:
    sets = x.shape[:-2] if ptr is None else (ptr.shape[0] - 1,)
    return x.new_empty(x.shape), x.new_empty((*sets, x.shape[-1]), dtype=torch.int64)


# The operators by gather and scatter of torch, which `torch.func` sees through. Which row a value
# comes from has no derivative.


def _smooth_sort(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    rows = reference.column_sort(x.detach(), *arguments)[1]
    return _smooth_gather(x, rows, *arguments[:2]), rows


def _smooth_gather(x: Tensor, indices: Tensor, lengths: OptTensor, ptr: OptTensor) -> Tensor:
    out = x.gather(-2, reference.row_numbers(indices, ptr))
    return out if lengths is None else out.masked_fill(padding_rows(x, lengths), 0)


def _smooth_scatter(x: Tensor, indices: Tensor, lengths: OptTensor, ptr: OptTensor) -> Tensor:
    x = x if lengths is None else x.masked_fill(padding_rows(x, lengths), 0)
    return torch.zeros_like(x).scatter(-2, reference.row_numbers(indices, ptr), x)


def _smooth_exchange(x: Tensor, where: Tensor, lengths: OptTensor, ptr: OptTensor) -> Tensor:
    return _smooth_gather(x, reference.exchanged(x, where, ptr), lengths, ptr)


def _smooth_max_exchange(x: Tensor, lengths: OptTensor, ptr: OptTensor) -> tuple[Tensor, Tensor]:
    where = reference.max_exchange(x.detach(), lengths, ptr)[1]
    return _smooth_exchange(x, where, lengths, ptr), where


_SETS, _TWO = "Tensor? lengths, Tensor? ptr", "(Tensor, Tensor)"
_SORT = f"Tensor x, {_SETS}, Tensor? mask, bool descending"
_MOVE = f"Tensor x, Tensor indices, {_SETS}"
column_sort_op = Operator(
    "column_sort", f"{_SORT}, int index_bytes", _TWO, _fake_column_sort, smooth=_smooth_sort
)
column_sort_values_op = Operator(
    "column_sort_values", _SORT, smooth=lambda *arguments: _smooth_sort(*arguments, 8)[0]
)
column_scatter_op = Operator("column_scatter", _MOVE, smooth=_smooth_scatter)
column_gather_op = Operator("column_gather", _MOVE, smooth=_smooth_gather)
max_exchange_op = Operator(
    "max_exchange", f"Tensor x, {_SETS}", _TWO, _fake_max_exchange, smooth=_smooth_max_exchange
)
exchange_rows_op = Operator(
    "exchange_rows", f"Tensor x, Tensor where, {_SETS}", smooth=_smooth_exchange
)


def _sort_gradient(back: Operator) -> type[Function]:
    """The gradient of an operator that also finds the row of each value; `back` undoes it."""

    class Sort(Function):
        @staticmethod
        def forward(ctx: Any, run, x, lengths, ptr, *options):
            values, rows = run(x, lengths, ptr, *options)
            ctx.mark_non_differentiable(rows)
            ctx.save_for_backward(rows, lengths, ptr)
            return values, rows

        @staticmethod
        def backward(ctx: Any, grad_out, _):
            return None, back(grad_out, *ctx.saved_tensors), *(None,) * 5

    return Sort


class _ColumnSortValues(Function):
    @staticmethod
    def forward(ctx: Any, run, x, lengths, ptr, mask, descending):
        values, indices = run(x, lengths, ptr, mask, descending, _index_bytes(x, ptr))
        ctx.save_for_backward(indices, lengths, ptr)
        return values

    @staticmethod
    def backward(ctx: Any, grad_out):
        return None, column_scatter_op(grad_out, *ctx.saved_tensors), None, None, None, None


def _move_gradient(back: Operator) -> type[Function]:
    """The gradient of an operator that moves rows; `back` undoes it."""

    class Move(Function):
        @staticmethod
        def forward(ctx: Any, run, x, indices, lengths, ptr):
            ctx.save_for_backward(indices, lengths, ptr)
            return run(x, indices, lengths, ptr)

        @staticmethod
        def backward(ctx: Any, grad_out):
            return None, back(grad_out, *ctx.saved_tensors), None, None, None

    return Move


column_sort_op.differentiate_with(_sort_gradient(column_scatter_op))
column_sort_values_op.differentiate_with(_ColumnSortValues, runs="column_sort")
column_scatter_op.differentiate_with(_move_gradient(column_gather_op))
column_gather_op.differentiate_with(_move_gradient(column_scatter_op))
max_exchange_op.differentiate_with(_sort_gradient(exchange_rows_op))
exchange_rows_op.differentiate_with(_move_gradient(exchange_rows_op))


def _index_bytes(x: Tensor, ptr: OptTensor) -> int:
    """The bytes of the narrowest integer that holds every row number of a set."""
    rows: Any = x.shape[-2]
    if ptr is not None and x.numel() > 1 << 15 and can_read(x):
        rows = int(ptr.diff().max()) if ptr.numel() > 1 else 0
    known: Any = None
    if type(rows) is not int:  # symbolic under torch.compile, on which this sets no guard
        try:  # imports sympy, which eager code does not need
            from torch.fx.experimental.symbolic_shapes import statically_known_true as known
        except ImportError:
            return 8
    for index_bytes, most in ((1, 1 << 8), (2, 1 << 15), (4, (1 << 31) - 1)):
        if rows <= most if known is None else known(rows <= most):
            return index_bytes
    return 8
