"""The error that a measured coverage has by chance."""

import numpy as np
import pytest

from benchmarks.uncertainty import sampling_error, show
from slicegraph.predict.uncertainty import LEVELS


def test_the_error_of_a_coverage_is_that_of_drawn_errors():
    random, found = np.random.default_rng(0), []
    for _ in range(4000):
        errors, new = np.abs(random.normal(size=50)), np.abs(random.normal(size=128))
        found.append((new <= np.sort(errors)[45]).mean())  # rank 46 of 50 at 90 %
    assert sampling_error(0.9, 50, 128) == pytest.approx(np.std(found), rel=0.05)
    assert sampling_error(0.9, 10**6, 128) == pytest.approx((0.09 / 128) ** 0.5, rel=0.01)


def test_the_table_has_the_mean_over_splits_with_its_error():
    line = {"table": "t", "models": "single", "head": "kernel", "n": 128, "held_out": 50}
    line |= {"mae": 0.5, "levels": list(LEVELS), "width": [1.0] * len(LEVELS)}
    line |= {"doubtful": list(LEVELS), "equal_width": [2.0] * len(LEVELS), "spearman": 0.25}
    line |= {"equal_doubtful": [0.5] * len(LEVELS), "spearman_similarity": 0.1}
    lines = [line | {"coverage": [level + off for level in LEVELS]} for off in (-0.02, 0, 0.05)]
    shown = show(lines).splitlines()
    mean = "81.0 ± 2.1 (1.000) | 91.0 ± 2.1 (1.000) | 96.0 ± 2.1 (1.000)"
    assert shown[2] == f"| t | one model | 3 | 128, 50 | 0.500 | {mean} | 0.010 | 0.25 | 0.10 |"
    assert shown[-2] == "| t | one model | 90% | 1.000, 2.000 | 90.0, 50.0 |"


def test_one_split_has_the_error_that_its_coverage_has_by_chance():
    line = {"table": "t", "seed": 3, "models": "chemprop", "n": 128, "held_out": 50, "mae": 0.5}
    line |= {"levels": [0.8, 0.9, 0.95], "coverage": [0.7, 0.8, 0.9], "width": [1.0, 2.0, 3.0]}
    error = 100 * sampling_error(0.9, 50, 128)
    assert "| chemprop, ensemble of 5 | 1 | 128, 50 | 0.500 | 70.0 ± " in show([line])
    assert f"| 80.0 ± {error:.1f} (2.000) |" in show([line])
