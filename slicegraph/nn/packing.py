"""A PyG `batch` vector as the `ptr` of packed sets."""

import torch
from torch import Tensor


def batch_to_ptr(batch: Tensor) -> Tensor:
    """The boundaries of the runs of equal values in a sorted ``batch`` ``[T]``.

    On a CPU there is one set a run. Elsewhere, and in a compiled graph, their number is not known
    without waiting for the values; there a set is attributed to every row, of which all but the
    last of a run are empty: ``ptr`` is ``[T + 1]`` and means the same.

    Example:
        >>> batch_to_ptr(torch.tensor([0, 0, 0, 2, 2]))
        tensor([0, 3, 5])
    """
    if torch.compiler.is_compiling() or not batch.is_cpu:
        is_sorted = (batch == batch.cummax(0).values).all()
        torch._assert_async(is_sorted, "batch is not sorted; sort the rows by " + _HOW_TO_SORT)
        starts = torch.searchsorted(batch, batch)
        return torch.cat([starts, starts.new_full((1,), batch.shape[0])])
    if bool((descents := batch[1:] < batch[:-1]).any()):
        raise ValueError(_unsorted(batch, int(descents.to(torch.uint8).argmax())))
    counts = torch.unique_consecutive(batch, return_counts=True)[1]
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


_HOW_TO_SORT = "perm = batch.argsort(stable=True); x, batch = x[perm], batch[perm]"


def _unsorted(batch: Tensor, row: int) -> str:
    return (
        f"batch is not sorted: batch[{row + 1}] = {int(batch[row + 1])} follows "
        f"batch[{row}] = {int(batch[row])}; sort the rows by {_HOW_TO_SORT}"
    )
