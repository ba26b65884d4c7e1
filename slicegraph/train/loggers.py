"""Where else the log goes, besides log.csv: TensorBoard, or Weights & Biases."""

from pathlib import Path
from typing import Any

_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb"}


def logger_of(name: str, folder: Path) -> Any:
    """Lightning's logger "tensorboard" or "wandb", writing to the folder of a run."""
    from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

    try:
        if name == "tensorboard":
            return TensorBoardLogger(folder, name="", version="tensorboard")
        return WandbLogger(save_dir=folder, name=folder.name, project="slicegraph")
    except ModuleNotFoundError:
        raise ValueError(
            f"train: logger = {name!r} needs {_PACKAGES[name]}; pip install {_PACKAGES[name]}"
        ) from None
