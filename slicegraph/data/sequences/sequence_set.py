"""A task that is ready to be used: the samples, the splits, the metric."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from slicegraph.data.sequences.example_batch import ExampleBatch, example_batch
from slicegraph.data.sequences.sequence_store import SequenceStore
from slicegraph.data.sets.task import Task

TARGET = "class"
"""What the predicted column is called."""


class SequenceSet:
    """Sequences or images with a class each.

    Args:
        name: of the task.
        store: its samples.
        noun: what they are, in the plural.
    """

    def __init__(self, name: str, store: SequenceStore, noun: str = "sequences") -> None:
        self.name, self.store, self.noun = name, store, noun
        classes = len(store.meta["class_names"])
        self.task = Task("multiclass", (TARGET,), "acc", num_classes=classes)
        self.evaluator = self.task.evaluator()
        self.splits = store.splits

    @property
    def source(self) -> dict[str, Any]:
        """Where the samples are from."""
        return self.store.meta["source"]

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes 0, 1, ... are."""
        return tuple(self.store.meta["class_names"])

    @property
    def words(self) -> tuple[str, ...]:
        """What the tokens 0, 1, ... are, if they are words."""
        return tuple(self.store.meta.get("words", ()))

    def labels(self, positions: np.ndarray) -> np.ndarray:
        """``[n, 1]``: the classes of these samples."""
        return np.asarray(self.store.sequences.labels[positions], np.float32)[:, None]

    def batch(
        self, positions: Sequence[int] | np.ndarray, max_length: int | None = None
    ) -> ExampleBatch:
        """The samples at these positions, as tensors that a model takes."""
        return example_batch(self.store, positions, max_length)

    def arrays(self, split: str, max_length: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """All images ``[n, C, H, W]`` (or padded sequences ``[n, N]``) of a split, and labels."""
        found = self.store.batch(self.splits[split], max_length)
        shape = self.store.shape
        return found.x if shape is None else found.x.reshape(-1, *shape), found.y

    columns = ("index", "length")
    """What a table of predictions says of a sample."""

    def rows(self, positions: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """The values of `columns` of each sample."""
        return zip(positions.tolist(), self.store.lengths[positions].tolist(), strict=True)
