"""A softmax of many scores follows its limits."""

import numpy as np
import pytest

from slicegraph.analysis import softmax_smoothing
from slicegraph.analysis.smoothing import COUNTS


def test_the_curve_goes_from_ten_to_a_million():
    assert (COUNTS[0], COUNTS[-1]) == (10, 1_000_000)
    assert np.diff(np.log10(COUNTS)) == pytest.approx([0.5] * 10, abs=0.02)


@pytest.mark.parametrize("deviation", [0.5, 1.0])
def test_entropy_and_spread_reach_their_limits(deviation):
    n = 100_000
    found = softmax_smoothing([n], draws=4, deviation=deviation)
    half = np.exp(deviation**2 / 2)
    assert found.sharpness == pytest.approx([half / n], rel=0.02)
    assert found.spread == pytest.approx([half / n**0.5], rel=0.02)


def test_equal_scores_have_equal_weights():
    found = softmax_smoothing([8, 50], draws=1, deviation=0.0)
    assert found.largest == pytest.approx([1 / 8, 1 / 50])
    assert found.sharpness == pytest.approx([1 / 8, 1 / 50])
    assert found.spread == pytest.approx([8**-0.5, 50**-0.5])


def test_weights_are_between_equal_and_all_on_one():
    found = softmax_smoothing([10, 100, 1000])
    for values in (found.largest, found.sharpness, found.spread):
        assert (values < 1).all()
        assert (values >= 1 / found.counts).all()
        assert (np.diff(values) < 0).all()


def test_the_same_seed_gives_the_same_numbers():
    one, other, another = (softmax_smoothing([30], seed=seed) for seed in (1, 1, 2))
    assert one.largest == other.largest
    assert one.largest != another.largest
