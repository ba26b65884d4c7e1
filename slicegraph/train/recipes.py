"""How each preset is trained, unless told otherwise."""

from typing import TYPE_CHECKING, Any

from slicegraph.train.task_presets import TASK_PRESETS, task_recipe

if TYPE_CHECKING:
    from slicegraph.train.config import TrainConfig

PAPER: dict[str, Any] = {
    "batch_size": 256,
    "max_steps": 1_000_000,
    "warmup_steps": 60_000,
    "lr": 2e-4,
    "end_lr": 1e-9,
    "weight_decay": 0.0,
    "clip": 5.0,
}
"""The settings of the Sliceformer and Graphormer papers on PCQM4M."""

MINI: dict[str, Any] = {
    "batch_size": 100,
    "epochs": 20,
    "min_steps": 1_800,
    "lr": 1.5e-3,
    "end_lr": 1e-6,
    "weight_decay": 0.01,
    "clip": 5.0,
    "threads": 1,  # its matrices are too small to share; waiting for one another costs more
}
"""For a small model and ten thousand molecules, in minutes; fewer molecules get more epochs."""

OURS: dict[str, Any] = {
    "batch_size": 256,
    "epochs": 75,
    "min_steps": 3_000,
    "end_lr": 1e-6,
    "weight_decay": 0.01,
    "clip": 5.0,
}
"""For `slicegraph-*`: on PCQM4M the molecules of the papers' updates, on a table what it needs."""

_LEARNING_RATES = {"slicegraph-slim": 1e-3, "slicegraph-small": 3e-4, "slicegraph-base": 2e-4}
_PATIENCE_OF_FILES = 50


def recipe(config: "TrainConfig") -> dict[str, Any]:
    """The values of the settings that are None; those that say how long only if none does."""
    if config.task in TASK_PRESETS:
        values = task_recipe(config.preset or "")
    else:
        values = _of_molecules(config.preset)
    values["patience"] = _PATIENCE_OF_FILES if config.is_table else 0
    if config.epochs is not None or config.max_steps is not None:
        for name in ("epochs", "max_steps", "warmup_steps", "min_steps"):
            values.pop(name, None)
    return values


def _of_molecules(preset: str | None) -> dict[str, Any]:
    if preset == "mini":
        return dict(MINI)
    if preset in _LEARNING_RATES:
        return OURS | {"lr": _LEARNING_RATES[preset]}
    return dict(PAPER)
