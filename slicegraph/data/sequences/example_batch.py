"""Samples of a task as the tensors that a model takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slicegraph.data.sequences.sequence_store import SequenceStore


@dataclass(frozen=True)
class ExampleBatch:
    """A batch of sequences or images.

    ``x`` is ``[B, N]`` tokens (pairs ``[B, 2, N]``), ``[B, N, 1]`` numbers, or ``[B, C, H, W]``
    images from 0 to 1; ``mask`` is true at the real elements, and none for images; ``y`` ``[B, 1]``
    are the classes and ``index`` ``[B]`` the positions of the samples in the store.
    """

    x: Tensor
    mask: Tensor | None
    y: Tensor
    index: Tensor

    @property
    def num_graphs(self) -> int:
        """How many samples there are, by the name that batches of molecules have for it."""
        return len(self.index)

    @property
    def sizes(self) -> Tensor:
        """``[B]``: how many elements each sample has."""
        if self.mask is None:
            return torch.full_like(self.index, self.x[0].numel())
        return self.mask.flatten(1).sum(1)

    def to(self, *arguments: Any, **options: Any) -> "ExampleBatch":
        """On another device."""
        return self._each(lambda tensor: tensor.to(*arguments, **options))

    def pin_memory(self) -> "ExampleBatch":
        """In memory that a GPU reads fast."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Any) -> "ExampleBatch":
        mask = None if self.mask is None else change(self.mask)
        return ExampleBatch(change(self.x), mask, change(self.y), change(self.index))


def example_batch(
    store: SequenceStore, positions: Sequence[int] | np.ndarray, max_length: int | None = None
) -> ExampleBatch:
    """The samples at these positions, padded to the longest; cut after ``max_length``."""
    index = np.asarray(positions, np.int64)
    x, mask, y = store.batch(index, max_length)
    labels = torch.from_numpy(y.astype(np.float32))[:, None]
    return ExampleBatch(*_inputs(store, x, mask), labels, torch.from_numpy(index))


def _inputs(store: SequenceStore, x: np.ndarray, mask: np.ndarray) -> tuple[Tensor, Tensor | None]:
    if store.shape is not None:
        pixels = torch.from_numpy(x.astype(np.float32)) / 255
        return pixels.unflatten(1, store.shape), None
    if store.meta["vocabulary"] is None:
        return torch.from_numpy(x.astype(np.float32))[..., None], torch.from_numpy(mask)
    return torch.from_numpy(x.astype(np.int64)), torch.from_numpy(mask)
