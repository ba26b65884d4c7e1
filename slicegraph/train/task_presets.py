"""The small model of each task of sequences or images, and how it is trained."""

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
"""The preset of a task unless another is asked for; the names of the tasks are its keys."""

_SMALL: dict[str, Any] = {
    "batch_size": 32,
    "epochs": 10,
    "lr": 1e-3,
    "end_lr": 1e-6,
    "weight_decay": 0.01,
    "clip": 1.0,
}
_TASK_RECIPES: dict[str, dict[str, Any]] = {
    "mini-digits": {"epochs": 30, "lr": 2e-3, "threads": 1},
    "mini-mnist": {"epochs": 10, "lr": 2e-3, "threads": 1},
    "mini-reviews": {"epochs": 4},
    "mini-text": {"epochs": 6},
    "mini-series": {"epochs": 60, "batch_size": 16},
}
_LARGE: dict[str, Any] = _SMALL | {"epochs": 20, "lr": 3e-4}
"""For the models of the paper, of which each has settings of its own there."""


def task_recipe(preset: str) -> dict[str, Any]:
    """How a preset of sequences or images is trained."""
    if preset in TASK_PRESETS.values():
        return _SMALL | _TASK_RECIPES.get(preset, {})
    return dict(_LARGE)
