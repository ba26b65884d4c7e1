"""Presets of sequences and images: the sizes of the paper's tables."""

import pytest
import torch

from slicegraph.models import (
    SEQUENCE_PRESETS,
    VISION_PRESETS,
    SequenceSliceformer,
    VisionSliceformer,
    sequence_preset,
    vision_preset,
)

COUNTS = {
    "vit-dogs": (1_899_138, 1_112_706),
    "vit-cifar10": (9_603_594, 6_457_866),
    "vit-cifar100": (9_649_764, 6_504_036),
    "vit-mnist": (9_568_778, 6_423_050),
    "text-imdb": (8_835_074, 8_045_570),
}
SIZES = {
    "lra-listops": (512, 512, 1024, 4, 8, 2000),
    "lra-text": (256, 256, 1024, 4, 4, 4000),
    "lra-retrieval": (128, 128, 512, 4, 4, 4000),
    "lra-image": (96, 48, 128, 6, 8, 1024),
    "lra-pathfinder": (320, 320, 320, 4, 8, 1024),
    "lra-pathx": (320, 320, 320, 4, 8, 16_384),
}


MINI = {
    "mini-listops": 4,
    "mini-text": 2,
    "mini-retrieval": 2,
    "mini-pixels": 4,
    "mini-pathfinder": 4,
    "mini-pathx": 4,
    "mini-reviews": 2,
    "mini-series": 4,
    "mini-digits": 4,
    "mini-mnist": 4,
    "mini-images": 4,
}
"""The layers of the small models, all of 64 channels."""


def parameters(name: str, mixer: str) -> int:
    kind = VisionSliceformer if name in VISION_PRESETS else SequenceSliceformer
    with torch.device("meta"):
        model = kind.from_preset(name, mixer)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", COUNTS)
def test_the_papers_models_have_the_papers_size(name):
    assert (parameters(name, "qkv"), parameters(name, "sort")) == COUNTS[name]


def test_tiny_imagenet_is_vit_s_16():
    counts = parameters("vit-tiny-imagenet", "qkv"), parameters("vit-tiny-imagenet", "sort")
    assert [f"{count / 1e6:.2f}M" for count in counts] == ["22.05M", "18.50M"]


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_the_long_range_arena(name):
    c = sequence_preset(name)
    sizes = (c.channels, c.hidden_channels, c.ffn_channels, c.num_layers, c.heads, c.max_length)
    assert sizes == SIZES[name]


@pytest.mark.parametrize("name", SIZES)
def test_sorting_saves_the_queries_and_keys(name):
    channels, hidden, _, layers, _, _ = SIZES[name]
    saved = 2 * layers * (channels * hidden + hidden)
    assert parameters(name, "qkv") - parameters(name, "sort") == saved


@pytest.mark.parametrize("name", MINI)
def test_small_models_differ_by_the_queries_and_keys_too(name):
    saved = 2 * MINI[name] * (64 * 64 + 64)
    assert parameters(name, "qkv") - parameters(name, "sort") == saved


def test_lists_are_read_as_in_the_long_range_arena():
    assert sequence_preset("lra-listops").readout == "cls"
    assert sequence_preset("mini-listops").readout == "cls"


def test_every_preset_is_in_a_test():
    assert {*COUNTS, *SIZES, *MINI, "vit-tiny-imagenet"} == {*SEQUENCE_PRESETS, *VISION_PRESETS}


def test_overrides():
    config = sequence_preset("lra-text", order="interleave", max_length=1000)
    assert (config.mixer, config.order, config.max_length) == ("sort", "interleave", 1000)
    assert vision_preset("vit-mnist", "qkv", dropout=0.1).dropout == 0.1


@pytest.mark.parametrize("find", [sequence_preset, vision_preset])
def test_an_unknown_preset_is_named(find):
    with pytest.raises(ValueError, match="unknown preset 'vit-birds', expected one of"):
        find("vit-birds")
