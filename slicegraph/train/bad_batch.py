"""What stops a run at a batch: a loss that is no number, or too little memory."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from slicegraph.train.run_folder import write_json

if TYPE_CHECKING:
    from slicegraph.train.data import AnyDataSet

BAD_BATCH = "bad_batch.json"
_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_cpu")


class TrainingError(RuntimeError):
    """A run that cannot go on; the message says why and what to change."""


class BadLoss(TrainingError):
    """A loss or a score that is NaN or infinite.

    Args:
        loss: the loss.
        positions: what is in the batch on this rank, as positions in the store.
        step: how many updates were made before.
    """

    def __init__(self, loss: float, positions: list[int], step: int) -> None:
        super().__init__(f"the loss is {loss} after {step} updates")
        self.loss, self.positions, self.step = loss, positions, step


def save_bad_batch(folder: Path, error: BadLoss, dataset: "AnyDataSet") -> Path:
    """Writes what was in the batch, for a look."""
    positions, path = np.array(error.positions), folder / BAD_BATCH
    rows = zip(dataset.rows(positions), dataset.labels(positions), strict=True)
    found: list[dict[str, Any]] = [
        dict(zip(dataset.columns, row, strict=True))
        | {"labels": [None if label != label else float(label) for label in labels]}
        for row, labels in rows
    ]
    write_json(path, {"loss": repr(error.loss), "step": error.step, dataset.noun: found})
    return path


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is too little memory, on any device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _MEMORY)


def describe_out_of_memory(batch: Any, noun: str, accumulate: int) -> str:
    """Which batch it was, and what to change."""
    if batch is None:
        return "out of memory before the first batch; choose a smaller preset"
    sizes = batch.ptr.diff() if noun == "molecules" else batch.sizes
    parts = "atoms" if noun == "molecules" else "elements"
    return (
        f"out of memory at a batch of {len(sizes)} {noun} with {int(sizes.sum())} {parts}, "
        f"{int(sizes.max())} in the largest (position {int(batch.index[sizes.argmax()])} of the "
        f"store); cut each batch into more parts with accumulate = {2 * accumulate}, or choose a "
        "smaller batch_size or preset"
    )
