"""Which file a model was trained on, and how it was split: not to be scored on what it has seen."""

import argparse
import csv
from pathlib import Path
from typing import Any

PREFIX = "csv:"


def data_of_run(model: str, data: str) -> dict[str, Any]:
    """How the run that made a model has read and split this file; nothing if it was another."""
    settings = settings_of_run(Path(model))
    if settings is None or not settings.is_table:
        return {}
    if not _same_file(settings.data.removeprefix(PREFIX), data.removeprefix(PREFIX)):
        return {}
    return {
        "smiles": settings.smiles,
        "metric": settings.metric,
        "split": settings.split,
        "seed": settings.split_seed,
        "fractions": settings.fractions,
    }


def settings_of_run(model: Path) -> Any:
    """The settings of the run, if the model is in the folder of one."""
    from slicegraph.train.config import TrainConfig

    inside = {"model": model.parent, "checkpoints": model.parent.parent}
    place = model.parent.name if model.is_file() else model.name
    for folder in (model, inside.get(place, model)):
        if (folder / "config.yaml").is_file():
            return TrainConfig.read(folder / "config.yaml")
    return None


def _same_file(one: str, other: str) -> bool:
    first, second = Path(one).expanduser(), Path(other).expanduser()
    return first == second or (first.exists() and second.exists() and first.samefile(second))


def columns(text: str) -> list[str]:
    """Names as in a CSV: a name with a comma is quoted."""
    return next(csv.reader([text]), [])


def numbers(text: str) -> tuple[float, ...]:
    """Three numbers with commas between them."""
    try:
        first, second, third = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected such as 0.8,0.1,0.1") from None
    return first, second, third
