"""The models and budgets of the tasks, which are the same for every mixer of a task."""

from dataclasses import dataclass
from typing import Any

COMMON: dict[str, Any] = {
    "batch_size": 32,
    "lr": 1e-3,
    "end_lr": 1e-6,
    "weight_decay": 0.01,
    "clip": 1.0,
    "accelerator": "cpu",
}

BUDGETS: dict[str, dict[str, Any]] = {
    "digits": {"preset": "mini-digits", "epochs": 15, "lr": 2e-3},
    "mnist": {"preset": "mini-mnist", "epochs": 5, "lr": 2e-3},
    "acsf1": {"preset": "mini-series", "model": {"num_layers": 2}, "epochs": 15, "batch_size": 8},
    "imdb": {
        "preset": "text-imdb",
        "model": {"num_layers": 2, "channels": 64, "ffn_channels": 256, "heads": 4, "dropout": 0.1},
        "max_steps": 400,
    },
    "text": {"preset": "mini-text", "max_steps": 300},
    "listops": {"preset": "mini-listops", "model": {"num_layers": 2}, "max_steps": 1500},
}
"""The settings of `slicegraph.train` for each task; the epochs or updates are the budget."""

SEEDS = {"digits": 3, "mnist": 3, "acsf1": 3, "imdb": 3, "text": 3}
"""The default number of seeds, from 0 on; 1 for the other tasks."""

EXAMPLES = {"listops": 20_000}
"""The number of generated examples."""

MIXERS: dict[str, dict[str, str]] = {
    "ascending": {"mixer": "sort", "order": "ascending"},
    "interleave": {"mixer": "sort", "order": "interleave"},
    "max_exchange": {"mixer": "sort", "order": "max_exchange"},
    "qkv": {"mixer": "qkv"},
}
"""The rows of the table, with the model settings of each."""

_TOY = {"num_layers": 1, "channels": 16, "ffn_channels": 16, "heads": 2}
_TOY_LENGTH, _TOY_EXAMPLES = 32, 40


@dataclass(frozen=True)
class Run:
    """One training of the table.

    Args:
        task: a key of ``BUDGETS``.
        mixer: a key of ``MIXERS``.
        seed: the seed of weights, order of the samples and dropout.
        settings: the settings of `slicegraph.train`, except the seed, the mixer and the folders.
    """

    task: str
    mixer: str
    seed: int
    settings: dict[str, Any]


def settings_of(task: str, threads: int, quick: bool = False) -> dict[str, Any]:
    """Return the settings of all runs of a task; quick runs train a toy for two updates."""
    settings = COMMON | {"task": task, "threads": threads, "model": {}} | BUDGETS[task]
    if task in EXAMPLES:
        settings["examples"] = _TOY_EXAMPLES if quick else EXAMPLES[task]
    if quick:
        settings.pop("epochs", None)
        sequences = settings["preset"] not in ("mini-digits", "mini-mnist")
        toy = _TOY | ({"max_length": _TOY_LENGTH} if sequences else {})
        settings |= {"max_steps": 2, "model": toy}
    return settings


def runs_of(
    task: str, mixers: list[str], seeds: int | None, threads: int, quick: bool = False
) -> list[Run]:
    """Return the runs of a task, seed by seed."""
    count = seeds or (1 if quick else SEEDS.get(task, 1))
    settings = settings_of(task, threads, quick)
    return [Run(task, mixer, seed, settings) for seed in range(count) for mixer in mixers]


def with_mixer(settings: dict[str, Any], mixer: str) -> dict[str, Any]:
    """Return the settings with the mixer of a row of the table."""
    return settings | {"model": settings["model"] | MIXERS[mixer]}
