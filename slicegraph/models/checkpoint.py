"""A model as a folder: `config.json` and `model.safetensors`, and no pickle."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

Choice = Callable[[type[torch.nn.Module]], type[torch.nn.Module]]
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


def save(model: torch.nn.Module, folder: str | Path) -> None:
    """Writes the configuration and the weights of a model.

    Args:
        model: a model of :mod:`slicegraph.models`, with a ``config``.
        folder: the folder to write to; created if it does not exist.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    values: Any = model.config
    config = {"model": model_name(model), **dataclasses.asdict(values)}
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, folder / WEIGHTS_FILE)


def load(
    folder: str | Path,
    device: str | torch.device = "cpu",
    choose: Choice | None = None,
) -> Any:
    """The model that was saved to a folder, in evaluation mode.

    Args:
        folder: a folder that ``model.save(folder)`` wrote.
        device: where to put the weights.
        choose: gives the class to make for that of the saved model: the same, or a subclass.

    Example:
        >>> model = GraphSliceformer.from_preset("mini")
        >>> model.save("mini")
        >>> load("mini").config == model.config
        True
    """
    folder = Path(folder)
    model = new_model(read_config(folder), folder / CONFIG_FILE, choose).to(device)
    fill(model, _read_weights(folder / WEIGHTS_FILE, device), folder / WEIGHTS_FILE)
    return model.eval()


def new_model(
    config: dict[str, Any],
    path: Path,
    choose: Choice | None = None,
) -> torch.nn.Module:
    """A model, not yet with its weights, of a configuration with the name of the model in it."""
    from slicegraph.models import MODELS

    fields = dict(config)
    if (name := fields.pop("model", None)) not in MODELS:
        raise ValueError(f"load: {path} is of model {name!r}, expected {', '.join(MODELS)}")
    saved_class, config_class = MODELS[name]
    return (choose(saved_class) if choose else saved_class)(config_class.from_dict(fields))


def fill(model: torch.nn.Module, weights: dict[str, torch.Tensor], path: Path) -> None:
    """Gives a model its weights, in the type of number that they have."""
    dtypes = {value.dtype for value in weights.values() if value.is_floating_point()}
    if len(dtypes) == 1:
        model.to(dtypes.pop())
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"load: {path} does not fit its configuration: {error}") from None


def model_name(model: torch.nn.Module) -> str:
    """The name under which a model, or a subclass of it, is known."""
    from slicegraph.models import MODELS

    known = (name for name, (kind, _) in MODELS.items() if isinstance(model, kind))
    return next(known, type(model).__name__)


def read_config(folder: Path) -> dict[str, Any]:
    """What `config.json` says; one that cannot be read is refused by name."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(f"load: {folder} has no {CONFIG_FILE}, expected a saved model")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"load: {path} is damaged ({error})") from None
    if not isinstance(config, dict):
        raise ValueError(f"load: {path} is damaged (no object, but {type(config).__name__})")
    return config


def _read_weights(path: Path, device: str | torch.device) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"load: {path.parent} has no {path.name}, expected a saved model")
    try:
        return load_file(path, device=str(device))
    except SafetensorError as error:
        raise ValueError(f"load: {path} is damaged ({error})") from None
