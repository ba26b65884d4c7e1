"""The C++ kernels, called through ctypes: CPU tensors."""

import ctypes
import math
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_void_p
from pathlib import Path
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.sets import INDEX_DTYPES, check_sizes

AUTOMATIC = ("cpu",)
"""Devices that are served unasked."""

SIMD_LEVELS = ("baseline", "avx2", "avx512")
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_BAD_SIZES, _NO_MEMORY = 1, 2
_MOST_HALF_ROWS = 1 << 16  # a 16-bit key and its row share 32 bits
# An operator's arguments as one array of words (see `SortWords` and others in csrc/api.cpp).
_SORT_WORDS, _PERMUTE_WORDS, _EXCHANGE_WORDS = Struct("@15q"), Struct("@12q"), Struct("@11q")


def _load() -> tuple[Any, str | None]:
    """The library, or why there is none."""
    path = Path(__file__).with_name("_kernels.so")
    if not path.exists():
        return None, "the C++ kernels were not built; install again with a C++ compiler present"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"the C++ kernels could not be loaded: {error}"
    for operator in ("column_sort", "column_permute", "max_exchange"):
        getattr(library, f"slicegraph_{operator}").argtypes = (c_char_p,)
    library.slicegraph_simd_level.restype = c_char_p
    library.slicegraph_borrow_threads.argtypes = (c_void_p,)
    library.slicegraph_borrow_threads(_torch_threads())
    return library, None


def _torch_threads() -> int | None:
    """The address of the GOMP_parallel that torch runs its own loops with, if it uses OpenMP."""
    libraries = Path(torch.__file__).parent / "lib"
    only_if_loaded = getattr(os, "RTLD_NOLOAD", 0)
    for path in ["libgomp.so.1", *map(str, sorted(libraries.glob("lib*omp*")))]:
        try:
            openmp = ctypes.CDLL(path, mode=ctypes.DEFAULT_MODE | only_if_loaded)
            return ctypes.cast(openmp.GOMP_parallel, c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


_library, _why_not = _load()


def problem(device_type: str) -> str | None:
    """Why the C++ kernels cannot serve a device, or None if they can."""
    return _why_not if device_type == "cpu" else "serves CPU tensors"


def simd_level() -> str:
    """The SIMD level in use: `avx512`, `avx2` or `baseline`."""
    return _library.slicegraph_simd_level().decode()


def use_simd_level(level: str) -> None:
    """Forces a lower SIMD level than the best of this machine, to test or to compare."""
    known = level in SIMD_LEVELS
    if not known or _library.slicegraph_use_simd_level(SIMD_LEVELS.index(level)) != 0:
        raise ValueError(f"SIMD level {level!r}: this machine has {simd_level()!r} and below")


def column_sort(
    x: Tensor,
    lengths: Tensor | None,
    ptr: Tensor | None,
    mask: Tensor | None,
    descending: bool,
    index_bytes: int,
) -> tuple[Tensor, Tensor]:
    """Sorts every column of every set, and tells where each value came from."""
    if x.element_size() == 2 and _longest(x, ptr) > _MOST_HALF_ROWS:
        return _sort_long_halves(x, lengths, ptr, mask, descending, index_bytes)
    if lengths is None and ptr is None and x.shape[-2] <= 1:
        return _copy(x), _empty_like(x, INDEX_DTYPES[index_bytes]).zero_()
    values, indices = _empty_like(x), _empty_like(x, INDEX_DTYPES[index_bytes])
    address = indices.data_ptr()
    _sort(x, values, address, index_bytes, lengths, ptr, mask, descending)
    return values, indices


def column_sort_values(
    x: Tensor, lengths: Tensor | None, ptr: Tensor | None, mask: Tensor | None, descending: bool
) -> Tensor:
    """Sorts every column of every set."""
    if x.element_size() == 2 and _longest(x, ptr) > _MOST_HALF_ROWS:
        return _sort_long_halves(x, lengths, ptr, mask, descending, 4)[0]
    if lengths is None and ptr is None and x.shape[-2] <= 1:
        return _copy(x)
    values = _empty_like(x)
    _sort(x, values, 0, 0, lengths, ptr, mask, descending)
    return values


def _sort(
    x: Tensor,
    values: Tensor,
    indices: int,
    index_bytes: int,
    lengths: Tensor | None,
    ptr: Tensor | None,
    mask: Tensor | None,
    descending: bool,
) -> None:
    strides = x.stride()
    if len(strides) > 3 or strides[-1] != 1:
        x = x.contiguous()
        strides = (0, x.shape[-2] * x.shape[-1], x.shape[-1], 1)
    if mask is not None:
        _check_shape("column_sort", "mask", mask, x.shape[-1:])
        mask = mask.contiguous()
    _alive, sets = _sets(x, lengths, ptr)
    words = _SORT_WORDS.pack(
        x.data_ptr(),
        strides[-3] if len(strides) > 2 else 0,
        strides[-2],
        values.data_ptr(),
        indices,
        index_bytes,
        0 if mask is None else mask.data_ptr(),
        descending,
        _DTYPES[x.dtype],
        *sets,
    )
    if status := _library.slicegraph_column_sort(words):
        _raise(status, "column_sort", x, lengths, ptr)


def _sort_long_halves(
    x: Tensor,
    lengths: Tensor | None,
    ptr: Tensor | None,
    mask: Tensor | None,
    descending: bool,
    index_bytes: int,
) -> tuple[Tensor, Tensor]:
    """float32 orders alike, and its keys have room for the row."""
    _, indices = column_sort(x.float(), lengths, ptr, mask, descending, index_bytes)
    return column_gather(x, indices, lengths, ptr), indices


def _longest(x: Tensor, ptr: Tensor | None) -> int:
    if ptr is None or x.shape[0] <= _MOST_HALF_ROWS or ptr.numel() == 1:
        return x.shape[-2]
    return int(ptr.diff().max())


def column_scatter(
    g: Tensor, indices: Tensor, lengths: Tensor | None, ptr: Tensor | None
) -> Tensor:
    """`out[indices[r, c], c] = g[r, c]`."""
    return _permute(g, indices, lengths, ptr, True)


def column_gather(g: Tensor, indices: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> Tensor:
    """`out[r, c] = g[indices[r, c], c]`."""
    return _permute(g, indices, lengths, ptr, False)


def _permute(
    g: Tensor, indices: Tensor, lengths: Tensor | None, ptr: Tensor | None, scatter: bool
) -> Tensor:
    _check_shape("column_scatter" if scatter else "column_gather", "indices", indices, g.shape)
    if lengths is None and ptr is None and g.shape[-2] <= 1:
        return _copy(g)
    out = _empty_like(g)
    g, indices = g.contiguous(), indices.contiguous()
    _alive, sets = _sets(g, lengths, ptr)
    words = _PERMUTE_WORDS.pack(
        g.data_ptr(),
        out.data_ptr(),
        indices.data_ptr(),
        g.element_size(),
        indices.element_size(),
        scatter,
        *sets,
    )
    status = _library.slicegraph_column_permute(words)
    if status:
        _raise(status, "column_scatter" if scatter else "column_gather", g, lengths, ptr)
    return out


def max_exchange(x: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> tuple[Tensor, Tensor]:
    """Swaps each column's first maximum with its first row; also returns where it was."""
    sets = x.shape[:-2] if ptr is None else (ptr.shape[0] - 1,)
    where = x.new_empty((*sets, x.shape[-1]), dtype=torch.int64)
    return _exchange(x, where, lengths, ptr, True), where


def exchange_rows(x: Tensor, where: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> Tensor:
    """Swaps row 0 with row `where[c]` in column c of every set."""
    return _exchange(x, where.contiguous(), lengths, ptr, False)


def _exchange(
    x: Tensor, where: Tensor, lengths: Tensor | None, ptr: Tensor | None, search: bool
) -> Tensor:
    sets_shape = x.shape[:-2] if ptr is None else (ptr.shape[0] - 1,)
    _check_shape("exchange_rows", "where", where, (*sets_shape, x.shape[-1]))
    values = _empty_like(x)
    x = x.contiguous()
    _alive, sets = _sets(x, lengths, ptr)
    words = _EXCHANGE_WORDS.pack(
        x.data_ptr(), values.data_ptr(), where.data_ptr(), _DTYPES[x.dtype], search, *sets
    )
    status = _library.slicegraph_max_exchange(words)
    if status:
        _raise(status, "max_exchange", x, lengths, ptr)
    return values


def _check_shape(name: str, argument: str, value: Tensor, shape: Sequence[int]) -> None:
    # The public functions are always right; a caller of torch.ops may not be.
    if value.shape != torch.Size(shape):
        raise ValueError(
            f"{name}: {argument} has shape {list(value.shape)}, expected {list(shape)}"
        )


def _empty_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    # The obvious `new_empty` takes more than twice the time of `empty_like`.
    if x.is_contiguous():
        return torch.empty_like(x) if dtype is None else torch.empty_like(x, dtype=dtype)
    return x.new_empty(x.shape, dtype=dtype)


def _copy(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _sets(
    x: Tensor, lengths: Tensor | None, ptr: Tensor | None
) -> tuple[Tensor | None, tuple[int, ...]]:
    """The words that say how the rows of `x` fall into sets (see `Layout` in csrc/job.h).

    They come with the tensor that they point to, which must live as long as they are used.
    """
    threads = torch.get_num_threads()
    if ptr is not None:
        ptr = ptr.contiguous()
        layout = 3 if ptr.dtype == torch.int32 else 4
        return ptr, (ptr.data_ptr(), layout, ptr.shape[0] - 1, *x.shape, threads)
    shape = x.shape
    if lengths is None and len(shape) == 3:
        return None, (0, 0, *shape, threads)
    *batch, rows, channels = shape
    count = math.prod(batch)
    if lengths is None:
        return None, (0, 0, count, rows, channels, threads)
    lengths = lengths.contiguous()
    layout = 1 if lengths.dtype == torch.int32 else 2
    return lengths, (lengths.data_ptr(), layout, count, rows, channels, threads)


def _raise(status: int, name: str, x: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> None:
    if status == _BAD_SIZES:
        check_sizes(name, x, lengths, ptr)
    if status == _NO_MEMORY:
        raise MemoryError(f"{name}: no memory to sort x of shape {list(x.shape)}")
