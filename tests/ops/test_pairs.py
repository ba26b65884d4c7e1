"""Sums over pairs of rows and attention within sets, against an einsum over each set."""

from itertools import pairwise

import pytest
import torch
from support.variants import VARIANTS, running
from torch import Tensor
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from slicegraph.ops import cpu, pair_mix, pairs, use_backend
from slicegraph.ops.pairs import pair_mix_op, pair_outer_op

needs_kernels = pytest.mark.skipif(cpu.problem("cpu") is not None, reason=str(cpu.problem("cpu")))
SIZES = [3, 0, 1, 9, 4, 17]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 5e-2}
HEADS = 2


@pytest.fixture(params=[variant for variant in VARIANTS if variant != "triton"])
def backend(request):
    """Triton has no kernels for pairs: it would be the reference once more."""
    with running(request.param):
        yield request.param


def mix_inputs(
    sizes: list[int], heads: int, width: int, dtype: torch.dtype = torch.float64, room: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Random weights, with NaN wherever they must not be read, and random rows."""
    generator = torch.Generator().manual_seed(0)
    length = max(sizes, default=0) + room
    weights = torch.full((len(sizes), heads, length, length), torch.nan)
    for b, n in enumerate(sizes):
        weights[b, :, :n, :n] = torch.randn(heads, n, n, generator=generator)
    values = torch.randn(sum(sizes), heads * width, generator=generator)
    return weights.to(dtype), values.to(dtype), torch.tensor([0, *sizes]).cumsum(0)


def differentiable(sizes: list[int], width: int, **options) -> tuple[Tensor, Tensor, Tensor]:
    weights, values, ptr = mix_inputs(sizes, HEADS, width, **options)
    return weights.nan_to_num().requires_grad_(), values.requires_grad_(), ptr


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


def products(left: Tensor, right: Tensor, ptr: Tensor, heads: int, length: int) -> Tensor:
    out = left.new_zeros(ptr.numel() - 1, heads, length, length)
    for b, part in enumerate(by_set("ihd,jhd->hij", left, right, ptr, heads)):
        out[b, :, : part.shape[1], : part.shape[2]] = part
    return out


def close(actual: Tensor, expected: Tensor, inner: int = 20) -> None:
    tolerance = TOLERANCE[actual.dtype] * max(inner, 20) ** 0.5
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_equals_an_einsum_over_each_set(backend, dtype):
    widths = ((1, 1), (3, 2), (1, 3), (3, 5), (1, 8), (3, 11), (1, 16), (3, 24), (1, 37), (2, 64))
    for heads, width in widths:
        weights, values, ptr = mix_inputs(SIZES, heads, width, dtype, room=2)
        left, length = values.flip(0), weights.shape[-1]
        close(pair_mix(weights, values, ptr), mixed(weights, values, ptr))
        close(pair_mix_op(weights, values, ptr, True), mixed(weights, values, ptr, True))
        outer = pair_outer_op(left, values, ptr, heads, length)
        close(outer, products(left, values, ptr, heads, length), width)


def test_one_set_of_any_size(backend):
    for n in (*range(1, 20), 31, 32, 33, 130):
        weights, values, ptr = mix_inputs([n], 2, 10, torch.float32)
        close(pair_mix(weights, values, ptr), mixed(weights, values, ptr), n)
        close(pair_mix_op(weights, values, ptr, True), mixed(weights, values, ptr, True), n)
        close(pair_outer_op(values, values, ptr, 2, n), products(values, values, ptr, 2, n))


def test_bfloat16_is_the_reference_of_every_backend(backend):
    weights, values, ptr = mix_inputs(SIZES, 2, 10, torch.bfloat16)
    out = pair_mix(weights, values, ptr)
    assert out.dtype == torch.bfloat16
    close(out, mixed(weights.double(), values.double(), ptr).bfloat16())


@pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0]])
def test_nothing_to_mix(backend, sizes):
    weights, values, ptr = differentiable(sizes, 3, room=4)
    out = pair_mix(weights, values, ptr)
    assert out.shape == (0, 6)
    grad_weights, grad_values = grad(out.sum(), (weights, values))
    assert grad_values.shape == (0, 6)
    assert torch.equal(grad_weights, torch.zeros_like(weights))
    qkv, bias = torch.zeros(0, 12), torch.zeros(len(sizes), HEADS, 1, 1)
    assert pair_attention(qkv, bias, ptr).shape == (0, 4)


def test_sets_without_channels(backend):
    weights, values, ptr = mix_inputs([2, 3], 2, 0)
    assert pair_mix(weights, values, ptr).shape == (5, 0)
    assert torch.equal(pair_outer_op(values, values, ptr, 2, 3), torch.zeros(2, 2, 3, 3).double())


def test_any_strides_and_negative_views(backend):
    weights, values, ptr = mix_inputs(SIZES, 2, 5)
    expected = pair_mix(weights, values, ptr)
    strided = (weights.transpose(2, 3).contiguous().transpose(2, 3), values.T.contiguous().T)
    assert torch.equal(pair_mix(*strided, torch.stack([ptr, ptr], 1)[:, 0]), expected)
    assert torch.equal(pair_mix(weights, values, ptr.int()), expected)
    assert torch.equal(pair_mix(torch._neg_view(weights), values, ptr), -expected)
    assert torch.equal(pair_mix(weights, torch._neg_view(values), ptr), -expected)


def test_infinities_stay_in_their_channel_and_set(backend):
    weights, values, ptr = mix_inputs([3, 6], 2, 5)
    expected = pair_mix(weights, values, ptr)
    values[1, 4] = torch.inf
    out = pair_mix(weights, values, ptr)
    changed = torch.zeros_like(out, dtype=torch.bool)
    changed[:3, 4] = True
    assert not out[changed].isfinite().any()
    assert torch.equal(out[~changed], expected[~changed])
    outer = pair_outer_op(values, values, ptr, 2, 8)
    assert not outer[0, :, 3:].any()
    assert not outer[0, :, :, 3:].any()


def test_gradcheck_and_gradgradcheck(backend):
    weights, values, ptr = differentiable([2, 0, 4], 3, room=1)
    left = values.detach().flip(0).requires_grad_()
    for transpose in (False, True):
        assert gradcheck(lambda w, v, t=transpose: pair_mix_op(w, v, ptr, t), (weights, values))
        assert gradgradcheck(lambda w, v, t=transpose: pair_mix_op(w, v, ptr, t), (weights, values))
    assert gradcheck(lambda a, b: pair_outer_op(a, b, ptr, 2, 5), (left, values))
    assert gradgradcheck(lambda a, b: pair_outer_op(a, b, ptr, 2, 5), (left, values))


@pytest.mark.parametrize("which", [0, 1])
def test_one_gradient_alone(backend, which):
    weights, values, ptr = mix_inputs(SIZES, 2, 5)
    pair, grad_out = [weights.nan_to_num(), values], values.flip(0)
    pair[which].requires_grad_()
    (found,) = grad(pair_mix(*pair, ptr), pair[which], grad_out)
    expected = (products(grad_out, values, ptr, 2, 17), mixed(weights, grad_out, ptr, True))
    close(found, expected[which])


@pytest.mark.parametrize("variant", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck(variant, dtype):
    weights, values, ptr = differentiable([2, 0, 4], 3, dtype=dtype, room=1)
    with running(variant):
        torch.library.opcheck(pair_mix_op.op, (weights, values, ptr, True))
        left = values.detach().clone().requires_grad_()
        torch.library.opcheck(pair_outer_op.op, (left, values, ptr, 2, 5))


def test_compiles_to_one_graph_with_gradients():
    def function(weights: Tensor, values: Tensor, ptr: Tensor) -> Tensor:
        return pair_mix(weights.softmax(-1), values * 2, ptr).square()

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
    for sizes in ([3, 5], [1, 1, 30, 4]):
        *pair, ptr = differentiable(sizes, 5)
        actual, expected = compiled(*pair, ptr), function(*pair, ptr)
        close(actual, expected)
        grad_out = pair[1].detach().flip(0)
        torch.testing.assert_close(grad(actual, pair, grad_out), grad(expected, pair, grad_out))


def test_exports_with_dynamic_sizes():
    class Model(torch.nn.Module):
        def forward(self, weights: Tensor, values: Tensor, ptr: Tensor) -> Tensor:
            return pair_mix(weights, values, ptr)

    batch, length, rows = (torch.export.Dim(name) for name in ("batch", "length", "rows"))
    shapes = {"weights": {0: batch, 2: length, 3: length}, "values": {0: rows}}
    example = mix_inputs([3, 5, 2], 2, 5)
    shapes["ptr"] = {0: batch + 1}
    program = torch.export.export(Model(), example, dynamic_shapes=shapes)
    others = mix_inputs(SIZES, 2, 5)
    assert torch.equal(program.module()(*others), pair_mix(*others))


def test_autocast_leaves_the_type_as_it_is(backend):
    weights, values, ptr = mix_inputs(SIZES, 2, 5, torch.float32)
    expected = pair_mix(weights, values, ptr)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(pair_mix(weights, values, ptr), expected)


def test_forward_mode_is_linear_in_the_values():
    weights, values, ptr = mix_inputs([2, 3], 2, 5)
    tangent = torch.randn_like(values)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(
            pair_mix(weights, forward_ad.make_dual(values, tangent), ptr)
        ).tangent
    torch.testing.assert_close(found, pair_mix(weights, tangent, ptr))


@needs_kernels
def test_results_do_not_depend_on_threads_nor_on_other_sets():
    sizes = [5 + b % 16 for b in range(128)]
    weights, values, ptr = differentiable(sizes, 10, dtype=torch.float32)
    qkv, bias, _ = attention_inputs(sizes, 10, torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            out = pair_mix(weights, values, ptr)
            attended = pair_attention(qkv, bias, ptr)
            results.append((out, attended, *grad(out.square().sum(), (weights, values))))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0], strict=True))
    with use_backend("cpu"):
        for b, (start, end) in enumerate(pairwise(ptr.tolist()[:20])):
            n, rows = end - start, slice(start, end)
            one = (slice(b, b + 1), slice(None), slice(n), slice(n))
            alone = pair_mix(weights[one], values[rows], torch.tensor([0, n]))
            assert torch.equal(alone, results[0][0][rows])
            alone = pair_attention(qkv[rows], bias[one], torch.tensor([0, n]))
            assert torch.equal(alone, results[0][1][rows])


WEIGHTS, VALUES, PTR = mix_inputs([3, 4], 2, 5)
ERRORS = [
    ((WEIGHTS[..., :3], VALUES, PTR), r"weights has shape \[2, 2, 4, 3\], expected \[B, H, N, N\]"),
    ((WEIGHTS[:1], VALUES, PTR), r"weights has shape \[1, 2, 4, 4\], expected \[2, H, N, N\] for"),
    ((WEIGHTS[..., :3, :3], VALUES, PTR), "set 1 has 4 rows, but weights has room for 3"),
    ((WEIGHTS.float(), VALUES, PTR), "weights is torch.float32 and values is torch.float64"),
    ((WEIGHTS.long(), VALUES.long(), PTR), "torch.int64, expected one floating-point type"),
    ((WEIGHTS[:, :0], VALUES, PTR), "expected .* multiple of the 0 heads"),
    (
        (WEIGHTS, VALUES[:, :9], PTR),
        r"\[7, 9\], expected \[T, C\] with C a multiple of the 2 heads",
    ),
    ((WEIGHTS, VALUES[0], PTR), r"ptr of shape \[3\] with values of shape \[10\]"),
    ((WEIGHTS, VALUES, PTR.float()), "ptr is torch.float32, expected int32 or int64"),
    ((WEIGHTS, VALUES, [0, 3, 7]), "ptr is list, expected a tensor"),
    ((WEIGHTS, VALUES, torch.tensor([0, 3, 6])), "ptr ends at 6, expected the 7 rows of values"),
    ((WEIGHTS, VALUES, torch.tensor([0, 9, 7])), r"descend, but ptr\[2\] = 7 follows ptr\[1\] = 9"),
    ((WEIGHTS, VALUES, torch.tensor([1, 3, 7])), r"ptr\[0\] = 1, expected 0"),
]


def test_wrong_arguments_are_named(backend):
    for arguments, message in ERRORS:
        with pytest.raises((ValueError, TypeError), match=f"pair_mix: .*{message}"):
            pair_mix(*arguments)
    with pytest.raises(ValueError, match=r"pair_outer: left of shape \[6, 10\] .* \[7, 10\]"):
        pair_outer_op.op(VALUES[1:], VALUES, PTR, 2, 4)
    with pytest.raises(
        ValueError, match="pair_outer: set 1 has 4 rows, but weights has room for 3"
    ):
        pair_outer_op.op(VALUES, VALUES, PTR, 2, 3)


def attention_inputs(
    sizes: list[int], width: int, dtype: torch.dtype = torch.float64, room: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Random rows and biases; padding is far below."""
    generator = torch.Generator().manual_seed(0)
    length = max(sizes) + room
    qkv = 2 * torch.randn(sum(sizes), 3 * HEADS * width, generator=generator)
    bias = torch.full((len(sizes), HEADS, length, length), -1e30)
    for b, n in enumerate(sizes):
        bias[b, :, :, :n] = 3 * torch.randn(HEADS, length, n, generator=generator)
    return qkv.to(dtype), bias.to(dtype), torch.tensor([0, *sizes]).cumsum(0)


def pair_attention(qkv: Tensor, bias: Tensor, ptr: Tensor, p: float = 0.0) -> Tensor:
    return pairs.pair_attention(qkv, bias, ptr, p)[0]


def attended(qkv: Tensor, bias: Tensor, ptr: Tensor) -> Tensor:
    """The formula, set by set."""
    parts = []
    for b, (start, end) in enumerate(pairwise(ptr.tolist())):
        n, rows = end - start, qkv[start:end].unflatten(1, (3, HEADS, -1))
        q, k, v = rows.permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias[b, :, :n, :n]
        parts.append((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))
    return torch.cat(parts)


@pytest.mark.parametrize("width", [1, 5, 24])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_attention_and_its_gradients_follow_the_formula(backend, width, dtype):
    for room in (0, 3):
        qkv, bias, ptr = attention_inputs([*SIZES, 33], width, dtype, room)
        qkv.requires_grad_(), bias.requires_grad_()
        found, expected = pair_attention(qkv, bias, ptr), attended(qkv, bias, ptr)
        near = {"rtol": 0, "atol": TOLERANCE[dtype] * 20}
        torch.testing.assert_close(found, expected, **near)
        found, expected = (grad(out.square().sum(), (qkv, bias)) for out in (found, expected))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=TOLERANCE[dtype] * 500)


def attend_and_differentiate(
    p: float, qkv: Tensor, bias: Tensor, ptr: Tensor
) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    out = pair_attention(qkv, bias, ptr, p)
    return out.detach(), *grad(out.square().sum(), (qkv, bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_all_backends_drop_the_same_weights(backend, dtype):
    qkv, bias, ptr = attention_inputs(SIZES, 5, dtype, room=2)
    inputs = (qkv.requires_grad_(), bias.requires_grad_(), ptr)
    found = attend_and_differentiate(0.4, *inputs)
    with running("reference"):
        expected = attend_and_differentiate(0.4, *inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=200 * TOLERANCE[dtype])


def test_recomputation_drops_the_same_weights(backend):
    qkv, bias, ptr = attention_inputs(SIZES, 5)
    inputs = (qkv.requires_grad_(), bias.requires_grad_())

    def run(qkv: Tensor, bias: Tensor) -> Tensor:
        return pair_attention(qkv, bias, ptr, 0.4)

    results = []
    for call in (run, lambda *x: checkpoint(run, *x, use_reentrant=False)):
        torch.manual_seed(3)
        results.append(grad(call(*inputs).square().sum(), inputs))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_the_expected_share_of_weights_is_dropped_independently(backend, p):
    n, rows = 50, 8
    qkv = torch.zeros(rows * n, 3 * n)
    qkv[:, 2 * n :] = torch.eye(n).repeat(rows, 1)  # with these values the output is the weights
    torch.manual_seed(0)
    weights = (
        pair_attention(qkv, torch.zeros(rows, 1, n, n), torch.arange(0, rows * n + 1, n), p) * n
    )
    kept = weights > 0.5
    torch.testing.assert_close(weights[kept], torch.full_like(weights[kept], 1 / (1 - p)))
    deviation = (p * (1 - p) / kept.numel()) ** 0.5
    assert abs(kept.double().mean() - (1 - p)) < 5 * deviation
    bits = (kept.double() - (1 - p)).flatten() / (p * (1 - p)) ** 0.5
    for lag in (1, 2, 16, n):
        assert (bits[lag:] * bits[:-lag]).mean().abs() < 5 / kept.numel() ** 0.5


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_first_and_second_gradient_of_attention_are_right(backend, p):
    qkv, bias, ptr = attention_inputs([3, 1, 2], 2)

    def run(qkv: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(0)
        return pair_attention(qkv, bias, ptr, p)

    for needed in ((True, True), (False, True), (True, False)):
        each = [x.requires_grad_(need) for x, need in zip((qkv, bias), needed, strict=True)]
        assert gradcheck(run, each, fast_mode=True)
        assert gradgradcheck(run, each, fast_mode=True)


def test_forbidden_pairs_have_no_weight(backend):
    qkv, bias, ptr = attention_inputs([5], 4, torch.float32)
    forbidden = bias.clone()
    forbidden[..., 2:] = -torch.inf
    expected = pair_attention(qkv[:2], bias[..., :2, :2].contiguous(), torch.tensor([0, 2]))
    torch.testing.assert_close(pair_attention(qkv, forbidden, ptr)[:2], expected)
    bias[:, :, 3] = -torch.inf
    qkv.requires_grad_(), bias.requires_grad_()
    out = pair_attention(qkv, bias, ptr)
    grad_qkv, grad_bias = grad(out.square().sum(), (qkv, bias))
    assert not out[3].any()
    assert out[[0, 1, 2, 4]].all()
    assert not grad_bias[:, :, 3].any()
    assert grad_qkv.isfinite().all()


def test_with_all_weights_dropped_everything_is_zero(backend):
    qkv, bias, ptr = attention_inputs(SIZES, 5)
    results = attend_and_differentiate(1.0, qkv.requires_grad_(), bias.requires_grad_(), ptr)
    assert not any(x.any() for x in results)


def mix_through(values: Tensor, weights: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    return pairs.pair_mix_through(weights, values, ptr)


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("layer_of", [pairs.pair_attention, mix_through], ids=["attention", "mix"])
def test_the_gradient_of_a_tensor_that_goes_through_layers_is_their_sum(backend, layer_of, again):
    rows, shared, ptr = attention_inputs(SIZES, 5, room=2)
    shared.requires_grad_()
    layers = [(rows * scale).requires_grad_() for scale in (1.0, -0.5, 0.3)]
    passed_on, total = shared, torch.zeros(())
    for layer in layers:
        out, passed_on = layer_of(layer, passed_on, ptr)
        total = total + out.square().sum()
    total = total + passed_on[:, :, -1, -1].sin().sum()  # a gradient in the padding, too
    alone = [layer_of(layer, shared, ptr)[0].square().sum() for layer in layers]
    expected = grad(sum(alone) + shared[:, :, -1, -1].sin().sum(), (shared, *layers))
    torch.testing.assert_close(grad(total, layers, retain_graph=True), expected[1:])
    torch.testing.assert_close(grad(total, (shared, *layers), create_graph=again), expected)


@pytest.mark.parametrize(
    ("qkv", "ptr", "p", "message"),
    [
        (torch.zeros(4, 7), [0, 4], 0.0, r"qkv has shape \[4, 7\]"),
        (torch.zeros(4, 9), [0, 4], 0.0, "a multiple of the 2 heads"),
        (torch.zeros(4, 6), [0, 3], 0.0, "ptr ends at 3"),
        (torch.zeros(5, 6), [0, 5], 0.0, "room for 4"),
        (torch.zeros(4, 6), [0, 4], 1.5, r"p = 1.5 is not in 0\.\.1"),
    ],
)
def test_wrong_arguments_of_attention_are_named(backend, qkv, ptr, p, message):
    with pytest.raises(ValueError, match=message):
        pair_attention(qkv, torch.zeros(1, 2, 4, 4), torch.tensor(ptr), p)
