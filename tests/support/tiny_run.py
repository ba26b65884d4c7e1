"""A run that takes seconds: a few dozen molecules, one layer of sixteen channels."""

from pathlib import Path
from typing import Any

import torch

import slicegraph
from slicegraph.train import TrainConfig

CHAINS = ("C", "N", "O")
MODEL = {"num_layers": 1, "channels": 16, "ffn_channels": 16, "heads": 2}
SORTING = {**MODEL, "mixer": "sort", "local": "none", "readout": "sum"}
"""A third of the operations, for runs that are compiled; `tests/models` compiles every mixer."""


def smiles(count: int) -> list[str]:
    """Chains of C, N and O, all different: the number in base three, after a carbon."""
    texts = []
    for number in range(count):
        text, rest = "C", number + 3
        while rest:
            text, rest = text + CHAINS[rest % 3], rest // 3
        texts.append(text)
    return texts


def write_table(path: Path, count: int = 40, columns: str = "gap") -> Path:
    """A CSV with labels that a model can learn: how many nitrogen and oxygen atoms there are."""
    names = columns.split(",")
    rows = [",".join(["smiles", *names])]
    for number, text in enumerate(smiles(count)):
        values = {
            "gap": text.count("N") + 0.5 * text.count("O"),
            "size": len(text),
            "active": int(text.count("N") > 1),
            "class": text.count("O") % 3,
            "gaps": "" if number % 3 == 0 else text.count("N"),
        }
        rows.append(",".join([text, *(str(values[name]) for name in names)]))
    path.write_text("\n".join(rows) + "\n")
    return path


def tiny_config(folder: Path, **settings: Any) -> TrainConfig:
    """Five batches of eight an epoch, three epochs; the data and the run below `folder`."""
    table = folder / "table.csv"
    if not table.exists():
        write_table(table)
    defaults: dict[str, Any] = {
        "data": f"csv:{table}",
        "root": str(folder / "dataset"),
        "targets": ("gap",),
        "out": str(folder / "run"),
        "model": MODEL,
        "batch_size": 8,
        "epochs": 3,
        "lr": 1e-2,
        "dropout": 0.1,
        "accelerator": "cpu",
        "threads": 1,
        "fractions": (0.8, 0.1, 0.1),
    }
    return TrainConfig(**(defaults | settings))


def tiny_run(folder: Path, **settings: Any) -> Any:
    """Train with these settings; gives the result."""
    return slicegraph.train(tiny_config(folder, **settings), progress=False)


def weights(run: Path) -> dict[str, torch.Tensor]:
    """The weights in the last checkpoint of a run."""
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def distance(run: Path, other: Path) -> float:
    """The largest difference between the weights of two runs."""
    found, expected = weights(run), weights(other)
    assert found.keys() == expected.keys()
    return max(float((found[name] - expected[name]).abs().max()) for name in expected)
