"""What the commands that use a trained model have in common."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slicegraph.predictor import MoleculePredictor


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model, where it runs and how much at once."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="the folder of a run or of a saved model, or a checkpoint")
    add("--batch-size", type=int, default=256, metavar="N", help="samples at once (%(default)s)")
    add("--device", default="auto", help="cpu, cuda, cuda:1 ...; a GPU if there is one by default")


def load_molecule_model(args: argparse.Namespace) -> "MoleculePredictor":
    """The model that was asked for; raises if it takes something else than molecules."""
    from slicegraph.predictor import MoleculePredictor

    model = load_model(args)
    if not isinstance(model, MoleculePredictor):
        raise ValueError(
            f"{args.model} is a model of {model.takes}, not of molecules; in Python, "
            f"slicegraph.load({args.model!r}).predict takes them, and `slicegraph evaluate` "
            "scores it on its task"
        )
    return model


def load_model(args: argparse.Namespace) -> Any:
    """The model that was asked for, of any kind."""
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
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"--out {path}: the folder {path.parent} may not be written to")
