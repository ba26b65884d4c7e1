"""The programs of the Triton kernels: a tile of a sort, of a permutation, of a scan and of a mix.

One program sorts a tile of one set, all its rows by a block of channels, with a bitonic network on
integer keys. `tl.sort` would run a Python loop over the elements in the interpreter, keep its pairs
in other threads for most steps, and take 76 seconds instead of 4 to compile for 1,024 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


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


@_jit()
def _sort_bits(
    bits: tl.tensor, row: tl.tensor, real: tl.tensor, down: tl.tensor, inf: tl.tensor,
    LOG: tl.constexpr, MAX: tl.constexpr, WITH_ROWS: tl.constexpr
) -> tl.tensor:  # fmt: skip
    """Sort the bits of floats, padding last, and return the row of each if WITH_ROWS."""
    # The float as an integer of the same order, in which -0.0 and 0.0 are the same.
    magnitude = bits & MAX
    code = tl.where((bits < 0) != down, -magnitude, magnitude)
    origin = row
    if (not WITH_ROWS) and (MAX > 0x7FFF):
        # float32 values alone: 32-bit keys are a third of the work of 64-bit ones, and lose nothing
        # but the order of zeros of both signs and of NaN, in the tiles that have them.
        if tl.max(((bits == ~MAX) | (magnitude > inf)).to(tl.int32)) != 0:
            bits, _ = _sort_with_rows(code, bits, row, real, down, inf, LOG, MAX)
        else:
            bits = _float_bits(_sort(tl.where(real, code, MAX), LOG), down, MAX)
    else:
        bits, origin = _sort_with_rows(code, bits, row, real, down, inf, LOG, MAX)
    return bits, origin


@_jit(
    do_not_specialize=["rows", "descending", "inf"],
    # Unaligned on purpose: wider loads would give a thread four columns and too many registers.
    do_not_specialize_on_alignment=["x", "values", "indices"],
)
def sort_tile(
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
        if rows <= 0:  # a ptr of runs has many empty sets, see nn/packed.py
            return
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
    bits, origin = _sort_bits(bits, row, real, down, inf, LOG, MAX, indices is not None)

    inside = (row < rows) & (channel < C)
    bits = tl.where(real, bits, 0).to(values.dtype.element_ty)
    tl.store(values + start * C + offset, bits, mask=inside)
    if indices is not None:
        # Padding sorts last in row order: its rows are already their own numbers.
        tl.store(indices + start * C + offset, origin.to(indices.dtype.element_ty), mask=inside)


@_jit(do_not_specialize=["rows"])
def move_tile(
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
def scan_tiles(
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
