"""The page of an analysis, its figures and its numbers."""

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
    measure,
    softmax_smoothing,
    trace,
    write,
    write_analysis,
)

SMOOTHING = softmax_smoothing([10, 100], draws=2)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&"


@pytest.fixture(autouse=True)
def small_figures(monkeypatch):
    make_figures_small(monkeypatch, write)


def findings(name: str, mixer: str, sample: int = 0, **fields):
    return measure(name, [trace(image_model(mixer, **fields), images())], sample)


def of_a_graph(mixer: str):
    return measure("mine", [trace(small_model(mixer=mixer), random_graph(9))])


@pytest.fixture(scope="module")
def pair():
    return [findings("mine", "sort"), findings("other", "qkv", num_layers=2)]


def test_page_needs_no_other_file_and_no_network(tmp_path, pair):
    text = write_analysis(tmp_path, pair, SMOOTHING).read_text("utf-8")
    assert "http" not in text.replace("http-equiv", "")
    Page(text).assert_self_contained()


def test_every_figure_is_on_the_page_and_a_file(tmp_path, pair):
    page = Page(write_analysis(tmp_path, pair, SMOOTHING).read_text("utf-8"))
    files = sorted(path.stem for path in (tmp_path / "figures").iterdir())
    assert files == [
        "channel",
        "permutation",
        "rank",
        "rows-1",
        "rows-2",
        "softmax",
        "spectrum-1",
        "spectrum-2",
        "spectrum-mean",
    ]
    assert page.tags.count("img") == len(files)
    assert all(png.read_bytes()[:4] == b"\x89PNG" for png in (tmp_path / "figures").iterdir())


def test_page_has_the_ranks_of_both_models_and_the_facts(tmp_path, pair):
    text = Page(write_analysis(tmp_path, pair, SMOOTHING, facts={"data": "noise"}).read_text()).text
    for model in pair:
        assert f"{model.effective_rank:.3f}" in text
        for layer in model.layers:
            assert f"{layer.mixed.effective_rank:.3f}" in text
    assert "data noise" in text


def test_numbers_are_in_the_json_file(tmp_path):
    pair = [findings("mine", "sort", sample=1), findings("other", "qkv", sample=1)]
    write_analysis(tmp_path, pair, SMOOTHING, Choice(layer=2, channel=5), {"data": "x"})
    numbers = json.loads((tmp_path / "analysis.json").read_text())
    assert numbers["facts"] == {"data": "x"}
    assert [model["name"] for model in numbers["models"]] == ["mine", "other"]
    for model, told in zip(pair, numbers["models"], strict=True):
        for layer, entry in zip(model.layers, told["layers"], strict=True):
            assert entry["mixed"]["effective_rank"] == layer.mixed.effective_rank
            assert entry["block"]["spectrum"] == layer.block.spectrum.tolist()
    assert numbers["softmax"]["largest"] == SMOOTHING.largest.tolist()
    layer = trace(image_model("sort"), images())[1]
    values = layer.rows(layer.unordered, 1)[:, 5]
    sources = numbers["permutation"].pop("sources")
    assert sources == np.argsort(values.numpy(), kind="stable").tolist()
    assert numbers["permutation"] == {"sample": 1, "layer": 2, "channel": 5}


def test_model_that_does_not_sort_has_a_page_without_permutation(tmp_path, pair):
    text = Page(write_analysis(tmp_path, pair[1:], SMOOTHING).read_text("utf-8")).text
    assert "Implicit permutation" not in text
    assert json.loads((tmp_path / "analysis.json").read_text())["permutation"] is None


def test_layers_that_read_quantiles_are_shown_unordered_and_sorted(tmp_path):
    model = of_a_graph("quantile_attn")
    text = Page(write_analysis(tmp_path, [model], SMOOTHING).read_text("utf-8")).text
    assert "Attention outputs, mine" in text
    assert "Sorted channels, mine" in text
    assert "Sorted outputs" not in text
    assert "Permutation of layer 1, channel 0, sample 0" in text
    files = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert {"rows-1", "rows-1-unordered", "permutation", "channel"} <= files
    assert json.loads((tmp_path / "analysis.json").read_text())["permutation"]["sources"]


def test_of_a_pair_the_first_text_is_drawn_and_it_says_so(tmp_path):
    x, mask = (torch.stack([part, part.flip(0)], 1) for part in tokens())
    model = sequence_model(towers=2, readout="mean")
    found = measure("mine", [trace(model, x, mask)], sample=1, towers=2)
    text = Page(write_analysis(tmp_path, [found], SMOOTHING).read_text("utf-8")).text
    assert "Permutation of layer 1, channel 0, the first text of pair 1" in text
    assert "what each layer sorts, the first text of pair 1" in text
    alone = trace(sequence_model(readout="mean"), x[1:2, 0], mask[1:2, 0])[0]
    sources = json.loads((tmp_path / "analysis.json").read_text())["permutation"]["sources"]
    assert sources == alone.unordered[:, 0].sort(stable=True).indices.tolist()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(layer=0), r"mine has no layer 0, they are 1\.\.3"),
        (Choice(layer=4), r"mine has no layer 4, they are 1\.\.3"),
        (Choice(channel=32), r"layer 1 of mine has no channel 32, they are 0\.\.31"),
        (Choice(channel=-1), r"layer 1 of mine has no channel -1"),
    ],
)
def test_what_is_not_there_is_refused_before_anything_is_written(tmp_path, pair, choice, message):
    with pytest.raises(ValueError, match=message):
        write_analysis(tmp_path, pair, SMOOTHING, choice)
    assert list(tmp_path.iterdir()) == []


def test_hostile_name_stays_text(tmp_path):
    model = findings(HOSTILE, "sort")
    page = Page(write_analysis(tmp_path, [model], SMOOTHING, facts={HOSTILE: HOSTILE}).read_text())
    assert "script" not in page.tags
    assert page.tags.count("img") == len(list((tmp_path / "figures").iterdir()))
    assert page.text.count("alert(1)") > 5
