"""What is wrong with weights, rows and sets that do not fit together."""

import torch
from torch import Tensor

from slicegraph.ops.sets import check_sizes


def check_pairs(name: str, weights: Tensor, values: Tensor, ptr: Tensor) -> None:
    """Raises unless shapes, types and devices fit; reads no values."""
    shape = list(weights.shape)
    if len(shape) != 4 or shape[2] != shape[3]:
        raise ValueError(f"{name}: weights has shape {shape}, expected [B, H, N, N]")
    check_rows(name, values, ptr, weights.shape[1])
    if weights.shape[0] != ptr.shape[0] - 1:
        raise ValueError(
            f"{name}: weights has shape {shape}, expected [{ptr.shape[0] - 1}, H, N, N] for ptr of "
            f"shape {list(ptr.shape)}"
        )
    _check_alike(name, "weights", weights, values)


def check_rows(name: str, values: Tensor, ptr: Tensor, heads: int) -> None:
    """Raises unless the rows fall into sets, and their channels into heads; reads no values."""
    if ptr.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: ptr is {ptr.dtype}, expected int32 or int64")
    if ptr.device != values.device:
        raise ValueError(f"{name}: ptr is on {ptr.device}, but values is on {values.device}")
    if values.dim() != 2 or ptr.dim() != 1 or ptr.shape[0] == 0:
        raise ValueError(
            f"{name}: ptr of shape {list(ptr.shape)} with values of shape {list(values.shape)}, "
            "expected ptr [B + 1] and values [T, C]"
        )
    if heads < 1 or values.shape[1] % heads:
        raise ValueError(
            f"{name}: values has shape {list(values.shape)}, expected [T, C] with C a multiple of "
            f"the {heads} heads"
        )


def check_products(name: str, g: Tensor, values: Tensor, ptr: Tensor, heads: int) -> None:
    """Raises unless two tensors of rows fit together; reads no values."""
    check_rows(name, values, ptr, heads)
    if g.shape != values.shape:
        raise ValueError(f"{name}: g has shape {list(g.shape)}, expected {list(values.shape)}")
    _check_alike(name, "g", g, values)


def _check_alike(name: str, argument: str, x: Tensor, values: Tensor) -> None:
    if x.dtype != values.dtype or not x.is_floating_point():
        raise TypeError(
            f"{name}: {argument} is {x.dtype} and values is {values.dtype}, expected one "
            "floating-point type"
        )
    if x.device != values.device:
        raise ValueError(f"{name}: {argument} is on {x.device}, but values is on {values.device}")


def check_lengths(name: str, values: Tensor, ptr: Tensor, length: int) -> None:
    """Raises unless every set lies within `values` and has at most `length` rows; reads `ptr`."""
    if int(ptr[-1]) != values.shape[0]:
        raise ValueError(
            f"{name}: ptr ends at {int(ptr[-1])}, expected the {values.shape[0]} rows of values"
        )
    check_sizes(name, values, None, ptr)
    sizes = ptr.diff()
    if sizes.numel() and int(sizes.max()) > length:
        b = int(sizes.argmax())
        raise ValueError(
            f"{name}: set {b} has {int(sizes[b])} rows, but weights has room for {length}"
        )
