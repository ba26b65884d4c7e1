"""The model in a checkpoint of a run, which Lightning wrote, read without Lightning."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slicegraph.models.checkpoint import fill
from slicegraph.models.config import GraphSliceformerConfig
from slicegraph.models.graph_sliceformer import GraphSliceformer

PREFIX = "model."
"""What the tensors of the model are called by, in the ``state_dict`` of a run."""


def load_checkpoint(
    path: str | Path,
    device: str | torch.device = "cpu",
    model_class: type[GraphSliceformer] = GraphSliceformer,
) -> Any:
    """The model of a checkpoint, in evaluation mode.

    Its configuration is under ``hyper_parameters["model"]``. Only tensors and plain values are
    read: code that was put into the file is not run.

    Args:
        path: such as ``RUN/checkpoints/best.ckpt``.
        device: where to put the weights.
        model_class: what to make of it.
    """
    path = Path(path)
    config, weights = read_checkpoint(path)
    model = model_class(GraphSliceformerConfig.from_dict(config)).to(device)
    fill(model, weights, path)
    return model.eval()


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields of the configuration and the tensors of the model."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # a damaged file may raise anything
        first = str(error).partition("\n")[0]
        raise ValueError(f"load: {path} is no checkpoint of a run, or damaged ({first})") from None
    try:
        config, tensors = found["hyper_parameters"]["model"], found["state_dict"]
        weights = {
            name.removeprefix(PREFIX).replace("_orig_mod.", ""): value
            for name, value in tensors.items()
            if name.startswith(PREFIX)
        }
        return {name: value for name, value in config.items() if name != "model"}, weights
    except (KeyError, TypeError, AttributeError):
        raise ValueError(
            f"load: {path} is a checkpoint of something else: it has no hyper_parameters of a "
            "model and no state_dict"
        ) from None
