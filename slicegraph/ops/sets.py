"""What `lengths` and `ptr` mean, and what is wrong with them when they are wrong.

A batch of sets is dense (`x` is `[..., N, C]`, `lengths` of shape `[...]` counts the real rows of
each set) or packed (`x` is `[T, C]`, set `b` is the rows `ptr[b]` to `ptr[b + 1]`).
"""

import torch
from torch import Tensor

# The type of a permutation by the bytes of its entries.
INDEX_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_VALUE_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_layout(name: str, x: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> None:
    """Raises unless the shapes, types and devices fit together; reads no values."""
    if x.dtype not in _VALUE_DTYPES:
        raise TypeError(f"{name}: x is {x.dtype}, expected float32, float64, bfloat16 or float16")
    if x.dim() < 2:
        raise ValueError(f"{name}: x has shape {list(x.shape)}, expected [..., N, C] or [T, C]")
    if lengths is not None and ptr is not None:
        raise ValueError(f"{name}: give lengths (dense sets) or ptr (packed sets), not both")
    if lengths is not None:
        _check_integers(name, "lengths", x, lengths)
        if lengths.shape != x.shape[:-2]:
            raise ValueError(
                f"{name}: lengths has shape {list(lengths.shape)}, expected "
                f"{list(x.shape[:-2])} for x of shape {list(x.shape)}"
            )
    if ptr is not None:
        _check_integers(name, "ptr", x, ptr)
        if x.dim() != 2 or ptr.dim() != 1 or ptr.numel() == 0:
            raise ValueError(
                f"{name}: ptr of shape {list(ptr.shape)} with x of shape {list(x.shape)}, "
                "expected ptr [B + 1] and x [T, C]"
            )


def _check_integers(name: str, argument: str, x: Tensor, values: Tensor) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name}: {argument} is {type(values).__name__}, expected a tensor")
    if values.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: {argument} is {values.dtype}, expected int32 or int64")
    if values.device != x.device:
        raise ValueError(f"{name}: {argument} is on {values.device}, but x is on {x.device}")


def check_sizes(name: str, x: Tensor, lengths: Tensor | None, ptr: Tensor | None) -> None:
    """Raises unless every set lies within `x`; reads the values, so it waits for a GPU."""
    if lengths is not None:
        rows = x.shape[-2]
        if (wrong := _first((lengths < 0) | (lengths > rows))) is None:
            return
        value = int(lengths.reshape(-1)[wrong])
        where = _position(wrong, lengths.shape)
        problem = "is negative" if value < 0 else f"exceeds the {rows} rows of x"
        raise ValueError(f"{name}: lengths{where} = {value} {problem}")
    if ptr is not None:
        first, last = int(ptr[0]), int(ptr[-1])
        if first != 0:
            raise ValueError(f"{name}: ptr[0] = {first}, expected 0")
        if (wrong := _first(ptr[1:] < ptr[:-1])) is not None:
            raise ValueError(
                f"{name}: ptr must not descend, but ptr[{wrong + 1}] = {int(ptr[wrong + 1])} "
                f"follows ptr[{wrong}] = {int(ptr[wrong])}"
            )
        if last != x.shape[0]:
            raise ValueError(f"{name}: ptr ends at {last}, expected the {x.shape[0]} rows of x")


def _first(wrong: Tensor) -> int | None:
    wrong = wrong.reshape(-1)
    return int(wrong.to(torch.uint8).argmax()) if bool(wrong.any()) else None


def _position(flat: int, shape: torch.Size) -> str:
    if not shape:
        return ""
    return str([int(i) for i in torch.unravel_index(torch.tensor(flat), shape)])


def padding_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """`[..., N, 1]`, true on the rows beyond each set's length."""
    rows = torch.arange(x.shape[-2], device=x.device)
    return (rows >= lengths.unsqueeze(-1)).unsqueeze(-1)


def set_of_row(ptr: Tensor, num_rows: int) -> Tensor:
    """`[T]`, the number of the set that each packed row belongs to."""
    sets = torch.arange(ptr.numel() - 1, device=ptr.device)
    return torch.repeat_interleave(sets, ptr.diff().long(), output_size=num_rows)
