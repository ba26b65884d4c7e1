"""Singular values, effective rank, and what is measured of a model."""

import numpy as np
import pytest
import torch
from support.traced_models import sequence_model, tokens

from slicegraph.analysis import effective_rank, measure, singular_values, trace


def numpy_rank(matrix: np.ndarray) -> float:
    values = np.linalg.svd(matrix, compute_uv=False)
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def test_singular_values_are_those_of_numpy_for_every_set():
    sizes, rows = (4, 9, 1, 6), torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    found = singular_values(rows, torch.tensor([0, *np.cumsum(sizes)])).numpy()
    expected = np.zeros((4, 6))
    for values, part in zip(expected, rows.double().split(sizes), strict=True):
        own = np.linalg.svd(part.numpy(), compute_uv=False)
        values[: len(own)] = own
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_the_effective_rank_of_the_identity_is_its_size(size):
    values = singular_values(3 * torch.eye(size), torch.tensor([0, size]))
    torch.testing.assert_close(effective_rank(values), torch.tensor([float(size)]))


def test_the_effective_rank_of_a_matrix_of_rank_one_is_one():
    rows = torch.outer(torch.arange(1.0, 8.0), torch.tensor([1.0, -2.0, 0.5]))
    values = singular_values(rows, torch.tensor([0, 7]))
    torch.testing.assert_close(effective_rank(values), torch.ones(1), rtol=1e-4, atol=0)


def test_the_effective_rank_of_zeros_and_of_a_set_without_rows_is_zero():
    values = singular_values(torch.zeros(3, 4), torch.tensor([0, 3, 3]))
    assert effective_rank(values).tolist() == [0, 0]


def test_the_measures_of_a_layer_are_means_over_the_samples():
    layers = trace(sequence_model(), *tokens())
    found = measure("small", [layers])
    for layer, measures in zip(layers, found.layers, strict=True):
        for rows, own in ((layer.mixed, measures.mixed), (layer.block, measures.block)):
            sets = [part.double().numpy() for part in rows.split(layer.ptr.diff().tolist())]
            assert own.effective_rank == pytest.approx(np.mean([numpy_rank(x) for x in sets]), 1e-4)
            values = [np.linalg.svd(x, compute_uv=False) for x in sets]
            shares = [s[0] ** 2 / (s**2).sum() for s in values]
            assert own.first_share == pytest.approx(np.mean(shares), 1e-4)
            seconds = [s[1] / s[0] for s in values]
            assert own.spectrum[:2] == pytest.approx([1, np.mean(seconds)], 1e-4)
    ranks = [layer.mixed.effective_rank for layer in found.layers]
    assert found.effective_rank == pytest.approx(np.mean(ranks))


def test_an_output_that_is_not_finite_is_refused_by_name():
    model = sequence_model()
    with torch.no_grad():
        model.blocks[1].mixer.value_proj.bias[0] = float("nan")
    with pytest.raises(ValueError, match="small: layer 2 has an output that is not finite"):
        measure("small", [trace(model, *tokens())])
