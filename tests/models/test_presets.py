"""Presets: sizes of the paper, and configurations that say what is wrong with them."""

import pytest
import torch
from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

from slicegraph.models import PRESETS, GraphSliceformer, GraphSliceformerConfig, preset
from slicegraph.models.config import OGB_ATOMS, OGB_BONDS


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


def test_ogb_tables_are_smaller():
    assert parameters("mini") < parameters("mini", vocabulary="graphormer")


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


def test_overrides():
    config = preset("mini", num_targets=3, order="interleave")
    assert (config.num_targets, config.order, config.channels) == (3, "interleave", 96)


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
        (lambda: GraphSliceformer(preset("mini", mixer="none")), "'none'"),
    ],
)
def test_wrong_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_configuration_is_made_of_plain_values():
    config = GraphSliceformerConfig.from_dict({"node_vocabulary": [3, 4]})
    assert config.node_vocabulary == (3, 4)
    assert hash(config) == hash(GraphSliceformerConfig(node_vocabulary=(3, 4)))
