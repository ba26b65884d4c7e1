"""Time series of the package `aeon`: ACSF1 (appliances) and OSULeaf (outlines of leaves)."""

import warnings
from typing import Any

import numpy as np

from slicegraph.data.sequences.contents import (
    Contents,
    Request,
    TaskError,
    in_parts,
    needs,
    with_valid,
)


def series(request: Request) -> Contents:
    """Sequences of floating-point numbers; train and test are those of the archive."""
    try:
        from aeon import datasets
    except ModuleNotFoundError:
        raise needs(request.task, "aeon", "series") from None
    load: Any = getattr(datasets, f"load_{request.task}", None)
    if load is None:
        from aeon import __version__

        raise TaskError(
            f"task {request.task!r} needs aeon < 1.7, and aeon {__version__} has its data no more; "
            "pip install 'slicegraph[series]'"
        )
    with warnings.catch_warnings():
        # aeon 1.6 says that 1.7, which the extra leaves out, has the data no more.
        warnings.filterwarnings("ignore", ".*deprecated", FutureWarning)
        (train, train_labels), (test, test_labels) = map(load, ("train", "test"))
    names = sorted(set(train_labels.tolist()), key=lambda name: (len(name), name))
    numbers = {name: number for number, name in enumerate(names)}
    parts = [
        [([one[0]], numbers[name]) for one, name in zip(x, labels.tolist(), strict=True)]
        for x, labels in ((train, train_labels), (test, test_labels))
    ]
    samples, splits = with_valid(*parts)
    sequences = in_parts(samples, np.float32)
    return Contents(sequences, splits, names, vocabulary=None, source={"package": "aeon"})
