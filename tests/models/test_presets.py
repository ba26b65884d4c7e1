"""Presets: sizes of the paper, and configurations that say what is wrong with them."""

import pytest
import torch
from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

from slicegraph.models import (
    PRESETS,
    SEQUENCE_PRESETS,
    VISION_PRESETS,
    GraphSliceformer,
    GraphSliceformerConfig,
    SequenceSliceformer,
    VisionSliceformer,
    preset,
    sequence_preset,
    vision_preset,
)
from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS


def parameters(name: str, **arguments) -> int:
    with torch.device("meta"):
        model = GraphSliceformer.from_preset(name, **arguments)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("graphormer-base", 47_085_377),
        ("sliceformer-base", 32_911_169),
        ("sliceformer-base-interleave", 32_911_169),
    ],
)
def test_the_papers_models_have_the_papers_size(name, count):
    assert parameters(name, vocabulary="graphormer") == count


@pytest.mark.parametrize("size", ["base", "small", "slim"])
def test_ours_have_the_parameters_of_graphormer(size):
    assert parameters(f"slicegraph-{size}") == pytest.approx(
        parameters(f"graphormer-{size}"), rel=0.04
    )


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("slicegraph-base", 42_985_633),
        ("slicegraph-small", 9_698_209),
        ("slicegraph-slim", 515_833),
        ("mini", 322_537),
        ("rings", 348_385),
        ("graphormer-base", 42_808_257),
        ("graphormer-small", 9_638_337),
        ("graphormer-slim", 497_361),
        ("sliceformer-base", 28_634_049),
        ("sliceformer-small", 6_486_465),
        ("sliceformer-slim", 341_841),
    ],
)
def test_the_table_of_presets_is_right(name, count):
    assert parameters(name) == count


def test_the_vocabulary_is_that_of_ogb():
    assert list(OGB_ATOMS) == get_atom_feature_dims()
    assert list(OGB_BONDS) == get_bond_feature_dims()
    config = preset("mini")
    assert (config.node_vocabulary, config.edge_vocabulary) == (OGB_ATOMS, OGB_BONDS)


@pytest.mark.parametrize(
    ("size", "numbers"),
    [("base", (12, 768, 32)), ("small", (6, 512, 32)), ("slim", (12, 80, 8))],
)
@pytest.mark.parametrize(
    ("family", "mixer"),
    [("slicegraph", "quantile_attn"), ("sliceformer", "sort_attn"), ("graphormer", "qkv")],
)
def test_sizes_and_mixers(family, size, numbers, mixer):
    config = preset(f"{family}-{size}")
    assert (config.num_layers, config.channels, config.heads) == numbers
    assert config.mixer == mixer


def test_the_quirks_of_graphormer_are_in_no_preset():
    for name in PRESETS:
        config = preset(name, vocabulary="graphormer")
        assert not config.empty_hops
        assert not config.in_degree_twice


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: preset("huge"), "unknown preset 'huge'"),
        (lambda: preset("mini", vocabulary="zinc"), "unknown vocabulary 'zinc'"),
        (lambda: preset("mini", width=3), "unknown field 'width'"),
        (lambda: preset("mini", task="ranking"), "task = 'ranking'"),
        (lambda: preset("mini", num_layers=0), "num_layers = 0"),
        (lambda: preset("mini", dropout=1.0), "dropout = 1.0"),
        (lambda: preset("mini", task="multiclass", num_classes=1), "num_classes = 1"),
        (lambda: GraphSliceformer(preset("mini", readout="max")), "'max'"),
        (lambda: preset("mini", mixer="no"), "'no'"),
        (lambda: preset("mini", mixer="none", local="none"), "'none' needs a local branch"),
        (lambda: preset("mini", rings=2), "rings = 2, expected 0, or at least 3"),
        (lambda: preset("mini", rings=6, node_dim=4), "rings = 6 needs categories"),
        (lambda: preset("mini", rings=6, task_level="node"), "expected 0 with task_level"),
        (lambda: preset("mini", rings=6, random_walk_pe=4), "expected 0 with random_walk_pe"),
    ],
)
def test_wrong_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_configuration_is_made_of_plain_values():
    config = GraphSliceformerConfig.from_dict({"node_vocabulary": [3, 4]})
    assert config.node_vocabulary == (3, 4)
    assert hash(config) == hash(GraphSliceformerConfig(node_vocabulary=(3, 4)))


# Sequences and images.

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


def parameters_of(name: str, mixer: str) -> int:
    kind = VisionSliceformer if name in VISION_PRESETS else SequenceSliceformer
    with torch.device("meta"):
        model = kind.from_preset(name, mixer)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", COUNTS)
def test_the_papers_sequence_models_have_the_papers_size(name):
    assert (parameters_of(name, "qkv"), parameters_of(name, "sort")) == COUNTS[name]


def test_tiny_imagenet_is_vit_s_16():
    counts = parameters_of("vit-tiny-imagenet", "qkv"), parameters_of("vit-tiny-imagenet", "sort")
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
    assert parameters_of(name, "qkv") - parameters_of(name, "sort") == saved


@pytest.mark.parametrize("name", MINI)
def test_small_models_differ_by_the_queries_and_keys_too(name):
    saved = 2 * MINI[name] * (64 * 64 + 64)
    assert parameters_of(name, "qkv") - parameters_of(name, "sort") == saved


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
