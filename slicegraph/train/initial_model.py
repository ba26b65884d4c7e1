"""The model at the start of a run: drawn at random, or from one that was trained before."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only

from slicegraph.models import GraphSliceformer, preset
from slicegraph.models.checkpoint import CONFIG_FILE, read_config
from slicegraph.train.config import TrainConfig
from slicegraph.train.data import MoleculeData
from slicegraph.train.saved_model import load_saved
from slicegraph.train.sequence_data import SequenceData
from slicegraph.train.setting import DEFAULT
from slicegraph.train.task_model import fields_of_task, preset_model

_NOT_ENCODER = (
    *("num_targets", "num_classes", "task", "target_names", "class_names", "unit", "target_mean"),
    *("target_std", "words", "dropout", "attention_dropout", "input_dropout"),
)
"""The fields that may be others than those of the model that a run starts from."""


def initial_model(config: TrainConfig, data: MoleculeData | SequenceData) -> Any:
    """The model for these settings and this data set."""
    if isinstance(data, SequenceData):
        fields = _with_settings(config, fields_of_task(config, data.dataset))
        if config.init is None:
            return preset_model(config.preset, fields)
        return _from_folder(Path(config.init), fields, config.model)
    fields = _fields(config, data)
    if config.init is None:
        vocabulary = _vocabulary(data)
        return GraphSliceformer(preset(config.preset or DEFAULT, **(vocabulary | fields)))
    return _from_folder(Path(config.init), fields, config.model)


def _fields(config: TrainConfig, data: MoleculeData) -> dict[str, Any]:
    """What the data and the user decide about the model, whatever it starts from."""
    task = data.dataset.task
    fields: dict[str, Any] = {
        "num_targets": task.num_targets,
        "task": task.kind,
        "target_names": task.target_names,
        "unit": task.unit if config.unit is None else config.unit,
        "target_mean": None,
        "target_std": None,
    }
    if task.kind == "multiclass":
        fields["num_classes"] = task.num_classes
    if task.kind == "regression" and config.standardise:
        fields["target_mean"], fields["target_std"] = data.mean_and_deviation()
    return _with_settings(config, fields)


def _with_settings(config: TrainConfig, fields: dict[str, Any]) -> dict[str, Any]:
    """What the data decides, and what the user does; nothing is decided by both."""
    for name, value in config.model.items():
        if name in fields and value != fields[name]:
            raise ValueError(f"train: model.{name} is decided by the data, not by a setting")
    for name in ("dropout", "attention_dropout"):
        if (value := getattr(config, name)) is not None:
            fields[name] = value
    return fields | config.model


def _vocabulary(data: MoleculeData) -> dict[str, Any]:
    meta = data.dataset.store.meta
    return {
        "node_vocabulary": tuple(meta["atom_vocabulary"]),
        "edge_vocabulary": tuple(meta["bond_vocabulary"]) or None,
    }


def _from_folder(path: Path, fields: dict[str, Any], given: dict[str, Any]) -> Any:
    if _is_transformers(path):
        return GraphSliceformer.from_huggingface(path, **fields).train()
    old = load_saved(path)
    if not set(fields) <= {each.name for each in dataclasses.fields(old.config)}:
        raise ValueError(
            f"train: {path} is a {type(old).__name__}, which is for other data than this"
        )
    model = type(old)(type(old.config)(**(dataclasses.asdict(old.config) | fields)))
    _copy_weights(old, model, path, given)
    if fields.get("words") and not old.config.words:
        say(
            f"init: {path} was saved without its words; what it has learned of them is of use only "
            "if they were found in the same texts"
        )
    return model


def _is_transformers(path: Path) -> bool:
    found = (path / CONFIG_FILE).is_file()
    return found and read_config(path).get("model_type") == "graphormer"


@torch.no_grad()
def _copy_weights(old: Any, new: Any, path: Path, given: dict[str, Any]) -> None:
    weights, wanted = old.state_dict(), new.state_dict()
    drawn = []
    for name, tensor in wanted.items():
        if name in weights and weights[name].shape == tensor.shape:
            tensor.copy_(weights[name])
        elif "head." in name:
            drawn.append(name)
        else:
            raise ValueError(_misfit(old.config, new.config, path, given))
    if drawn:
        say(f"init: the head of {path} has another size and is drawn anew")


def _misfit(old: Any, new: Any, path: Path, given: dict[str, Any]) -> str:
    """What is different about the encoders, and which of it the user has asked for."""
    before, now = dataclasses.asdict(old), dataclasses.asdict(new)
    differ = [name for name in now if now[name] != before[name] and name not in _NOT_ENCODER]
    text = ", ".join(
        f"{name}: {before[name]!r:.40} in it, {now[name]!r:.40} here" for name in differ
    )
    what, remedy = "task", "start from a model of such data, or leave out init"
    if set(differ) <= set(given):
        what, remedy = "settings", "leave out the settings of the model that differ"
    return f"train: the model of {path} does not fit the {what} ({text}); {remedy}"


@rank_zero_only
def say(text: str) -> None:
    """Prints on one rank only."""
    print(text, flush=True)
