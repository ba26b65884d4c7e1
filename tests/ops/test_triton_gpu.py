"""The Triton kernels on a GPU against torch.sort on the CPU: `TRITON_INTERPRET=0 pytest -m gpu`."""

import pytest
import torch
from torch import Tensor

from slicegraph.ops import column_sort, triton, use_backend

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(
        triton.problem("cpu") is None, reason="the interpreter is on, set TRITON_INTERPRET=0"
    ),
]

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LIMITS = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, -torch.nan, 1.0, -1.0]


@pytest.fixture(autouse=True)
def _triton():
    with use_backend("triton"):
        yield


def values_with_limits(*shape: int, dtype: torch.dtype) -> Tensor:
    """Random values, of which a third are zeros of both signs, infinities, NaN and ties."""
    generator = torch.Generator().manual_seed(0)
    limits = torch.tensor(LIMITS)[torch.randint(len(LIMITS), shape, generator=generator)]
    x = torch.randn(shape, generator=generator)
    return torch.where(torch.rand(shape, generator=generator) < 0.3, limits, x).to(dtype)


def assert_same_bits(on_gpu: Tensor, expected: Tensor) -> None:
    bits = {2: torch.int16, 4: torch.int32}[expected.element_size()]
    assert torch.equal(on_gpu.cpu().view(bits), expected.view(bits))


def torch_sort(x: Tensor, descending: Tensor) -> tuple[Tensor, Tensor]:
    up, down = (torch.sort(x, dim=-2, stable=True, descending=d) for d in (False, True))
    return tuple(torch.where(descending, d, u) for u, d in zip(up, down, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 33, 768])
@pytest.mark.parametrize("rows", [1, 2, 7, 16, 32, 52, 64, 128, 500, 1024])
def test_dense_sets_equal_torch_sort_to_the_bit(rows, channels, dtype):
    x = values_with_limits(5, rows, channels, dtype=dtype)
    descending = torch.arange(channels) % 3 == 1
    expected_values, expected_indices = torch_sort(x, descending)
    values, indices = column_sort(x.cuda(), descending=descending)
    assert_same_bits(values, expected_values)
    assert torch.equal(indices.cpu(), expected_indices)
    values = column_sort(x.cuda(), descending=descending, return_indices=False)
    assert_same_bits(values, expected_values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("integer", [torch.int32, torch.int64])
def test_every_length_sorts_its_own_rows_only(dtype, integer):
    lengths = torch.tensor([0, 1, 20, 52], dtype=integer)
    x = values_with_limits(4, 52, 40, dtype=dtype)
    values, indices = (t.cpu() for t in column_sort(x.cuda(), lengths=lengths.cuda()))
    for b, length in enumerate(lengths.tolist()):
        expected = torch.sort(x[b, :length], dim=0, stable=True)
        assert_same_bits(values[b, :length], expected.values)
        assert torch.equal(indices[b, :length], expected.indices)
        assert not values[b, length:].any()
        assert torch.equal(indices[b, length:, 0], torch.arange(length, 52))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [[3, 0, 30, 1], [64, 65, 2], [1024, 5]])
def test_packed_sets_are_sorted_one_by_one(sizes, dtype):
    x = values_with_limits(sum(sizes), 40, dtype=dtype)
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    values, indices = (t.cpu() for t in column_sort(x.cuda(), ptr=ptr.cuda(), descending=True))
    parts = zip(*(t.split(sizes) for t in (x, values, indices)), strict=True)
    for part, part_values, part_indices in parts:
        expected = torch.sort(part, dim=0, stable=True, descending=True)
        assert_same_bits(part_values, expected.values)
        assert torch.equal(part_indices, expected.indices)


def test_longer_sets_are_sorted_too():
    x = torch.randn(2, 1025, 7)
    values, indices = column_sort(x.cuda())
    expected = torch.sort(x, dim=-2, stable=True)
    assert torch.equal(values.cpu(), expected.values)
    assert torch.equal(indices.cpu(), expected.indices)


@pytest.mark.parametrize("rows", [5, 52, 300, 3000])
def test_gradient_equals_that_of_torch_sort(rows):
    x = torch.randn(4, rows, 40, device="cuda", requires_grad=True)
    g = torch.randn_like(x)
    (expected,) = torch.autograd.grad(torch.sort(x, dim=-2, stable=True).values, x, g)
    (gradient,) = torch.autograd.grad(column_sort(x, return_indices=False), x, g)
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("sets", ["lengths", "ptr"])
def test_gradients_pass_gradcheck_twice(sets):
    x = torch.randn(3, 4, 2, dtype=torch.float64, device="cuda", requires_grad=True)
    where = {"lengths": torch.tensor([4, 0, 2], device="cuda")}
    if sets == "ptr":
        x = x.detach().flatten(0, 1).requires_grad_()
        where = {"ptr": torch.tensor([0, 5, 5, 12], device="cuda")}

    def sort(x: Tensor) -> Tensor:
        return column_sort(x, **where, return_indices=False)

    assert torch.autograd.gradcheck(sort, x)
    assert torch.autograd.gradgradcheck(sort, x)
