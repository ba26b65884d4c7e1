"""Where else the log goes, besides log.csv: TensorBoard, or Weights & Biases."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

_PACKAGES = {"csv": (), "tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",)}


def check_logger(name: str) -> None:
    """Raises if the package that a logger needs is not installed."""
    packages = _PACKAGES[name]
    if packages and not any(map(find_spec, packages)):
        raise ValueError(
            f"train: logger = {name!r} needs {packages[0]}; pip install {packages[0]}, or leave "
            "out logger"
        )


def logger_of(name: str, folder: Path) -> Any:
    """Lightning's logger "tensorboard" or "wandb", writing to the folder of a run."""
    from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

    if name == "tensorboard":
        return TensorBoardLogger(folder, name="", version="tensorboard")
    return WandbLogger(save_dir=folder, name=folder.name, project="slicegraph")
