"""Settings: YAML and command line in, refused by name if they cannot be."""

from dataclasses import fields

import pytest
import torch

from slicegraph.cli.train import _merged
from slicegraph.models import PRESETS
from slicegraph.train import TrainConfig
from slicegraph.train.config import read_yaml
from slicegraph.train.module import compiles


def test_a_configuration_comes_back_from_its_yaml(tmp_path):
    config = TrainConfig(
        data="csv:my table.csv",
        targets=("log S", "gap"),
        fractions=(0.5, 0.25, 0.25),
        model={"mixer": "qkv", "num_layers": 2},
        lr=1e-5,
        compile=True,
    )
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    assert TrainConfig.read(path) == config
    assert list(read_yaml(path)) == [field.name for field in fields(TrainConfig)]


def test_every_help_text_gives_the_default():
    # The title of the group of training settings says that the preset chooses them.
    for field in fields(TrainConfig):
        if field.default is None and field.metadata["group"] != "training":
            assert "(default: " in field.metadata["help"], field.name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate": 1}, "no setting 'learning_rate'"),
        ({"lr": "fast"}, "lr = 'fast', expected a number"),
        ({"lr": 0}, "lr = 0"),
        ({"lr": float("nan")}, "lr = nan"),
        ({"batch_size": 2.5}, "batch_size = 2.5, expected a whole number"),
        ({"batch_size": 0}, "batch_size = 0, expected at least 1"),
        ({"epochs": 3, "max_steps": 5}, "epochs and max_steps"),
        ({"batch_size": 8, "device_batch_size": 4}, "batch_size and device_batch_size are given"),
        ({"train_splits": "train,valid", "patience": 3}, "patience = 3 needs the valid split"),
        ({"dropout": 1.0}, "dropout = 1.0"),
        ({"devices": "-2"}, "devices = '-2'"),
        ({"compile": "yes"}, "compile = 'yes', expected true or false"),
        ({"model": "big"}, "model = 'big'"),
        ({"data": ["mini"]}, "data = "),
        ({"targets": ("gap",)}, "targets is for a file of your own"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig.from_dict(values)


@pytest.mark.parametrize("text", ["- a\n- b", "just text", "a: [", "1: 2"])
def test_a_file_without_settings_is_refused_by_name(tmp_path, text):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"odd\.yaml"):
        read_yaml(path)


def test_numbers_may_be_text_as_yaml_reads_1e_3():
    assert TrainConfig.from_dict({"lr": "1e-3", "batch_size": "32"}).lr == 1e-3


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("slicegraph")])
def test_our_presets_are_trained_as_long_as_their_table_needs(name):
    config = TrainConfig(data="csv:small.csv", preset=name).resolved()
    assert (config.epochs, config.max_steps, config.warmup_steps) == (75, None, None)
    assert config.patience == 50
    assert 2e-4 <= config.lr <= 1e-3


def test_presets_of_the_paper_have_its_settings_unless_epochs_are_given():
    paper = TrainConfig(data="pcqm4m-v2", preset="sliceformer-base").resolved()
    assert (paper.lr, paper.warmup_steps, paper.max_steps) == (2e-4, 60_000, 1_000_000)
    assert (paper.end_lr, paper.batch_size, paper.clip) == (1e-9, 256, 5.0)
    config = TrainConfig(preset="sliceformer-base", epochs=3).resolved()
    assert (config.epochs, config.max_steps, config.warmup_steps) == (3, None, None)


def test_without_a_preset_and_data_mini_is_trained_on_mini():
    config = TrainConfig().resolved()
    assert (config.preset, config.data, config.min_steps) == ("mini", "mini", 1_800)
    assert config.resolved() == config
    assert TrainConfig(epochs=3).resolved().min_steps is None


def test_a_flag_overrides_the_file_and_the_other_way_to_say_how_long():
    file = {"lr": 1.0, "max_steps": 10, "min_steps": 5, "model": {"heads": 2, "mixer": "attn"}}
    merged = _merged(file, {"epochs": 3, "model": {"mixer": "qkv"}})
    config = TrainConfig.from_dict(merged)
    assert (config.lr, config.epochs, config.max_steps, config.min_steps) == (1.0, 3, None, None)
    assert config.model == {"heads": 2, "mixer": "qkv"}


@pytest.mark.parametrize(
    ("asked", "device", "expected"),
    [(None, "cuda", True), (None, "cpu", False), (False, "cuda", False), (True, "cpu", True)],
)
def test_a_run_compiles_on_cuda_unless_told_otherwise(asked, device, expected, monkeypatch):
    monkeypatch.setattr("slicegraph.train.module.find_spec", lambda name: object())
    config = TrainConfig(data="csv:table.csv", compile=asked)
    assert compiles(config, torch.device(device)) == expected
    noisy = TrainConfig(data="csv:table.csv", compile=asked, flag_steps=1)
    assert compiles(noisy, torch.device(device)) == bool(asked)
