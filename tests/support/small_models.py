"""Small models with random weights, saved to folders."""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from slicegraph.models.base import model_name
from slicegraph.predict.predictor import MoleculePredictor

SIZES = {"num_layers": 2, "channels": 16, "ffn_channels": 16, "heads": 4}


def small_model(preset: str = "mini", seed: int = 0, **overrides: Any) -> MoleculePredictor:
    """A model whose weights are large enough that different molecules differ."""
    torch.manual_seed(seed)
    model = MoleculePredictor.from_preset(preset, **{**SIZES, **overrides})
    assert isinstance(model, MoleculePredictor)
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() > 1:
                value.normal_(std=0.3)
    return model.eval()


def save_model(folder: Path, **overrides: Any) -> Path:
    """The folder of a saved model that predicts a gap in eV, unless told otherwise."""
    named = {"target_names": ("homolumogap",), "unit": "eV"}
    small_model(**{**named, **overrides}).save(folder)
    return folder


def write_checkpoint(path: Path, model: Any, **extra: Any) -> Path:
    """What Lightning saves of a run, in plain values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    config = {"model": model_name(model), **dataclasses.asdict(model.config)}
    torch.save({"state_dict": state, "hyper_parameters": {"model": config}, **extra}, path)
    return path
