"""Graph learning that sorts instead of attending: Sliceformer layers for PyTorch Geometric."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`slicegraph.load`, imported when it is asked for: the package itself imports no torch."""
    if name == "load":
        from slicegraph.models import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
