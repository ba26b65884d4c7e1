"""The Triton kernels: CUDA tensors, and CPU tensors in Triton's interpreter.

One program sorts a tile of one set, all its rows by a block of channels, with a bitonic network on
integer keys. `tl.sort` would run a Python loop over the elements in the interpreter, keep its pairs
in other threads for most steps, and take 76 seconds instead of 4 to compile for 1,024 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops import reference
from slicegraph.ops.layout import (
    BITS,
    INDEX_DTYPES,
    VALUE_DTYPES,
    OptTensor,
    check_sizes,
    set_of_row,
)

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

AUTOMATIC = ("cuda",)  # devices that use this backend by default: the interpreter is for tests
MAX_ROWS = 1024  # the longest set that one program sorts
_INFINITY = {torch.float32: 0x7F800000, torch.bfloat16: 0x7F80, torch.float16: 0x7C00}
# The operators that have a kernel, and the types of their first tensor.
DTYPES = {
    **dict.fromkeys(("column_sort", "column_sort_values"), tuple(_INFINITY)),
    **dict.fromkeys(("column_scatter", "column_gather"), VALUE_DTYPES),
    **dict.fromkeys(("slice_attention", "slice_attention_backward"), VALUE_DTYPES),
}
# Sorts have no float arithmetic. Without this option Triton 3.9 warns that its default will change.
OPTIONS = {"enable_fp_fusion": False}


def problem(device_type: str) -> str | None:
    """Why the kernels cannot serve tensors of a device, or None if they can."""
    if triton is None:
        return "triton is not installed"
    if device_type == "cuda":
        return None if torch.cuda.is_available() else "there is no CUDA device"
    # Triton chooses the interpreter when it is imported, for its own functions and ours.
    compiled = isinstance(tl.max, triton.JITFunction) or isinstance(_sort_tile, triton.JITFunction)
    if device_type == "cpu" and not compiled:
        return None
    return "serves CUDA tensors (CPU tensors only in the interpreter, TRITON_INTERPRET=1)"


def _jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    return (lambda function: function) if triton is None else triton.jit(**options)


@_jit()
def _reversed_bits(numbers: tl.tensor, LOG: tl.constexpr) -> tl.tensor:
    result = numbers & 0
    for bit in tl.static_range(LOG):
        result |= ((numbers >> bit) & 1) << (LOG - 1 - bit)
    return result


@_jit()
def _exchange(
    keys: tl.tensor, LOG: tl.constexpr, STAGE: tl.constexpr, BIT: tl.constexpr
) -> tl.tensor:
    """Compare the positions that differ in one bit: the smaller key first, or last, in turns."""
    INNER: tl.constexpr = 1 << (LOG - 1 - BIT)
    pairs = tl.reshape(keys, [1 << BIT, 2, INNER, keys.shape[1]])
    a, b = tl.split(tl.permute(pairs, [0, 2, 3, 1]))
    low = tl.minimum(a, b)
    # A 64-bit maximum is four instructions, the exclusive or is two.
    high = a ^ b ^ low if keys.dtype == tl.int64 else tl.maximum(a, b)
    if STAGE < LOG:
        down = (((tl.arange(0, INNER) >> (LOG - 1 - STAGE)) & 1) != 0)[None, :, None]
        low, high = tl.where(down, high, low), tl.where(down, low, high)
    return tl.reshape(tl.permute(tl.join(low, high), [0, 3, 1, 2]), keys.shape)


@_jit()
def _sort(keys: tl.tensor, LOG: tl.constexpr) -> tl.tensor:
    """Sort the columns of a tile whose row t is position `_reversed_bits(t)`.

    Triton spreads the low bits of t over lanes and warps and keeps the high bits in one thread's
    registers; a bitonic network pairs the low bits of the position most often. Reversed, most steps
    are within a thread: all of them up to 32 rows, 40 of 55 instead of 15 at 1,024 rows.
    """
    for stage in tl.static_range(1, LOG + 1):
        for step in tl.static_range(stage):
            keys = _exchange(keys, LOG, stage, stage - 1 - step)
    return keys


@_jit()
def _float_bits(code: tl.tensor, down: tl.tensor, MAX: tl.constexpr) -> tl.tensor:
    code = tl.where(down, -code, code)
    return tl.where(code < 0, (-code) | ~MAX, code)


@_jit()
def _sort_with_rows(
    code: tl.tensor, bits: tl.tensor, row: tl.tensor, real: tl.tensor,
    down: tl.tensor, inf: tl.tensor, LOG: tl.constexpr, MAX: tl.constexpr
) -> tl.tensor:  # fmt: skip
    """Sort, and return the bits and the row of each value; the row breaks ties.

    The code of the value and below it, in the same key, the row and what the code has lost:
    `row << 1 | 1 if -0.0`, or `row << P | sign and payload` for NaN and padding. The latter reaches
    into the low 5 bits of the code, which are zero in all three codes that have it.
    """
    P: tl.constexpr = 11 if MAX == 0x7FFF else 24
    PAYLOAD: tl.constexpr = (1 << (P - 1)) - 1
    key_type: tl.constexpr = tl.int32 if MAX == 0x7FFF else tl.int64
    shift: tl.constexpr = 16 if MAX == 0x7FFF else 32
    is_nan = (bits & MAX) > inf
    nan_code = tl.where(down, -(inf + 64), inf + 32)
    code = tl.where(real, tl.where(is_nan, nan_code, code), MAX - 31)
    row = row.to(key_type)
    payload = tl.where(bits < 0, PAYLOAD + 1, 0) | (bits & PAYLOAD)
    tagged_low = (row << P) | payload
    low = tl.where(is_nan | (real == 0), tagged_low, (row << 1) | (bits == ~MAX))

    keys = _sort((code.to(key_type) << shift) + low, LOG)

    code = (keys >> shift).to(tl.int32)
    tagged = (code > inf) | (code < -inf)
    origin = (tl.where(tagged, keys >> P, keys >> 1) & 1023).to(tl.int32)
    low = keys.to(tl.int32)
    sign = tl.where(tagged, low & (PAYLOAD + 1), low & 1)
    bits = tl.where(tagged, inf | (low & PAYLOAD), _float_bits(code, down, MAX))
    return tl.where(sign != 0, bits | ~MAX, bits), origin


@_jit(
    do_not_specialize=["rows", "descending", "inf"],
    # Unaligned on purpose: wider loads would give a thread four columns and too many registers.
    do_not_specialize_on_alignment=["x", "values", "indices"],
)
def _sort_tile(
    x: tl.tensor, values: tl.tensor, indices: tl.tensor,
    lengths: tl.tensor, ptr: tl.tensor, mask: tl.tensor,
    rows: tl.tensor, descending: tl.tensor, inf: tl.tensor,
    C: tl.constexpr, LOG: tl.constexpr, BLOCK_C: tl.constexpr
) -> None:  # fmt: skip
    # With C known, the rows are immediate offsets of one address instead of a register pair each.
    MAX: tl.constexpr = 0x7FFF if x.dtype.element_ty == tl.int16 else 0x7FFFFFFF
    BLOCKS: tl.constexpr = (C + BLOCK_C - 1) // BLOCK_C
    which = tl.program_id(0) // BLOCKS
    channel = (tl.program_id(0) % BLOCKS * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]
    row = _reversed_bits(tl.arange(0, 1 << LOG), LOG)[:, None]
    if ptr is None:
        start = which.to(tl.int64) * rows
    else:
        start = tl.load(ptr + which).to(tl.int64)
        rows = (tl.load(ptr + which + 1) - start).to(tl.int32)
    length = rows
    if lengths is not None:
        length = tl.minimum(tl.load(lengths + which), rows).to(tl.int32)
    down = descending != 0
    if mask is not None:
        down = tl.load(mask + channel, mask=channel < C, other=0) != 0

    x += start * C
    offset = row * C + channel
    real = (row < length) & (channel < C)
    bits = tl.load(x + offset, mask=real, other=0).to(tl.int32)
    # The float as an integer of the same order, in which -0.0 and 0.0 are the same.
    magnitude = bits & MAX
    code = tl.where((bits < 0) != down, -magnitude, magnitude)

    if (indices is None) and (MAX > 0x7FFF):
        # float32 values alone: 32-bit keys are a third of the work of 64-bit ones, and lose nothing
        # but the order of zeros of both signs and of NaN, in the tiles that have them.
        if tl.max(((bits == ~MAX) | (magnitude > inf)).to(tl.int32)) != 0:
            bits, origin = _sort_with_rows(code, bits, row, real, down, inf, LOG, MAX)
        else:
            bits = _float_bits(_sort(tl.where(real, code, MAX), LOG), down, MAX)
    else:
        bits, origin = _sort_with_rows(code, bits, row, real, down, inf, LOG, MAX)

    inside = (row < rows) & (channel < C)
    bits = tl.where(real, bits, 0).to(values.dtype.element_ty)
    tl.store(values + start * C + offset, bits, mask=inside)
    if indices is not None:
        # Padding sorts last in row order: its rows are already their own numbers.
        tl.store(indices + start * C + offset, origin.to(indices.dtype.element_ty), mask=inside)


@_jit(do_not_specialize=["rows"])
def _move_tile(
    x: tl.tensor, indices: tl.tensor, lengths: tl.tensor, starts: tl.tensor, out: tl.tensor,
    rows: tl.tensor, channels: tl.tensor,
    SCATTER: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
) -> None:  # fmt: skip
    """`out[index, c] = x[r, c]` if SCATTER, else `out[r, c] = x[index, c]`."""
    blocks = tl.cdiv(channels, BLOCK_C)
    tiles = tl.cdiv(rows, BLOCK_R)
    tile = tl.program_id(0) // blocks
    which = tile // tiles
    channel = (tl.program_id(0) % blocks * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]
    row = (tile % tiles * BLOCK_R + tl.arange(0, BLOCK_R))[:, None]
    inside = (row < rows) & (channel < channels)
    start = which.to(tl.int64) * rows
    here = (start + row) * channels + channel
    index = tl.load(indices + here, mask=inside, other=0).to(tl.int64)
    if starts is not None:
        start = tl.load(starts + row, mask=row < rows, other=0).to(tl.int64)
    there = (start + index) * channels + channel
    real = inside
    if lengths is not None:
        real = inside & (row < tl.load(lengths + which))
    if SCATTER:
        tl.store(out + there, tl.load(x + here, mask=real, other=0), mask=inside)
    else:
        tl.store(out + here, tl.load(x + there, mask=real, other=0), mask=inside)


@_jit()
def _chain(decay_a: tl.tensor, a: tl.tensor, decay_b: tl.tensor, b: tl.tensor) -> tl.tensor:
    """Two parts of a scan as one. A decay of 0 cuts off what comes before, NaN included."""
    decay = tl.where(decay_b == 0, 0.0, decay_a * decay_b)
    return decay, b + tl.where(decay_b == 0, 0.0, decay_b * a)


@_jit()
def _scan_tiles(
    x: tl.tensor, decay: tl.tensor, out: tl.tensor,
    rows: tl.tensor, heads: tl.tensor, width: tl.tensor,
    REVERSE: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr
) -> None:  # fmt: skip
    """`out[r] = x[r] + decay[r] out[r - 1]`, tile by tile; if REVERSE, with `out[r + 1]`."""
    blocks = tl.cdiv(width, BLOCK_D)
    head = tl.program_id(0) // blocks % heads
    which = (tl.program_id(0) // blocks // heads).to(tl.int64)
    channel = (tl.program_id(0) % blocks * BLOCK_D + tl.arange(0, BLOCK_D))[None, :]
    local = tl.arange(0, BLOCK_R)[:, None]
    before = tl.zeros([1, BLOCK_D], dtype=x.dtype.element_ty)
    for first in range(0, rows, BLOCK_R):
        row = rows - 1 - first - local if REVERSE else first + local
        inside = (row >= 0) & (row < rows)
        place = (which * rows + row) * heads + head
        at, real = place * width + channel, inside & (channel < width)
        factor = tl.load(decay + place, mask=inside, other=0.0)
        values = tl.load(x + at, mask=real, other=0.0)
        factor, values = tl.associative_scan((factor + tl.zeros_like(values), values), 0, _chain)
        values += tl.where(factor == 0, 0.0, factor * before)
        tl.store(out + at, values, mask=real)
        before = tl.sum(tl.where(local == BLOCK_R - 1, values, 0.0), 0)[None, :]


SCAN_TILE = (128, 16)  # most rows and channels of a tile of the scan


def tile_shape(rows: int, channels: int, element_size: int) -> tuple[int, int, int]:
    """Log2 of the rows, the channels and the warps of a sort's tile.

    A warp holds 1,024 keys, 32 for each of its threads, which leaves them registers enough not to
    spill: up to 32 rows a thread has a whole column. The narrowest block of channels is a sector of
    32 bytes.
    """
    log = max(1, (rows - 1).bit_length())
    block = min(64, max(32 // element_size, 1024 >> log), triton.next_power_of_2(channels))
    return log, block, max(1, block // 32, (block << log) // 1024)


def launch_options(log: int, warps: int, element_size: int) -> dict[str, Any]:
    """The compiler options of a sort's tile."""
    # Left to itself ptxas spills a word of float32 at 64 rows on sm_90, to make room for one more
    # warp. With the limit it does so for half precision, which has room enough without.
    limit = 224 if element_size == 4 and log > 5 else None
    return {"num_warps": warps, "maxnreg": limit, **OPTIONS}


def column_sort(
    x: Tensor, lengths: OptTensor, ptr: OptTensor, mask: OptTensor, down: bool, index_bytes: int
) -> tuple[Tensor, OptTensor]:
    """Sort every column of every set; also return the row of each value, unless in 0 bytes."""
    if x.device.type == "cpu":
        check_sizes("column_sort", x, lengths, ptr)
    rows, channels = x.shape[-2:]
    # The network grows with the bound: beyond 64 rows, waiting for the GPU's answer costs less.
    if ptr is not None and rows > 64:
        rows = int(ptr.diff().max())
    if rows > MAX_ROWS or rows * channels >= 1 << 31:
        return reference.column_sort(x, lengths, ptr, mask, down, index_bytes or 8)
    x = x.contiguous()
    values = torch.empty_like(x)
    indices = torch.empty_like(x, dtype=INDEX_DTYPES[index_bytes]) if index_bytes else None
    if x.numel() == 0:
        return values, indices
    log, block, warps = tile_shape(rows, channels, x.element_size())
    sets = x.numel() // (rows * channels) if ptr is None else ptr.numel() - 1
    with torch.cuda.device_of(x):
        _sort_tile[(sets * triton.cdiv(channels, block),)](
            *(_bits(x), _bits(values), indices, _flat(lengths), _flat(ptr)),
            None if mask is None else mask.contiguous().view(torch.uint8),
            *(rows, int(down), _INFINITY[x.dtype]),
            **{"C": channels, "LOG": log, "BLOCK_C": block},
            **launch_options(log, warps, x.element_size()),
        )
    return values, indices


def column_sort_values(
    x: Tensor, lengths: OptTensor, ptr: OptTensor, mask: OptTensor, down: bool
) -> Tensor:
    """The values of `column_sort` only."""
    return column_sort(x, lengths, ptr, mask, down, 0)[0]


def _bits(x: Tensor) -> Tensor:
    """The same memory as integers, so that no NaN is ever handled as a float."""
    return x.view(BITS[x.element_size()])


def _flat(sizes: OptTensor) -> OptTensor:
    return None if sizes is None else sizes.contiguous().view(-1)


def _move(scatter: bool, x: Tensor, indices: Tensor, lengths: OptTensor, ptr: OptTensor) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    rows, channels = x.shape[-2:]
    block_c = min(128, triton.next_power_of_2(channels))
    block_r = min(1024 // block_c, triton.next_power_of_2(rows))
    tiles = x.numel() // (rows * channels) * triton.cdiv(rows, block_r)
    starts = None if ptr is None else ptr[set_of_row(ptr, rows)]
    with torch.cuda.device_of(x):
        _move_tile[(tiles * triton.cdiv(channels, block_c),)](
            *(_bits(x), indices.contiguous(), _flat(lengths), starts, _bits(out), rows, channels),
            **{"SCATTER": scatter, "BLOCK_R": block_r, "BLOCK_C": block_c},
            **OPTIONS,
        )
    return out


column_scatter = partial(_move, True)  # out[indices[r, c], c] = x[r, c]
column_gather = partial(_move, False)  # out[r, c] = x[indices[r, c], c]


def _scan(x: Tensor, decay: Tensor, reverse: bool) -> Tensor:
    x, decay = x.contiguous(), decay.expand(*x.shape[:-1], 1).contiguous()
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    rows, heads, width = x.shape[-3:]
    block_r = min(SCAN_TILE[0], triton.next_power_of_2(rows))
    block_d = min(SCAN_TILE[1], triton.next_power_of_2(width))
    programs = x.numel() // (rows * width) * triton.cdiv(width, block_d)
    with torch.cuda.device_of(x):
        _scan_tiles[(programs,)](
            *(x, decay, out, rows, heads, width),
            **{"REVERSE": reverse, "BLOCK_R": block_r, "BLOCK_D": block_d},
            **OPTIONS,
        )
    return out


slice_attention = partial(reference.slice_attention, scan=_scan)
slice_attention_backward = partial(reference.slice_attention_backward, scan=_scan)
