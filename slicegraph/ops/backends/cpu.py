"""The C++ kernels, called through ctypes: CPU tensors."""

import ctypes
import os
from ctypes import c_int, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from slicegraph.ops.sets import INDEX_DTYPES, check_sizes

SIMD_LEVELS = ("baseline", "avx2", "avx512")
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_BAD_SIZES, _NO_MEMORY = 1, 2
_MOST_HALF_ROWS = 1 << 16  # a 16-bit key and its row share 32 bits
_SETS = (c_void_p, c_int, c_int64, c_int64, c_int64, c_int)
_SIGNATURES = {
    "column_sort": (
        *(c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_int, c_void_p, c_int, c_int),
        *_SETS,
    ),
    "column_permute": (c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, *_SETS),
    "max_exchange": (c_void_p, c_void_p, c_void_p, c_int, c_int, *_SETS),
}


def _load() -> ctypes.CDLL | str:
    """The library, or why there is none."""
    found = sorted(Path(__file__).parent.glob("_kernels*"))
    if not found:
        return "the C++ kernels were not built (was there a C++ compiler when slicegraph was installed?)"
    try:
        library = ctypes.CDLL(str(found[0]))
    except OSError as error:
        return f"the C++ kernels could not be loaded: {error}"
    for name, arguments in _SIGNATURES.items():
        getattr(library, f"slicegraph_{name}").argtypes = arguments
    library.slicegraph_simd_level.restype = ctypes.c_char_p
    library.slicegraph_borrow_threads.argtypes = (c_void_p,)
    library.slicegraph_borrow_threads(_torch_threads())
    return library


def _torch_threads() -> int | None:
    """The address of the GOMP_parallel that torch runs its own loops with, if it uses OpenMP."""
    libraries = Path(torch.__file__).parent / "lib"
    loaded = getattr(os, "RTLD_NOLOAD", 0)
    for path in ["libgomp.so.1", *map(str, libraries.glob("lib*omp*"))]:
        try:
            openmp = ctypes.CDLL(path, mode=ctypes.DEFAULT_MODE | loaded)
            return ctypes.cast(openmp.GOMP_parallel, c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


_library = _load()


def problem(device_type: str) -> str | None:
    if device_type != "cpu":
        return "serves CPU tensors"
    return _library if isinstance(_library, str) else None


def simd_level() -> str:
    """The SIMD level in use: `avx512`, `avx2` or `baseline`."""
    return _library.slicegraph_simd_level().decode()


def use_simd_level(level: str) -> None:
    """Forces a lower SIMD level than the best of this machine, to test or to compare."""
    if _library.slicegraph_use_simd_level(SIMD_LEVELS.index(level)) != 0:
        raise ValueError(f"simd level {level!r} is not available on this machine")


def column_sort(
    x: Tensor,
    lengths: Tensor | None,
    ptr: Tensor | None,
    mask: Tensor | None,
    descending: bool,
    index_bytes: int,
) -> tuple[Tensor, Tensor]:
    if x.element_size() == 2 and _longest(x, ptr) > _MOST_HALF_ROWS:
        return _sort_long_halves(x, lengths, ptr, mask, descending, index_bytes)
    if x.stride(-1) != 1 or x.dim() > 3:
        x = x.contiguous()
    values = torch.empty(x.shape, dtype=x.dtype)
    indices = torch.empty(x.shape if index_bytes else 0, dtype=INDEX_DTYPES[index_bytes])
    if mask is not None:
        mask = mask.contiguous()
    sets = _sets(x, lengths, ptr)
    status = _library.slicegraph_column_sort(
        x.data_ptr(),
        x.stride(0) if x.dim() == 3 else x.shape[-2] * x.shape[-1],
        x.stride(-2),
        values.data_ptr(),
        indices.data_ptr(),
        index_bytes,
        None if mask is None else mask.data_ptr(),
        descending,
        _DTYPES[x.dtype],
        *sets,
    )
    _check(status, "column_sort", x, lengths, ptr)
    return values, indices


def _longest(x: Tensor, ptr: Tensor | None) -> int:
    if ptr is None or x.shape[0] <= _MOST_HALF_ROWS:
        return x.shape[-2]
    return int(ptr.diff().max())


def _sort_long_halves(
    x: Tensor,
    lengths: Tensor | None,
    ptr: Tensor | None,
    mask: Tensor | None,
    descending: bool,
    index_bytes: int,
) -> tuple[Tensor, Tensor]:
    """float32 orders alike, and its keys have room for the row."""
    _, indices = column_sort(x.float(), lengths, ptr, mask, descending, index_bytes or 4)
    values = column_gather(x, indices, lengths, ptr)
    return values, indices if index_bytes else torch.empty(0, dtype=INDEX_DTYPES[0])


def column_scatter(g: Tensor, indices: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> Tensor:
    return _permute(g, indices, lengths, ptr, True)


def column_gather(g: Tensor, indices: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> Tensor:
    return _permute(g, indices, lengths, ptr, False)


def _permute(
    g: Tensor, indices: Tensor, lengths: Tensor | None, ptr: Tensor | None, scatter: bool
) -> Tensor:
    g, indices = g.contiguous(), indices.contiguous()
    out = torch.empty(g.shape, dtype=g.dtype)
    status = _library.slicegraph_column_permute(
        g.data_ptr(),
        out.data_ptr(),
        indices.data_ptr(),
        g.element_size(),
        indices.element_size(),
        scatter,
        *_sets(g, lengths, ptr),
    )
    _check(status, "column_scatter" if scatter else "column_gather", g, lengths, ptr)
    return out


def max_exchange(x: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> tuple[Tensor, Tensor]:
    sets = x.shape[:-2] if ptr is None else (ptr.shape[0] - 1,)
    where = torch.empty((*sets, x.shape[-1]), dtype=torch.int64)
    return _exchange(x, where, lengths, ptr, True), where


def exchange_rows(x: Tensor, where: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> Tensor:
    return _exchange(x, where.contiguous(), lengths, ptr, False)


def _exchange(
    x: Tensor, where: Tensor, lengths: Tensor | None, ptr: Tensor | None, search: bool
) -> Tensor:
    x = x.contiguous()
    values = torch.empty(x.shape, dtype=x.dtype)
    status = _library.slicegraph_max_exchange(
        x.data_ptr(),
        values.data_ptr(),
        where.data_ptr(),
        _DTYPES[x.dtype],
        search,
        *_sets(x, lengths, ptr),
    )
    _check(status, "max_exchange", x, lengths, ptr)
    return values


def _sets(
    x: Tensor, lengths: Tensor | None, ptr: Tensor | None
) -> tuple[int | None, int, int, int, int, int]:
    """The arguments that say how the rows of `x` fall into sets (see `Sets` in csrc/job.h)."""
    threads = torch.get_num_threads()
    if ptr is not None:
        ptr = ptr.contiguous()
        layout = 3 if ptr.dtype == torch.int32 else 4
        return ptr.data_ptr(), layout, ptr.shape[0] - 1, x.shape[0], x.shape[1], threads
    rows, channels = x.shape[-2:]
    count = 1
    for size in x.shape[:-2]:
        count *= size
    if lengths is None:
        return None, 0, count, rows, channels, threads
    lengths = lengths.contiguous()
    layout = 1 if lengths.dtype == torch.int32 else 2
    return lengths.data_ptr(), layout, count, rows, channels, threads


def _check(status: int, name: str, x: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> None:
    if status == _BAD_SIZES:
        check_sizes(name, x, lengths, ptr)
    if status == _NO_MEMORY:
        raise MemoryError(f"{name}: no memory to sort x of shape {list(x.shape)}")
