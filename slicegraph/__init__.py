"""Graph learning that sorts instead of attending: Sliceformer layers for PyTorch Geometric."""

from importlib import import_module
from typing import Any

__all__ = ["MoleculeClassifier", "MoleculeRegressor", "__version__", "load", "train"]
__version__ = "0.1.0"

_SUBMODULES = (
    "analysis",
    "data",
    "estimators",
    "graphgym",
    "metrics",
    "models",
    "nn",
    "ops",
    "predict",
    "report",
    "tasks",
    "testing",
    "transforms",
    "vocabulary",
)


def __getattr__(name: str) -> Any:
    """Import `slicegraph.load` or a submodule when it is first used: `import slicegraph` alone
    does not import torch."""
    if name == "load":
        return import_module("slicegraph.predict").load_predictor
    if name in ("MoleculeClassifier", "MoleculeRegressor"):
        return getattr(import_module("slicegraph.estimators"), name)
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES])


class _Train:
    """The function `slicegraph.train(...)` with the contents of the package `slicegraph.train`.

    Importing a package binds its name in its parent once, when it is loaded for the first time. It
    is loaded below and the name is then bound to this object, which stays there whatever is
    imported later.
    """

    def __call__(self, config: Any = None, **options: Any) -> Any:
        """Train a model; see :func:`slicegraph.train.run.train`."""
        return self.train(config, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(_train_package, name)

    def __dir__(self) -> list[str]:
        return dir(_train_package)


_train_package = import_module("slicegraph.train")
train: Any = _Train()
