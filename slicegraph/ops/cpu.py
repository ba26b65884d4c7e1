"""The C++ kernels (slicegraph/csrc), called through ctypes: CPU tensors.

The library takes raw pointers and includes no header of torch. Python packs the arguments of an
operator as one job, pointers first, in the layout of the structs of csrc/jobs.h.
"""

import ctypes
import math
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_int64, c_void_p
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any

import torch
from torch import Tensor

from slicegraph.ops import reference
from slicegraph.ops.layout import (
    INDEX_DTYPES,
    PLAIN,
    VALUE_DTYPES,
    OptTensor,
    check_dense,
    check_heads,
    check_lengths,
    check_pairs,
    check_sizes,
    check_tensor,
    plain,
)

AUTOMATIC = ("cpu",)  # devices that use this backend by default
_FLOATS, _HALVES = VALUE_DTYPES[:2], VALUE_DTYPES[2:]
_SORTS = ("column_sort", "column_sort_values", "column_scatter", "column_gather")
_SLICES = ("slice_attention", "slice_attention_backward")
_SUMS = ("pair_mix", "pair_outer", "pair_attention", "edge_sum")
# The operators that have a kernel, and the types of their first tensor.
DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    **dict.fromkeys((*_SORTS, *_SLICES, "max_exchange", "exchange_rows"), VALUE_DTYPES),
    **dict.fromkeys((*_SUMS, "structural_bias", "dropout"), _FLOATS),
    **dict.fromkeys(("graph_offsets", "shortest_paths", "rings"), (torch.int64,)),
}
SIMD_LEVELS = ("baseline", "avx2", "avx512")
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(VALUE_DTYPES)}
_NO_MEMORY = 2  # `Status` in csrc/jobs.h
_MOST_HALF_ROWS = 1 << 16  # a 16-bit key and its row share 32 bits
_NONE = torch.empty(0)  # its address is 0


# The types that an input of a job may have.
_POINTER_DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    "float": VALUE_DTYPES,
    "rows": tuple(INDEX_DTYPES.values()),
    "sizes": (torch.int32, torch.int64),
    "bool": (torch.bool,),
    "distance": (torch.uint8, torch.int16),
    "path": (torch.int16, torch.int32),
    "int32": (torch.int32,),
    "int64": (torch.int64,),
}


class _Kernel:
    """A function of the library that takes a job: the layout of its struct in csrc/jobs.h.

    The tensors of a job are named in order, inputs as `name:kind` with a kind of `_POINTER_DTYPES`.
    Without a kind it is an output, which is allocated like an input. With `strided`, the first
    tensor may have strides.
    """

    def __init__(self, name: str, layout: str, tensors: str, strided: bool = False) -> None:
        self.name, self.job_bytes = name, Struct(layout).size
        self._pack, self._strided = Struct(layout).pack, strided
        named = [tensor.partition(":")[::2] for tensor in tensors.split()]
        self._names = [argument for argument, _ in named]
        self._inputs = [(i, _POINTER_DTYPES[kind]) for i, (_, kind) in enumerate(named) if kind]
        self.function: Any = None

    def __call__(self, tensors: Sequence[Tensor], numbers: Sequence[float]) -> bool:
        """Run the job; returns whether the sizes or indices in it are wrong."""
        # No other pointer leaves Python, and C++ reads whatever is there.
        for i, dtypes in self._inputs:
            x = tensors[i]
            if x is not _NONE and (
                type(x) not in PLAIN
                or not x.is_cpu
                or x.dtype not in dtypes
                or not (x.is_contiguous() or (i == 0 and self._strided))
            ):
                tensors = self._unwrapped(tensors)
                break
        status = self.function(self._pack(*map(Tensor.data_ptr, tensors), *numbers))
        if not status:
            return False
        if status == _NO_MEMORY:
            shapes = ", ".join(str(list(x.shape)) for x in tensors)
            raise MemoryError(f"{self.name}: not enough memory for tensors of shape {shapes}")
        return True

    def _unwrapped(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Unwrap the inputs, or name one that cannot be."""
        tensors = [plain(x) for x in tensors]
        for i, dtypes in self._inputs:
            x, name = tensors[i], f"{self.name}: {self._names[i]}"
            if x is _NONE:
                continue
            if type(x) not in PLAIN:
                raise TypeError(f"{name} is a {type(x).__name__}, expected a plain tensor")
            if not x.is_cpu:
                raise ValueError(f"{name} is on {x.device}, expected the CPU")
            if x.dtype not in dtypes:
                expected = " or ".join(map(str, dtypes))
                raise TypeError(f"{name} is {x.dtype}, expected {expected}")
            check_dense(self.name, self._names[i], x)
            if not (i == 0 and self._strided):
                tensors[i] = _dense(x)
        return tensors


_KERNELS = (
    _column_sort := _Kernel(
        "column_sort", "@16q", "x:float values indices mask:bool sizes:sizes", strided=True
    ),
    _column_permute := _Kernel("column_permute", "@13q", "x:float out indices:rows sizes:sizes"),
    _max_exchange := _Kernel("max_exchange", "@12q", "x:float values where:int64 sizes:sizes"),
    _slice_attention := _Kernel(
        "slice_attention",
        "@20q",
        "keys:float queries:float order:int32 values:float tau:float out grad_out:float grad_keys "
        "grad_queries grad_tau sizes:sizes",
    ),
    _pair_mix := _Kernel(
        "pair_mix", "@16q", "weights:float values:float out added:float ptr:int64"
    ),
    _pair_attention := _Kernel(
        "pair_attention",
        "@19qd",
        "qkv:float bias:float totals:float out grad_out:float added:float grad_bias ptr:int64",
    ),
    _edge_sum := _Kernel(
        "edge_sum",
        "@16q",
        "x:float table:float codes:int64 index:int64 out grad_out:float grad_x grad_table",
    ),
    _structural_bias := _Kernel(
        "structural_bias",
        "@22qd",
        "table:float products:float bias:float distance:distance path:path ptr:int64 "
        "edge_ptr:int64",
    ),
    _graph_offsets := _Kernel(
        "graph_offsets", "@12q", "edge_index:int64 ptr:int64 offsets distance path"
    ),
    _shortest_paths := _Kernel(
        "shortest_paths", "@12q", "edge_index:int64 ptr:int64 offsets:int64 distance path"
    ),
    _rings := _Kernel(
        "rings", "@10q", "edge_index:int64 ptr:int64 offsets:int64 nodes lengths counts"
    ),
    _dropout := _Kernel("dropout", "@7qd", "x:float out"),
)


def load(path: Path) -> tuple[Any, str | None]:
    """Load the library and connect the kernels; returns it, or the reason why it cannot serve."""
    if not path.exists():
        return None, "the C++ kernels were not built; install again with a C++ compiler present"
    try:
        library = ctypes.CDLL(str(path))
        library.slicegraph_job_bytes.restype = c_int64
        for kernel in _KERNELS:
            found = library.slicegraph_job_bytes(c_char_p(kernel.name.encode()))
            if not found:  # a library that is older than the operator, which the reference runs
                DTYPES.pop(kernel.name, None)
                continue
            if found != kernel.job_bytes:
                return None, (
                    f"the C++ kernels do not fit this version: a job of {kernel.name} has {found} "
                    f"bytes, expected {kernel.job_bytes}; install again to build them"
                )
            kernel.function = getattr(library, f"slicegraph_{kernel.name}")
            kernel.function.argtypes = (c_char_p,)
    except (OSError, AttributeError) as error:
        return None, f"the C++ kernels could not be loaded: {error}"
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


_library, _why_not = load(Path(__file__).with_name("_kernels.so"))


def problem(device_type: str) -> str | None:
    """Why the C++ kernels cannot serve a device, or None if they can."""
    return _why_not if device_type == "cpu" else "serves CPU tensors"


def simd_level() -> str:
    """The SIMD level in use: `avx512`, `avx2` or `baseline`."""
    return _library.slicegraph_simd_level().decode()


def use_simd_level(level: str) -> None:
    """Force a lower SIMD level than the best of this machine, for tests and comparisons."""
    known = level in SIMD_LEVELS
    if not known or _library.slicegraph_use_simd_level(SIMD_LEVELS.index(level)) != 0:
        raise ValueError(f"SIMD level {level!r}: this machine has {simd_level()!r} and below")


def column_sort(
    x: Tensor,
    lengths: OptTensor,
    ptr: OptTensor,
    mask: OptTensor,
    down: bool,
    index_bytes: int,
    names: tuple[str, str] = ("column_sort", "x"),
) -> tuple[Tensor, Tensor]:
    """Sort every column of every set; also return the row of each value, unless in 0 bytes."""
    long = x.dtype in _HALVES and x.shape[-2] > _MOST_HALF_ROWS
    if long and (ptr is None or ptr.numel() == 1 or int(ptr.diff().max()) > _MOST_HALF_ROWS):
        # float32 has the same order, and its keys have room for the row.
        _, indices = column_sort(x.float(), lengths, ptr, mask, down, index_bytes or 4)
        return column_gather(x, indices, lengths, ptr), indices
    indices = _empty_like(x, INDEX_DTYPES[index_bytes]) if index_bytes else _NONE
    sizes, numbers = _sets(x, lengths, ptr)
    if not numbers[0] and numbers[2] <= 1:  # dense sets of at most one row
        return x.clone(memory_format=torch.contiguous_format), indices.zero_()
    values = torch.empty_like(x) if x.is_contiguous() else x.new_empty(x.shape)
    strides = x.stride()
    if len(strides) > 3 or strides[-1] != 1:
        x = x.contiguous()
        strides = (0, x.shape[-2] * x.shape[-1], x.shape[-1], 1)
    if mask is None:
        mask = _NONE
    else:
        _check_shape("column_sort", "mask", mask, x.shape[-1:])
        mask = mask.contiguous()
    set_stride = strides[-3] if len(strides) > 2 else 0
    options = (set_stride, strides[-2], index_bytes, down, _DTYPE_CODES[x.dtype])
    if _column_sort((x, values, indices, mask, sizes), numbers + options):
        check_sizes(names[0], x, lengths, ptr, names[1])
    return values, indices


def column_sort_values(
    x: Tensor, lengths: OptTensor, ptr: OptTensor, mask: OptTensor, down: bool
) -> Tensor:
    """Sort every column of every set."""
    return column_sort(x, lengths, ptr, mask, down, 0)[0]


def _permute(name: str, x: Tensor, indices: Tensor, lengths: OptTensor, ptr: OptTensor) -> Tensor:
    _check_shape(name, "indices", indices, x.shape)
    if lengths is None and ptr is None and x.shape[-2] <= 1:
        return x.clone(memory_format=torch.contiguous_format)
    out = _empty_like(x)
    x, indices = x.contiguous(), indices.contiguous()
    sizes, numbers = _sets(x, lengths, ptr)
    options = (x.element_size(), indices.element_size(), name == "column_scatter")
    if _column_permute((x, out, indices, sizes), numbers + options):
        check_sizes(name, x, lengths, ptr)
    return out


column_scatter = partial(_permute, "column_scatter")  # out[indices[r, c], c] = x[r, c]
column_gather = partial(_permute, "column_gather")  # out[r, c] = x[indices[r, c], c]


def max_exchange(x: Tensor, lengths: OptTensor, ptr: OptTensor) -> tuple[Tensor, Tensor]:
    """Swap each column's first maximum with its first row; also return its row."""
    where = x.new_empty(_column_shape(x, ptr), dtype=torch.int64)
    return exchange_rows(x, where, lengths, ptr, search=True), where


def exchange_rows(
    x: Tensor, where: Tensor, lengths: OptTensor, ptr: OptTensor, search: bool = False
) -> Tensor:
    """Swap row 0 with row `where[c]` in column c of every set; or find `where` first."""
    _check_shape("exchange_rows", "where", where, _column_shape(x, ptr))
    values = _empty_like(x)
    x, where = x.contiguous(), where.contiguous()
    sizes, numbers = _sets(x, lengths, ptr)
    if _max_exchange((x, values, where, sizes), (*numbers, _DTYPE_CODES[x.dtype], search)):
        check_sizes("max_exchange", x, lengths, ptr)
    return values


def slice_attention(
    v: Tensor,
    k: Tensor,
    q: OptTensor,
    tau: Tensor,
    lengths: OptTensor,
    ptr: OptTensor,
    relu: bool,
) -> tuple[Tensor, Tensor]:
    """`y[i] = sum_j w(q[i] - k[j]) v[j]`; also return the rows of the sorted keys."""
    if not v.shape[-1]:
        return reference.slice_attention(v, k, q, tau, lengths, ptr, relu)
    names = ("slice_attention", "v")
    sorted_keys, order = column_sort(k, lengths, ptr, None, False, 4, names)
    out = _attend_slices((v, sorted_keys, q, tau), order, lengths, ptr, relu)[0]
    return out.to(v.dtype), order


def slice_attention_backward(
    grad_out: Tensor,
    v: Tensor,
    k: Tensor,
    q: OptTensor,
    tau: Tensor,
    order: Tensor,
    lengths: OptTensor,
    ptr: OptTensor,
    relu: bool,
) -> tuple[Tensor, ...]:
    """The gradients of `v, k, q, tau`, that of `q` empty if there is none."""
    if not v.shape[-1]:
        saved = (v, k, q, tau, order, lengths, ptr, relu)
        return reference.slice_attention_backward(grad_out, *saved)
    _check_shape("slice_attention", "order", order, k.shape)
    inputs = (v, column_gather(k, order, lengths, ptr), q, tau)
    *grads, grad_tau = _attend_slices(inputs, order, lengths, ptr, relu, grad_out)
    return *(x.to(v.dtype) for x in grads), grad_tau.sum(0)


def _attend_slices(
    inputs: tuple[Tensor, Tensor, OptTensor, Tensor],
    order: Tensor,
    lengths: OptTensor,
    ptr: OptTensor,
    relu: bool,
    grad_out: OptTensor = None,
) -> tuple[Tensor, ...]:
    """The output, or the gradients of values, keys, queries and tau in each set."""
    # Half precision is summed up in float32.
    tensors = [_NONE if x is None else _dense(x).to(inputs[3].dtype) for x in (*inputs, grad_out)]
    values, keys, queries, tau, grad = tensors
    sizes, (layout, sets, rows, longest, heads, threads) = _sets(keys, lengths, ptr)
    out = torch.empty_like(values)
    results = (_NONE, _NONE, _NONE)
    if grad_out is not None:
        of_queries = keys.new_empty(0) if queries is _NONE else torch.empty_like(keys)
        results = (torch.empty_like(keys), of_queries, tau.new_empty(sets, heads))
    job = (keys, queries, order.contiguous(), values, tau, out, grad, *results, sizes)
    width, code = values.shape[-1] // heads, _DTYPE_CODES[values.dtype]
    if _slice_attention(job, (layout, sets, rows, longest, heads, width, threads, code, relu)):
        check_sizes("slice_attention", values, lengths, ptr, "v")
    return (out,) if grad_out is None else (out, *results)


def _column_shape(x: Tensor, ptr: OptTensor) -> tuple[int, ...]:
    """The shape of one value for each column of each set."""
    return (*(x.shape[:-2] if ptr is None else (ptr.shape[0] - 1,)), x.shape[-1])


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


def _sizes(x: Tensor) -> Tensor:
    """As 64-bit numbers; what is no integer is left to the job, which names it."""
    return (x.long() if x.dtype == torch.int32 else x).contiguous()


def _sets(x: Tensor, lengths: OptTensor, ptr: OptTensor) -> tuple[Tensor, tuple[int, ...]]:
    """The sizes of the sets, and the rest of `Sets`, channels and threads (see csrc/jobs.h)."""
    threads = torch.get_num_threads()
    shape = x.shape
    if ptr is not None:
        return _sizes(ptr), (2, ptr.numel() - 1, shape[0], 0, shape[1], threads)
    if lengths is None and len(shape) == 3:
        return _NONE, (0, shape[0], shape[1], 0, shape[2], threads)
    *batch, rows, channels = shape
    count = math.prod(batch)
    if lengths is None:
        return _NONE, (0, count, rows, 0, channels, threads)
    return _sizes(lengths), (1, count, rows, 0, channels, threads)


def pair_mix(weights: Tensor, values: Tensor, ptr: Tensor, transpose: bool) -> Tensor:
    """`out[i] = sum_j weights[i, j] values[j]` in each set and head; or by `weights[j, i]`."""
    check_pairs("pair_mix", weights, values, ptr)
    values, out = _dense(values), values.new_empty(values.shape)
    ptr, numbers = _heads(values, ptr, weights.shape[1], values.shape[1], weights.shape[2])
    if _pair_mix((_dense(weights), values, out, _NONE, ptr), (*numbers, transpose, 0)):
        check_lengths("pair_mix", values, ptr, weights.shape[2])
    return out


def pair_outer(
    left: Tensor, right: Tensor, ptr: Tensor, heads: int, length: int, added: OptTensor = None
) -> Tensor:
    """`out[i, j] = left[i] right[j]` in each set and head, 0 where there are no such rows.

    With `added`, which has the shape of the output, it is the sum of both.
    """
    check_heads("pair_outer", right, ptr, heads, "left", left)
    check_tensor("pair_outer", "left", left, right.dtype, right.shape)
    left, right = _dense(left), _dense(right)
    out = right.new_empty((ptr.shape[0] - 1, heads, length, length))
    ptr, numbers = _heads(right, ptr, heads, right.shape[1], length)
    added = _NONE if added is None else _dense(added)
    if _pair_mix((left, right, out, added, ptr), (*numbers, False, True)):
        check_lengths("pair_outer", right, ptr, length)
    return out


def pair_attention(
    qkv: Tensor, bias: Tensor, ptr: Tensor, seed: int, p: float
) -> tuple[Tensor, Tensor]:
    """`softmax(q k^T / sqrt(width) + bias) v` in each set and head, with some weights dropped.

    Also returns the maximum and 1 / the sum of each softmax, for the gradients.
    """
    out = qkv.new_empty(qkv.shape[0], qkv.shape[1] // 3)
    totals = qkv.new_empty(qkv.shape[0], bias.shape[1], 2)
    _attend((_dense(qkv), _dense(bias), totals, out, _NONE, _NONE, _NONE), ptr, seed, p)
    return out, totals


def pair_attention_gradients(
    grad_out: Tensor, added: OptTensor, saved: tuple[Tensor, ...], seed: int, p: float
) -> tuple[Tensor, Tensor]:
    """The gradients of `qkv` and `bias`, the latter with `added` to it."""
    qkv, bias, totals, ptr = saved
    grad_qkv, grad_bias = qkv.new_empty(qkv.shape), bias.new_empty(bias.shape)
    added = _NONE if added is None else _dense(added)
    gradients = (grad_qkv, _dense(grad_out), added, grad_bias)
    _attend((_dense(qkv), _dense(bias), totals, *gradients), ptr, seed, p)
    return grad_qkv, grad_bias


def _attend(tensors: tuple[Tensor, ...], ptr: Tensor, seed: int, p: float) -> None:
    qkv, bias = tensors[:2]
    ptr, numbers = _heads(qkv, ptr, bias.shape[1], qkv.shape[1] // 3, bias.shape[2])
    if _pair_attention((*tensors, ptr), (*numbers, seed, *reference.dropping(p))):
        check_lengths("pair_attention", qkv, ptr, bias.shape[2])


def _heads(
    rows: Tensor, ptr: Tensor, heads: int, channels: int, length: int
) -> tuple[Tensor, tuple[int, ...]]:
    """The sizes of packed sets, and the numbers that follow them in the jobs of pairs."""
    sets = (2, ptr.shape[0] - 1, rows.shape[0], 0)
    sizes = (heads, channels // heads, length, torch.get_num_threads(), _DTYPE_CODES[rows.dtype])
    return ptr.long().contiguous(), (*sets, *sizes)


def _dense(x: Tensor) -> Tensor:
    return x.contiguous().resolve_neg()


def dropout(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """`out[i] = x[i] / (1 - p)`, or 0 where the hash of `i` and the seed is small."""
    x, out = _dense(x), x.new_empty(x.shape)
    below, scale = reference.dropping(p)
    options = (_DTYPE_CODES[x.dtype], torch.get_num_threads(), scale)
    _dropout((x, out), (x.numel(), int(seed), below, *options))
    return out


def edge_sum(
    x: Tensor, table: Tensor, codes: Tensor, index: Tensor, grad_out: OptTensor = None
) -> Any:
    """`out[target] += relu(x[source] + table[code 0] + table[code 1] + ...)`, from zeros.

    With `grad_out`, the gradients of `x` and `table` instead, in one pass over the edges.
    """
    x, table, codes, index = inputs = tuple(map(_dense, (x, table, codes, index)))
    results = (x.new_empty(x.shape), _NONE, _NONE, _NONE)
    if grad_out is not None:
        results = (_NONE, _dense(grad_out), x.new_empty(x.shape), table.new_empty(table.shape))
    sizes = (*x.shape, table.shape[0], *codes.shape)
    options = (grad_out is not None, _DTYPE_CODES[x.dtype], torch.get_num_threads())
    if _edge_sum((*inputs, *results), sizes + options):
        reference.check_edges(x, table, codes, index)
        raise ValueError("edge_sum: codes or index do not fit table and x")
    return results[0] if grad_out is None else results[2:]


def structural_bias(
    table: Tensor, products: Tensor, *encoding_and_options: Any, grad_out: OptTensor = None
) -> Any:
    """`out[b, :, i, j] = table[distance] + (products[edge 0, 0] + products[edge 1, 1] ...) / k`

    With `grad_out`, the gradients of `table` and `products` instead, in one pass over the pairs.
    """
    distance, path, ptr, edge_ptr, length, far, token, empty, padding = encoding_and_options
    if distance.dtype not in (torch.uint8, torch.int16):
        distance = distance.clamp(-1, 32767).to(torch.int16)
    if path.dtype not in (torch.int16, torch.int32):
        path = path.to(torch.int32)
    edges, hops, heads = products.shape
    tables: tuple[Tensor, ...]
    if grad_out is None:
        bias = table.new_empty(ptr.shape[0] - 1, heads, length, length)
        tables = (_dense(table), _dense(products), bias)
    else:
        tables = (*(x.new_empty(x.shape) for x in (table, products)), _dense(grad_out))
    encoding = [_dense(x) for x in (distance, path, ptr, edge_ptr)]
    sizes = (ptr.shape[0] - 1, length, heads, edges, hops, far, token, empty, *path.shape)
    layout = (distance.element_size(), path.element_size(), grad_out is not None)
    job = (*sizes, *layout, _DTYPE_CODES[table.dtype], torch.get_num_threads(), padding)
    if _structural_bias((*tables, *encoding), job):
        encoded = (distance, path, ptr, edge_ptr)
        reference.check_encoding(*encoded, length, edges - empty, hops, token)
        raise ValueError("structural_bias: the encoding is that of other graphs")
    return tables[2] if grad_out is None else tables[:2]


def graph_offsets(edge_index: Tensor, ptr: Tensor, name: str = "shortest_paths") -> Tensor:
    """`[2, B + 1]`, the first pair and edge of each graph; raise if an edge is out of place."""
    offsets = ptr.new_empty(2, ptr.shape[0])
    sizes = (edge_index.shape[1], ptr.shape[0] - 1, 0, 0, 0, 0, 1)
    if _graph_offsets((edge_index, ptr, offsets, _NONE, _NONE), sizes):
        return reference.graph_offsets(edge_index, ptr, name)  # raises
    return offsets


def shortest_paths(
    edge_index: Tensor, ptr: Tensor, offsets: Tensor, out: tuple[Tensor, Tensor], max_distance: int
) -> None:
    """Fill `out`, the distances and paths (see `slicegraph.ops.shortest_paths`)."""
    distance, path = out
    sizes = (edge_index.shape[1], ptr.shape[0] - 1, max_distance, path.shape[1])
    widths = (distance.element_size(), path.element_size(), torch.get_num_threads())
    _shortest_paths((edge_index, ptr, offsets, distance, path), sizes + widths)


def rings(
    edge_index: Tensor, ptr: Tensor, offsets: Tensor, max_length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the nodes of all rings, the length of each, and the rings of each graph."""
    graphs, capacity = ptr.shape[0] - 1, 64 + 2 * int(ptr[-1])
    counts = ptr.new_empty(graphs + 1)
    while True:
        nodes, lengths = ptr.new_empty(capacity), ptr.new_empty(capacity // 3)
        sizes = (edge_index.shape[1], graphs, max_length, capacity)
        _rings((edge_index, ptr, offsets, nodes, lengths, counts), sizes)
        *_, found = counts.tolist()
        if found <= capacity:
            return nodes[:found], lengths[: int(counts[:-1].sum())], counts[:-1]
        capacity = found
