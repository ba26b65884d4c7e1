"""Packed sets of rows, ``[T, C]`` with a ``ptr``, dense ones, ``[B, N, C]``, and the ways between.

Set ``b`` of a packed batch is the rows ``ptr[b]`` to ``ptr[b + 1]``. On a CPU rows stay packed, so
that padding costs nothing; on other devices and in compiled graphs, where each launch and each
unknown size costs more than padding, an encoder pads its rows once (:class:`PaddedSets`).
"""

from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.layout import can_read, set_of_row
from slicegraph.ops.operator import assert_async, is_transformed

_HOW_TO_SORT = "perm = batch.argsort(stable=True); x, batch = x[perm], batch[perm]"


def check_batch(name: str, batch: Any, x: Tensor) -> None:
    """Raises unless a PyG ``batch`` vector has an integer for each of the packed rows ``x``."""
    if not isinstance(batch, Tensor):
        raise TypeError(f"{name}: batch is a {type(batch).__name__}, expected a tensor")
    if batch.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name}: batch is {batch.dtype}, expected int64 or int32")
    if x.dim() != 2 or batch.shape != x.shape[:1]:
        raise ValueError(
            f"{name}: batch of shape {list(batch.shape)} with x of shape {list(x.shape)}, expected "
            "batch [T] and x [T, C]"
        )


def batch_to_ptr(batch: Tensor) -> Tensor:
    """Converts a sorted PyG ``batch`` vector ``[T]`` to the ``ptr`` of its runs of equal values.

    On a CPU there is one set per run. Elsewhere, and in a compiled graph, the number of runs is
    unknown: ``ptr`` is ``[T + 1]``, and all sets of a run but the last are empty.
    """
    if not can_read(batch):
        if assert_async is not None:
            is_sorted = (batch == batch.cummax(0).values).all()
            assert_async(is_sorted, "batch is not sorted; sort the rows by " + _HOW_TO_SORT)
        starts = torch.searchsorted(batch, batch)
        return torch.cat([starts, starts.new_full((1,), batch.shape[0])])
    if bool((descents := batch[1:] < batch[:-1]).any()):
        row = int(descents.to(torch.uint8).argmax())
        raise ValueError(
            f"batch is not sorted: batch[{row + 1}] = {int(batch[row + 1])} follows "
            f"batch[{row}] = {int(batch[row])}; sort the rows by {_HOW_TO_SORT}"
        )
    if batch.numel() and (first := int(batch[0])) < 0:
        raise ValueError(f"batch[0] = {first} is negative, expected the number of a graph")
    counts = torch.unique_consecutive(batch, return_counts=True)[1]
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def gather_rows(x: Tensor, index: Tensor) -> Tensor:
    """Returns ``x[index]`` for an ``index`` without duplicates."""
    return x.index_select(0, index) if is_transformed() else _Gather.apply(x, index)


def scatter_rows(rows: Tensor, index: Tensor, num_rows: int) -> Tensor:
    """Returns ``[num_rows, C]`` zeros with ``rows`` at ``index``, which has no duplicates."""
    if is_transformed():
        return rows.new_zeros(num_rows, rows.shape[1]).index_add(0, index, rows)
    return _Scatter.apply(rows, index, num_rows)


class _Gather(torch.autograd.Function):
    """`index_select` whose gradient copies rows: torch, unaware that none is read twice, adds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.num_rows = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None]:
        return _Scatter.apply(grad_out, *ctx.saved_tensors, ctx.num_rows), None


class _Scatter(torch.autograd.Function):
    """The transpose of `_Gather`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, num_rows: int) -> Tensor:
        ctx.save_for_backward(index)
        return rows.new_zeros(num_rows, rows.shape[1]).index_copy_(0, index, rows)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None, None]:
        return _Gather.apply(grad_out, *ctx.saved_tensors), None, None


def to_front(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns two inverse permutations of all rows of ``mask`` ``[..., N]``, flat: the true rows of
    each set to its front, and back."""
    lengths = mask.sum(-1, keepdim=True)
    target = torch.where(mask, mask.cumsum(-1), lengths + (~mask).cumsum(-1)) - 1
    rows = torch.arange(mask.numel(), device=mask.device).view(mask.shape)
    return rows.scatter(-1, target, rows).flatten(), rows.gather(-1, target).flatten()


def all_pairs(ptr: Tensor) -> Tensor:
    r"""Lists all pairs of rows of each set, in the order of ``pair_distance``.

    Args:
        ptr: ``[B + 1]``, the rows of each set.

    Shapes:
        output: ``[2, P]`` with :math:`P = \sum_b n_b^2`, the first and the second row of each pair,
        set by set, row by row.

    Example:
        >>> all_pairs(torch.tensor([0, 2, 3]))
        tensor([[0, 0, 1, 1, 2],
                [0, 1, 0, 1, 2]])
    """
    ptr = ptr.long()
    sizes = ptr.diff()
    partners = torch.repeat_interleave(sizes, sizes)  # of each row, itself included
    first = torch.repeat_interleave(torch.arange(len(partners), device=ptr.device), partners)
    starts = torch.repeat_interleave(partners.cumsum(0) - partners, partners)
    local = torch.arange(len(first), device=ptr.device) - starts
    return torch.stack([first, ptr[set_of_row(ptr, len(partners))][first] + local])


def token_ptr(ptr: Tensor) -> Tensor:
    """Returns the ``ptr`` of the sets with one more row each, a token in front."""
    return ptr + torch.arange(ptr.numel(), device=ptr.device)


def prepend_tokens(x: Tensor, token: Tensor, ptr: Tensor) -> Tensor:
    """Puts ``token`` ``[1, C]`` in front of every packed set; see :func:`token_ptr`."""
    num_rows, num_sets = x.shape[0], ptr.numel() - 1
    places = torch.arange(num_rows, device=x.device) + set_of_row(ptr, num_rows) + 1
    rows = torch.cat([x, token.expand(num_sets, -1).to(x.dtype)])
    return scatter_rows(rows, torch.cat([places, token_ptr(ptr)[:-1]]), num_rows + num_sets)


def pack(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Packs the elements of ``x`` ``[B, N, ...]`` where ``mask`` ``[B, N]`` is true, with a ptr."""
    elements = x.flatten(0, 1)
    if mask is None:
        return elements, x.shape[1] * torch.arange(x.shape[0] + 1, device=x.device)
    places = mask.flatten().nonzero().squeeze(1)
    ptr = torch.cat([places.new_zeros(1), mask.sum(1).cumsum(0)])
    return gather_rows(elements, places) if x.is_floating_point() else elements[places], ptr


class PaddedSets:
    """The dense layout ``[B, length, C]`` of sets, padded to the size of the largest.

    Args:
        ptr: ``[B + 1]``, the rows of each packed set.
        length: the rows of the largest set. It is read from ``ptr`` if None, which waits for a GPU.
        num_rows: the rows of all sets together, likewise.
    """

    def __init__(self, ptr: Tensor, length: int | None = None, num_rows: int | None = None) -> None:
        self.ptr = ptr.long()
        self.sizes = self.ptr.diff()
        self.num_sets: int = self.sizes.numel()
        known = length is not None
        if length is None:
            length = int(self.sizes.max()) if self.num_sets else 0
        self.length = length
        self.num_rows = int(self.ptr[-1]) if num_rows is None else num_rows
        self.full = can_read(ptr) and self.num_rows == self.num_sets * self.length
        if known and self.num_sets and assert_async is not None:
            assert_async((self.sizes <= length).all(), "a set is larger than max_nodes")
        sets = set_of_row(self.ptr, self.num_rows)
        self.slots = torch.arange(self.num_rows, device=ptr.device) + (
            sets * self.length - self.ptr[sets]
        )

    @property
    def lengths(self) -> Tensor | None:
        """``[B]``, the rows of each set; None if none is padded."""
        return None if self.full else self.sizes

    @property
    def real(self) -> Tensor:
        """``[B, length]`` bool, true where a set has a row."""
        return torch.arange(self.length, device=self.sizes.device) < self.sizes.unsqueeze(-1)

    def pad(self, rows: Tensor) -> Tensor:
        """Converts ``[T, C]`` to ``[B, length, C]``, with zeros as padding."""
        if not self.full:
            rows = scatter_rows(rows, self.slots, self.num_sets * self.length)
        return rows.view(self.num_sets, self.length, rows.shape[1])

    def unpad(self, x: Tensor) -> Tensor:
        """Converts ``[B, length, C]`` to ``[T, C]``."""
        rows = x.reshape(self.num_sets * self.length, x.shape[2])
        return rows if self.full else gather_rows(rows, self.slots)


class DenseSets(PaddedSets):
    """Sets that were never packed: ``[B, length, C]`` with ``lengths`` ``[B]``, or all rows real.

    Their number of rows is not known, so they cannot be packed.
    """

    def __init__(self, like: Tensor, lengths: Tensor | None = None) -> None:
        self.num_sets, self.length = like.shape[:2]
        self.full = lengths is None
        if lengths is None:
            lengths = torch.full((self.num_sets,), self.length, device=like.device)
        self.sizes = lengths
