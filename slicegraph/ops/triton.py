"""The Triton kernels: CUDA tensors, and CPU tensors in Triton's interpreter.

The programs are in `tiles`; here are the sizes of their tiles, and their launches.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops import reference
from slicegraph.ops.layout import (
    BITS,
    INDEX_DTYPES,
    PLAIN,
    VALUE_DTYPES,
    OptTensor,
    check_sizes,
    padding_rows,
    set_of_row,
)
from slicegraph.ops.tiles import (
    dropout_tile,
    mix_gradient_tile,
    mix_tile,
    move_tile,
    norm_gradient_tile,
    norm_tile,
    scan_tiles,
    sort_tile,
)

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

INSTALLED = triton is not None
AUTOMATIC = ("cuda",)  # devices that use this backend by default: the interpreter is for tests
MAX_ROWS = 1024  # the longest set that one program sorts
MIX_ROWS, MIX_WIDTH = 128, 64  # the longest set and the widest head that one program mixes
NORM_CHANNELS, NORM_TILES = 2048, 4  # the widest row of a norm, and the tiles of its gradient
_INFINITY = {torch.float32: 0x7F800000, torch.bfloat16: 0x7F80, torch.float16: 0x7C00}
# The operators that have a kernel, and the types of their first tensor.
DTYPES = {
    **dict.fromkeys(("column_sort", "column_sort_values"), tuple(_INFINITY)),
    **dict.fromkeys(("column_scatter", "column_gather"), VALUE_DTYPES),
    **dict.fromkeys(("slice_attention", "slice_attention_backward"), VALUE_DTYPES),
    **dict.fromkeys(("dense_mix", "dense_mix_backward"), tuple(_INFINITY)),
    **dict.fromkeys(("dropout", "dropout_add"), tuple(_INFINITY)),
    **dict.fromkeys(("dropout_add_norm", "dropout_add_norm_backward"), tuple(_INFINITY)),
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
    compiled = isinstance(tl.max, triton.JITFunction) or isinstance(sort_tile, triton.JITFunction)
    if device_type == "cpu" and not compiled:
        return None
    return "serves CUDA tensors (CPU tensors only in the interpreter, TRITON_INTERPRET=1)"


SCAN_TILE = (128, 16)  # most rows and channels of a tile of the scan


def tile_shape(rows: int, channels: int, element_size: int) -> tuple[int, int, int]:
    """Log2 of the rows, the channels and the warps of a sort's tile.

    A warp holds 1,024 keys, 32 for each of its threads, which leaves them registers enough not to
    spill: up to 32 rows a thread has a whole column. The narrowest block of channels is a sector of
    32 bytes; half of one at 1,024 rows in half precision, where 16 warps would spill.
    """
    log = max(1, (rows - 1).bit_length())
    narrowest = 8 if log == 10 else 32 // element_size
    block = min(64, max(narrowest, 1024 >> log), triton.next_power_of_2(channels))
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
        if ptr is None:
            return _sort_long(x, lengths, mask, down, index_bytes)
        return _sort_by_size(x, ptr, mask, down, index_bytes)
    x = x.contiguous()
    values = torch.empty_like(x)
    indices = torch.empty_like(x, dtype=INDEX_DTYPES[index_bytes]) if index_bytes else None
    if x.numel() == 0:
        return values, indices
    log, block, warps = tile_shape(rows, channels, x.element_size())
    sets = x.numel() // (rows * channels) if ptr is None else ptr.numel() - 1
    with torch.cuda.device_of(x):
        sort_tile[(sets * triton.cdiv(channels, block),)](
            *(_bits(x), _bits(values), indices, _flat(lengths), _flat(ptr)),
            None if mask is None else mask.contiguous().view(torch.uint8),
            *(rows, int(down), _INFINITY[x.dtype]),
            **{"C": channels, "LOG": log, "BLOCK_C": block},
            **launch_options(log, warps, x.element_size()),
        )
    return values, indices


def _sort_long(
    x: Tensor, lengths: OptTensor, mask: OptTensor, down: bool, index_bytes: int
) -> tuple[Tensor, OptTensor]:
    """Sort dense sets of any length by `torch.sort`, once for each direction.

    Padding becomes NaN, or -inf in descending columns: it then ties at most with the last real
    values, which are before it in row order.
    """
    padding = None if lengths is None else padding_rows(x, lengths)
    found: list[tuple[Tensor, Tensor]] = []
    for way in (down,) if mask is None else (True, False):
        rows = x if padding is None else x.masked_fill(padding, -torch.inf if way else torch.nan)
        found.append(torch.sort(rows, dim=-2, stable=True, descending=way))
    values, indices = found[0]
    if mask is not None:
        values = torch.where(mask, _bits(found[0][0]), _bits(found[1][0])).view(x.dtype)
        indices = torch.where(mask, found[0][1], found[1][1])
    if padding is not None:
        values = values.masked_fill_(padding, 0)
    values = values.contiguous()
    return values, indices.to(INDEX_DTYPES[index_bytes]).contiguous() if index_bytes else None


def _sort_by_size(
    x: Tensor, ptr: Tensor, mask: OptTensor, down: bool, index_bytes: int
) -> tuple[Tensor, OptTensor]:
    """Sort packed sets with long ones among them: sets of similar size together, as dense ones.

    Padding at most doubles the rows. A sort of all rows at once, by set and value, would move 35
    times the bytes of `x`.
    """
    values = torch.empty_like(x, memory_format=torch.contiguous_format)
    indices = torch.empty_like(values, dtype=INDEX_DTYPES[index_bytes]) if index_bytes else None
    sizes = ptr.diff().cpu()
    logs = torch.tensor([size.bit_length() for size in sizes.tolist()])
    for log in logs.unique().tolist():
        sets = (logs == log).nonzero().squeeze(1)
        lengths, first = sizes[sets].to(x.device), ptr[sets.to(ptr.device)]
        local = torch.arange(int(sizes[sets].max()), device=x.device)
        inside = local < lengths.unsqueeze(-1)
        rows = torch.where(inside, first.unsqueeze(-1) + local, 0)
        dense = column_sort(_bits(x)[rows].view(x.dtype), lengths, None, mask, down, index_bytes)
        for target, source in zip((values, indices), dense, strict=True):
            if target is not None and source is not None:
                target[rows[inside]] = source[inside]
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
        move_tile[(tiles * triton.cdiv(channels, block_c),)](
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
        scan_tiles[(programs,)](
            *(x, decay, out, rows, heads, width),
            **{"REVERSE": reverse, "BLOCK_R": block_r, "BLOCK_D": block_d},
            **OPTIONS,
        )
    return out


slice_attention = partial(reference.slice_attention, scan=_scan)
slice_attention_backward = partial(reference.slice_attention_backward, scan=_scan)


def mix_shape(rows: int, width: int) -> tuple[int, int, int]:
    """Log2 of the rows, the channels and the warps of a mix's tile; a product needs 16 of each."""
    # By comparisons: a compiled graph then serves all sizes of a tile.
    log = next(log for log in (4, 5, 6, 7) if rows <= 1 << log)
    return log, max(16, triton.next_power_of_2(width)), {4: 1, 5: 2, 6: 4, 7: 16}[log]


def gradient_shape(log: int, warps: int, element_size: int) -> dict[str, int]:
    """The rows of pairs that the gradient of a mix has at a time, and its warps: it has three
    tensors of the pairs, and all pairs of more than 32 rows would take all registers."""
    warps = 8 if log == 6 and element_size == 4 else min(8, warps)  # 4 spill a word on sm_120
    return {"BLOCK_R": 1 << log if log <= 5 else 16, "num_warps": warps}


def _dropping(p: float) -> dict[str, Any]:
    dropped, scale = reference.dropping(p)
    return {"dropped": dropped - (dropped >> 31 << 32), "scale": scale}  # signed, of 32 bits


def _seed(seed: OptTensor) -> Any:
    """Convert a seed of the host to a number, without a copy; one of 32 bits stays a tensor."""
    if seed is None or not seed.is_cpu or type(seed) not in PLAIN:
        return seed
    return int(seed) if int(seed) >> 32 else seed


def dropout(x: Tensor, seed: Tensor, p: float, added: OptTensor = None) -> Tensor:
    """Drop an entry if the hash of its position and the seed is small, and scale the others."""
    x = x.contiguous()
    out = torch.empty_like(x if added is None else added, memory_format=torch.contiguous_format)
    block = 1 << 16 if x.is_cpu else 1024  # few programs for the interpreter
    if x.numel():
        _launch(
            *(dropout_tile, x, triton.cdiv(x.numel(), block)),
            **{"x": x, "added": None if added is None else added.contiguous(), "out": out},
            **{"seed": _seed(seed), "count": x.numel(), "BLOCK": block, **_dropping(p)},
        )
    return out


def dropout_add(x: Tensor, added: Tensor, seed: Tensor, p: float) -> Tensor:
    """`dropout(x) + added`."""
    return dropout(x, seed, p, added)


def norm_shape(channels: int) -> tuple[int, int, int]:
    """The rows, the channels and the warps of a norm's tile: a thread has 8 entries of it."""
    block = max(16, triton.next_power_of_2(channels))
    return 2048 // block, block, 8


def _norm_options(total: Tensor, p: float, eps: float) -> dict[str, Any]:
    """The arguments that both norm programs have."""
    channels = total.shape[-1]
    rows, block, warps = norm_shape(channels)
    return {
        **{"rows": total.numel() // channels, **_dropping(p), "eps": eps, "C": channels},
        **{"BLOCK_R": 64 if total.is_cpu else rows, "BLOCK_C": block, "num_warps": warps},
    }


def dropout_add_norm(
    x: Tensor, added: Tensor, weight: Tensor, bias: Tensor, seed: OptTensor, p: float, eps: float
) -> tuple[Tensor, Tensor]:
    """`dropout(x) + added`, and its layer norm."""
    x, added = x.contiguous(), added.contiguous()
    total, out = torch.empty_like(added), torch.empty_like(added)
    if total.numel():
        options = _norm_options(total, p, eps)
        _launch(
            *(norm_tile, x, triton.cdiv(options["rows"], options["BLOCK_R"])),
            **{"x": x, "added": added, "weight": weight, "bias": bias, "total": total, "out": out},
            **{"seed": _seed(seed), **options},
        )
    return total, out


def dropout_add_norm_backward(
    grad_total: Tensor, grad_out: Tensor, total: Tensor, weight: Tensor, seed: OptTensor, p: float,
    eps: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `added`; of `x`, empty if nothing is dropped; of weight and bias."""
    grad_added = torch.empty_like(total)
    grad_x = total.new_empty(0) if seed is None else torch.empty_like(total)
    channels = total.shape[-1]
    if not total.numel():
        return grad_added, grad_x, weight.new_zeros(2, channels)
    options = _norm_options(total, p, eps)
    programs = triton.cdiv(options["rows"], options["BLOCK_R"] * NORM_TILES)
    sums = total.new_empty(programs, 2, channels, dtype=torch.float32)
    _launch(
        *(norm_gradient_tile, total, programs),
        **{"grad_total": grad_total.contiguous(), "grad_out": grad_out.contiguous()},
        **{"total": total, "weight": weight, "grad_added": grad_added, "sums": sums},
        **{"grad_x": grad_x, "seed": _seed(seed), "TILES": NORM_TILES, **options},
    )
    return grad_added, grad_x, sums.sum(0, dtype=weight.dtype)  # in a fixed order


def _mix_options(values: Tensor, bias: Tensor, p: float) -> tuple[int, dict[str, Any]]:
    """The number of programs, and the arguments that both mix programs have."""
    sets, rows, channels = values.shape
    heads = bias.shape[1]
    log, block, warps = mix_shape(rows, channels // heads)
    tf32 = torch.get_float32_matmul_precision() != "highest"
    return sets * heads, {
        "rows": rows,
        **_dropping(p),
        "HEADS": heads,
        "WIDTH": channels // heads,
        "LOG": log,
        "BLOCK_D": block,
        "TF32": None if values.is_cpu else tf32,
        "num_warps": warps,
    }


def _serves(values: Tensor, bias: Tensor) -> bool:
    rows, width = values.shape[1], values.shape[2] // bias.shape[1]
    return 0 < rows <= MIX_ROWS and 0 < width <= MIX_WIDTH and values.shape[0] > 0


def _launch(program: Any, x: Tensor, programs: int, /, **arguments: Any) -> None:
    if type(x) in PLAIN:
        with torch.cuda.device_of(x):
            program[(programs,)](**arguments)
    else:  # a compiler traces it
        torch.library.wrap_triton(program)[(programs,)](**arguments)


def dense_mix(
    values: Tensor,
    bias: Tensor,
    weight: OptTensor,
    lengths: Tensor,
    mask: OptTensor,
    seed: OptTensor,
    down: bool,
    sort: bool,
    softmax: bool,
    p: float,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mix dense sets by the weights of their pairs, then sort them or add weighted quantiles."""
    if not _serves(values, bias):
        inputs = (values, bias, weight, lengths, mask, seed)
        return reference.dense_mix(*inputs, down, sort, softmax, p, keep)
    if values.device.type == "cpu":
        check_sizes("dense_mix", values, lengths, None, "values")
    values = values.contiguous()
    out, nothing = torch.empty_like(values), values.new_empty(0)
    quantiles, ranks = nothing, values.new_empty(0, dtype=torch.uint8)
    if keep and (sort or weight is not None):
        ranks = torch.empty_like(values, dtype=torch.uint8)
    if keep and weight is not None:
        quantiles = values.new_empty(values.shape[0], weight.shape[0], values.shape[2])
    programs, options = _mix_options(values, bias, p)
    _launch(
        *(mix_tile, values, programs),
        **{"values": values, "bias": bias.contiguous(), "out": out, "seed": _seed(seed)},
        **{"weight": None if weight is None else weight.contiguous(), "lengths": _flat(lengths)},
        mask=None if mask is None else mask.contiguous().view(torch.uint8),
        ranks=ranks if ranks.numel() else None,
        quantiles=quantiles if quantiles.numel() else None,
        **{"descending": int(down), "inf": _INFINITY[values.dtype], "SORT": sort},
        **{"QUANTILES": 0 if weight is None else weight.shape[0], "SOFTMAX": softmax},
        **options,
    )
    return out, ranks, quantiles


def dense_mix_backward(
    grad_out: Tensor,
    values: Tensor,
    bias: Tensor,
    weight: OptTensor,
    added: OptTensor,
    ranks: Tensor,
    quantiles: Tensor,
    lengths: Tensor,
    seed: OptTensor,
    sort: bool,
    softmax: bool,
    p: float,
    with_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of values, bias (plus `added`) and weight; those not asked for are empty."""
    if not _serves(values, bias):
        inputs = (grad_out, values, bias, weight, added, ranks, quantiles, lengths, seed)
        return reference.dense_mix_backward(*inputs, sort, softmax, p, with_bias)
    values = values.contiguous()
    nothing = values.new_empty(0)
    grad_values = torch.empty_like(values)
    grad_bias = torch.empty_like(bias.contiguous()) if with_bias else nothing
    of_sets = None if weight is None else _wide_like(quantiles)
    programs, options = _mix_options(values, bias, p)
    _launch(
        *(mix_gradient_tile, values, programs),
        **{"grad_out": grad_out.contiguous(), "values": values, "bias": bias.contiguous()},
        **{"weight": None if weight is None else weight.contiguous(), "lengths": _flat(lengths)},
        **{"added": None if added is None else added.contiguous(), "seed": _seed(seed)},
        ranks=ranks if ranks.numel() else None,
        quantiles=quantiles if quantiles.numel() else None,
        **{"grad_values": grad_values, "grad_bias": grad_bias if with_bias else None},
        **{"grad_weight": of_sets, "SORT": sort, "SOFTMAX": softmax},
        QUANTILES=0 if weight is None else weight.shape[0],
        **options | gradient_shape(options["LOG"], options["num_warps"], values.element_size()),
    )
    if weight is None or of_sets is None:
        return grad_values, grad_bias, nothing
    # Over the sets by a sum of torch, in a fixed order, not by atomics.
    return grad_values, grad_bias, of_sets.sum(0, dtype=weight.dtype)


def _wide_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32)
