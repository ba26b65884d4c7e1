"""One setting: its value from text or YAML, and what it may be."""

import math
from collections.abc import Callable
from dataclasses import Field
from typing import TYPE_CHECKING, Any

from slicegraph.train.task_presets import TASK_PRESETS

if TYPE_CHECKING:
    from slicegraph.train.config import TrainConfig

_CHOICES = {
    "split": ("random", "scaffold"),
    "metric": ("mae", "rmse", "rocauc", "ap", "acc"),
    "logger": ("csv", "tensorboard", "wandb"),
    "precision": ("32-true", "bf16-mixed", "16-mixed", "64-true"),
    "accelerator": ("auto", "cpu", "gpu", "cuda", "mps", "tpu"),
}
_KINDS = ("regression", "binary", "multiclass")
_LEAST = {
    "batch_size": 1,
    "accumulate": 1,
    "epochs": 1,
    "min_steps": 0,
    "max_steps": 1,
    "warmup_steps": 0,
    "end_lr": 0,
    "weight_decay": 0,
    "clip": 0,
    "flag_steps": 0,
    "flag_size": 0,
    "patience": 0,
    "seed": 0,
    "examples": 1,
    "split_seed": 0,
    "checkpoint_steps": 1,
    "nodes": 1,
    "workers": 0,
    "threads": 1,
}
_FOR_FILES = ("smiles", "targets", "split", "fractions", "split_seed", "task", "metric")
FILE_PREFIX, DEFAULT = "csv:", "mini"


def convert(setting: Field, value: Any) -> Any:
    """The value in the type of the field; text is read, as from a command line."""
    kind = setting.type.__name__ if isinstance(setting.type, type) else str(setting.type)
    if value is None and "None" in kind:
        return None
    for name, read in _READERS.items():
        if kind.startswith(name):
            try:
                return read(value)
            except (ValueError, TypeError):
                raise ValueError(
                    f"train: {setting.name} = {value!r}, expected {_EXPECTED[name]}"
                ) from None
    raise TypeError(f"train: the setting {setting.name} has the unknown type {kind}")


def check_settings(config: "TrainConfig") -> None:
    """Raises for a value that cannot be, and for values that cannot be together."""
    for name, choices in _CHOICES.items():
        value = getattr(config, name)
        if value is not None and value not in choices:
            raise ValueError(f"train: {name} = {value!r}, expected {', '.join(choices)}")
    for name, least in _LEAST.items():
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise ValueError(f"train: {name} = {value}, expected at least {least}")
    if config.lr is not None and not config.lr > 0:
        raise ValueError(f"train: lr = {config.lr}, expected more than 0")
    for name in ("ema", "dropout", "attention_dropout"):
        value = getattr(config, name)
        if value is not None and not 0 <= value < 1:
            raise ValueError(f"train: {name} = {value}, expected 0 or more and less than 1")
    if config.devices != "auto" and not (config.devices.isdigit() and int(config.devices)):
        raise ValueError(f"train: devices = {config.devices!r}, expected a number or auto")
    if config.epochs is not None and config.max_steps is not None:
        raise ValueError("train: epochs and max_steps are given, expected one of them")
    if config.task in TASK_PRESETS:
        _check_named_task(config)
        return
    if config.task is not None and config.task not in _KINDS:
        known = ", ".join([*TASK_PRESETS, *_KINDS])
        raise ValueError(f"train: there is no task {config.task!r}; there are {known}")
    if config.examples is not None:
        raise ValueError("train: examples is for a task by name, such as listops")
    if not config.is_table:
        for name in _FOR_FILES:
            if getattr(config, name) is not None:
                raise ValueError(
                    f"train: {name} is for a file of your own, data = {FILE_PREFIX}PATH"
                )


def _check_named_task(config: "TrainConfig") -> None:
    for name in (*_FOR_FILES, "unit", "flag_steps"):
        if name != "task" and getattr(config, name):
            raise ValueError(f"train: {name} is for molecules, not for task {config.task!r}")
    if config.is_table:
        raise ValueError(f"train: {config.data} is for molecules, not for task {config.task!r}")


def _integer(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(number := float(value)):
        raise ValueError
    return number


def _text(value: Any) -> str:
    if isinstance(value, dict | list | tuple | bool) or value is None:
        raise ValueError
    return str(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _several(one: Callable[[Any], Any]) -> Callable[[Any], tuple]:
    def read(value: Any) -> tuple:
        parts = value if isinstance(value, list | tuple) else str(value).split(",")
        return tuple(one(part.strip() if isinstance(part, str) else part) for part in parts)

    return read


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    return dict(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "tuple[str": _several(_text),
    "tuple[float": _several(_number),
    "dict": _mapping,
    "bool": _switch,
    "int": _integer,
    "float": _number,
    "str": _text,
}
_EXPECTED = {
    "tuple[str": "names with commas between them",
    "tuple[float": "numbers with commas between them",
    "dict": "names and values",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
}
