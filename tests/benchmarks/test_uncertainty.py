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


def test_the_table_has_the_error_beside_each_coverage():
    line = {"table": "t", "seed": 3, "models": "single", "n": 128, "held_out": 50, "mae": 0.5}
    line |= {"levels": list(LEVELS), "coverage": list(LEVELS), "width": [1.0] * len(LEVELS)}
    line |= {"calibration_error": 0.0, "spearman_similarity": 0.1, "inside": 0.5}
    shown = show([line | {"outside": [0, None]}, line | {"seed": 4, "outside": [2, 0.7]}])
    other = {name: line[name] for name in ("table", "n", "held_out", "mae")} | {"seed": 3}
    other |= {"models": "chemprop", "levels": [0.8, 0.9, 0.95], "coverage": [0.7, 0.8, 0.9]}
    beside = show([other | {"width": [1.0, 2.0, 3.0], "spearman": 0.25}])
    assert "| t, 3 | 128, 50 | chemprop, ensemble of 5 | 0.500 | 70.0 ±" in beside
    assert "|  | 0.25 |  |  |  |" in beside
    error = 100 * sampling_error(0.9, 50, 128)
    assert f"| 90.0 ± {error:.1f} (1.000) |" in shown
    assert (
        f"| all | 256 | one model |  | 80.0 ± {100 * sampling_error(0.8, 50, 128) / 2**0.5:.1f}"
        in shown
    )
