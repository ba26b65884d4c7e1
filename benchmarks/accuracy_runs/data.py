"""The data of a run: a data set by name, or a part of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from slicegraph.data import load
from slicegraph.data.datasets import MoleculeDataset
from slicegraph.data.splits import permutation


def dataset_of(name: str, part: int | None, root: Path) -> MoleculeDataset:
    """Load a data set with ``part`` molecules of its train split; valid and test stay complete.

    The molecules are drawn at random, because QM9 begins with its smallest molecules; all runs have
    the same ones.
    """
    dataset = load(name, root)
    if part is None:
        return dataset
    train = dataset.splits["train"]
    drawn = np.sort(permutation(len(train), seed=0)[:part])
    return replace(dataset, splits=dataset.splits | {"train": train[drawn]})
