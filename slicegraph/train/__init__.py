"""Training: a configuration in, a folder with the trained model out.

The module is also the function: `slicegraph.train(config)` is `slicegraph.train.train(config)`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slicegraph.train.config import TrainConfig

if TYPE_CHECKING:
    from slicegraph.train.result import RunResult
    from slicegraph.train.run import train

__all__ = ["RunResult", "TrainConfig", "train"]


def __getattr__(name: str) -> Any:
    """Lightning is imported when something is trained, not when settings are read."""
    if name == "train":
        from slicegraph.train.run import train

        return train
    if name == "RunResult":
        from slicegraph.train.result import RunResult

        return RunResult
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Train(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return __getattr__("train")(*arguments, **options)


sys.modules[__name__].__class__ = _Train
