"""How fast the spectra of two models decay, against numpy."""

import numpy as np
import pytest
from support.traced_models import image_model, images

from slicegraph.analysis import Findings, LayerFindings, measure, trace
from slicegraph.analysis.decay import decay_rows, slower_layers, spectrum_area
from slicegraph.analysis.findings import Measures


def numpy_spectrum(layer) -> np.ndarray:
    """The mean over the samples of the singular values over the largest."""
    sets = layer.mixed.double().split(layer.ptr.diff().tolist())
    values = [np.linalg.svd(rows.numpy(), compute_uv=False) for rows in sets]
    return np.mean([one / one[0] for one in values], axis=0)


def findings(name: str, *spectra: list[float]) -> Findings:
    measures = [Measures(1.0, 1.0, np.array(spectrum)) for spectrum in spectra]
    return Findings(name, "sort", [LayerFindings(each, each) for each in measures], [])


def test_the_rows_have_the_spectra_of_numpy():
    traces = {
        "mine": trace(image_model("sort"), images()),
        "other": trace(image_model("qkv", num_layers=2), images()),
    }
    models = [measure(name, [layers]) for name, layers in traces.items()]
    head, rows = decay_rows(models)
    # 16 patches and the token: 17 singular values.
    assert head == ["layer", "model", "rank", "s2/s1", "s4/s1", "s8/s1", "s16/s1", "area"]
    assert [row[:2] for row in rows] == [
        *(["1", "mine"], ["1", "other"], ["2", "mine"], ["2", "other"], ["3", "mine"])
    ]
    named = {model.name: model for model in models}
    for number, name, rank, *shown, area in rows:
        model, place = named[name], int(number) - 1
        spectrum = numpy_spectrum(traces[name][place])
        assert rank == model.layers[place].mixed.effective_rank
        assert shown == pytest.approx(spectrum[[1, 3, 7, 15]], rel=1e-4, abs=1e-5)
        assert area == pytest.approx(spectrum.sum(), rel=1e-4)


def test_layers_whose_area_by_numpy_is_larger_are_counted():
    traces = [trace(image_model(mixer), images()) for mixer in ("sort", "qkv")]
    areas = np.array([[numpy_spectrum(layer).sum() for layer in one] for one in traces])
    mine, other = (measure(name, [one]) for name, one in zip("ab", traces, strict=True))
    assert slower_layers(mine, other) == ((areas[0] > areas[1]).sum(), 3)
    assert slower_layers(other, mine) == ((areas[1] > areas[0]).sum(), 3)


@pytest.mark.parametrize(("spectrum", "area"), [([1.0], 1), ([1.0, 0, 0], 1), ([1.0] * 5, 5)])
def test_the_area_is_one_for_rank_one_and_the_size_for_equal_values(spectrum, area):
    assert spectrum_area(findings("one", spectrum).layers[0].mixed) == area


def test_a_place_that_only_one_model_has_is_empty_for_the_other():
    head, rows = decay_rows(
        [findings("long", [1.0, 0.5, 0.25, 0.125]), findings("short", [1, 0.5])]
    )
    assert head == ["layer", "model", "rank", "s2/s1", "s4/s1", "area"]
    assert [row[3:] for row in rows] == [[0.5, 0.125, 1.875], [0.5, None, 1.5]]


def test_only_layers_that_both_have_are_compared_and_equal_ones_are_not_slower():
    mine = findings("mine", [1.0, 0.5], [1.0, 0.5], [1.0, 0.9])
    other = findings("other", [1.0, 0.4], [1.0, 0.5])
    assert slower_layers(mine, other) == (1, 2)
