"""The data of a run: a data set by name, or a part of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from slicegraph.data import load
from slicegraph.data.sets.datasets import DataSet
from slicegraph.data.sets.splits import permutation


def dataset_of(name: str, part: int | None, root: Path) -> DataSet:
    """The data set, with ``part`` molecules of its train split; valid and test stay whole.

    They are drawn at random, the same for all runs: QM9 begins with its smallest molecules.
    """
    dataset = load(name, root)
    if part is None:
        return dataset
    train = dataset.splits["train"]
    drawn = np.sort(permutation(len(train), seed=0)[:part])
    return replace(dataset, splits=dataset.splits | {"train": train[drawn]})
