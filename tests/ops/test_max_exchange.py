"""The max exchange, against its definition one column at a time."""

import itertools

import pytest
import torch
from support.sorting import DTYPES, assert_same_bits, awkward
from torch import Tensor

from slicegraph.ops import max_exchange


def exchange_set(x: Tensor) -> Tensor:
    out = x.clone()
    for c in range(x.shape[1]):
        if len(x):
            top = int(x[:, c].argmax())
            out[0, c], out[top, c] = x[top, c], x[0, c]
    return out


def test_literal_columns(backend: str) -> None:
    x = torch.tensor([[1.0, 9.0, 2.0], [2.0, 5.0, 2.0], [7.0, 9.0, 1.0]])
    expected = torch.tensor([[7.0, 9.0, 2.0], [2.0, 5.0, 2.0], [1.0, 9.0, 1.0]])
    assert_same_bits(max_exchange(x), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [1, 7, 70])
@pytest.mark.parametrize("rows", [1, 2, 13, 300])
def test_equals_argmax_and_swap(backend: str, rows: int, channels: int, dtype: torch.dtype) -> None:
    x = awkward(2, rows, channels, dtype=dtype)
    assert_same_bits(max_exchange(x), torch.stack([exchange_set(s) for s in x]))


def test_padding_takes_no_part(backend: str) -> None:
    x = torch.full((4, 5, 3), -torch.inf)
    x[:, :3] = torch.randn(4, 3, 3)
    x[0, 4] = 100.0
    lengths = [3, 0, 5, 1]
    expected = torch.zeros_like(x)
    for b, n in enumerate(lengths):
        expected[b, :n] = exchange_set(x[b, :n])
    assert_same_bits(max_exchange(x, lengths=torch.tensor(lengths)), expected)


def test_packed_sets(backend: str) -> None:
    ptr = [0, 4, 4, 5, 12]
    x = awkward(12, 6, dtype=torch.float32)
    expected = torch.cat([exchange_set(x[a:b]) for a, b in itertools.pairwise(ptr)])
    assert_same_bits(max_exchange(x, ptr=torch.tensor(ptr, dtype=torch.int32)), expected)


def test_all_minus_infinity_stays(backend: str) -> None:
    x = torch.full((3, 2), -torch.inf)
    assert_same_bits(max_exchange(x, lengths=torch.tensor(3)), x)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty_input(backend: str, shape: tuple[int, ...]) -> None:
    assert max_exchange(torch.randn(shape)).shape == shape


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"max_exchange: lengths\[1\] = 4 exceeds the 3 rows"):
        max_exchange(torch.randn(2, 3, 1), lengths=torch.tensor([3, 4]))
    with pytest.raises(TypeError, match=r"max_exchange: x is torch\.int64"):
        max_exchange(torch.ones(2, 3, dtype=torch.int64))
