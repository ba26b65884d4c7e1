"""Layouts of batches of sets: `lengths`, `ptr`, pairs of rows, and the checks of them.

A batch of sets is dense (`x` is `[..., N, C]`, `lengths` of shape `[...]` counts the real rows of
each set) or packed (`x` is `[T, C]`, set `b` is the rows `ptr[b]` to `ptr[b + 1]`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

OptTensor = Tensor | None
_STRIDED = torch.strided
PLAIN = frozenset((Tensor, torch.nn.Parameter))  # tensors whose memory is their own
# The type of a permutation by the bytes of its entries.
INDEX_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
VALUE_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # a float's bits, by its bytes
AS_ON_GPU = [False]  # set by `slicegraph.ops.operator.as_on_gpu`


def on_cpu(x: Tensor) -> bool:
    """Whether the code of a CPU serves `x`."""
    return x.is_cpu and not AS_ON_GPU[0]


def can_read(x: Tensor) -> bool:
    """Whether values of `x` can be read without waiting for a device or breaking a graph.

    Where they can, rows stay packed and values are checked. Elsewhere (on a GPU, and in a compiled
    or exported graph) sets are padded, and every size comes from a shape or a Python integer.
    """
    return on_cpu(x) and not torch.compiler.is_compiling()


def plain(x: Any) -> Any:
    """Return the tensor inside of a subclass that only adds methods, such as PyG's `EdgeIndex`."""
    if type(x) in PLAIN or not isinstance(x, Tensor):
        return x
    if hasattr(x, "as_tensor"):  # EdgeIndex and Index of PyG, which have no memory of their own
        return x.as_tensor()
    ours = type(x).__torch_dispatch__ is Tensor.__torch_dispatch__
    return x.as_subclass(Tensor) if ours else x


def check_dense(name: str, argument: str, value: Any) -> None:
    """Raise unless a value is a tensor that stores all of its entries."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: {argument} is {type(value).__name__}, expected a tensor")
    if value.layout is not _STRIDED:
        raise TypeError(f"{name}: {argument} is {value.layout}, expected a dense tensor")


def check_layout(
    name: str, x: Tensor, lengths: OptTensor, ptr: OptTensor, rows_name: str = "x"
) -> None:
    """Raise unless shapes, types and devices fit, and sizes on a GPU: its kernels do not check."""
    if x.layout is not _STRIDED:
        check_dense(name, rows_name, x)
    if x.dtype not in VALUE_DTYPES:
        expected = "float32, float64, bfloat16 or float16"
        raise TypeError(f"{name}: {rows_name} is {x.dtype}, expected {expected}")
    if x.dim() < 2:
        shape = list(x.shape)
        raise ValueError(f"{name}: {rows_name} has shape {shape}, expected [..., N, C] or [T, C]")
    if lengths is not None and ptr is not None:
        raise ValueError(f"{name}: give lengths (dense sets) or ptr (packed sets), not both")
    if lengths is not None:
        _check_integers(name, "lengths", lengths, rows_name, x)
        if lengths.shape != x.shape[:-2]:
            raise ValueError(
                f"{name}: lengths has shape {list(lengths.shape)}, expected "
                f"{list(x.shape[:-2])} for {rows_name} of shape {list(x.shape)}"
            )
    if ptr is not None:
        _check_ptr(name, ptr, rows_name, x)
    if not x.is_cpu and not torch.compiler.is_compiling():
        check_sizes(name, x, lengths, ptr, rows_name)


def _check_integers(name: str, argument: str, value: Tensor, rows_name: str, rows: Tensor) -> None:
    if not isinstance(value, Tensor) or value.layout is not _STRIDED:
        check_dense(name, argument, value)
    if value.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: {argument} is {value.dtype}, expected int32 or int64")
    if value.device != rows.device:
        raise ValueError(
            f"{name}: {argument} is on {value.device}, but {rows_name} is on {rows.device}"
        )


def _check_ptr(name: str, ptr: Tensor, rows_name: str, rows: Tensor) -> None:
    _check_integers(name, "ptr", ptr, rows_name, rows)
    if rows.dim() != 2 or ptr.dim() != 1 or ptr.shape[0] == 0:
        raise ValueError(
            f"{name}: ptr of shape {list(ptr.shape)} with {rows_name} of shape "
            f"{list(rows.shape)}, expected ptr [B + 1] and {rows_name} [T, C]"
        )


def check_sizes(
    name: str, x: Tensor, lengths: OptTensor, ptr: OptTensor, rows_name: str = "x"
) -> None:
    """Raise unless every set lies within `x`; reads the values, so it waits for a GPU."""
    if lengths is not None:
        rows = x.shape[-2]
        if (wrong := first_true((lengths < 0) | (lengths > rows))) is not None:
            value = int(lengths.reshape(-1)[wrong])
            place = [int(i) for i in torch.unravel_index(torch.tensor(wrong), lengths.shape)]
            problem = "is negative" if value < 0 else f"exceeds the {rows} rows of {rows_name}"
            raise ValueError(f"{name}: lengths{place if place else ''} = {value} {problem}")
    if ptr is not None:
        check_ascending(name, ptr)
        if int(ptr[-1]) != x.shape[0]:
            raise ValueError(
                f"{name}: ptr ends at {int(ptr[-1])}, expected the {x.shape[0]} rows of {rows_name}"
            )


def check_ascending(name: str, ptr: Tensor) -> None:
    """Raise unless `ptr` starts at 0 and never descends."""
    if int(ptr[0]) != 0:
        raise ValueError(f"{name}: ptr[0] = {int(ptr[0])}, expected 0")
    if (wrong := first_true(ptr[1:] < ptr[:-1])) is not None:
        raise ValueError(
            f"{name}: ptr must not descend, but ptr[{wrong + 1}] = {int(ptr[wrong + 1])} "
            f"follows ptr[{wrong}] = {int(ptr[wrong])}"
        )


def first_true(wrong: Tensor) -> int | None:
    """The flat position of the first true entry, or None."""
    wrong = wrong.reshape(-1)
    return int(wrong.to(torch.uint8).argmax()) if bool(wrong.any()) else None


def check_tensor(
    name: str, argument: str, value: Tensor, dtype: torch.dtype | None, shape: Sequence[int | str]
) -> None:
    """Raise unless a tensor has a type (None: any float) and a shape (a string: any size)."""
    check_dense(name, argument, value)
    fits = value.is_floating_point() if dtype is None else value.dtype == dtype
    fits = fits and value.dim() == len(shape)
    sizes = zip(value.shape, shape, strict=False)
    if not fits or any(not isinstance(n, str) and size != n for size, n in sizes):
        raise ValueError(
            f"{name}: {argument} of shape {list(value.shape)} and type {value.dtype}, expected "
            f"{dtype or 'floating point'} of shape [{', '.join(map(str, shape))}]"
        )


def check_index(name: str, argument: str, index: Tensor, rows: int, table: str) -> None:
    """Raise unless every entry of `index` `[P, K]` is a row number of a table."""
    if (wrong := first_true((index < 0) | (index >= rows))) is not None:
        p, k = divmod(wrong, index.shape[1])
        raise IndexError(
            f"{name}: {argument}[{p}, {k}] = {int(index[p, k])} is not in 0..{rows - 1}, the rows "
            f"of {table}"
        )


def padding_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """`[..., N, 1]`, true on the rows beyond each set's length."""
    rows = torch.arange(x.shape[-2], device=x.device)
    return (rows >= lengths.unsqueeze(-1)).unsqueeze(-1)


def set_of_row(ptr: Tensor, num_rows: int) -> Tensor:
    """`[T]`, the number of the set that each packed row belongs to."""
    sets = torch.arange(ptr.numel() - 1, device=ptr.device)
    return torch.repeat_interleave(sets, ptr.diff().long(), output_size=num_rows)


def check_pairs(name: str, weights: Tensor, values: Tensor, ptr: Tensor) -> None:
    """Raise unless weights of pairs `[B, H, N, N]` fit packed rows `[T, C]`; reads no values."""
    check_dense(name, "weights", weights)
    shape = list(weights.shape)
    if len(shape) != 4 or shape[2] != shape[3]:
        raise ValueError(f"{name}: weights has shape {shape}, expected [B, H, N, N]")
    check_heads(name, values, ptr, weights.shape[1], "weights", weights)
    if weights.shape[0] != ptr.shape[0] - 1:
        raise ValueError(
            f"{name}: weights has shape {shape}, expected [{ptr.shape[0] - 1}, H, N, N] for ptr of "
            f"shape {list(ptr.shape)}"
        )


def check_heads(
    name: str, values: Tensor, ptr: Tensor, heads: int, argument: str, other: Tensor
) -> None:
    """Raise unless packed rows have sets, channels for each head, and the type of `other`."""
    check_dense(name, "values", values)
    _check_ptr(name, ptr, "values", values)
    if heads < 1 or values.shape[1] % heads:
        raise ValueError(
            f"{name}: values has shape {list(values.shape)}, expected [T, C] with C a multiple of "
            f"the {heads} heads"
        )
    if other.dtype != values.dtype or not other.is_floating_point():
        raise TypeError(
            f"{name}: {argument} is {other.dtype} and values is {values.dtype}, expected one "
            "floating-point type"
        )
    if other.device != values.device:
        raise ValueError(
            f"{name}: {argument} is on {other.device}, but values is on {values.device}"
        )


def check_lengths(name: str, values: Tensor, ptr: Tensor, length: int) -> None:
    """Raise unless every set lies within `values` and has at most `length` rows; reads `ptr`."""
    check_sizes(name, values, None, ptr, "values")
    sizes = ptr.diff()
    if sizes.numel() and int(sizes.max()) > length:
        b = int(sizes.argmax())
        raise ValueError(
            f"{name}: set {b} has {int(sizes[b])} rows, but weights has room for {length}"
        )


def quantile_positions(lengths: Tensor, quantiles: int) -> tuple[Tensor, Tensor, Tensor]:
    """`[B, K]`: the sorted rows below and above each quantile, and the share of the second.

    Whole numbers, so that no position of a large set is rounded: quantile j is j / (K - 1). One
    quantile alone is the median.
    """
    first, parts = (0, quantiles - 1) if quantiles > 1 else (1, 2)
    steps = torch.arange(first, first + quantiles, device=lengths.device)
    position = (lengths.long().unsqueeze(-1) - 1).clamp(min=0) * steps
    below, rest = position // parts, position % parts
    return below, below + (rest > 0), rest / parts
