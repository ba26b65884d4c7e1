"""Names that stand for code which is imported only when it is used.

Training on molecules imports nothing of :mod:`slicegraph.tasks`; a task by name, such as "digits",
is looked up here first.
"""

from importlib import import_module
from typing import Any

TASK_PRESETS = {
    "listops": "mini-listops",
    "text": "mini-text",
    "retrieval": "mini-retrieval",
    "image": "mini-pixels",
    "pathfinder": "mini-pathfinder",
    "pathx": "mini-pathx",
    "mnist": "mini-mnist",
    "digits": "mini-digits",
    "images": "mini-images",
    "imdb": "mini-reviews",
    "reviews": "mini-reviews",
    "acsf1": "mini-series",
    "osuleaf": "mini-series",
}
"""The tasks on sequences and images, each with its default preset."""

PREDICTORS = {
    "GraphSliceformer": "slicegraph.predict.predictor:MoleculePredictor",
    "SequenceSliceformer": "slicegraph.tasks.predictor:SequencePredictor",
    "VisionSliceformer": "slicegraph.tasks.predictor:VisionPredictor",
}
"""The models that can be loaded for prediction, each with its predictor as ``module:class``."""


def task_domain() -> Any:
    """Import :mod:`slicegraph.tasks.domain`: data, presets and models of the tasks."""
    return import_module("slicegraph.tasks.domain")


def predictor_class(model: str) -> Any:
    """Import the predictor of a model, given the name of the model's class."""
    if model not in PREDICTORS:
        raise ValueError(
            f"load: there is no predictor for a model of class {model!r}, only for "
            f"{', '.join(PREDICTORS)}; slicegraph.models.load(folder) loads it"
        )
    module, _, name = PREDICTORS[model].partition(":")
    return getattr(import_module(module), name)
