"""The rows of the comparison, and their common budget."""

from dataclasses import dataclass
from typing import Any

from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS

SIZE: dict[str, Any] = {"num_layers": 5, "channels": 96, "ffn_channels": 96, "heads": 8}
PLAIN: dict[str, Any] = {"local": "none", "readout": "token"}
LOCAL: dict[str, Any] = {"local": "gine", "readout": "quantiles"}

_PAPER = SIZE | PLAIN | {"mixer": "sort_attn"}
_QKV = SIZE | PLAIN | {"mixer": "qkv"}
_OURS = SIZE | LOCAL | {"mixer": "quantile_attn"}


def _wide(channels: int) -> dict[str, Any]:
    return {"channels": channels, "ffn_channels": channels}


OURS: dict[str, dict[str, Any]] = {
    "graphormer": _QKV,
    "graphormer, 128 wide": _QKV | _wide(128),
    "sort_attn": _PAPER,
    "sort_attn, interleave": _PAPER | {"order": "interleave"},
    "sort_attn, max_exchange": _PAPER | {"order": "max_exchange"},
    "sort_attn, pivot": _PAPER | {"align": "pivot"},
    "attn_plus_sort": SIZE | PLAIN | {"mixer": "attn_plus_sort"},
    "sort": SIZE | PLAIN | {"mixer": "sort"},
    "attn": SIZE | PLAIN | {"mixer": "attn"},
    "quantile_attn + local": _OURS,
    "quantile_attn + local, 112 wide": _OURS | _wide(112),
    "sort_attn + local": _PAPER | LOCAL,
    "attn + local": SIZE | LOCAL | {"mixer": "attn"},
    "graphormer + local": _QKV | LOCAL,
}
"""The rows that are our models, with the fields of their configuration."""

OUTSIDE: dict[str, dict[str, Any]] = {
    "GPS (PyG)": {"kind": "gps", "channels": 76, "num_layers": 5, "heads": 4},
    "GINE (PyG)": {"kind": "gine", "channels": 168, "num_layers": 5},
}
"""The rows that are stacks of PyG's layers, with about as many parameters as `graphormer`."""

CHEMPROP, COMMAND = "chemprop", "slicegraph train, 14 epochs"
COMMANDS: dict[str, dict[str, Any]] = {CHEMPROP: {}, COMMAND: {"epochs": 14}}
"""The rows that are commands; their time is that of the whole command. `slicegraph train` always
has 14 epochs, fewer than other rows, and takes whole data sets only."""

ROWS = (*OURS, *OUTSIDE, *COMMANDS)

BUDGETS: dict[str, dict[str, Any]] = {
    "qm9-gap": {"epochs": 8, "part": 20_000},
    "mini": {"epochs": 30},
}
"""The epochs of each data set, and the number of training molecules (default: all)."""

COMMON: dict[str, Any] = {
    "batch_size": 100,
    "lr": 1.5e-3,
    "end_lr": 1e-6,
    "weight_decay": 0.01,
    "clip": 5.0,
    "accelerator": "cpu",
    "precision": "32-true",
}
"""The optimiser, the schedule and the batch size of all rows except commands."""

VOCABULARY = {"node_vocabulary": OGB_ATOMS, "edge_vocabulary": OGB_BONDS}
_CHEMPROP_LEAST_EPOCHS = 3  # its warm-up takes two
_QUICK_PART, _QUICK_TOY = 300, {"num_layers": 1, "channels": 16, "ffn_channels": 16, "heads": 2}


@dataclass(frozen=True)
class Run:
    """One training.

    Args:
        data: the name of the data set.
        part: the number of molecules of its train split, drawn at random; None for all.
        row: one of ``ROWS``.
        seed: the seed of weights, order of the samples and dropout.
        model: the fields of the model of the row.
        settings: the settings of `slicegraph.train` that all rows share; for commands, only the
            epochs and threads.
    """

    data: str
    part: int | None
    row: str
    seed: int
    model: dict[str, Any]
    settings: dict[str, Any]


def run_of(
    data: str,
    row: str,
    seed: int,
    threads: int = 1,
    quick: bool = False,
    part: int | None = None,
    epochs: int | None = None,
) -> Run:
    """Return a run with the given or default budget; a quick run trains a toy for one epoch."""
    budget = BUDGETS[data]
    part = _QUICK_PART if quick else part or budget.get("part")
    epochs = COMMANDS.get(row, {}).get("epochs") or epochs or budget["epochs"]
    if quick:
        epochs = _CHEMPROP_LEAST_EPOCHS if row == CHEMPROP else 1
    settings = {} if row in COMMANDS else COMMON
    settings = settings | {"epochs": epochs, "threads": threads}
    model = OURS.get(row) or OUTSIDE.get(row) or {}
    if quick:
        model = model | {name: value for name, value in _QUICK_TOY.items() if name in model}
    return Run(data, part, row, seed, model, settings)
