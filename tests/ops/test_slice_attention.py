"""Slice attention against its formula, with all pairs: values, gradients, layouts, compilers."""

import itertools
import math

import pytest
import torch
from support.variants import running
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from slicegraph.ops import reference, slice_attention, triton
from slicegraph.ops.slice_attention import (
    KERNELS,
    slice_attention_backward_op,
    slice_attention_op,
)
from slicegraph.ops.sorted_scan import log_step_scan

LENGTHS = torch.tensor([5, 0, 3])
PTR = torch.tensor([0, 4, 4, 5, 9])


def formula(q: Tensor, k: Tensor, v: Tensor, tau: Tensor | float, kernel: str) -> Tensor:
    """One set with all of its pairs: `[N, H]`, `[N, H]` and `[N, C]`."""
    values = v.unflatten(-1, (k.shape[-1], v.shape[-1] // k.shape[-1]))
    difference = q.unsqueeze(1) - k.unsqueeze(0)
    if kernel == "laplace":
        weights = (-difference.abs() / tau).softmax(1)
    else:
        total = difference.abs().sum(1, keepdim=True)
        weights = difference.relu() / torch.where(total > 0, total, 1)
        values = values - values.mean(0)
    return torch.einsum("ijh,jhd->ihd", weights, values).flatten(1)


def of_sets(q: Tensor, k: Tensor, v: Tensor, ptr: list[int], *options) -> Tensor:
    parts = (slice(a, b) for a, b in itertools.pairwise(ptr))
    return torch.cat([formula(q[p], k[p], v[p], *options) for p in parts])


def inputs(*shape: int, heads: int, shared: bool = False, dtype=torch.float64, seed: int = 0):
    """Queries, keys, values and a width for each head."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)

    k = draw(*shape[:-1], heads)
    q = k if shared else draw(*shape[:-1], heads)
    tau = torch.rand(heads, generator=generator, dtype=torch.float64) + 0.2
    return q, k, draw(*shape), tau.to(torch.promote_types(dtype, torch.float32))


# Rows, channels, heads: around the sizes of registers, and a key for each channel.
SHAPES = [(1, 1, 1), (2, 6, 3), (7, 24, 3), (16, 16, 16), (33, 40, 2), (50, 37, 37), (100, 5, 1)]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shared", [True, False])
def test_values_and_gradients_equal_the_formula_with_all_pairs(backend, shared, kernel):
    few = backend == "triton"  # its interpreter is slow
    for rows, channels, heads in SHAPES[1:2] if few else SHAPES:
        for dtype in (torch.float32,) if few else (torch.float64, torch.float32):
            q, k, v, tau = inputs(rows, channels, heads=heads, shared=shared, dtype=dtype)
            leaves = [x.requires_grad_() for x in ((k, v, tau) if shared else (q, k, v, tau))]
            expected, found = (
                formula(q, k, v, tau, kernel),
                slice_attention(q, k, v, tau=tau, kernel=kernel),
            )
            close = {"rtol": 1e-4, "atol": 2e-5} if dtype == torch.float32 else {}
            torch.testing.assert_close(found, expected, **close)
            grad_out = torch.randn_like(v)
            options = {"grad_outputs": grad_out, "materialize_grads": True}
            expected_grads = torch.autograd.grad(expected, leaves, **options)
            grads = torch.autograd.grad(found, leaves, **options)
            names = "kvt" if shared else "qkvt"
            for name, grad, right in zip(names, grads, expected_grads, strict=True):
                scale = max(1.0, float(right.abs().max()))
                difference = float((grad - right).abs().max()) / scale
                assert difference < (2e-4 if dtype == torch.float32 else 1e-9), (name, rows, heads)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_cpu_backend_has_a_kernel_of_its_own(kernel, monkeypatch):
    for name in ("slice_attention", "slice_attention_backward"):
        monkeypatch.delattr(reference, name)
    with running("cpu"):
        k, v = torch.randn(7, 2, requires_grad=True), torch.randn(7, 6, requires_grad=True)
        slice_attention(k, k, v, kernel=kernel).sum().backward()
    assert k.grad is not None


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("heads", [2, 6])
def test_padding_and_other_sets_take_no_part(backend, heads, shared, kernel):
    if backend == "triton" and heads == 6:
        pytest.skip("the interpreter is slow")
    q, k, v, tau = inputs(9, 6, heads=heads, shared=shared)
    ptr = PTR.tolist()
    expected = of_sets(q, k, v, ptr, tau, kernel)
    for sizes in (PTR, PTR.int()):
        packed = slice_attention(q, k, v, ptr=sizes, tau=tau, kernel=kernel)
        torch.testing.assert_close(packed, expected)

    lengths = PTR.diff()
    dense = [x.new_full((4, 6, x.shape[1]), torch.nan) for x in (k, v, q)]
    for b, (first, end) in enumerate(itertools.pairwise(ptr)):
        for padded, x in zip(dense, (k, v, q), strict=True):
            padded[b, : end - first] = x[first:end]
    for x in dense:
        x.requires_grad_()
    queries = dense[0] if shared else dense[2]
    found = slice_attention(queries, *dense[:2], lengths=lengths, tau=tau, kernel=kernel)
    for b, (first, end) in enumerate(itertools.pairwise(ptr)):
        torch.testing.assert_close(found[b, : end - first], expected[first:end])
        assert not found[b, end - first :].any()
    for grad in torch.autograd.grad(found.sum(), dense if not shared else dense[:2]):
        assert grad.isfinite().all()
        assert not any(grad[b, n:].any() for b, n in enumerate(lengths.tolist()))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_set_with_nan_leaves_the_others_alone(backend, kernel):
    for broken in range(3):
        tensors = list(inputs(9, 6, heads=2)[:3])
        expected = slice_attention(*tensors, ptr=PTR, kernel=kernel)
        tensors[broken][1] = torch.nan
        found = slice_attention(*tensors, ptr=PTR, kernel=kernel)
        torch.testing.assert_close(found[4:], expected[4:], rtol=0, atol=0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("heads", [2, 6])
def test_a_query_of_nan_makes_its_row_nan_and_no_other(backend, heads, kernel):
    if backend == "triton" and heads == 6:
        pytest.skip("the interpreter is slow")
    q, k, v, tau = inputs(5, 6, heads=heads)
    q[1] = torch.nan
    found = slice_attention(q, k, v, tau=tau, kernel=kernel)
    assert found[1].isnan().all()
    torch.testing.assert_close(found, formula(q, k, v, tau, kernel), equal_nan=True)


def test_any_range_of_keys_is_exact(backend):
    """Queries thousands of widths away from every key, and keys at a large offset."""
    k = torch.tensor([[0.0], [1.0], [3.0], [1e6]])
    q = torch.tensor([[-1e4], [2.0], [5e5], [1e9]])
    v = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    found = slice_attention(q, k, v, tau=0.1)
    # The first query weighs the keys 0 and 1 by 1 and e^-10, the second 0, 1 and 3 by e^-10, 1, 1.
    e = math.exp(-10)
    expected = torch.tensor([[(1 + 2 * e) / (1 + e)], [(6 + e) / (2 + e)], [4.0], [8.0]])
    torch.testing.assert_close(found, expected)
    found = slice_attention(q, k, v, kernel="relu")
    expected = formula(q.double(), k.double(), v.double(), 1.0, "relu").float()
    torch.testing.assert_close(found, expected)
    tensors = inputs(9, 4, heads=2, dtype=torch.float64)[:3]
    for kernel in KERNELS:
        expected = slice_attention(*tensors, tau=0.3, kernel=kernel)
        for offset in (1e3, -1e5):
            moved = [x + offset for x in tensors[:2]]
            found = slice_attention(*moved, tensors[2], tau=0.3, kernel=kernel)
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_any_unit_of_the_keys_is_exact(backend, scale, kernel):
    q, k, v, tau = inputs(5, 4, heads=2)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    expected = formula(q, k, v, tau, kernel)
    right = torch.autograd.grad(expected.square().sum(), leaves)
    factors = (scale, scale, 1.0)
    small = [
        (x.detach() * f).float().requires_grad_() for x, f in zip(leaves, factors, strict=True)
    ]
    found = slice_attention(*small, tau=(tau * scale).float(), kernel=kernel)
    torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-5)
    grads = torch.autograd.grad(found.square().sum(), small)
    for grad, factor, expected_grad in zip(grads, factors, right, strict=True):
        torch.testing.assert_close(grad.double() * factor, expected_grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("heads", [2, 8])
def test_half_precision_is_summed_up_in_float32(backend, heads, dtype):
    for shared, kernel in itertools.product((True, False), KERNELS):
        rows = 5 if backend == "triton" else 60
        q, k, v, tau = inputs(rows, 8, heads=heads, shared=shared, dtype=dtype)
        expected = formula(q.float(), k.float(), v.float(), tau, kernel).to(dtype)
        found = slice_attention(q, k, v, tau=tau, kernel=kernel)
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("heads", [2, 8])
def test_gradients_in_half_precision(backend, heads, dtype):
    rows = 5 if backend == "triton" else 60
    for shared, kernel in itertools.product((True, False), KERNELS):
        _, _, v, tau = inputs(rows, 8, heads=heads, dtype=dtype)
        # Without ties, which have no derivative.
        k, q = (torch.rand(rows, heads).argsort(0) / 4 + shift for shift in (0, 1 / 8))
        leaves = [x.to(dtype).requires_grad_() for x in ((k, v) if shared else (q, k, v))]
        wide = [x.detach().double().requires_grad_() for x in leaves]
        found = slice_attention(leaves[0], *leaves[-2:], tau=tau, kernel=kernel)
        grads = torch.autograd.grad(found.square().sum(), leaves)
        expected = formula(wide[0], *wide[-2:], tau.double(), kernel)
        right = torch.autograd.grad(expected.square().sum(), wide)
        for grad, wanted in zip(grads, right, strict=True):
            assert grad.dtype == dtype
            torch.testing.assert_close(grad.double(), wanted, rtol=0.02, atol=0.02)


def test_limits_of_tau_are_the_identity_and_the_mean(backend):
    q, k, v, _ = inputs(9, 8, heads=4, shared=True, dtype=torch.float32)
    torch.testing.assert_close(slice_attention(q, k, v, tau=1e-30), v)
    mean = v.mean(0).expand_as(v)
    for tau in (1e30, torch.inf):
        torch.testing.assert_close(slice_attention(q, k, v, tau=tau), mean)


@pytest.mark.parametrize("kernel", KERNELS)
def test_ties_are_averaged_and_their_gradient_follows_the_order(backend, kernel):
    k = torch.tensor([[1.0], [1.0], [1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([[1.0], [2.0], [6.0], [0.0]], dtype=torch.float64)
    found = slice_attention(k, k, v, tau=1.0, kernel=kernel)
    torch.testing.assert_close(found, formula(k, k, v, 1.0, kernel))
    (grad,) = torch.autograd.grad(found[:, 0] @ v[:, 0], k)
    # The derivative in a direction that keeps the order is that of the formula.
    direction, step = torch.tensor([[0.0], [1.0], [2.0], [0.0]]).double(), 1e-6
    moved = k.detach() + step * direction
    slope = ((formula(moved, moved, v, 1.0, kernel) - found).T @ v / step).item()
    assert (grad * direction).sum().item() == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("heads", [2, 6])
def test_relu_is_zero_without_gradient_where_all_keys_equal_the_query(backend, heads):
    q, k, v, _ = inputs(5, 6, heads=heads, dtype=torch.float32)
    k[:], q[3] = 0.5, 0.5
    leaves = [x.requires_grad_() for x in (q, k, v)]
    found = slice_attention(*leaves, kernel="relu")
    torch.testing.assert_close(found, formula(q, k, v, 1.0, "relu"))
    assert not found[3].any()
    for grad in torch.autograd.grad(found[3].sum(), leaves):
        assert not grad.any()


def test_empty_input(backend):
    for shape in ((0, 3, 4), (2, 0, 4), (0, 4)):
        k = torch.randn(*shape[:-1], 2, requires_grad=True)
        v = torch.randn(shape, requires_grad=True)
        for kernel in KERNELS:
            out = slice_attention(k, k, v, kernel=kernel)
            assert out.shape == shape
            out.sum().backward()
    assert slice_attention(k, k, v, ptr=torch.tensor([0])).shape == (0, 4)
    assert slice_attention(k, k, torch.randn(0, 0)).shape == (0, 0)


def test_non_contiguous_input_and_leading_dimensions(backend):
    q, k, v, tau = inputs(2, 3, 9, 8, heads=4)
    expected = slice_attention(q, k, v, tau=tau)
    for place in itertools.product(range(2), range(3)):
        one = formula(q[place], k[place], v[place], tau, "laplace")
        torch.testing.assert_close(expected[place], one)
    strided = [x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in (q, k, v)]
    torch.testing.assert_close(slice_attention(*strided, tau=tau), expected)
    lengths = torch.tensor([[9, 2, 0], [1, 9, 3]])
    found = slice_attention(q, k, v, lengths=lengths, tau=tau)
    torch.testing.assert_close(
        found[0, 1, :2], formula(q[0, 1, :2], k[0, 1, :2], v[0, 1, :2], tau, "laplace")
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_long_sets(backend, kernel):
    if backend == "triton":
        pytest.skip("the interpreter is slow")
    for heads, shared in itertools.product((1, 20), (False, True)):
        q, k, v, tau = inputs(1100, 20, heads=heads, shared=shared, dtype=torch.float32)
        expected = formula(*(x.double() for x in (q, k, v, tau)), kernel).float()
        found = slice_attention(q, k, v, tau=tau, kernel=kernel)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_scan_of_triton_goes_from_tile_to_tile(reverse, monkeypatch):
    if (reason := triton.problem("cpu")) is not None:
        pytest.skip(reason)
    monkeypatch.setattr(triton, "SCAN_TILE", (4, 2))
    x, decay = torch.randn(2, 11, 2, 3), torch.rand(2, 11, 2, 1)
    x[0, 4], decay[0, 5 if not reverse else 3] = torch.nan, 0
    expected = log_step_scan(x, decay, reverse)
    torch.testing.assert_close(triton._scan(x, decay, reverse), expected, equal_nan=True)
    assert expected.isnan().any()
    assert not expected.isnan().all()


GRADIENTS = {
    "heads": (2, False, {"lengths": LENGTHS}),
    "heads_shared": (2, True, {"lengths": LENGTHS}),
    "channels": (4, False, {}),
    "packed": (2, False, {"ptr": PTR}),
    "packed_channels_shared": (4, True, {"ptr": PTR}),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradcheck_and_gradgradcheck(backend, name, kernel):
    if backend == "triton":
        pytest.skip("the interpreter is slow")
    heads, shared, sets = GRADIENTS[name]
    shape = (9, 4) if "ptr" in sets else (3, 5, 4)
    q, k, v, tau = inputs(*shape, heads=heads, shared=shared)
    leaves = [x.requires_grad_() for x in ((k, v, tau) if shared else (k, v, tau, q))]

    def function(k: Tensor, v: Tensor, tau: Tensor, *q: Tensor) -> Tensor:
        return slice_attention(q[0] if q else k, k, v, tau=tau, kernel=kernel, **sets)

    fast = backend != "reference"
    assert gradcheck(function, leaves, fast_mode=fast)
    assert gradgradcheck(function, leaves, fast_mode=True)


@pytest.fixture(params=["reference", "cpu"])
def one_level(request):
    with running(request.param):
        yield


@pytest.mark.usefixtures("one_level")
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_opcheck(shared, relu):
    for shape, sets in (((3, 5, 4), (LENGTHS, None)), ((9, 4), (None, PTR))):
        q, k, v, tau = (x.requires_grad_() for x in inputs(*shape, heads=2, dtype=torch.float32))
        arguments = (v, k, None if shared else q, tau, *sets, relu)
        torch.library.opcheck(slice_attention_op.op, arguments)
        order = slice_attention_op.op(*arguments)[1]
        grads = (torch.randn_like(v), *arguments[:4], order, *arguments[4:])
        torch.library.opcheck(slice_attention_backward_op.op, grads)


def _model(x: Tensor, lengths: Tensor) -> Tensor:
    keys, tau = x[..., :2].sin(), x[0, 0, :2].exp()
    both = slice_attention(keys, keys, x, lengths, tau=tau)
    return both + slice_attention(x.cos(), x, x, lengths, kernel="relu")


def test_compiles_to_one_graph_with_gradients():
    compiled = torch.compile(_model, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (5, 30):
        x, lengths = torch.randn(3, rows, 4, requires_grad=True), torch.tensor([rows, 0, 3])
        expected, actual = _model(x, lengths), compiled(x, lengths)
        torch.testing.assert_close(actual, expected)
        grad_out = torch.randn_like(x)
        found = torch.autograd.grad(actual, x, grad_out)
        torch.testing.assert_close(found, torch.autograd.grad(expected, x, grad_out))


def test_exports_with_dynamic_sizes():
    class Model(torch.nn.Module):
        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            return _model(x, lengths)

    batch, rows = torch.export.Dim("batch"), torch.export.Dim("rows")
    shapes = {"x": {0: batch, 1: rows}, "lengths": {0: batch}}
    program = torch.export.export(Model(), (torch.randn(3, 5, 4), LENGTHS), dynamic_shapes=shapes)
    x, lengths = torch.randn(2, 70, 4), torch.tensor([70, 31])
    torch.testing.assert_close(program.module()(x, lengths), _model(x, lengths))


X, K, PACKED = torch.randn(4, 12, 6), torch.randn(4, 12, 3), torch.randn(7, 6)
LONG, BEYOND = torch.tensor([1, 2, 3, 17]), torch.tensor([0, 9])
NEGATIVE = torch.tensor([1.0, -2.0, 1.0])
ERRORS = [
    ((K, K, X), {"kernel": "gauss"}, "unknown kernel 'gauss', expected one of laplace, relu"),
    ((K, K, X), {"tau": 0.0}, "tau = 0.0, expected a positive number"),
    ((K, K, X), {"tau": NEGATIVE}, r"tau = \[1.0, -2.0, 1.0\], expected positive numbers"),
    ((K, K, X), {"tau": torch.ones(2)}, r"tau of shape \[2\] on cpu, expected a number or \[3\]"),
    ((K.double(), K, X), {}, "q is torch.float64 on cpu, but v is torch.float32 on cpu"),
    ((K[:3], K, X), {}, r"q has shape \[3, 12, 3\], expected one number a head for each row of v"),
    ((K, K[..., :2], X), {}, r"q has shape \[4, 12, 3\], .* and q like k"),
    ((X[..., :4], X[..., :4], X), {}, r"v has shape \[4, 12, 6\], .* multiple of the 4 heads"),
    ((X[..., :0], X[..., :0], X), {}, "expected a multiple of the 0 heads"),
    ((K, K, X), {"lengths": LONG}, r"lengths\[3\] = 17 exceeds the 12 rows of v"),
    ((PACKED, PACKED, PACKED), {"ptr": BEYOND}, "ptr ends at 9, expected the 7 rows of v"),
    ((K, K, [1.0]), {}, "v is list, expected a tensor"),
]


def test_wrong_input_is_named(backend):
    for tensors, options, message in ERRORS:
        with pytest.raises((ValueError, TypeError), match=f"slice_attention: .*{message}"):
            slice_attention(*tensors, **options)
