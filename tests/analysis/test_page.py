"""The page of an analysis, its figures, its numbers and its printed tables."""

import json

import numpy as np
import pytest
import torch
from models.small_graphs import random_graph
from support.html_page import Page
from support.small_figures import make_figures_small
from support.small_models import small_model
from support.traced_models import image_model, images, sequence_model, tokens

from slicegraph.analysis import (
    Choice,
    Findings,
    LayerFindings,
    measure,
    softmax_smoothing,
    table_lines,
    trace,
    write_analysis,
)
from slicegraph.analysis.measures import Measures
from slicegraph.analysis.page import decay_table

SMOOTHING = softmax_smoothing([10, 100], draws=2)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&"


@pytest.fixture(autouse=True)
def small_figures(request, monkeypatch):
    if "real_figures" not in request.fixturenames:
        make_figures_small(monkeypatch)


@pytest.fixture
def real_figures():
    """Figures are drawn in full."""


def findings(name: str, mixer: str, sample: int = 0, **fields):
    return measure(name, [trace(image_model(mixer, **fields), images())], sample)


@pytest.fixture(scope="module")
def pair():
    return [findings("mine", "sort", sample=1), findings("other", "qkv", sample=1, num_layers=2)]


def test_every_figure_is_a_file_and_on_the_page_which_needs_no_network(
    tmp_path, pair, real_figures
):
    text = write_analysis(tmp_path, pair, SMOOTHING).read_text("utf-8")
    page = Page(text)
    page.assert_self_contained()
    assert "http" not in text.replace("http-equiv", "")
    files = sorted(path.stem for path in (tmp_path / "figures").iterdir())
    rows, spectra = ["rows-1", "rows-2"], ["spectrum-1", "spectrum-2", "spectrum-mean"]
    assert files == ["channel", "permutation", "rank", *rows, "softmax", *spectra]
    assert page.tags.count("img") == len(files)
    assert all(png.read_bytes()[:4] == b"\x89PNG" for png in (tmp_path / "figures").iterdir())


def test_the_weights_of_a_slice_are_drawn_and_numbered(tmp_path):
    found = findings("mine", "slice", sample=1)
    choice = Choice(layer=2, channel=20)
    text = Page(write_analysis(tmp_path, [found], SMOOTHING, choice).read_text("utf-8")).text
    assert (tmp_path / "figures" / "slice.png").exists()
    assert not (tmp_path / "figures" / "permutation.png").exists()
    layer, slice_ = found.traces[1], 20 // 8  # 32 channels, 4 heads
    keys, tau = layer.keys[:, slice_], layer.mixer.slices.log_tau[slice_].exp()
    weights = (-(keys[:, None] - keys).abs() / tau).softmax(1).detach()
    numbers = json.loads((tmp_path / "analysis.json").read_text())["slice"]
    read = float((-(weights * weights.log()).sum(1)).exp().mean())
    assert numbers == {
        **{"layer": 2, "channel": 20, "slice": slice_},
        **{"tau": pytest.approx(tau.item()), "rows_read": pytest.approx(read, rel=1e-4)},
    }
    assert f"a row reads {read:.1f} of {len(keys)} rows" in text
    with pytest.raises(ValueError, match=r"no channel 32, they are 0..31"):
        write_analysis(tmp_path, [found], SMOOTHING, Choice(channel=32))


def test_numbers_are_on_the_page_and_in_the_json_file(tmp_path, pair):
    facts = {"data": "noise"}
    path = write_analysis(tmp_path, pair, SMOOTHING, Choice(layer=2, channel=5), facts=facts)
    text = Page(path.read_text("utf-8")).text
    numbers = json.loads((tmp_path / "analysis.json").read_text())
    assert "data noise" in text
    assert numbers["facts"] == facts
    assert [model["name"] for model in numbers["models"]] == ["mine", "other"]
    for model, written in zip(pair, numbers["models"], strict=True):
        assert f"{model.effective_rank:.3f}" in text
        for layer, entry in zip(model.layers, written["layers"], strict=True):
            assert f"{layer.mixed.effective_rank:.3f}" in text
            assert entry["mixed"]["effective_rank"] == layer.mixed.effective_rank
            assert entry["block"]["spectrum"] == layer.block.spectrum.tolist()
    assert numbers["softmax"]["largest"] == SMOOTHING.largest.tolist()
    values = pair[0].traces[1].unordered[:, 5]
    sources = numbers["permutation"].pop("sources")
    assert sources == np.argsort(values.numpy(), kind="stable").tolist()
    assert numbers["permutation"] == {"sample": 1, "layer": 2, "channel": 5}


def test_model_that_does_not_sort_has_a_page_without_permutation(tmp_path, pair):
    text = Page(write_analysis(tmp_path, pair[1:], SMOOTHING).read_text("utf-8")).text
    assert "Implicit permutation" not in text
    assert json.loads((tmp_path / "analysis.json").read_text())["permutation"] is None


def test_layers_that_read_quantiles_are_shown_unordered_and_sorted(tmp_path):
    model = measure("mine", [trace(small_model(mixer="quantile_attn"), random_graph(9))])
    text = Page(write_analysis(tmp_path, [model], SMOOTHING).read_text("utf-8")).text
    assert "Attention outputs, mine" in text
    assert "Sorted channels, mine" in text
    assert "Sorted outputs" not in text
    assert "Permutation of layer 1, channel 0, sample 0" in text
    assert (tmp_path / "figures" / "rows-1-unordered.png").exists()
    assert json.loads((tmp_path / "analysis.json").read_text())["permutation"]["sources"]


def test_of_a_pair_the_first_text_is_drawn(tmp_path):
    x, mask = (torch.stack([part, part.flip(0)], 1) for part in tokens())
    model = sequence_model(towers=2, readout="mean")
    found = measure("mine", [trace(model, x, mask)], sample=1, towers=2)
    text = Page(write_analysis(tmp_path, [found], SMOOTHING).read_text("utf-8")).text
    assert "Permutation of layer 1, channel 0, the first text of pair 1" in text
    assert "sorted rows of each layer, the first text of pair 1" in text


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(layer=0), r"mine has no layer 0, they are 1\.\.3"),
        (Choice(layer=4), r"mine has no layer 4, they are 1\.\.3"),
        (Choice(channel=32), r"there is no channel 32, they are 0\.\.31"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused_before_writing(tmp_path, pair, choice, message):
    with pytest.raises(ValueError, match=message):
        write_analysis(tmp_path, pair, SMOOTHING, choice)
    assert list(tmp_path.iterdir()) == []


def test_hostile_name_stays_text(tmp_path):
    model = findings(HOSTILE, "sort")
    page = Page(write_analysis(tmp_path, [model], SMOOTHING, facts={HOSTILE: HOSTILE}).read_text())
    assert "script" not in page.tags
    assert page.tags.count("img") == len(list((tmp_path / "figures").iterdir()))
    assert page.text.count("alert(1)") > 5


def made_up(name: str, *spectra: list[float]) -> Findings:
    measures = [Measures(1.0, 1.0, np.array(spectrum)) for spectrum in spectra]
    return Findings(name, "sort", [LayerFindings(each, each) for each in measures], [])


def test_decay_table_has_the_spectra_of_the_layers(pair):
    head, *rows = decay_table(pair)
    # 16 patches and the token: 17 singular values.
    assert head == ["layer", "model", "rank", "s2/s1", "s4/s1", "s8/s1", "s16/s1", "area"]
    names = [["1", "mine"], ["1", "other"], ["2", "mine"], ["2", "other"], ["3", "mine"]]
    assert [row[:2] for row in rows] == names
    for (number, name), row in zip(names, rows, strict=True):
        mixed = pair[name == "other"].layers[int(number) - 1].mixed
        values = [mixed.effective_rank, *mixed.spectrum[[1, 3, 7, 15]], mixed.spectrum.sum()]
        assert row[2:] == pytest.approx(values)


def test_a_place_that_only_one_model_has_is_empty_for_the_other():
    models = [made_up("long", [1.0, 0.5, 0.25, 0.125]), made_up("short", [1, 0.5])]
    head, *rows = decay_table(models)
    assert head == ["layer", "model", "rank", "s2/s1", "s4/s1", "area"]
    assert [row[3:] for row in rows] == [[0.5, 0.125, 1.875], [0.5, None, 1.5]]


def test_only_layers_that_both_have_are_compared_and_equal_ones_are_not_slower():
    mine = made_up("mine", [1.0, 0.5], [1.0, 0.5], [1.0, 0.9])
    other = made_up("other", [1.0, 0.4], [1.0, 0.5])
    assert "than that of other in 1 of 2 layers, by" in table_lines([mine, other])[-1]
