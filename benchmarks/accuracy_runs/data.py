"""The data of a run: a data set by name, or a part of it."""

from dataclasses import replace
from pathlib import Path

from slicegraph.data import load
from slicegraph.data.sets.datasets import DataSet


def dataset_of(name: str, part: int | None, root: Path) -> DataSet:
    """The data set, with the first ``part`` molecules of its train split, which is in an order of
    its own; valid and test stay whole."""
    dataset = load(name, root)
    if part is None:
        return dataset
    return replace(dataset, splits=dataset.splits | {"train": dataset.splits["train"][:part]})
