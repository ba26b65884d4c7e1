"""Training: from a configuration to a folder with the trained model.

``slicegraph.train(config)`` is short for ``slicegraph.train.train(config)``; see
:mod:`slicegraph` for how one name stands for both.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slicegraph.extras import needs

if TYPE_CHECKING:
    from slicegraph.train.config import TrainConfig
    from slicegraph.train.run import train
    from slicegraph.train.run_folder import RunResult

__all__ = ["RunResult", "TrainConfig", "train"]

_MODULES = {"RunResult": "run_folder", "TrainConfig": "config", "train": "run"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: reading settings does not import Lightning."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs(__name__, "mol", "train"):
        module = import_module(f"{__name__}.{_MODULES[name]}")
    return getattr(module, name)
