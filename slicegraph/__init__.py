"""Graph learning that sorts instead of attending: Sliceformer layers for PyTorch Geometric."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`slicegraph.load` and `slicegraph.train`, imported when they are asked for: the package
    itself imports no torch."""
    if name == "load":
        from slicegraph.predictor import load

        return load
    if name == "train":
        return import_module("slicegraph.train")  # the module is the function, too
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
