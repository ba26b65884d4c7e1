"""Column sort and max exchange against torch, to the bit; gradients, compilers, wrong input."""

import itertools
import math
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sorting import DTYPES, assert_same_bits, awkward, sort_dense, sort_packed, sort_set
from support.variants import VARIANTS, running
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from slicegraph.ops import column_sort, interleave_descending, max_exchange, sort

NAN, INF = torch.nan, torch.inf
LENGTHS = torch.tensor([5, 0, 3])
PTR = torch.tensor([0, 4, 4, 9])
MASK = torch.tensor([True, False, False, True])


def assert_sorted(x: Tensor, expected: tuple[Tensor, Tensor], **options) -> None:
    """Values with indices, and values alone, are the expected ones to the bit."""
    values, indices = column_sort(x, **options)
    assert indices.dtype == torch.int64
    assert torch.equal(indices, expected[1])
    assert_same_bits(values, expected[0])
    assert_same_bits(column_sort(x, **options, return_indices=False), expected[0])


LITERAL_CASES = {
    # column, indices when ascending, indices when descending
    "distinct": ([3.0, 1.0, 2.0], [1, 2, 0], [0, 2, 1]),
    "ties": ([1.0, 0.0, 1.0, 0.0], [1, 3, 0, 2], [0, 2, 1, 3]),
    "signed_zeros": ([0.0, -0.0, 0.0, -0.0], [0, 1, 2, 3], [0, 1, 2, 3]),
    "infinities": ([INF, -INF, 0.0], [1, 2, 0], [0, 2, 1]),
    "nan_is_largest": ([NAN, INF, 1.0, NAN], [2, 1, 0, 3], [0, 3, 1, 2]),
    "negative_nan_too": ([-NAN, INF, -INF], [2, 1, 0], [0, 1, 2]),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_literal_columns(backend, dtype):
    for column, *orders in LITERAL_CASES.values():
        x = torch.tensor(column, dtype=dtype).unsqueeze(-1)
        for descending, order in zip((False, True), orders, strict=True):
            assert_sorted(x, (x[order], torch.tensor(order)[:, None]), descending=descending)


# Around the sizes of registers, chunks and words: rows, channels.
SHAPES = [(0, 3), (1, 16), (2, 1), (3, 70), (8, 1), (15, 33), (16, 16), (17, 3), (31, 1), (32, 33)]
SHAPES += [(33, 70), (52, 16), (64, 3), (65, 33), (100, 1), (257, 16)]
FEW_SHAPES = [(2, 1), (17, 3), (33, 5)]  # the interpreter of Triton is slow


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equals_torch_on_every_size(backend, dtype):
    for rows, channels in FEW_SHAPES if backend == "triton" else SHAPES:
        mask = torch.arange(channels) % 3 == 1
        for x in (
            torch.randn(2, rows, channels).to(dtype),
            awkward(2, rows, channels, dtype=dtype),
        ):
            for descending in (False, True, mask):
                expected = sort_dense(x, [rows, rows], descending)
                assert_sorted(x, expected, descending=descending)


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_equals_torch_on_many_short_sets(backend, channels):
    for rows in (5,) if backend == "triton" else (*range(1, 10), 17):
        generator = torch.Generator().manual_seed(rows)
        sets = 20 if backend == "triton" else 150
        x = torch.randn(sets, rows, channels, generator=generator).mul(3).round().requires_grad_()
        grad_out = torch.randn(x.shape, generator=generator)
        expected = torch.sort(x, dim=-2, stable=True)
        assert_sorted(x.detach(), (expected[0].detach(), expected[1]))
        found = torch.autograd.grad(column_sort(x)[0], x, grad_out)
        assert torch.equal(*found, *torch.autograd.grad(expected[0], x, grad_out))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("rows", "channels"), [(1000, 17), (5000, 2), (3000, 40)])
def test_equals_torch_on_long_columns(backend, rows, channels, dtype):
    if backend in ("triton", "reference"):
        pytest.skip("sets this long are sorted by torch")
    for x in (awkward(1, rows, channels, dtype=dtype), torch.randn(1, rows, channels).to(dtype)):
        assert_sorted(x, sort_dense(x, [rows], True), descending=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sorts_a_million_rows(dtype):
    x = awkward(1_000_003, 2, dtype=dtype)
    assert_sorted(x, torch.sort(x, dim=0, stable=True))


def test_sorts_wide_long_columns_by_radix():
    x = torch.randn(1 << 17, 17)
    x[:5] = torch.nan
    assert_sorted(x, torch.sort(x, dim=0, stable=True))


@pytest.mark.parametrize("integer", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("channels", [1, 5, 40])
def test_padding_and_other_sets_take_no_part(backend, channels, integer):
    x, lengths = awkward(6, 7, channels, dtype=torch.float32), [7, 0, 3, 1, 7, 6]
    x[1:4, 4:] = -1e9
    sizes = torch.tensor(lengths, dtype=integer)
    assert_sorted(x, sort_dense(x, lengths, True), lengths=sizes, descending=True)
    x, ptr = awkward(26, channels, dtype=torch.float32), [0, 4, 4, 5, 22, 26, 26]
    mask = torch.arange(channels) % 2 == 0
    sizes = torch.tensor(ptr, dtype=integer)
    assert_sorted(x, sort_packed(x, ptr, mask), ptr=sizes, descending=mask)


def test_packed_sets_of_very_different_length(backend):
    if backend == "triton":
        pytest.skip("sets this long are sorted by torch")
    for channels in (1, 3, 20):
        x, ptr = awkward(3017, channels, dtype=torch.float32), [0, 3, 3000, 3016, 3017]
        assert_sorted(x, sort_packed(x, ptr, False), ptr=torch.tensor(ptr))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sets_too_long_for_one_program_are_sorted_by_groups(dtype):
    mask = torch.tensor([True, False, False])
    with running("triton"):
        x, lengths = awkward(3, 1200, 3, dtype=dtype), [1200, 3, 1030]
        options = {"lengths": torch.tensor(lengths), "descending": mask}
        assert_sorted(x, sort_dense(x, lengths, mask), **options)
        x, ptr = awkward(2643, 3, dtype=dtype), [0, 1500, 1500, 1503, 1504, 2604, 2643]
        calls = mock.Mock(wraps=torch.sort)
        with mock.patch.object(torch, "sort", calls):
            values = column_sort(x, ptr=torch.tensor(ptr), return_indices=False)
        assert [call.args[0].shape for call in calls.call_args_list] == [(2, 1500, 3)]
        assert_same_bits(values, sort_packed(x, ptr, False)[0])
        assert_sorted(x, sort_packed(x, ptr, mask), ptr=torch.tensor(ptr), descending=mask)


def test_a_program_of_an_empty_set_reads_and_writes_nothing():
    """The ptr of a batch vector on a GPU has an empty set for every row but one of each set."""
    with running("triton"):
        x, ptr = awkward(9, 3, dtype=torch.float32), [0, 0, 0, 4, 4, 9, 9, 9, 9]
        assert_sorted(x, sort_packed(x, ptr, False), ptr=torch.tensor(ptr))


def test_many_leading_dimensions_and_scalar_lengths(backend):
    x, lengths = torch.randn(2, 3, 4, 5), torch.tensor([[4, 2, 0], [1, 4, 3]])
    expected = sort_dense(x.flatten(0, 1), lengths.flatten().tolist(), False)
    assert_sorted(x, tuple(part.view_as(x) for part in expected), lengths=lengths)
    single, _ = column_sort(x[0, 0], lengths=torch.tensor(2))
    assert_same_bits(single[:2], sort_set(x[0, 0, :2], False)[0])
    assert not single[2:].any()


def test_empty_input(backend):
    for shape in ((0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0), (5, 0), (0, 5)):
        values, indices = column_sort(torch.randn(shape))
        assert values.shape == indices.shape == max_exchange(torch.randn(shape)).shape == shape
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
def test_non_contiguous_input(backend, view):
    x = STRIDED[view](awkward(6, 9, 24, dtype=torch.float32))
    before = x.clone()
    assert_sorted(x, sort_dense(x, [x.shape[1]] * x.shape[0], False))
    assert torch.equal(x.nan_to_num(), before.nan_to_num())


def test_sizes_may_be_strided_and_directions_a_list(backend):
    x = torch.randn(3, 5, 2)
    lengths = torch.tensor([5, 9, 0, 9, 2])[::2]
    expected = sort_dense(x, [5, 0, 2], torch.tensor([True, False]))
    assert_sorted(x, expected, lengths=lengths, descending=[True, False])


@st.composite
def ragged_sets(draw: st.DrawFn) -> tuple:
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5))
    numbers = (draw(st.integers(1, 40)), draw(st.sampled_from(DTYPES)), draw(st.integers(0, 99)))
    return lengths, *numbers, draw(st.booleans())


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=25, deadline=None)
@given(case=ragged_sets())
def test_any_ragged_batch_packed_and_padded(variant, case):
    lengths, channels, dtype, seed, down = case
    with running(variant):
        ptr = torch.tensor([0, *lengths]).cumsum(0)
        x = awkward(int(ptr[-1]), channels, dtype=dtype, seed=seed)
        packed, _ = column_sort(x, ptr=ptr, descending=down)
        assert_same_bits(packed, sort_packed(x, ptr.tolist(), down)[0])
        dense = torch.full((len(lengths), max(lengths) + 2, channels), 7.0, dtype=dtype)
        for b, n in enumerate(lengths):
            dense[b, :n] = x[ptr[b] : ptr[b] + n]
        sizes = torch.tensor(lengths)
        padded = column_sort(dense, lengths=sizes, descending=down, return_indices=False)
        for b, n in enumerate(lengths):
            assert_same_bits(padded[b, :n].contiguous(), packed[ptr[b] : ptr[b] + n].contiguous())
            assert not padded[b, n:].any()


def exchange_set(x: Tensor) -> Tensor:
    out = x.clone()
    for c in range(x.shape[1]):
        if len(x):
            top = int(x[:, c].argmax())
            out[0, c], out[top, c] = x[top, c], x[0, c]
    return out


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_max_exchange_equals_argmax_and_swap(backend, dtype):
    for rows, channels in ((1, 7), (2, 1), (13, 70), (100, 7)):
        x = awkward(2, rows, channels, dtype=dtype)
        assert_same_bits(max_exchange(x), torch.stack([exchange_set(s) for s in x]))


def test_max_exchange_of_padded_and_packed_sets(backend):
    x, lengths = torch.full((4, 5, 3), -INF), [3, 0, 5, 1]
    x[:, :3] = torch.randn(4, 3, 3)
    x[0, 4] = 100.0
    expected = torch.zeros_like(x)
    for b, n in enumerate(lengths):
        expected[b, :n] = exchange_set(x[b, :n])
    assert_same_bits(max_exchange(x, lengths=torch.tensor(lengths)), expected)
    x, ptr = awkward(12, 6, dtype=torch.float32), [0, 4, 4, 5, 12]
    expected = torch.cat([exchange_set(x[a:b]) for a, b in itertools.pairwise(ptr)])
    assert_same_bits(max_exchange(x, ptr=torch.tensor(ptr, dtype=torch.int32)), expected)
    x = torch.full((3, 2), -INF)
    assert_same_bits(max_exchange(x, lengths=torch.tensor(3)), x)


X, PACKED, HALVES = torch.randn(4, 12, 3), torch.randn(7, 3), torch.randn(70_000, 2).half()
ERRORS = [
    (X, {"lengths": [1, 2, 3, 17]}, r"column_sort: lengths\[3\] = 17 exceeds the 12 rows of x"),
    (X, {"lengths": [1, -2, 3, 4]}, r"column_sort: lengths\[1\] = -2 is negative"),
    (X.view(2, 2, 12, 3), {"lengths": [[1, 2], [13, 4]]}, r"lengths\[1, 0\] = 13 exceeds"),
    (X, {"lengths": [1, 2, 3]}, r"lengths has shape \[3\], expected \[4\]"),
    (X, {"lengths": [1.0, 2, 3, 4]}, "lengths is torch.float32, expected int32 or int64"),
    (PACKED, {"ptr": [0, 5, 3, 7]}, r"must not descend, but ptr\[2\] = 3 follows ptr\[1\] = 5"),
    (PACKED, {"ptr": [0, 3, 6]}, "ptr ends at 6, expected the 7 rows of x"),
    (PACKED, {"ptr": [0, 3, 9]}, "ptr ends at 9, expected the 7 rows of x"),
    (PACKED, {"ptr": [1, 7]}, r"ptr\[0\] = 1, expected 0"),
    (X, {"ptr": [0, 4]}, r"expected ptr \[B \+ 1\] and x \[T, C\]"),
    (HALVES, {"ptr": [0]}, "ptr ends at 0, expected the 70000 rows of x"),
    (PACKED, {"lengths": 7, "ptr": [0, 7]}, "lengths .* or ptr .*, not both"),
    (PACKED.long(), {}, "x is torch.int64, expected float32, float64, bfloat16 or float16"),
    (PACKED[0], {}, r"x has shape \[3\], expected \[..., N, C\] or \[T, C\]"),
    (
        X,
        {"descending": [True, False]},
        r"has shape \[2\], expected a bool or one per channel, \[3\]",
    ),
    (X, {"descending": [0, 1, 0]}, "descending is torch.int64, expected bool"),
]


def test_wrong_input_is_named(backend):
    for x, options, message in ERRORS:
        tensors = {key: torch.tensor(value) for key, value in options.items()}
        with pytest.raises((ValueError, TypeError), match=message):
            column_sort(x, **tensors)
        if x.is_floating_point():
            with pytest.raises((ValueError, TypeError), match=message):
                column_sort(x.clone().requires_grad_(), **tensors, return_indices=False)
    with pytest.raises(TypeError, match="lengths is list, expected a tensor"):
        column_sort(X, lengths=[1, 2, 3, 4])
    with pytest.raises(ValueError, match=r"ptr of shape \[0\]"):
        column_sort(PACKED, ptr=PTR[:0])
    with pytest.raises(ValueError, match=r"max_exchange: lengths\[1\] = 4 exceeds the 3 rows"):
        max_exchange(torch.randn(2, 3, 1), lengths=torch.tensor([3, 4]))
    indices, message = torch.zeros(2, 32).long(), r"indices has shape \[2, 32\], expected \[4, 32\]"
    with running("cpu"), pytest.raises(ValueError, match=message):
        sort.column_scatter_op.op(torch.randn(4, 32), indices, None, None)


def _pack(x: Tensor) -> Tensor:
    return x.reshape(-1, 4)[:9]


FUNCTIONS = {
    "values": lambda x: column_sort(x, return_indices=False),
    "lengths": lambda x: column_sort(x, lengths=LENGTHS, descending=MASK, return_indices=False),
    "packed_with_indices": lambda x: column_sort(_pack(x), ptr=PTR)[0],
    "exchange_lengths": lambda x: max_exchange(x, lengths=LENGTHS),
    "exchange_packed": lambda x: max_exchange(_pack(x), ptr=PTR),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck_and_gradgradcheck(backend, name):
    x = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(FUNCTIONS[name], x, fast_mode=backend == "triton")
    assert gradgradcheck(FUNCTIONS[name], x, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("rows", "channels"), [(1, 3), (20, 3), (300, 140), (1000, 1), (40000, 2)])
def test_gradient_equals_torch_scatter(backend, rows, channels, dtype):
    if backend == "triton" and rows > 20:
        pytest.skip("the interpreter is slow")
    x = torch.randn(2, rows, channels).to(dtype).requires_grad_()
    grad_out, lengths = torch.randn_like(x), torch.tensor([rows, rows // 2])
    values = column_sort(x, lengths=lengths, return_indices=False)
    (found,) = torch.autograd.grad(values, x, grad_out)
    _, indices = sort_dense(x.detach(), lengths.tolist(), False)
    grad_out[1, rows // 2 :] = 0
    assert torch.equal(found, torch.zeros_like(grad_out).scatter_(1, indices, grad_out))


@pytest.mark.parametrize(
    ("rows", "ptr", "dtype"),
    [
        (256, None, torch.uint8),
        (257, None, torch.int16),
        (32769, None, torch.int32),
        (40_000, torch.arange(0, 40_001, 20), torch.uint8),
    ],
)
def test_permutation_is_saved_in_the_narrowest_integer(rows, ptr, dtype):
    x, saved = torch.randn(rows, 2, requires_grad=True), []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t.dtype) or t, lambda t: t
    )
    with hooks:
        values = column_sort(x, ptr=ptr, return_indices=False)
    assert saved[0] == dtype
    values.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    with torch.no_grad():
        assert column_sort(x, return_indices=False).grad_fn is None


OPCHECK = {
    "gradient": (torch.randn(3, 5, 4, requires_grad=True), None, None, None, True),
    "lengths_and_mask": (torch.randn(3, 5, 4, requires_grad=True), LENGTHS, None, MASK, False),
    "packed": (torch.randn(9, 4, requires_grad=True), None, PTR, None, False),
    "strided": (torch.randn(5, 3, 4).transpose(0, 1), LENGTHS, None, None, True),
    "bfloat16": (torch.randn(3, 5, 4).bfloat16(), LENGTHS, None, MASK, False),
}


@pytest.fixture(params=["reference", "cpu"])
def one_level(request):
    with running(request.param):
        yield


@pytest.mark.usefixtures("one_level")
@pytest.mark.parametrize("name", OPCHECK)
def test_opcheck_sort(name):
    torch.library.opcheck(sort.column_sort_values_op.op, OPCHECK[name])
    torch.library.opcheck(sort.column_sort_op.op, (*OPCHECK[name], 1))


@pytest.mark.usefixtures("one_level")
def test_opcheck_moves():
    x = torch.randn(3, 5, 4, requires_grad=True)
    where = sort.max_exchange_op(x.detach(), LENGTHS, None)[1]
    torch.library.opcheck(sort.exchange_rows_op.op, (x, where, LENGTHS, None))
    torch.library.opcheck(sort.max_exchange_op.op, (x, LENGTHS, None))
    torch.library.opcheck(sort.max_exchange_op.op, (_pack(x), None, PTR))
    for op in (sort.column_scatter_op.op, sort.column_gather_op.op):
        indices = column_sort(x.detach(), lengths=LENGTHS)[1]
        torch.library.opcheck(op, (x, indices, LENGTHS, None))
        torch.library.opcheck(op, (_pack(x), column_sort(_pack(x), ptr=PTR)[1], None, PTR))


def _model(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.tensor([True, False, True, False], device=x.device)
    sorted_, indices = column_sort(x * 2, lengths=lengths)
    other = column_sort(x, lengths=lengths, descending=mask, return_indices=False)
    return sorted_ + other + max_exchange(x, lengths=lengths) + indices


def test_compiles_to_one_graph_with_gradients():
    compiled = torch.compile(_model, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (5, 300):
        x, lengths = torch.randn(3, rows, 4, requires_grad=True), torch.tensor([rows, 0, 3])
        expected, actual = _model(x, lengths), compiled(x, lengths)
        assert torch.equal(actual, expected)
        grad_out = torch.randn_like(x)
        found = torch.autograd.grad(actual, x, grad_out)
        assert torch.equal(*found, *torch.autograd.grad(expected, x, grad_out))


def test_exports_with_dynamic_sizes():
    class Model(torch.nn.Module):
        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            return _model(x, lengths)

    batch, rows = torch.export.Dim("batch"), torch.export.Dim("rows")
    shapes = {"x": {0: batch, 1: rows}, "lengths": {0: batch}}
    example = (torch.randn(3, 5, 4), LENGTHS)
    program = torch.export.export(Model(), example, dynamic_shapes=shapes)
    x, lengths = torch.randn(2, 700, 4), torch.tensor([700, 31])
    assert torch.equal(program.module()(x, lengths), _model(x, lengths))


def test_jit_trace_records_the_operators():
    def function(x: Tensor) -> Tensor:
        return column_sort(x, return_indices=False) + max_exchange(x)

    traced = torch.jit.trace(function, (torch.randn(4, 5),), check_trace=False)
    x = torch.randn(4, 5)
    assert torch.equal(traced(x), function(x))


@pytest.mark.parametrize("function", [lambda x: column_sort(x)[0], max_exchange])
def test_forward_mode_moves_the_tangent_with_the_value(function):
    x = torch.randn(4, 5)
    with forward_ad.dual_level():
        values, tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x, 2 * x)))
    assert torch.equal(values, function(x))
    assert torch.equal(tangent, 2 * values)


def test_negative_views_are_resolved():
    x = torch.randn(4, 5)
    assert torch.equal(column_sort(torch._neg_view(x))[0], column_sort(-x)[0])


@pytest.mark.parametrize(
    ("channels", "num_layers"), [(1, 1), (4, 3), (6, 5), (12, 4), (80, 12), (97, 3)]
)
def test_interleave_is_the_sign_of_the_sine(channels, num_layers):
    for layer in range(1, num_layers + 1):
        step = 2 ** (num_layers - layer) * math.pi / channels
        expected = [math.sin(step * i) < -1e-9 for i in range(1, channels + 1)]
        assert interleave_descending(channels, layer, num_layers).tolist() == expected


def test_interleave_is_exact_for_hundreds_of_layers_and_no_channels():
    # 2^299 = 2 (mod 3): q = 2i (mod 6) = 2, 4, 0, and the sine is negative between 3 and 6.
    assert pow(2, 299, 6) == 2
    assert interleave_descending(3, layer=1, num_layers=300).tolist() == [False, True, False]
    assert interleave_descending(0, 1, 1).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 0, 4), "layer = 0 is not in 1..4"),
        ((8, 5, 4), "layer = 5 is not in 1..4"),
        ((8, 1, 0), "num_layers = 0 must be at least 1"),
        ((-1, 1, 1), "num_channels = -1 is negative"),
    ],
)
def test_wrong_layers_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        interleave_descending(*arguments)
