"""A saved model is the model that was saved."""

import json

import pytest
import torch
from models.small_graphs import random_graph
from support.small_models import write_checkpoint

import slicegraph
from slicegraph.models import GraphSliceformer, load
from slicegraph.models.base import find_model, read_config
from slicegraph.nn.mixer import MIXERS

SIZES = {"num_layers": 2, "channels": 16, "ffn_channels": 24, "heads": 4}


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_a_loaded_model_predicts_the_same(tmp_path, mixer, dtype):
    overrides = {"mixer": mixer, "order": "interleave", **SIZES}
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


@torch.no_grad()
def test_the_model_of_a_run_is_found(tmp_path):
    model = GraphSliceformer.from_preset("mini", **SIZES).eval()
    run = tmp_path / "run"
    checkpoint = write_checkpoint(run / "checkpoints" / "best.ckpt", model)
    assert find_model(run) == find_model(checkpoint) == checkpoint
    model.save(run / "model")
    assert find_model(run) == find_model(run / "model") == run / "model"
    for path in (run, run / "model", checkpoint):
        assert read_config(path)["channels"] == 16
        assert torch.equal(load(path)(random_graph(6)), model(random_graph(6)))


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no model in .*, expected the folder of"):
        find_model(tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(FileNotFoundError, match="has no model yet; go on with it"):
        find_model(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"model": "Perceptron"}', r"config.json is of model 'Perceptron', expected Graph"),
        ('{"model": "GraphSliceformer", "depth": 3}', "unknown field 'depth'"),
        ('{"model": "Graph', r"config.json is damaged"),
        ("[1]", r"config.json is damaged \(a list, expected an object\)"),
    ],
)
def test_a_wrong_configuration_is_named(tmp_path, config, message):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_an_unknown_name_at_the_top_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        _ = slicegraph.lode
