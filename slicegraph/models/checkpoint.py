"""A model as a folder: `config.json` and `model.safetensors`, and no pickle."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

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
    config = {"model": type(model).__name__, **dataclasses.asdict(values)}
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, folder / WEIGHTS_FILE)


def load(folder: str | Path, device: str | torch.device = "cpu") -> Any:
    """The model that was saved to a folder, in evaluation mode.

    Args:
        folder: a folder that ``model.save(folder)`` wrote.
        device: where to put the weights.

    Example:
        >>> model = GraphSliceformer.from_preset("mini")
        >>> model.save("mini")
        >>> load("mini").config == model.config
        True
    """
    from slicegraph.models import MODELS

    folder = Path(folder)
    if not (folder / CONFIG_FILE).is_file():
        raise FileNotFoundError(f"load: {folder} has no {CONFIG_FILE}, expected a saved model")
    config = json.loads((folder / CONFIG_FILE).read_text())
    if (name := config.pop("model", None)) not in MODELS:
        raise ValueError(
            f"load: {folder / CONFIG_FILE} is of model {name!r}, expected {', '.join(MODELS)}"
        )
    model_class, config_class = MODELS[name]
    model = model_class(config_class.from_dict(config)).to(device)
    weights = load_file(folder / WEIGHTS_FILE, device=str(device))
    dtypes = {value.dtype for value in weights.values() if value.is_floating_point()}
    if len(dtypes) == 1:
        model.to(dtypes.pop())
    model.load_state_dict(weights)
    return model.eval()
