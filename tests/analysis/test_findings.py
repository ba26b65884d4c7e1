"""Samples that are traced a few at a time, and the one whose rows are kept."""

import numpy as np
import pytest
import torch
from support.traced_models import LENGTHS, sequence_model, tokens

from slicegraph.analysis import measure, trace


def parts(model, sizes):
    """The traces of a batch that is cut into batches of these sizes."""
    for x, mask in zip(*(part.split(sizes) for part in tokens()), strict=True):
        longest = int(mask.sum(1).max())
        yield trace(model, x[:, :longest], mask[:, :longest])


@pytest.mark.parametrize("mixer", ["sort", "qkv"])
@pytest.mark.parametrize("sizes", [[1, 1, 1], [2, 1], [1, 2]])
def test_tracing_a_few_samples_at_a_time_measures_what_tracing_all_at_once_does(mixer, sizes):
    model = sequence_model(mixer)
    whole, cut = measure("m", parts(model, [3]), 1), measure("m", parts(model, sizes), 1)
    assert cut.sizes == whole.sizes
    for one, other in zip(cut.layers, whole.layers, strict=True):
        for name in ("mixed", "block"):
            own, expected = getattr(one, name), getattr(other, name)
            assert own.effective_rank == pytest.approx(expected.effective_rank, rel=1e-5)
            assert own.first_share == pytest.approx(expected.first_share, rel=1e-5)
            np.testing.assert_allclose(own.spectrum, expected.spectrum, rtol=1e-4, atol=1e-6)
    for one, other in zip(cut.traces, whole.traces, strict=True):
        torch.testing.assert_close(one.block, other.block)


def test_only_the_rows_of_the_chosen_sample_are_kept():
    model = sequence_model(readout="mean")
    found = measure("m", parts(model, [2, 1]), sample=2)
    for kept, layer in zip(found.traces, trace(model, *tokens()), strict=True):
        assert kept.mixed.shape[0] == LENGTHS[2]
        torch.testing.assert_close(kept.mixed, layer.rows(layer.mixed, 2))


@pytest.mark.parametrize("sample", [-1, 3])
def test_a_sample_that_is_not_there_is_refused(sample):
    with pytest.raises(ValueError, match=rf"there is no sample {sample}, they are 0\.\.2"):
        measure("m", parts(sequence_model(), [2, 1]), sample)


def test_a_sample_of_pairs_is_a_pair():
    x, mask = (torch.stack([part, part.flip(0)], 1) for part in tokens())
    layers = trace(sequence_model(towers=2, readout="mean"), x, mask)
    found = measure("m", [layers], sample=2, towers=2)
    assert found.drawn == "the first text of pair 2"
    assert torch.equal(found.traces[0].mixed, layers[0].rows(layers[0].mixed, 4))
    with pytest.raises(ValueError, match=r"there is no sample 3, they are 0\.\.2"):
        measure("m", [layers], sample=3, towers=2)
