"""Layer norm and GELU by kernels, against torch in float64 and against their formulas."""

import math
from collections.abc import Iterable

import pytest
import torch
from support.variants import running
from torch import Tensor
from torch.nn import functional

from slicegraph.ops import rows
from slicegraph.ops.backends import cpu

needs_kernels = pytest.mark.skipif(cpu.problem("cpu") is not None, reason=str(cpu.problem("cpu")))
KERNELS = ["cpu-baseline", "cpu-avx2", "cpu-avx512"]
WIDTHS = [1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 80, 83, 200]
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}


@pytest.fixture(params=KERNELS)
def kernels(request):
    with running(request.param):
        yield


def norm_inputs(count: int, width: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """A gradient, rows, scale and shift."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((count, width), (count, width), (width,), (width,))
    return tuple(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes)


def exact_norm(g: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    x, scale, shift = (t.double().requires_grad_() for t in inputs)
    y = functional.layer_norm(x, scale.shape, scale, shift, 1e-5)
    return (y.detach(), *torch.autograd.grad(y, (x, scale, shift), g.double()))


def exact_gelu(x: Tensor) -> tuple[Tensor, Tensor]:
    """The value and the slope; erfc keeps what 1 + erf would lose."""
    x = x.double()
    below = torch.special.erfc(-x / math.sqrt(2)) / 2
    return x * below, below + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_and_slope(x: Tensor) -> tuple[Tensor, Tensor]:
    y, slope = rows.gelu_gradients(torch.ones_like(x), x)
    assert torch.equal(rows.gelu(x).isnan(), y.isnan())
    assert torch.equal(rows.gelu(x).nan_to_num(), y.nan_to_num())
    return y, slope


def same(found: Iterable[Tensor], expected: Iterable[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_norm_and_its_gradients_equal_those_of_torch_in_float64(backend, width, dtype):
    inputs = norm_inputs(200, width, dtype)
    expected, tolerance = exact_norm(*inputs), TOLERANCE[dtype]
    # The deviation of a row of few values may be small, and divides all rounding errors.
    tolerance *= 100 if width < 8 else 1
    found = rows.layer_norm_gradients(*inputs, 1e-5)
    torch.testing.assert_close(found[0], rows.layer_norm(*inputs[1:], 1e-5))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max().clamp(min=1)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_any_number_of_rows_is_normed(kernels, count):
    inputs = norm_inputs(count, 20, torch.float64)
    expected = exact_norm(*inputs)
    torch.testing.assert_close(rows.layer_norm_gradients(*inputs, 1e-5), expected)


def test_a_constant_row_becomes_the_shift(backend):
    x, scale, shift = torch.full((3, 24), 7.0), torch.randn(24), torch.randn(24)
    torch.testing.assert_close(rows.layer_norm(x, scale, shift, 1e-5), shift.expand(3, 24))


def test_a_large_mean_leaves_the_deviation_right(kernels):
    x = torch.randn(50, 80) + 1000
    ones, zeros = torch.ones(80), torch.zeros(80)
    expected = functional.layer_norm(x.double(), (80,))
    found = rows.layer_norm(x, ones, zeros, 1e-5).double()
    # A few roundings of the mean; the mean of squares less the square would lose 100 times that.
    torch.testing.assert_close(found, expected, rtol=0, atol=4 * 1000 * 2**-23)


def test_nan_stays_in_its_row(backend):
    _, x, scale, shift = norm_inputs(9, 33, torch.float32)
    x[4, 32] = math.nan
    found = rows.layer_norm(x, scale, shift, 1e-5).isnan()
    assert found[4].all()
    assert found.sum() == 33


@pytest.mark.parametrize(
    ("low", "high"), [(-13, -3), (-3, -1), (-1, 1), (1, 3), (3, 13), (13, 1e6)]
)
def test_gelu_is_at_the_rounding_of_float32_everywhere(kernels, low, high):
    x = torch.linspace(low, high, 300_001)
    (y, slope), (exact, exact_slope) = gelu_and_slope(x), exact_gelu(x)
    below = x.double().clamp(max=0).square() / 2
    bound = torch.where(x < -1, 2e-7 * (2 + below), 5e-7) * exact.abs()
    assert ((y - exact).abs() <= bound).all()
    assert (slope - exact_slope).abs().max() <= 2e-7


def test_gelu_of_tiny_numbers_is_half_of_them(kernels):
    x = torch.logspace(-44, -10, 5000, dtype=torch.float64).float()
    x = torch.cat([x, -x])
    y, slope = gelu_and_slope(x)
    torch.testing.assert_close(y, x / 2, rtol=3e-7, atol=1.5e-45)
    assert torch.equal(slope, torch.full_like(x, 0.5))


def test_gelu_keeps_the_sign_of_zero_and_nan(kernels):
    y, slope = gelu_and_slope(torch.tensor([0.0, -0.0, math.nan]))
    assert y[:2].tolist() == [0, 0]
    assert y.signbit()[:2].tolist() == [False, True]
    assert slope[:2].tolist() == [0.5, 0.5]
    assert y[2].isnan()
    assert slope[2].isnan()


def test_gelu_far_out_is_its_limit(kernels):
    x = torch.tensor([15.0, 1e20, 3e38, math.inf])
    y, slope = gelu_and_slope(torch.cat([x, -x]))
    assert torch.equal(y, torch.cat([x, torch.zeros(4)]))
    assert slope.tolist() == [1.0] * 4 + [0.0] * 4


@pytest.mark.parametrize("size", [0, 1, 3, 15, 16, 17, 4095, 4096, 4097, 10_000])
def test_gelu_takes_any_size(backend, size):
    generator = torch.Generator().manual_seed(size)
    x, g = torch.randn(2, size, generator=generator)
    (exact, slope), expected_g = exact_gelu(x), g.double()
    y, of_x = rows.gelu_gradients(g.clone(), x)
    torch.testing.assert_close(y, exact.float(), rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(of_x, (expected_g * slope).float(), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_gelu_of_other_types_is_that_of_torch(dtype):
    x = torch.randn(50).to(dtype)
    assert torch.equal(rows.gelu(x), functional.gelu(x))


def test_norm_of_half_precision_is_that_of_torch():
    _, x, scale, shift = norm_inputs(5, 8, torch.bfloat16)
    expected = functional.layer_norm(x, (8,), scale, shift, 1e-5)
    assert torch.equal(rows.layer_norm(x, scale, shift, 1e-5), expected)


def test_views_give_what_their_copies_do(kernels):
    g, x, scale, shift = norm_inputs(40, 40, torch.float32)
    for function, inputs in (
        (lambda g, x: rows.layer_norm_gradients(g, x, scale, shift, 1e-5), (g.T, x.T)),
        (rows.gelu_gradients, (g.T, x.T)),
    ):
        assert same(function(*inputs), function(*(t.contiguous() for t in inputs)))


@needs_kernels
def test_results_do_not_depend_on_the_number_of_threads():
    g, x, scale, shift = norm_inputs(3000, 83, torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            norm = rows.layer_norm_gradients(g.clone(), x, scale, shift, 1e-5)
            results.append((*norm, *rows.gelu_gradients(g.clone(), x)))
    finally:
        torch.set_num_threads(before)
    assert all(same(result, results[0]) for result in results[1:])


@pytest.mark.parametrize("width", [5, 16, 83])
def test_a_row_does_not_depend_on_the_others(kernels, width):
    g, x, scale, shift = norm_inputs(70, width, torch.float32)
    y, of_x, *_ = rows.layer_norm_gradients(g.clone(), x, scale, shift, 1e-5)
    z, of_z = rows.gelu_gradients(g.clone(), x)
    for i in (0, 17, 69):
        one = slice(i, i + 1)
        alone = rows.layer_norm_gradients(g[one].clone(), x[one], scale, shift, 1e-5)[:2]
        assert same(alone, (y[one], of_x[one]))
        alone = rows.gelu_gradients(g[one].clone(), x[one])
        assert same(alone, (z[one], of_z[one]))


def test_what_is_differentiated_goes_to_torch():
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    scale = torch.randn(8, dtype=torch.float64)
    assert torch.autograd.gradcheck(rows.gelu, x)
    assert torch.autograd.gradcheck(lambda x: rows.layer_norm(x, scale, scale, 1e-5), x)


def test_tangents_are_not_lost():
    x, tangent = torch.randn(2, 4, 8)
    with torch.autograd.forward_ad.dual_level():
        out = rows.gelu(torch.autograd.forward_ad.make_dual(x, tangent))
        found = torch.autograd.forward_ad.unpack_dual(out).tangent
    torch.testing.assert_close(found, (tangent * exact_gelu(x)[1]).float())


def test_vmap_maps_over_it():
    x = torch.randn(3, 4, 8)
    torch.testing.assert_close(torch.vmap(rows.gelu)(x), functional.gelu(x))


def test_it_compiles_whole():
    x = torch.randn(4, 8)
    compiled = torch.compile(rows.gelu, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), functional.gelu(x))
