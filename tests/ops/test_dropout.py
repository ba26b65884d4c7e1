"""Dropout by a hash, against what dropout is."""

import pytest
import torch
from support.variants import running
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

from slicegraph.ops import reference, use_backend
from slicegraph.ops.operator import as_on_gpu
from slicegraph.ops.pairs import (
    dropout,
    dropout_add,
    dropout_add_norm,
    dropout_add_norm_op,
    dropout_add_op,
)


def seeded(x, p, seed=0):
    torch.manual_seed(seed)
    return dropout(x, p)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_expected_share_is_zero_and_the_rest_is_scaled(backend, p, dtype):
    out = seeded(torch.ones(1000, 200, dtype=dtype), p)
    kept = out != 0
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (1 - p)))
    deviation = (p * (1 - p) / out.numel()) ** 0.5
    assert abs(kept.double().mean() - (1 - p)) < 5 * deviation


@pytest.mark.parametrize("size", [0, 1, 7, 8191, 8192, 8193, 50_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_all_backends_drop_the_same_entries(backend, size, dtype):
    x = torch.randn(size, dtype=dtype)
    found = seeded(x, 0.3)
    with running("reference"):
        assert torch.equal(found, seeded(x, 0.3))


def test_the_seed_of_torch_decides():
    x = torch.ones(500)
    assert torch.equal(seeded(x, 0.5), seeded(x, 0.5))
    assert not torch.equal(seeded(x, 0.5), seeded(x, 0.5, seed=1))
    torch.manual_seed(0)
    assert not torch.equal(dropout(x, 0.5), dropout(x, 0.5))


def test_entries_and_calls_are_uncorrelated():
    """The correlation of independent bits is about 1 over the root of their number."""
    torch.manual_seed(0)
    bits = torch.stack([dropout(torch.ones(40_000), 0.5) for _ in range(20)]) - 1
    assert (bits[:, 1:] * bits[:, :-1]).mean().abs() < 5 / (20 * 40_000) ** 0.5
    for lag in (2, 16, 64, 80, 768):
        assert (bits[:, lag:] * bits[:, :-lag]).mean().abs() < 5 / (20 * 39_000) ** 0.5
    between = bits @ bits.T / 40_000 - torch.eye(20)
    assert between.abs().max() < 5 / 40_000**0.5


def test_the_gradient_has_the_mask_of_the_values(backend):
    x = torch.randn(3, 400, requires_grad=True)
    out = seeded(x, 0.4)
    g = torch.randn(3, 400)
    (found,) = torch.autograd.grad(out, x, g)
    torch.testing.assert_close(found, torch.where(out != 0, g / 0.6, 0))


def test_first_and_second_gradient_are_right(backend):
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: seeded(x, 0.5), x)
    assert gradgradcheck(lambda x: seeded(x, 0.5).square(), x)


def test_a_view_is_dropped_like_its_copy():
    x = torch.randn(40, 30)
    assert torch.equal(seeded(x.T, 0.5), seeded(x.T.contiguous(), 0.5))


def test_nothing_is_dropped_with_probability_zero():
    x = torch.randn(9)
    assert dropout(x, 0.0) is x


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_an_impossible_probability_is_refused_by_value(p):
    with pytest.raises(ValueError, match=f"dropout: p = {p}, expected at least 0 and less than 1"):
        dropout(torch.ones(2), p)


def test_half_precision_goes_to_torch():
    out = seeded(torch.ones(10_000, dtype=torch.bfloat16), 0.5)
    assert out.dtype == torch.bfloat16
    assert 0.45 < (out != 0).double().mean() < 0.55


def test_torch_accepts_the_operator():
    x = torch.randn(6, 3, requires_grad=True)
    arguments = (x, torch.tensor(5), 0.5)
    torch.library.opcheck(torch.ops.slicegraph.dropout.default, arguments)


def test_dropout_and_a_sum_in_one_kernel_are_those_of_the_reference():
    x, added = (torch.randn(3, 700, requires_grad=True) for _ in range(2))
    found = []
    for variant in ("triton", "reference"):
        with running(variant):
            out = dropout_add_op(x, added, torch.tensor(2**40 + 3), 0.4)
            found.append((out.detach(), *torch.autograd.grad(out.square().sum(), (x, added))))
    torch.testing.assert_close(*found)
    torch.library.opcheck(dropout_add_op.op, (x, added, torch.tensor(5), 0.5))
    with as_on_gpu(), use_backend("triton"):  # the sum of two types is one of the wider
        assert dropout_add(x.bfloat16(), added, 0.4).dtype == torch.float32


def sums_and_norms(x, added, weight, bias, seed, p, eps):
    total = (x if seed is None else reference.dropout(x, seed, p)) + added
    return total, functional.layer_norm(total, weight.shape, weight, bias, eps)


@pytest.mark.parametrize("variant", ["triton", "reference"])
@pytest.mark.parametrize("shape", [(3, 70, 24), (2, 768), (1, 1), (0, 5)], ids=str)
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_dropout_a_sum_and_its_norm_are_those_of_torch(variant, shape, p):
    inputs = [
        torch.randn(shape),
        torch.randn(shape),
        torch.randn(shape[-1]),
        torch.randn(shape[-1]),
    ]
    options = (torch.tensor(2**40 + 3) if p else None, p, 1e-5)
    grads = [torch.randn(shape), torch.randn(shape)]

    def outcome(run, inputs, grads):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = run(*leaves, *options)
        return [*(x.detach() for x in out), *torch.autograd.grad(out, leaves, grads)]

    with running(variant):
        found = outcome(dropout_add_norm_op, inputs, grads)
    expected = outcome(sums_and_norms, [x.double() for x in inputs], [g.double() for g in grads])
    torch.testing.assert_close(found, [x.float() for x in expected], rtol=1e-4, atol=1e-4)


def test_a_sum_and_its_norm_have_first_and_second_gradients():
    inputs = [torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    inputs += [torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    run = lambda *x: dropout_add_norm_op(*x, torch.tensor(7), 0.3, 1e-5)  # noqa: E731
    assert gradcheck(run, inputs)
    assert gradgradcheck(lambda *x: run(*x)[1], inputs)
    torch.library.opcheck(dropout_add_norm_op.op, (*inputs, torch.tensor(7), 0.3, 1e-5))


def test_a_sum_and_its_norm_in_bfloat16_keep_the_type_and_follow_float32():
    x, added, weight, bias = (
        torch.randn(9, 32),
        torch.randn(9, 32),
        torch.randn(32),
        torch.randn(32),
    )
    wide = functional.layer_norm(x + added, (32,), weight, bias)
    with as_on_gpu(), use_backend("triton"):
        total, out = dropout_add_norm(x.bfloat16(), added.bfloat16(), 0.0, weight, bias, 1e-5)
    assert total.dtype == out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), wide, rtol=0.05, atol=0.05)
