"""The programs of the Triton kernels: a tile of a sort, a permutation, a scan, a norm and a mix.

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


@_jit()
def _scramble(x: tl.tensor) -> tl.tensor:
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@_jit()
def _keep_factors(
    start: tl.tensor, place: tl.tensor, seed: tl.tensor, dropped: tl.tensor, scale: tl.tensor
) -> tl.tensor:
    """0 for the weights that are dropped, else `scale`: the hash of `reference.dropout`."""
    place = place.to(tl.uint32)
    low = start.to(tl.uint32) + place
    high = ((start >> 32).to(tl.uint32) + (low < place).to(tl.uint32)) * 0x9E3779B9
    low, high = low + seed.to(tl.uint32), high + (seed >> 32).to(tl.uint32)
    kept = _scramble(_scramble(low) ^ high) >= dropped.to(tl.uint32, bitcast=True)
    return tl.where(kept, scale, 0.0)


@_jit(do_not_specialize=["seed", "count", "dropped"])
def dropout_tile(
    x: tl.tensor, added: tl.tensor, out: tl.tensor, seed: tl.tensor, count: tl.tensor,
    dropped: tl.tensor, scale: tl.tensor, BLOCK: tl.constexpr
) -> None:  # fmt: skip
    """`out = dropout(x) + added`, without `added` if it is None."""
    if seed.dtype.is_ptr():
        seed = tl.load(seed)
    start, local = tl.program_id(0).to(tl.int64) * BLOCK, tl.arange(0, BLOCK)
    inside = start + local < count
    factors = _keep_factors(start, local, seed, dropped, scale)
    values = tl.load(x + start + local, mask=inside, other=0.0).to(tl.float32)
    values = tl.where(factors == 0.0, 0.0, values * factors)
    if added is not None:
        values += tl.load(added + start + local, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + start + local, values.to(out.dtype.element_ty), mask=inside)


@_jit(do_not_specialize=["seed", "dropped"])
def norm_tile(
    x: tl.tensor, added: tl.tensor, weight: tl.tensor, bias: tl.tensor, total: tl.tensor,
    out: tl.tensor, seed: tl.tensor, rows: tl.tensor, dropped: tl.tensor, scale: tl.tensor,
    eps: tl.tensor, C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
) -> None:  # fmt: skip
    """`total = dropout(x) + added`, and `out`, its layer norm; no dropout if `seed` is None."""
    first = tl.program_id(0).to(tl.int64) * BLOCK_R
    row, column = tl.arange(0, BLOCK_R)[:, None], tl.arange(0, BLOCK_C)[None, :]
    inside = (first + row < rows) & (column < C)
    start, place = first * C, row * C + column
    values = tl.load(x + start + place, mask=inside, other=0.0).to(tl.float32)
    if seed is not None:
        number = tl.load(seed) if seed.dtype.is_ptr() else seed
        factors = _keep_factors(start, place, number, dropped, scale)
        values = tl.where(factors == 0.0, 0.0, values * factors)
    values += tl.load(added + start + place, mask=inside, other=0.0).to(tl.float32)
    values = values.to(total.dtype.element_ty)
    tl.store(total + start + place, values, mask=inside)
    normed, _ = _normed(values.to(tl.float32), inside, eps, C)
    factor = tl.load(weight + column, mask=column < C, other=0.0).to(tl.float32)
    shift = tl.load(bias + column, mask=column < C, other=0.0).to(tl.float32)
    tl.store(out + start + place, (normed * factor + shift).to(out.dtype.element_ty), mask=inside)


@_jit()
def _normed(
    values: tl.tensor, inside: tl.tensor, eps: tl.tensor, C: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Rows with a mean of 0 and a variance of 1, and what they were multiplied by."""
    centred = tl.where(inside, values - (tl.sum(values, 1) / C)[:, None], 0.0)
    factor = tl.rsqrt(tl.sum(centred * centred, 1) / C + eps)[:, None]
    return centred * factor, factor


@_jit(do_not_specialize=["seed", "dropped"])
def norm_gradient_tile(
    grad_total: tl.tensor, grad_out: tl.tensor, total: tl.tensor, weight: tl.tensor,
    grad_added: tl.tensor, grad_x: tl.tensor, sums: tl.tensor, seed: tl.tensor, rows: tl.tensor,
    dropped: tl.tensor, scale: tl.tensor, eps: tl.tensor, C: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr, TILES: tl.constexpr
) -> None:  # fmt: skip
    """The gradient of `norm_tile` for some tiles, with their sums for weight and bias."""
    row, column = tl.arange(0, BLOCK_R)[:, None], tl.arange(0, BLOCK_C)[None, :]
    factor = tl.load(weight + column, mask=column < C, other=0.0).to(tl.float32)
    of_weight = tl.zeros([1, BLOCK_C], tl.float32)
    of_bias = tl.zeros([1, BLOCK_C], tl.float32)
    for tile in range(TILES):
        first = (tl.program_id(0).to(tl.int64) * TILES + tile) * BLOCK_R
        inside = (first + row < rows) & (column < C)
        start, place = first * C, row * C + column
        values = tl.load(total + start + place, mask=inside, other=0.0).to(tl.float32)
        normed, scaled = _normed(values, inside, eps, C)
        grads = tl.load(grad_out + start + place, mask=inside, other=0.0).to(tl.float32)
        of_weight += tl.sum(grads * normed, 0)[None, :]
        of_bias += tl.sum(grads, 0)[None, :]
        grads *= factor
        along = normed * (tl.sum(grads * normed, 1) / C)[:, None]
        grads = scaled * (grads - (tl.sum(grads, 1) / C)[:, None] - along)
        grads += tl.load(grad_total + start + place, mask=inside, other=0.0).to(tl.float32)
        grads = grads.to(grad_added.dtype.element_ty)
        tl.store(grad_added + start + place, grads, mask=inside)
        if seed is not None:
            number = tl.load(seed) if seed.dtype.is_ptr() else seed
            factors = _keep_factors(start, place, number, dropped, scale)
            grads = tl.where(factors == 0.0, 0.0, grads.to(tl.float32) * factors)
            tl.store(grad_x + start + place, grads.to(grad_x.dtype.element_ty), mask=inside)
    at = sums + tl.program_id(0) * 2 * C + column
    tl.store(at, of_weight, mask=column < C)
    tl.store(at + C, of_bias, mask=column < C)


@_jit()
def _pair_weights(scores: tl.tensor, SOFTMAX: tl.constexpr) -> tl.tensor:
    """The weights of all pairs of one set and head; a row without any partner has zeros."""
    scores = scores.to(tl.float32)
    if not SOFTMAX:
        return scores
    highest = tl.max(scores, 1)[:, None]
    weights = tl.exp(scores - tl.where(highest == float("-inf"), 0.0, highest))
    total = tl.sum(weights, 1)[:, None]
    return weights / tl.where(total == 0.0, 1.0, total)


@_jit()
def _quantile(length: tl.tensor, STEP: tl.constexpr, QUANTILES: tl.constexpr) -> tl.tensor:
    """The positions below and above a quantile of `length` sorted rows, and the share of the last.

    Whole numbers as in `layout.quantile_positions`; one quantile alone is the median.
    """
    PARTS: tl.constexpr = QUANTILES - 1 if QUANTILES > 1 else 2
    rank = (length - 1) * (STEP if QUANTILES > 1 else 1)
    below, rest = rank // PARTS, rank % PARTS
    return below, below + (rest > 0).to(tl.int32), rest.to(tl.float32) / PARTS


@_jit()
def _product(a: tl.tensor, b: tl.tensor, TF32: tl.constexpr) -> tl.tensor:
    if TF32 is None:  # the interpreter would multiply the bits of bfloat16
        return tl.dot(a.to(tl.float32), b.to(tl.float32))
    return tl.dot(a, b, input_precision="tf32" if TF32 else "ieee")


@_jit(do_not_specialize=["rows", "descending", "inf", "dropped", "seed"])
def mix_tile(
    values: tl.tensor, bias: tl.tensor, weight: tl.tensor, lengths: tl.tensor, mask: tl.tensor,
    seed: tl.tensor, out: tl.tensor, ranks: tl.tensor, quantiles: tl.tensor,
    rows: tl.tensor, descending: tl.tensor, inf: tl.tensor, dropped: tl.tensor, scale: tl.tensor,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, LOG: tl.constexpr, BLOCK_D: tl.constexpr,
    SORT: tl.constexpr, QUANTILES: tl.constexpr, SOFTMAX: tl.constexpr, TF32: tl.constexpr
) -> None:  # fmt: skip
    """One set and head: the weights of the pairs, dropout, their product with the values, and the
    sort of every channel, or the sum of its weighted quantiles. `ranks` are for the gradient."""
    C: tl.constexpr = HEADS * WIDTH
    row_type: tl.constexpr = values.dtype.element_ty
    bits_type: tl.constexpr = tl.int32 if row_type == tl.float32 else tl.int16
    MAX: tl.constexpr = 0x7FFFFFFF if row_type == tl.float32 else 0x7FFF
    head, which = tl.program_id(0) % HEADS, (tl.program_id(0) // HEADS).to(tl.int64)
    length = tl.load(lengths + which).to(tl.int32)
    row, column = tl.arange(0, 1 << LOG)[:, None], tl.arange(0, 1 << LOG)[None, :]
    local = tl.arange(0, BLOCK_D)[None, :]
    channel, used = head * WIDTH + local, local < WIDTH
    first = which * rows * C

    start, place = (which * HEADS + head) * rows * rows, row * rows + column
    pair = (row < length) & (column < length)
    scores = tl.load(bias + start + place, mask=pair, other=float("-inf") if SOFTMAX else 0.0)
    weights = _pair_weights(scores, SOFTMAX)
    if seed is not None:
        if seed.dtype.is_ptr():
            seed = tl.load(seed)
        weights *= _keep_factors(start, place, seed, dropped, scale)
    real = (row < length) & used
    offset = row * C + channel
    x = tl.load(values + first + offset, mask=real, other=0.0)
    mixed = _product(weights.to(row_type), x, TF32).to(row_type)

    if SORT or QUANTILES > 0:
        down = descending != 0
        if mask is not None:
            down = tl.load(mask + channel, mask=used, other=0) != 0
        bits = mixed.to(bits_type, bitcast=True).to(tl.int32)
        bits, origin = _sort_bits(bits, row, real, down, inf, LOG, MAX, ranks is not None)
        # Row t of the sorted tile is this position.
        position = _reversed_bits(tl.arange(0, 1 << LOG), LOG)[:, None]
        if ranks is not None:
            there = ranks + first + origin * C + channel
            place_of = (position + tl.zeros_like(origin)).to(tl.uint8)
            tl.store(there, place_of, mask=(position < rows) & used)
        in_order = bits.to(bits_type).to(row_type, bitcast=True)
        in_order = tl.where((position < length) & used, in_order, 0.0)
        if SORT:
            there = out + first + position * C + channel
            tl.store(there, in_order, mask=(position < rows) & used)
        else:
            total = tl.zeros([1, BLOCK_D], dtype=tl.float32)
            for step in tl.static_range(QUANTILES):
                below, above, share = _quantile(length, step, QUANTILES)
                low = tl.sum(tl.where(position == below, in_order.to(tl.float32), 0.0), 0)[None, :]
                high = tl.sum(tl.where(position == above, in_order.to(tl.float32), 0.0), 0)[None, :]
                nearer = high - (high - low) * (1.0 - share)
                value = tl.where(share < 0.5, low + (high - low) * share, nearer).to(row_type)
                value = tl.where(length > 0, value, 0.0)
                at = step * C + channel
                factor = tl.load(weight + at, mask=used, other=0.0).to(tl.float32)
                total += value.to(tl.float32) * factor
                if quantiles is not None:
                    tl.store(quantiles + which * QUANTILES * C + at, value, mask=used)
            mixed = (mixed.to(tl.float32) + total).to(row_type)
    if not SORT:
        mixed = tl.where(row < length, mixed, 0.0)
        tl.store(out + first + offset, mixed, mask=(row < rows) & used)


@_jit(do_not_specialize=["rows", "dropped", "seed"])
def mix_gradient_tile(
    grad_out: tl.tensor, values: tl.tensor, bias: tl.tensor, weight: tl.tensor, added: tl.tensor,
    ranks: tl.tensor, quantiles: tl.tensor, lengths: tl.tensor, seed: tl.tensor,
    grad_values: tl.tensor, grad_bias: tl.tensor, grad_weight: tl.tensor,
    rows: tl.tensor, dropped: tl.tensor, scale: tl.tensor,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, LOG: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_D: tl.constexpr, SORT: tl.constexpr, QUANTILES: tl.constexpr, SOFTMAX: tl.constexpr,
    TF32: tl.constexpr
) -> None:  # fmt: skip
    """The gradients of `mix_tile`: the weights are computed again, and the gradient of the bias is
    that of this layer plus `added`, the one of the layers after it. `grad_weight` is per set.

    It goes through the pairs by blocks of rows: those of a large set need too many registers.
    """
    C: tl.constexpr = HEADS * WIDTH
    ONE_BLOCK: tl.constexpr = BLOCK_R == 1 << LOG
    row_type: tl.constexpr = values.dtype.element_ty
    head, which = tl.program_id(0) % HEADS, (tl.program_id(0) // HEADS).to(tl.int64)
    length = tl.load(lengths + which).to(tl.int32)
    every, column = tl.arange(0, 1 << LOG)[:, None], tl.arange(0, 1 << LOG)[None, :]
    local = tl.arange(0, BLOCK_D)[None, :]
    channel, used = head * WIDTH + local, local < WIDTH
    first, start = which * rows * C, (which * HEADS + head) * rows * rows
    whole, real = every * C + channel, (every < length) & used

    if QUANTILES > 0:
        of_all = tl.load(grad_out + first + whole, mask=real, other=0.0)
        total = tl.sum(of_all.to(tl.float32), 0)[None, :]
        for step in tl.static_range(QUANTILES):
            here = which * QUANTILES * C + step * C + channel
            value = tl.load(quantiles + here, mask=used, other=0.0).to(tl.float32)
            tl.store(grad_weight + here, value * total, mask=used)
    if seed is not None:  # noqa: SIM102, as Triton decides each of them when it compiles
        if seed.dtype.is_ptr():
            seed = tl.load(seed)

    of_values = tl.zeros([1 << LOG, BLOCK_D], dtype=tl.float32)
    for begin in tl.range(0, 1 << LOG, BLOCK_R, num_stages=1):
        row = begin + tl.arange(0, BLOCK_R)[:, None]
        offset, known = row * C + channel, (row < length) & used
        if SORT:
            rank = tl.load(ranks + first + offset, mask=known, other=0).to(tl.int32)
            grad = tl.load(grad_out + first + rank * C + channel, mask=known, other=0.0)
        else:
            grad = tl.load(grad_out + first + offset, mask=known, other=0.0)
        if QUANTILES > 0:
            rank = tl.load(ranks + first + offset, mask=known, other=0).to(tl.int32)
            mixed = grad.to(tl.float32)
            for step in tl.static_range(QUANTILES):
                below, above, share = _quantile(length, step, QUANTILES)
                factor = tl.load(weight + step * C + channel, mask=used, other=0.0)
                of_quantile = total * factor.to(tl.float32)
                mixed += tl.where(rank == below, (1.0 - share) * of_quantile, 0.0)
                mixed += tl.where(rank == above, share * of_quantile, 0.0)
            grad = tl.where(known, mixed, 0.0).to(row_type)

        place, pair = row * rows + column, (row < length) & (column < length)
        scores = tl.load(bias + start + place, mask=pair, other=float("-inf") if SOFTMAX else 0.0)
        weights = _pair_weights(scores, SOFTMAX)
        kept = weights
        if seed is not None:
            factors = _keep_factors(start, place, seed, dropped, scale)
            kept = weights * factors
        of_values += _product(tl.trans(kept.to(row_type)), grad, TF32)
        if ONE_BLOCK:  # here, as the registers are needed below
            there = grad_values + first + whole
            tl.store(there, of_values.to(row_type), mask=(every < rows) & used)
        if grad_bias is not None:
            x = tl.load(values + first + whole, mask=real, other=0.0)
            of_pairs = _product(grad, tl.trans(x), TF32)
            if seed is not None:
                of_pairs *= factors
            if SOFTMAX:
                of_pairs = weights * (of_pairs - tl.sum(weights * of_pairs, 1)[:, None])
            of_pairs = tl.where(pair, of_pairs, 0.0)
            inside = (row < rows) & (column < rows)
            if added is not None:
                of_pairs += tl.load(added + start + place, mask=inside, other=0.0).to(tl.float32)
            there = grad_bias + start + place
            tl.store(there, of_pairs.to(grad_bias.dtype.element_ty), mask=inside)
    if not ONE_BLOCK:
        tl.store(grad_values + first + whole, of_values.to(row_type), mask=(every < rows) & used)
