"""Which file a model was trained on, and how it was split: not to be scored on what it has seen."""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slicegraph.data.sequences.sequence_set import SequenceSet

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


def root_of_run(model: str) -> str:
    """The folder of the data sets of the run that made a model, if it is here, or the usual one."""
    settings = settings_of_run(Path(model))
    return settings.root if settings is not None and Path(settings.root).is_dir() else "dataset"


def set_of_run(
    settings: Any, root: str, data: str | None = None, words: Sequence[str] = ()
) -> "SequenceSet":
    """The task of a run, with the files that it was trained on or with others, in the words of a
    model if it has some."""
    from slicegraph.train.sequence_data import load_set
    from slicegraph.train.task_files import named_files

    # In settings of older runs the name of the task stands for its own data.
    own = None if settings.data == settings.task else settings.data
    data = own if data is None else named_files(data, settings.task)
    examples = settings.examples if data == own else None
    return load_set(replace(settings, root=root, data=data, examples=examples), words)


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
