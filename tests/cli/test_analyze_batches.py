"""`slicegraph analyze`: how many samples go through a model at a time."""

import numpy as np
import pytest
from support.quick_analysis import make_analysis_quick, numbers
from support.small_models import save_model

from slicegraph.cli import analysis_samples, main
from slicegraph.cli.analysis_samples import Samples

SMILES = ["CCO", "c1ccccc1O", "CC(=O)NC", "C"]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (16_384, [[0], [1], [2]]),
        (8_000, [[0, 1], [2]]),
        (20, [[0, 1, 2]]),
        (99_999, [[0], [1], [2]]),
    ],
)
def test_long_samples_go_one_at_a_time_and_short_ones_together(size, expected):
    samples = Samples(lambda numbers: (numbers.tolist(),), np.array([3, size, 5]), "some")
    assert [inputs[0] for inputs in samples.batches()] == expected


def test_the_size_of_the_batches_does_not_change_the_numbers(tmp_path, monkeypatch):
    make_analysis_quick(monkeypatch)
    model = save_model(tmp_path / "mine")
    told = []
    for most in (1, 10, 1000):
        monkeypatch.setattr(analysis_samples, "_MOST_ELEMENTS", most)
        assert main(["analyze", str(model), "--data", *SMILES, "--sample", "2"]) == 0
        told.append(numbers(model / "analysis"))
    for other in told[1:]:
        assert other["permutation"] == told[0]["permutation"]
        assert other["facts"] == told[0]["facts"]
        for one, two in zip(
            *(each["models"][0]["layers"] for each in (told[0], other)), strict=True
        ):
            assert one["mixed"]["spectrum"] == pytest.approx(two["mixed"]["spectrum"], abs=1e-5)
