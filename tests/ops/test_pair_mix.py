"""Rows averaged by the weights of pairs, against an einsum over each set."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from slicegraph.ops import pair_mix, use_backend
from slicegraph.ops.backends import cpu
from slicegraph.ops.pair_mix import pair_mix_op, pair_outer_op

needs_kernels = pytest.mark.skipif(cpu.problem("cpu") is not None, reason=str(cpu.problem("cpu")))
SIZES = [3, 0, 1, 9, 4, 17]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 5e-2}


def to_ptr(sizes: list[int]) -> Tensor:
    return torch.tensor([0, *sizes]).cumsum(0)


def inputs(
    sizes: list[int], heads: int, width: int, dtype: torch.dtype = torch.float64, room: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Random weights, with NaN wherever they must not be read, and random rows."""
    generator = torch.Generator().manual_seed(0)
    length = max(sizes, default=0) + room
    weights = torch.full((len(sizes), heads, length, length), torch.nan)
    for b, n in enumerate(sizes):
        weights[b, :, :n, :n] = torch.randn(heads, n, n, generator=generator)
    values = torch.randn(sum(sizes), heads * width, generator=generator)
    return weights.to(dtype), values.to(dtype), to_ptr(sizes)


def by_set(formula: str, left: Tensor, right: Tensor, ptr: Tensor, heads: int) -> list[Tensor]:
    """An einsum for each set: of `hij` (weights) or `ihd` (rows) and `jhd` (rows)."""

    def part(x: Tensor, b: int, start: int, end: int) -> Tensor:
        if x.dim() == 4:
            return x[b, :, : end - start, : end - start]
        return x[start:end].unflatten(1, (heads, -1))

    ranges = list(pairwise(ptr.tolist()))
    return [
        torch.einsum(formula, part(left, b, *r), part(right, b, *r)) for b, r in enumerate(ranges)
    ]


def mixed(weights: Tensor, values: Tensor, ptr: Tensor, transpose: bool = False) -> Tensor:
    formula = "hji,jhd->ihd" if transpose else "hij,jhd->ihd"
    parts = by_set(formula, weights, values, ptr, weights.shape[1])
    return torch.cat([part.flatten(1) for part in parts])


def products(g: Tensor, values: Tensor, ptr: Tensor, heads: int, length: int) -> Tensor:
    out = g.new_zeros(ptr.numel() - 1, heads, length, length)
    for b, part in enumerate(by_set("ihd,jhd->hij", g, values, ptr, heads)):
        out[b, :, : part.shape[1], : part.shape[2]] = part
    return out


def close(actual: Tensor, expected: Tensor, inner: int = 20) -> None:
    tolerance = TOLERANCE[actual.dtype] * max(inner, 20) ** 0.5
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", [1, 2, 3, 5, 7, 8, 10, 11, 16, 24, 31, 32, 37, 64])
def test_equals_an_einsum_over_each_set(backend, dtype, heads, width):
    weights, values, ptr = inputs(SIZES, heads, width, dtype, room=2)
    g, length = values.flip(0), weights.shape[-1]
    close(pair_mix(weights, values, ptr), mixed(weights, values, ptr))
    close(pair_mix_op(weights, values, ptr, True), mixed(weights, values, ptr, transpose=True))
    outer = pair_outer_op(g, values, ptr, heads, length)
    close(outer, products(g, values, ptr, heads, length), width)


@pytest.mark.parametrize("n", [*range(1, 36), 63, 130, 301])
def test_one_set_of_any_size(backend, n):
    weights, values, ptr = inputs([n], 2, 10, torch.float32)
    close(pair_mix(weights, values, ptr), mixed(weights, values, ptr), n)
    close(pair_mix_op(weights, values, ptr, True), mixed(weights, values, ptr, True), n)
    close(pair_outer_op(values, values, ptr, 2, n), products(values, values, ptr, 2, n))


def test_bfloat16_is_the_reference_of_every_backend(backend):
    weights, values, ptr = inputs(SIZES, 2, 10, torch.bfloat16)
    out = pair_mix(weights, values, ptr)
    assert out.dtype == torch.bfloat16
    close(out, mixed(weights.double(), values.double(), ptr).bfloat16())


@pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0]])
def test_nothing_to_mix(backend, sizes):
    weights, values, ptr = inputs(sizes, 2, 3, room=4)
    weights, values = weights.nan_to_num().requires_grad_(), values.requires_grad_()
    out = pair_mix(weights, values, ptr)
    assert out.shape == (0, 6)
    of_weights, of_values = torch.autograd.grad(out.sum(), (weights, values))
    assert of_values.shape == (0, 6)
    assert torch.equal(of_weights, torch.zeros_like(weights))


def test_sets_without_channels(backend):
    weights, values, ptr = inputs([2, 3], 2, 0)
    assert pair_mix(weights, values, ptr).shape == (5, 0)
    assert torch.equal(pair_outer_op(values, values, ptr, 2, 3), torch.zeros(2, 2, 3, 3).double())


def test_any_strides(backend):
    weights, values, ptr = inputs(SIZES, 2, 5)
    strided = (weights.transpose(2, 3).contiguous().transpose(2, 3), values.T.contiguous().T)
    wide = torch.stack([ptr, ptr], 1)[:, 0]
    assert torch.equal(pair_mix(*strided, wide), pair_mix(weights, values, ptr))
    assert torch.equal(pair_mix(weights, values, ptr.int()), pair_mix(weights, values, ptr))


def test_negative_views_are_resolved(backend):
    weights, values, ptr = inputs(SIZES, 2, 5)
    expected = -pair_mix(weights, values, ptr)
    assert torch.equal(pair_mix(torch._neg_view(weights), values, ptr), expected)
    assert torch.equal(pair_mix(weights, torch._neg_view(values), ptr), expected)


def test_infinities_stay_in_their_channel_and_set(backend):
    weights, values, ptr = inputs([3, 6], 2, 5)
    expected = pair_mix(weights, values, ptr)
    values[1, 4] = torch.inf
    out = pair_mix(weights, values, ptr)
    assert not out[:3, 4].isfinite().any()
    changed = torch.zeros_like(out, dtype=torch.bool)
    changed[:3, 4] = True
    assert torch.equal(out[~changed], expected[~changed])
    outer = pair_outer_op(values, values, ptr, 2, 8)
    assert torch.equal(outer[0, :, 3:], torch.zeros(2, 5, 8).double())
    assert torch.equal(outer[0, :, :, 3:], torch.zeros(2, 8, 5).double())


@pytest.mark.parametrize("width", [1, 5])
def test_gradcheck_and_gradgradcheck(backend, width):
    weights, values, ptr = inputs([2, 0, 5, 1], 2, width, room=1)
    pair = (weights.nan_to_num().requires_grad_(), values.requires_grad_())
    assert gradcheck(lambda w, v: pair_mix(w, v, ptr), pair)
    assert gradgradcheck(lambda w, v: pair_mix(w, v, ptr), pair)


def test_gradgradcheck_of_the_gradients_themselves(backend):
    weights, values, ptr = inputs([2, 0, 4], 2, 3)
    weights, values = weights.nan_to_num().requires_grad_(), values.requires_grad_()
    g = values.detach().flip(0).requires_grad_()
    assert gradcheck(lambda w, v: pair_mix_op(w, v, ptr, True), (weights, values))
    assert gradgradcheck(lambda w, v: pair_mix_op(w, v, ptr, True), (weights, values))
    assert gradcheck(lambda g, v: pair_outer_op(g, v, ptr, 2, 4), (g, values))
    assert gradgradcheck(lambda g, v: pair_outer_op(g, v, ptr, 2, 4), (g, values))


@pytest.mark.parametrize("which", [0, 1])
def test_one_gradient_alone(backend, which):
    weights, values, ptr = inputs(SIZES, 2, 5)
    pair = [weights.nan_to_num(), values]
    pair[which].requires_grad_()
    g = values.detach().flip(0)
    (actual,) = torch.autograd.grad(pair_mix(*pair, ptr), pair[which], g)
    full = products(g, values, ptr, 2, 17) if which == 0 else mixed(weights, g, ptr, True)
    close(actual, full)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck(backend, dtype):
    weights, values, ptr = inputs([2, 0, 4], 2, 3, dtype, room=1)
    weights, values = weights.nan_to_num().requires_grad_(), values.requires_grad_()
    for transpose in (False, True):
        torch.library.opcheck(pair_mix_op.op, (weights, values, ptr, transpose))
    g = values.detach().clone().requires_grad_()
    torch.library.opcheck(pair_outer_op.op, (g, values, ptr, 2, 5))


@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_compiles_to_one_graph_with_gradients(compiler):
    def function(weights: Tensor, values: Tensor, ptr: Tensor) -> Tensor:
        return pair_mix(weights.softmax(-1), values * 2, ptr).square()

    compiled = torch.compile(function, fullgraph=True, backend=compiler, dynamic=True)
    for sizes in ([3, 5], [7, 2, 9], [1, 1, 30, 4]):
        weights, values, ptr = inputs(sizes, 2, 5)
        pair = (weights.nan_to_num().requires_grad_(), values.requires_grad_())
        actual, expected = compiled(*pair, ptr), function(*pair, ptr)
        close(actual, expected)
        g = values.detach().flip(0)
        grads = (torch.autograd.grad(out, pair, g) for out in (actual, expected))
        for of_actual, of_expected in zip(*grads, strict=True):
            close(of_actual, of_expected)


def test_exports_with_dynamic_sizes():
    class Model(torch.nn.Module):
        def forward(self, weights: Tensor, values: Tensor, ptr: Tensor) -> Tensor:
            return pair_mix(weights, values, ptr)

    batch, length, rows = (torch.export.Dim(name) for name in ("batch", "length", "rows"))
    shapes = {"weights": {0: batch, 2: length, 3: length}, "values": {0: rows}}
    program = torch.export.export(
        Model(), inputs([3, 5, 2], 2, 5), dynamic_shapes={**shapes, "ptr": {0: batch + 1}}
    )
    others = inputs(SIZES, 2, 5)
    assert torch.equal(program.module()(*others), pair_mix(*others))


def test_autocast_leaves_the_type_as_it_is(backend):
    weights, values, ptr = inputs(SIZES, 2, 5, torch.float32)
    expected = pair_mix(weights, values, ptr)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(pair_mix(weights, values, ptr), expected)


def test_forward_mode_is_refused_and_not_silently_wrong():
    weights, values, ptr = inputs([2, 3], 2, 5)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(values, torch.ones_like(values))
        with pytest.raises(RuntimeError, match="jvp"):
            pair_mix(weights, dual, ptr)


@needs_kernels
def test_result_does_not_depend_on_the_number_of_threads():
    weights, values, ptr = inputs([5 + b % 16 for b in range(128)], 8, 10, torch.float32)
    weights, before, results = weights.nan_to_num().requires_grad_(), torch.get_num_threads(), []
    values.requires_grad_()
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            out = pair_mix(weights, values, ptr)
            grads = torch.autograd.grad(out, (weights, values), out.detach())
            results.append((out.detach(), *grads))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0], strict=True))


@needs_kernels
def test_a_set_does_not_depend_on_the_others_of_its_batch():
    weights, values, ptr = inputs(SIZES, 2, 10, torch.float32)
    with use_backend("cpu"):
        together = pair_mix(weights, values, ptr)
        for b, (start, end) in enumerate(pairwise(ptr.tolist())):
            n = end - start
            alone = pair_mix(weights[b : b + 1, :, :n, :n], values[start:end], torch.tensor([0, n]))
            assert torch.equal(alone, together[start:end])


WEIGHTS, VALUES, PTR = inputs([3, 4], 2, 5)

ERRORS = {
    "weights_not_square": (
        ValueError,
        r"pair_mix: weights has shape \[2, 2, 4, 3\], expected \[B, H, N, N\]",
        lambda: pair_mix(WEIGHTS[..., :3], VALUES, PTR),
    ),
    "weights_of_other_sets": (
        ValueError,
        r"weights has shape \[1, 2, 4, 4\], expected \[2, H, N, N\] for ptr of shape \[3\]",
        lambda: pair_mix(WEIGHTS[:1], VALUES, PTR),
    ),
    "weights_too_small": (
        ValueError,
        "set 1 has 4 rows, but weights has room for 3",
        lambda: pair_mix(WEIGHTS[..., :3, :3], VALUES, PTR),
    ),
    "weights_of_other_type": (
        TypeError,
        "weights is torch.float32 and values is torch.float64",
        lambda: pair_mix(WEIGHTS.float(), VALUES, PTR),
    ),
    "integers": (
        TypeError,
        "weights is torch.int64 and values is torch.int64, expected one floating-point type",
        lambda: pair_mix(WEIGHTS.long(), VALUES.long(), PTR),
    ),
    "no_heads": (
        ValueError,
        "expected .* multiple of the 0 heads",
        lambda: pair_mix(WEIGHTS[:, :0], VALUES, PTR),
    ),
    "channels_without_head": (
        ValueError,
        r"values has shape \[7, 9\], expected \[T, C\] with C a multiple of the 2 heads",
        lambda: pair_mix(WEIGHTS, VALUES[:, :9], PTR),
    ),
    "values_of_wrong_shape": (
        ValueError,
        r"ptr of shape \[3\] with values of shape \[10\]",
        lambda: pair_mix(WEIGHTS, VALUES[0], PTR),
    ),
    "ptr_of_wrong_type": (
        TypeError,
        "ptr is torch.float32, expected int32 or int64",
        lambda: pair_mix(WEIGHTS, VALUES, PTR.float()),
    ),
    "ptr_no_tensor": (
        TypeError,
        "ptr is list, expected a tensor",
        lambda: pair_mix(WEIGHTS, VALUES, [0, 3, 7]),
    ),
    "ptr_ends_early": (
        ValueError,
        "pair_mix: ptr ends at 6, expected the 7 rows of values",
        lambda: pair_mix(WEIGHTS, VALUES, torch.tensor([0, 3, 6])),
    ),
    "ptr_descends": (
        ValueError,
        r"ptr must not descend, but ptr\[2\] = 7 follows ptr\[1\] = 9",
        lambda: pair_mix(WEIGHTS, VALUES, torch.tensor([0, 9, 7])),
    ),
    "ptr_starts_late": (
        ValueError,
        r"ptr\[0\] = 1, expected 0",
        lambda: pair_mix(WEIGHTS, VALUES, torch.tensor([1, 3, 7])),
    ),
    "rows_that_differ": (
        ValueError,
        r"pair_outer: g has shape \[6, 10\], expected \[7, 10\]",
        lambda: pair_outer_op.op(VALUES[1:], VALUES, PTR, 2, 4),
    ),
    "too_little_room": (
        ValueError,
        "pair_outer: set 1 has 4 rows, but weights has room for 3",
        lambda: pair_outer_op.op(VALUES, VALUES, PTR, 2, 3),
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_wrong_arguments_are_named(backend, case):
    error, message, call = ERRORS[case]
    with pytest.raises(error, match=message):
        call()
