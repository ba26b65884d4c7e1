"""What the column sort must give, from `torch.sort` on one set at a time."""

import itertools

import torch
from torch import Tensor

BITS = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}
DTYPES = list(BITS)


def assert_same_bits(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.is_contiguous()
    bits = BITS[actual.dtype]
    assert torch.equal(actual.view(bits), expected.contiguous().view(bits))


def sort_set(x: Tensor, descending: bool | Tensor) -> tuple[Tensor, Tensor]:
    """Values and indices of one set `[n, C]`, column by column."""
    if isinstance(descending, bool):
        return torch.sort(x, dim=0, stable=True, descending=descending)
    columns = [
        torch.sort(x[:, c], stable=True, descending=bool(down)) for c, down in enumerate(descending)
    ]
    if not columns:
        return x.clone(), torch.empty_like(x, dtype=torch.int64)
    return torch.stack([c[0] for c in columns], 1), torch.stack([c[1] for c in columns], 1)


def sort_dense(x: Tensor, lengths: list[int], descending: bool | Tensor) -> tuple[Tensor, Tensor]:
    """Sets `[B, N, C]`: padding is zero and its indices are its own rows."""
    values = torch.zeros_like(x, memory_format=torch.contiguous_format)
    rows = torch.arange(x.shape[1]).view(1, -1, 1)
    indices = rows.expand(x.shape).clone()
    for b, n in enumerate(lengths):
        values[b, :n], indices[b, :n] = sort_set(x[b, :n], descending)
    return values, indices


def sort_packed(x: Tensor, ptr: list[int], descending: bool | Tensor) -> tuple[Tensor, Tensor]:
    values, indices = torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)
    for first, end in itertools.pairwise(ptr):
        values[first:end], indices[first:end] = sort_set(x[first:end], descending)
    return values, indices


def awkward(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Random values among ties, signed zeros, infinities, NaNs of both signs and two payloads."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator).to(dtype)
    nan = torch.tensor([torch.nan], dtype=dtype)
    odd_nan = (nan.view(BITS[dtype]) | 1).view(dtype)
    special = [0.0, -0.0, torch.inf, -torch.inf, 1.0, -1.0]
    table = torch.cat([torch.tensor(special, dtype=dtype), nan, -nan, odd_nan, -odd_nan])
    choice = torch.randint(len(table), shape, generator=generator)
    return torch.where(torch.rand(shape, generator=generator) < 0.4, table[choice], x)
