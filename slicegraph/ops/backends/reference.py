"""Every operator in plain torch: the specification, on any device."""

import torch
from torch import Tensor

from slicegraph.ops.sets import INDEX_DTYPES, check_sizes, padding_rows, set_of_row

AUTOMATIC = ("cpu", "cuda", "meta", "mps", "xpu")
"""Devices that are served unasked."""

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def problem(device_type: str) -> str | None:
    """The reference serves every device."""
    return None


def column_sort(
    x: Tensor,
    lengths: Tensor | None,
    ptr: Tensor | None,
    mask: Tensor | None,
    descending: bool,
    index_bytes: int,
) -> tuple[Tensor, Tensor]:
    """Sorts every column of every set; `mask` (a direction per channel) overrules `descending`."""
    _check_on_cpu("column_sort", x, lengths, ptr)
    if mask is None:
        values, indices = torch.sort(x, dim=-2, stable=True, descending=descending)
    else:
        values, indices = torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)
        for down, columns in ((False, ~mask), (True, mask)):
            part = torch.sort(x[..., columns], dim=-2, stable=True, descending=down)
            values[..., columns], indices[..., columns] = part
    if lengths is not None:
        values, indices = _padding_last(values, indices, padding_rows(x, lengths))
    if ptr is not None:
        values, indices = _by_set(values, indices, ptr)
    return values.contiguous(), indices.to(INDEX_DTYPES[index_bytes]).contiguous()


def column_sort_values(
    x: Tensor, lengths: Tensor | None, ptr: Tensor | None, mask: Tensor | None, descending: bool
) -> Tensor:
    """The values of `column_sort` alone."""
    return column_sort(x, lengths, ptr, mask, descending, 8)[0]


def _padding_last(values: Tensor, indices: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
    is_padding = padding.expand_as(indices).gather(-2, indices)
    order = torch.sort(is_padding.to(torch.uint8), dim=-2, stable=True).indices
    rows = torch.arange(values.shape[-2], device=values.device).unsqueeze(-1)
    values = _gather(values, order).masked_fill(padding, 0)
    return values, torch.where(padding, rows, indices.gather(-2, order))


def _by_set(values: Tensor, indices: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    sets = set_of_row(ptr, values.shape[0])
    order = torch.sort(sets[indices], dim=0, stable=True).indices
    return _gather(values, order), indices.gather(0, order) - ptr[sets].unsqueeze(-1)


def _gather(x: Tensor, rows: Tensor) -> Tensor:
    # As integers: torch's own gather of half floats rewrites the payload of a NaN.
    return x.view(_BITS[x.element_size()]).gather(-2, rows).view(x.dtype)


def column_scatter(
    g: Tensor, indices: Tensor, lengths: Tensor | None, ptr: Tensor | None
) -> Tensor:
    """`out[indices[r, c], c] = g[r, c]`: the gradient of a sort, and the inverse of a gather."""
    if lengths is not None:
        g = g.masked_fill(padding_rows(g, lengths), 0)
    bits = g.contiguous().view(_BITS[g.element_size()])
    return torch.zeros_like(bits).scatter_(-2, _row_numbers(indices, ptr), bits).view(g.dtype)


def column_gather(g: Tensor, indices: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> Tensor:
    """`out[r, c] = g[indices[r, c], c]`: the gradient of a scatter."""
    out = _gather(g.contiguous(), _row_numbers(indices, ptr))
    return out if lengths is None else out.masked_fill(padding_rows(g, lengths), 0)


def _row_numbers(indices: Tensor, ptr: Tensor | None) -> Tensor:
    indices = indices.long()
    if ptr is None:
        return indices
    return indices + ptr[set_of_row(ptr, indices.shape[0])].unsqueeze(-1)


def max_exchange(x: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> tuple[Tensor, Tensor]:
    """Swaps each column's first maximum with its first row; also returns where it was.

    NaN counts as the largest value, as in `torch.argmax`.
    """
    _check_on_cpu("max_exchange", x, lengths, ptr)
    where = _packed_argmax(x, ptr) if ptr is not None else _dense_argmax(x, lengths)
    return exchange_rows(x, where, lengths, ptr), where


def _dense_argmax(x: Tensor, lengths: Tensor | None) -> Tensor:
    if x.shape[-2] == 0:
        return x.new_zeros(x.shape[:-2] + x.shape[-1:], dtype=torch.int64)
    if lengths is not None:
        x = x.masked_fill(padding_rows(x, lengths), -torch.inf)
    return x.argmax(dim=-2)


def _packed_argmax(x: Tensor, ptr: Tensor) -> Tensor:
    num_sets, rows = ptr.numel() - 1, torch.arange(x.shape[0], device=x.device)
    sets = set_of_row(ptr, x.shape[0])
    columns = sets.unsqueeze(-1).expand_as(x)
    top = x.new_full((num_sets, x.shape[1]), -torch.inf).scatter_reduce(0, columns, x, "amax")[sets]
    is_top = (x == top) | (x.isnan() & top.isnan())
    position = torch.where(is_top, (rows - ptr[sets]).unsqueeze(-1), x.shape[0])
    first = position.new_full((num_sets, x.shape[1]), x.shape[0])
    first = first.scatter_reduce(0, columns, position, "amin")
    return first.masked_fill((ptr.diff() == 0).unsqueeze(-1), 0)


def exchange_rows(x: Tensor, where: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> Tensor:
    """Swaps row 0 with row `where[c]` in column c of every set: its own inverse and gradient."""
    if ptr is None:
        indices = torch.arange(x.shape[-2], device=x.device).unsqueeze(-1).expand_as(x).clone()
        if x.shape[-2]:
            indices.scatter_(-2, where.unsqueeze(-2), 0)
            indices[..., 0, :] = where
        return column_gather(x, indices, lengths, None)
    sets = set_of_row(ptr, x.shape[0])
    local = torch.arange(x.shape[0], device=x.device) - ptr[sets]
    local = local.unsqueeze(-1)
    indices = torch.where(local == where[sets], 0, local)
    indices = torch.where(local == 0, where[sets], indices)
    return column_gather(x, indices, None, ptr)


def _check_on_cpu(name: str, x: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> None:
    # On a GPU the public functions check once; here it would wait for the GPU in every layer.
    if x.device.type == "cpu":
        check_sizes(name, x, lengths, ptr)
