"""The launches of a training step on a GPU, counted without one: the budget of a layer."""

import pytest
import torch

from benchmarks.launches import Launches, molecules, per_layer, step
from slicegraph.ops import column_sort
from slicegraph.ops.operator import as_on_gpu


@pytest.fixture(scope="module")
def batch():
    return molecules(6)


def test_views_and_memory_are_free_and_our_operators_are_their_kernels():
    x = torch.randn(4, 6, requires_grad=True)
    with as_on_gpu(), Launches() as launches:
        column_sort(x.view(2, 2, 6).transpose(0, 1), return_indices=False).mul(2).sum().backward()
    found = dict(launches.counts)
    assert found.pop("column_sort") == found.pop("column_scatter") == 1
    assert found.pop("mul") == 2  # and its gradient
    assert "view" not in found
    assert "transpose" not in found


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bfloat16"])
def test_a_sorting_layer_has_its_budget_and_never_more_than_attention(batch, bf16):
    several, _ = per_layer("sliceformer-base", batch, fused=False, autocast=bf16)
    assert several <= 45
    fused, whole = per_layer("sliceformer-base", batch, fused=True, autocast=bf16)
    assert fused <= 30
    attention, of_attention = per_layer("graphormer-base", batch, fused=True, autocast=bf16)
    assert fused <= attention
    assert whole <= of_attention


def test_the_count_does_not_depend_on_the_batch(batch):
    assert step("sliceformer-base", 2, batch, True) == step(
        "sliceformer-base", 2, molecules(9), True
    )
