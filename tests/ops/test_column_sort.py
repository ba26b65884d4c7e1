"""Values and indices of the column sort, against `torch.sort(stable=True)`, to the bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sorting import DTYPES, assert_same_bits, awkward, sort_dense, sort_packed, sort_set
from support.variants import VARIANTS, running

from slicegraph.ops import column_sort

NAN, INF = torch.nan, torch.inf
LITERAL_CASES = {
    # column: (ascending, its indices, descending, its indices)
    "distinct": ([3.0, 1.0, 2.0], [1, 2, 0], [0, 2, 1]),
    "ties": ([1.0, 0.0, 1.0, 0.0], [1, 3, 0, 2], [0, 2, 1, 3]),
    "all_equal": ([5.0, 5.0, 5.0], [0, 1, 2], [0, 1, 2]),
    "signed_zeros": ([0.0, -0.0, 0.0, -0.0], [0, 1, 2, 3], [0, 1, 2, 3]),
    "infinities": ([INF, -INF, 0.0], [1, 2, 0], [0, 2, 1]),
    "nan_is_largest": ([NAN, INF, 1.0, NAN], [2, 1, 0, 3], [0, 3, 1, 2]),
    "negative_nan_too": ([-NAN, INF, -INF], [2, 1, 0], [0, 1, 2]),
    "single": ([7.0], [0], [0]),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", LITERAL_CASES)
def test_literal_columns(backend: str, case: str, dtype: torch.dtype) -> None:
    column, ascending, descending = LITERAL_CASES[case]
    x = torch.tensor(column, dtype=dtype).unsqueeze(-1)
    for direction, order in ((False, ascending), (True, descending)):
        values, indices = column_sort(x, descending=direction)
        assert indices.flatten().tolist() == order
        assert_same_bits(values, x[order])
        assert_same_bits(column_sort(x, descending=direction, return_indices=False), x[order])


SIZES = [0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 52, 64, 65, 100, 257]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [1, 3, 16, 33, 70])
@pytest.mark.parametrize("rows", SIZES)
def test_equals_torch_on_every_size(
    backend: str, rows: int, channels: int, dtype: torch.dtype
) -> None:
    if backend == "triton" and (rows not in (2, 17, 33, 64, 257) or channels == 70):
        pytest.skip("the interpreter is slow: a few sizes stand for all")
    mask = torch.arange(channels) % 3 == 1
    for x in (torch.randn(2, rows, channels).to(dtype), awkward(2, rows, channels, dtype=dtype)):
        for descending in (False, True, mask):
            expected = sort_dense(x, [rows, rows], descending)
            values, indices = column_sort(x, descending=descending)
            assert indices.dtype == torch.int64
            assert torch.equal(indices, expected[1])
            assert_same_bits(values, expected[0])
            alone = column_sort(x, descending=descending, return_indices=False)
            assert_same_bits(alone, expected[0])


@pytest.mark.parametrize("rows", [*range(1, 10), 17])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_equals_torch_on_many_short_sets(backend: str, rows: int, channels: int) -> None:
    if backend == "triton" and rows not in (1, 5):
        pytest.skip("the interpreter is slow: a few sizes stand for all")
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(150, rows, channels, generator=generator).mul(3).round().requires_grad_()
    weight = torch.randn(x.shape, generator=generator)
    values, indices = column_sort(x)
    (gradient,) = torch.autograd.grad(values, x, weight)
    expected, expected_indices = torch.sort(x, dim=-2, stable=True)
    (expected_gradient,) = torch.autograd.grad(expected, x, weight)
    assert torch.equal(values, expected)
    assert torch.equal(indices, expected_indices)
    assert torch.equal(gradient, expected_gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("rows", "channels"), [(1000, 17), (5000, 2), (20000, 1), (3000, 40)])
def test_equals_torch_on_long_columns(
    backend: str, rows: int, channels: int, dtype: torch.dtype
) -> None:
    if backend == "triton":
        pytest.skip("sets this long are torch's")
    x = awkward(1, rows, channels, dtype=dtype)
    plain = torch.randn(1, rows, channels).to(dtype)
    for data in (x, plain):
        expected = sort_dense(data, [rows], True)
        values, indices = column_sort(data, descending=True)
        assert torch.equal(indices, expected[1])
        assert_same_bits(values, expected[0])
        assert_same_bits(column_sort(data, descending=True, return_indices=False), expected[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sorts_a_million_rows(dtype: torch.dtype) -> None:
    x = awkward(1_000_003, 2, dtype=dtype)
    values, indices = column_sort(x)
    expected = torch.sort(x, dim=0, stable=True)
    assert torch.equal(indices, expected.indices)
    assert_same_bits(values, expected.values)
    assert_same_bits(column_sort(x, return_indices=False), expected.values)


def test_sorts_wide_long_columns_by_radix() -> None:
    x = torch.randn(1 << 18, 17)
    x[:5] = torch.nan
    values, indices = column_sort(x)
    expected = torch.sort(x, dim=0, stable=True)
    assert torch.equal(indices, expected.indices)
    assert_same_bits(values, expected.values)
    assert_same_bits(column_sort(x, return_indices=False), expected.values)


@pytest.mark.parametrize("integer", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("channels", [1, 5, 40])
def test_padding_takes_no_part(backend: str, channels: int, integer: torch.dtype) -> None:
    lengths = [7, 0, 3, 1, 7, 6]
    x = awkward(6, 7, channels, dtype=torch.float32)
    x[1:4, 4:] = -1e9
    expected = sort_dense(x, lengths, True)
    sizes = torch.tensor(lengths, dtype=integer)
    values, indices = column_sort(x, lengths=sizes, descending=True)
    assert torch.equal(indices, expected[1])
    assert_same_bits(values, expected[0])
    alone = column_sort(x, lengths=sizes, descending=True, return_indices=False)
    assert_same_bits(alone, expected[0])


@pytest.mark.parametrize("integer", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("channels", [1, 5, 40])
def test_packed_sets(backend: str, channels: int, integer: torch.dtype) -> None:
    ptr = [0, 4, 4, 5, 22, 26, 26]
    x = awkward(26, channels, dtype=torch.float32)
    mask = torch.arange(channels) % 2 == 0
    expected = sort_packed(x, ptr, mask)
    values, indices = column_sort(x, ptr=torch.tensor(ptr, dtype=integer), descending=mask)
    assert torch.equal(indices, expected[1])
    assert_same_bits(values, expected[0])


def test_packed_sets_of_very_different_length(backend: str) -> None:
    if backend == "triton":
        pytest.skip("sets this long are torch's")
    ptr = [0, 3, 3000, 3016, 3017]
    for channels in (1, 3, 20):
        x = awkward(3017, channels, dtype=torch.float32)
        expected = sort_packed(x, ptr, False)
        values, indices = column_sort(x, ptr=torch.tensor(ptr))
        assert torch.equal(indices, expected[1])
        assert_same_bits(values, expected[0])


def test_many_leading_dimensions_and_scalar_lengths(backend: str) -> None:
    x = torch.randn(2, 3, 4, 5)
    lengths = torch.tensor([[4, 2, 0], [1, 4, 3]])
    values, _ = column_sort(x, lengths=lengths)
    expected, _ = sort_dense(x.flatten(0, 1), lengths.flatten().tolist(), False)
    assert_same_bits(values, expected.view_as(x))
    single, _ = column_sort(x[0, 0], lengths=torch.tensor(2))
    assert_same_bits(single[:2], sort_set(x[0, 0, :2], False)[0])
    assert not single[2:].any()


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0), (5, 0), (0, 5)])
def test_empty_input(backend: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    values, indices = column_sort(x)
    assert values.shape == indices.shape == x.shape


def test_no_packed_sets_at_all(backend: str) -> None:
    values, indices = column_sort(torch.randn(0, 3), ptr=torch.tensor([0]))
    assert values.shape == indices.shape == (0, 3)


STRIDED = {
    "transposed": lambda x: x.transpose(0, 1),
    "channels_first": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "channel_slice": lambda x: x[..., 3:21],
    "every_other_row": lambda x: x[:, ::2],
    "every_other_channel": lambda x: x[..., ::2],
    "expanded": lambda x: x[:1].expand(4, -1, -1),
}


@pytest.mark.parametrize("view", STRIDED)
def test_non_contiguous_input(backend: str, view: str) -> None:
    x = STRIDED[view](awkward(6, 9, 24, dtype=torch.float32))
    before = x.clone()
    values, indices = column_sort(x)
    expected = sort_dense(x, [x.shape[1]] * x.shape[0], False)
    assert torch.equal(indices, expected[1])
    assert_same_bits(values, expected[0])
    assert torch.equal(x.nan_to_num(), before.nan_to_num())


def test_non_contiguous_sizes(backend: str) -> None:
    x = torch.randn(3, 5, 4)
    lengths = torch.tensor([5, 9, 0, 9, 2])[::2]
    assert_same_bits(column_sort(x, lengths=lengths)[0], sort_dense(x, [5, 0, 2], False)[0])


def test_descending_may_be_a_list(backend: str) -> None:
    x = torch.randn(5, 2)
    values, _ = column_sort(x, descending=[True, False])
    assert_same_bits(values, sort_set(x, torch.tensor([True, False]))[0])


@st.composite
def ragged_sets(draw: st.DrawFn) -> tuple[list[int], int, torch.dtype, int, bool]:
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5))
    channels = draw(st.integers(1, 40))
    return (
        lengths,
        channels,
        draw(st.sampled_from(DTYPES)),
        draw(st.integers(0, 99)),
        draw(st.booleans()),
    )


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=40, deadline=None)
@given(case=ragged_sets())
def test_any_ragged_batch_packed_and_padded(variant: str, case: tuple) -> None:
    lengths, channels, dtype, seed, down = case
    with running(variant):
        ptr = torch.tensor([0, *lengths]).cumsum(0)
        x = awkward(int(ptr[-1]), channels, dtype=dtype, seed=seed)
        packed, _ = column_sort(x, ptr=ptr, descending=down)
        assert_same_bits(packed, sort_packed(x, ptr.tolist(), down)[0])
        dense = torch.full((len(lengths), max(lengths) + 2, channels), 7.0, dtype=dtype)
        for b, n in enumerate(lengths):
            dense[b, :n] = x[ptr[b] : ptr[b] + n]
        padded = column_sort(
            dense, lengths=torch.tensor(lengths), descending=down, return_indices=False
        )
        for b, n in enumerate(lengths):
            assert_same_bits(padded[b, :n].contiguous(), packed[ptr[b] : ptr[b] + n].contiguous())
            assert not padded[b, n:].any()
