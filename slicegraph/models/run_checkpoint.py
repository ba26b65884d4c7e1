"""The model in a checkpoint of a run, which Lightning wrote, read without Lightning."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slicegraph.models.checkpoint import Choice, fill, new_model
from slicegraph.torch_damage import DAMAGE

PREFIX = "model."
"""What the tensors of the model are called by, in the ``state_dict`` of a run."""


def load_checkpoint(
    path: str | Path,
    device: str | torch.device = "cpu",
    choose: Choice | None = None,
) -> Any:
    """The model of a checkpoint, in evaluation mode.

    Its configuration is under ``hyper_parameters["model"]``. Only tensors and plain values are
    read: code that was put into the file is not run.

    Args:
        path: such as ``RUN/checkpoints/best.ckpt``.
        device: where to put the weights.
        choose: what to make of it, given the class of the saved model: that, or a subclass.
    """
    path = Path(path)
    config, weights = read_checkpoint(path)
    model = new_model(config, path, choose).to(device)
    fill(model, weights, path)
    return model.eval()


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields of the configuration and the tensors of the model."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGE:
        raise ValueError(
            f"load: {path} is no checkpoint of a run, or damaged; name the folder of a run or of a "
            "saved model, or a checkpoint"
        ) from None
    try:
        config, tensors = found["hyper_parameters"]["model"], found["state_dict"]
        weights = {
            name.removeprefix(PREFIX).replace("_orig_mod.", ""): value
            for name, value in tensors.items()
            if name.startswith(PREFIX)
        }
        return {"model": "GraphSliceformer", **config}, weights
    except (KeyError, TypeError, AttributeError):
        raise ValueError(
            f"load: {path} is a checkpoint of something else: it has no hyper_parameters of a "
            "model and no state_dict"
        ) from None
