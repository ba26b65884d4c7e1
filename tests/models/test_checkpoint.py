"""A saved model is the model that was saved."""

import json

import pytest
import torch
from models.small_graphs import random_graph

import slicegraph
from slicegraph.models import GraphSliceformer, load

SIZES = {"num_layers": 2, "channels": 16, "ffn_channels": 24, "heads": 4}


@pytest.mark.parametrize("mixer", ["sort_attn", "sort", "qkv"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("local", ["none", "gine"])
@torch.no_grad()
def test_a_loaded_model_predicts_the_same(tmp_path, mixer, dtype, local):
    overrides = {
        "mixer": mixer,
        "local": local,
        "order": "interleave",
        "readout": "quantiles",
        **SIZES,
    }
    model = GraphSliceformer.from_preset("mini", **overrides).to(dtype).eval()
    model.save(tmp_path / "new" / "folder")
    loaded = load(tmp_path / "new" / "folder")
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded(random_graph(6)), model(random_graph(6)))


def test_the_files_are_json_and_safetensors(tmp_path):
    GraphSliceformer.from_preset("mini", **SIZES).save(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model"] == "GraphSliceformer"
    assert config["channels"] == 16


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        load(tmp_path)


def test_an_unknown_model_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"model": "Perceptron"}')
    with pytest.raises(ValueError, match="'Perceptron'"):
        load(tmp_path)


def test_an_unknown_field_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"model": "GraphSliceformer", "depth": 3}')
    with pytest.raises(ValueError, match="'depth'"):
        load(tmp_path)


def test_an_unknown_name_at_the_top_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        _ = slicegraph.lode
