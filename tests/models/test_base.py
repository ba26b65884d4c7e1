"""A saved model is the model that was saved."""

import json

import pytest
import torch
from models.small_graphs import random_graph
from support.small_models import write_checkpoint

import slicegraph
from slicegraph.models import MODELS, GraphSliceformer, load
from slicegraph.models.base import find_model, read_config
from slicegraph.nn.mixer import MIXERS

SIZES = {"num_layers": 2, "channels": 16, "ffn_channels": 24, "heads": 4}


@pytest.mark.parametrize("mixer", [*MIXERS, "rings"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_a_loaded_model_predicts_the_same(tmp_path, mixer, dtype):
    overrides = {"mixer": mixer, "order": "interleave", **SIZES}
    name = "rings" if mixer == "rings" else "mini"
    overrides = SIZES if mixer == "rings" else overrides
    model = GraphSliceformer.from_preset(name, **overrides).to(dtype).eval()
    model.save(tmp_path / "new" / "folder")
    loaded = load(tmp_path / "new" / "folder")
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded(random_graph(6)), model(random_graph(6)))


@torch.no_grad()
def test_a_file_of_half_precision_is_half_the_size_and_computes_in_single(tmp_path):
    model = GraphSliceformer.from_preset("mini", **SIZES).eval()
    model.save(tmp_path / "full")
    model.save(tmp_path / "half", half=True)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "full")]
    assert sizes[0] < 0.6 * sizes[1]
    loaded = load(tmp_path / "half")
    assert {value.dtype for value in loaded.parameters()} == {torch.float32}
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value.half().float())


def test_the_files_are_json_safetensors_and_a_card(tmp_path):
    GraphSliceformer.from_preset("mini", **SIZES).save(tmp_path)
    names = ["README.md", "config.json", "model.safetensors"]
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model"] == "GraphSliceformer"
    assert config["channels"] == 16


def test_the_card_has_what_the_model_knows(tmp_path):
    named = {"target_names": ("gap", "mu"), "num_targets": 2, "unit": "eV"}
    model = GraphSliceformer.from_preset("mini", **SIZES, **named)
    model.save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    parameters = f"| parameters | {sum(p.numel() for p in model.parameters()):,} |"
    texts = ["| predicts | gap, mu |", "| unit | eV |", parameters, f"torch {torch.__version__}"]
    assert [text for text in [*texts, "are not recorded"] if text not in card] == []


def test_a_card_of_the_user_is_kept(tmp_path):
    model = GraphSliceformer.from_preset("mini", **SIZES)
    model.save(tmp_path)
    GraphSliceformer.from_preset("mini", **SIZES, unit="eV").save(tmp_path)
    assert "| unit | eV |" in (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text("# Mine\n")
    model.save(tmp_path)
    assert (tmp_path / "README.md").read_text() == "# Mine\n"


INTERLEAVE = {"mixer": "sort", "order": "interleave"}
UNITS = {"target_mean": (1.5,), "target_std": (2.0,)}
META = {
    **{f"GraphSliceformer {mixer}": ("mini", {"mixer": mixer, **UNITS}) for mixer in MIXERS},
    "GraphSliceformer interleave": ("mini", INTERLEAVE),
    "SequenceSliceformer": ("mini-text", {"order": "interleave", "positions": "sinusoidal"}),
    "VisionSliceformer": ("mini-digits", {"order": "interleave"}),
}
INPUTS = {
    "GraphSliceformer": random_graph(6),
    "SequenceSliceformer": torch.arange(12).view(2, 6),
    "VisionSliceformer": torch.linspace(-1, 1, 128).view(2, 1, 8, 8),
}


@pytest.mark.parametrize("name", META)
@pytest.mark.parametrize("empty", [False, True], ids=["assign", "to_empty"])
@torch.no_grad()
def test_a_model_from_the_meta_device_is_whole_after_loading_weights(name, empty):
    kind, (preset, overrides) = name.split()[0], META[name]
    make, x = MODELS[kind][0].from_preset, INPUTS[kind]
    model = make(preset, **SIZES, **overrides).eval()
    with torch.device("meta"):
        other = make(preset, **SIZES, **overrides).eval()
    if empty:
        other.to_empty(device="cpu").load_state_dict(model.state_dict())
    else:
        other.load_state_dict(model.state_dict(), assign=True)
    assert not any(value.is_meta for value in [*other.parameters(), *other.buffers()])
    assert torch.equal(other(x), model(x))


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


@pytest.mark.parametrize("kind", ["GraphSliceformer", "SequenceSliceformer", "VisionSliceformer"])
@torch.no_grad()
def test_a_mixin_of_the_hugging_face_hub_reads_and_writes_the_same_files(tmp_path, kind):
    hub = pytest.importorskip("huggingface_hub")
    saved_class, x = MODELS[kind][0], INPUTS[kind]

    class OnTheHub(saved_class, hub.PyTorchModelHubMixin, license="mit"):
        def __init__(self, config: MODELS[kind][1]) -> None:
            super().__init__(config)

    preset = {"GraphSliceformer": "mini", "SequenceSliceformer": "mini-text"}
    model = saved_class.from_preset(preset.get(kind, "mini-digits"), **SIZES).eval()
    model.save(tmp_path / "ours")
    theirs = OnTheHub.from_pretrained(tmp_path / "ours").eval()
    assert theirs.config == model.config
    assert torch.equal(theirs(x), model(x))
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load(tmp_path / "theirs")
    assert type(loaded) is saved_class
    assert torch.equal(loaded(x), model(x))
