"""Attention within sets, against softmax and matmul over each set."""

from itertools import pairwise

import pytest
import torch
from support.variants import running
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from slicegraph.ops.pair_attention import pair_attention, pair_attention_through

SIZES = [3, 0, 1, 9, 4, 17, 33]
HEADS = 2
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def inputs(
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


def by_set(qkv: Tensor, bias: Tensor, ptr: Tensor) -> Tensor:
    """The formula, set by set."""
    parts = []
    for b, (start, end) in enumerate(pairwise(ptr.tolist())):
        n, rows = end - start, qkv[start:end].unflatten(1, (3, HEADS, -1))
        q, k, v = rows.permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias[b, :, :n, :n]
        parts.append((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))
    return torch.cat(parts)


@pytest.mark.parametrize("width", [1, 5, 16, 24])
@pytest.mark.parametrize("room", [0, 3])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_values_and_gradients_follow_the_formula(backend, width, room, dtype):
    qkv, bias, ptr = inputs(SIZES, width, dtype, room)
    qkv.requires_grad_(), bias.requires_grad_()
    found, expected = pair_attention(qkv, bias, ptr), by_set(qkv, bias, ptr)
    close = {"rtol": 0, "atol": TOLERANCE[dtype] * 10}
    torch.testing.assert_close(found, expected, **close)
    g = torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    torch.testing.assert_close(grad(found, (qkv, bias), g), grad(expected, (qkv, bias), g), **close)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_all_backends_drop_the_same_weights(backend, dtype):
    qkv, bias, ptr = inputs(SIZES, 5, dtype, room=2)
    qkv.requires_grad_(), bias.requires_grad_()

    def run() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        out = pair_attention(qkv, bias, ptr, 0.4)
        return out.detach(), *grad(out.square().sum(), (qkv, bias))

    found = run()
    with running("reference"):
        torch.testing.assert_close(found, run(), rtol=0, atol=100 * TOLERANCE[dtype])


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_first_and_second_gradient_are_right(backend, p):
    qkv, bias, ptr = inputs([3, 1, 2], 2)

    def run(qkv: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(0)
        return pair_attention(qkv, bias, ptr, p)

    for needed in ((True, True), (False, True), (True, False)):
        each = [x.requires_grad_(need) for x, need in zip((qkv, bias), needed, strict=True)]
        assert gradcheck(run, each)
        assert gradgradcheck(run, each)


def test_a_set_does_not_depend_on_its_companions_nor_on_threads(backend):
    qkv, bias, ptr = inputs(SIZES, 16, torch.float32)
    together, threads = pair_attention(qkv, bias, ptr), torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        assert torch.equal(pair_attention(qkv, bias, ptr), together)
    finally:
        torch.set_num_threads(threads)
    if not backend.startswith("cpu"):  # matmul chooses its way by the size of the batch
        return
    for b, (start, end) in enumerate(pairwise(ptr.tolist())):
        n = end - start
        alone = bias[b : b + 1, :, :n, :n]
        found = pair_attention(qkv[start:end], alone, torch.tensor([0, n]))
        assert torch.equal(found, together[start:end])


def test_forbidden_pairs_have_no_weight(backend):
    qkv, bias, ptr = inputs([5], 4, torch.float32)
    forbidden = bias.clone()
    forbidden[..., 2:] = -torch.inf
    expected = pair_attention(qkv[:2], bias[..., :2, :2].contiguous(), torch.tensor([0, 2]))
    torch.testing.assert_close(pair_attention(qkv, forbidden, ptr)[:2], expected)


def test_a_row_of_which_all_is_forbidden_is_zero_and_has_no_gradient(backend):
    qkv, bias, ptr = inputs([5], 4, torch.float32)
    bias[:, :, 3] = -torch.inf
    qkv.requires_grad_(), bias.requires_grad_()
    out = pair_attention(qkv, bias, ptr)
    of_qkv, of_bias = grad(out.square().sum(), (qkv, bias))
    assert not out[3].any()
    assert out[[0, 1, 2, 4]].all()
    assert not of_bias[:, :, 3].any()
    assert of_qkv.isfinite().all()


def test_with_all_weights_dropped_everything_is_zero(backend):
    qkv, bias, ptr = (x.requires_grad_(x.is_floating_point()) for x in inputs(SIZES, 5))
    out = pair_attention(qkv, bias, ptr, 1.0)
    assert not any(x.any() for x in (out, *grad(out.sum(), (qkv, bias))))


@pytest.mark.parametrize("sizes", [[], [0, 0]], ids=str)
def test_nothing_in_nothing_out(backend, sizes):
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    qkv, bias = torch.zeros(0, 12), torch.zeros(len(sizes), HEADS, 1, 1)
    assert pair_attention(qkv, bias, ptr).shape == (0, 4)


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_the_gradient_of_a_bias_that_goes_through_layers_is_their_sum(backend, again):
    qkv, bias, ptr = inputs(SIZES, 5)
    bias.requires_grad_()
    layers = [(qkv * scale).requires_grad_() for scale in (1.0, -0.5, 0.3)]
    through, total = bias, torch.zeros(())
    for layer in layers:
        out, through = pair_attention_through(layer, through, ptr, 0.0)
        total = total + out.square().sum()
    alone = [pair_attention(layer, bias, ptr).square().sum() for layer in layers]
    found = grad(total, (bias, *layers), create_graph=again)
    torch.testing.assert_close(found, grad(sum(alone), (bias, *layers)))


@pytest.mark.parametrize(
    ("qkv", "ptr", "message"),
    [
        (torch.zeros(4, 7), [0, 4], r"qkv has shape \[4, 7\]"),
        (torch.zeros(4, 9), [0, 4], "a multiple of the 2 heads"),
        (torch.zeros(4, 6), [0, 3], "ptr ends at 3"),
        (torch.zeros(5, 6), [0, 5], "room for 4"),
    ],
)
def test_what_does_not_fit_is_named(backend, qkv, ptr, message):
    with pytest.raises(ValueError, match=message):
        pair_attention(qkv, torch.zeros(1, 2, 4, 4), torch.tensor(ptr))
