"""What the commands that use a trained model have in common."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slicegraph.predictor import MoleculePredictor


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model, where it runs and how much at once."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="the folder of a run or of a saved model, or a checkpoint")
    add("--batch-size", type=int, default=256, metavar="N", help="molecules at once (%(default)s)")
    add("--device", default="auto", help="cpu, cuda, cuda:1 ...; a GPU if there is one by default")


def load_model(args: argparse.Namespace) -> "MoleculePredictor":
    """The model that was asked for."""
    import torch

    from slicegraph.predictor import load
    from slicegraph.ranks import default_device

    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}, expected at least 1")
    name = default_device() if args.device == "auto" else args.device
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"--device {name} cannot be used: {reason}") from None
    return load(args.model, name)


def check_new_file(path: Path, force: bool) -> None:
    """Raises if a result would replace a file unasked, or cannot be a file."""
    if path.exists() and not path.is_file():
        raise ValueError(f"--out {path} is no regular file")
    if path.exists() and not force:
        raise ValueError(f"--out {path} exists already; --force replaces it")
    if not path.parent.is_dir():
        raise ValueError(f"--out {path}: there is no folder {path.parent}")
