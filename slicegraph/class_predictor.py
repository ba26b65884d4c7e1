"""From sequences or images to classes: models that pad and batch what they are given."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slicegraph.data.sequences.sequence_set import SequenceSet
from slicegraph.data.sequences.sequences import cut_note
from slicegraph.given_samples import pixels_of, sequences_of
from slicegraph.models import SequenceSliceformer, VisionSliceformer

_MOST_ELEMENTS = 1 << 18
"""Elements or patches in a batch: of long sequences fewer are taken at once."""


class SequencePredictor(SequenceSliceformer):
    """A :class:`~slicegraph.models.SequenceSliceformer` that takes sequences of any lengths.

    Example:
        >>> model = slicegraph.load("runs/listops")
        >>> model.predict([[11, 4, 9, 15], [12, 1, 15]]).shape
        (2, 10)
        >>> slicegraph.load("runs/imdb").predict(["A fine film.", "Dull!"]).shape
        (2, 2)
    """

    @property
    def takes(self) -> str:
        """What it is a model of."""
        return "texts" if self.config.words else "sequences of tokens or numbers"

    def predict(
        self, sequences: str | Sequence[Any] | np.ndarray, batch_size: int = 64
    ) -> np.ndarray:
        """``[N, classes]``: the probabilities of the classes of each sequence.

        A sequence does not change the others, and is cut after ``config.max_length`` elements, with
        a warning.

        Args:
            sequences: arrays or lists of tokens; of vectors, ``[length, in_channels]``, or
                ``[length]`` if there is one channel; texts, for a model of words
                (``config.words``) or of bytes (256 tokens), or one text; for a model of pairs,
                pairs of them.
            batch_size: how many are computed at once, at most.
        """
        towers, vectors = self.config.towers, self.config.in_channels
        samples = [sequences] if isinstance(sequences, str) else sequences
        arrays = _cut(sequences_of(samples, self.config), self.config.max_length)
        sizes = [sum(map(len, arrays[i : i + towers])) for i in range(0, len(arrays), towers)]

        def logits(chosen: np.ndarray) -> Tensor:
            x, mask = _padded(arrays, chosen, towers, vectors)
            return self(x.to(_at(self)), mask.to(_at(self)))

        return _probabilities(self, sizes, batch_size, logits)

    def predict_set(
        self, dataset: SequenceSet, positions: np.ndarray, batch_size: int = 64
    ) -> np.ndarray:
        """As `predict`, of samples of a task."""
        length = self.config.max_length
        sizes = dataset.store.lengths_read(positions, length)
        return _of_set(self, dataset, positions, sizes, batch_size, length)


class VisionPredictor(VisionSliceformer):
    """A :class:`~slicegraph.models.VisionSliceformer` that takes images as arrays.

    Example:
        >>> model = slicegraph.load("runs/digits")
        >>> model.predict(np.zeros((2, 8, 8), np.uint8)).shape
        (2, 10)
    """

    takes = "images"

    def predict(self, images: Any, batch_size: int = 64) -> np.ndarray:
        """``[N, classes]``: the probabilities of the classes of each image.

        Args:
            images: ``[N, channels, size, size]``, or ``[N, size, size]`` for one channel: integers
                from 0 to 255, or numbers from 0 to 1.
            batch_size: how many are computed at once, at most.
        """
        x = torch.from_numpy(pixels_of(images))
        if x.dim() == 3:
            x = x[:, None]
        sizes = [self.config.num_patches] * len(x)
        return _probabilities(self, sizes, batch_size, lambda chosen: self(x[chosen].to(_at(self))))

    def predict_set(
        self, dataset: SequenceSet, positions: np.ndarray, batch_size: int = 64
    ) -> np.ndarray:
        """As `predict`, of samples of a task."""
        sizes = [self.config.num_patches] * len(positions)
        return _of_set(self, dataset, positions, sizes, batch_size)


def _cut(arrays: list[np.ndarray], most: int) -> list[np.ndarray]:
    if note := cut_note(np.array([len(array) for array in arrays]), most):
        warnings.warn(f"predict: {note}", stacklevel=3)
    return [array[:most] for array in arrays]


def _padded(
    arrays: list[np.ndarray], chosen: np.ndarray, towers: int, vectors: int | None
) -> tuple[Tensor, Tensor]:
    rows = (chosen[:, None] * towers + np.arange(towers)).ravel()
    lengths = np.array([len(arrays[row]) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    if towers == 2:
        mask = mask.reshape(-1, 2, mask.shape[1])
    shape = (*mask.shape, vectors) if vectors else mask.shape
    x = np.zeros(shape, np.float32 if vectors else np.int64)
    x[mask] = np.concatenate([arrays[row].reshape(-1, *shape[mask.ndim :]) for row in rows])
    return torch.from_numpy(x), torch.from_numpy(mask)


def _of_set(
    model: Any,
    dataset: SequenceSet,
    positions: np.ndarray,
    sizes: Sequence[int] | np.ndarray,
    batch_size: int,
    length: int | None = None,
) -> np.ndarray:
    def logits(chosen: np.ndarray) -> Tensor:
        batch = dataset.batch(positions[chosen], length).to(_at(model))
        return model.score(batch)[:, 0]

    return _probabilities(model, sizes, batch_size, logits)


def _at(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


@torch.inference_mode()
def _probabilities(
    model: Any,
    sizes: Sequence[int] | np.ndarray,
    batch_size: int,
    logits: Callable[[np.ndarray], Tensor],
) -> np.ndarray:
    """Samples of about one size together, the largest first."""
    if batch_size < 1:
        raise ValueError(f"predict: batch_size = {batch_size}, expected at least 1")
    order, training = np.argsort(-np.asarray(sizes, np.int64), kind="stable"), model.training
    found = np.zeros((len(sizes), model.config.num_classes))
    model.eval()
    try:
        while len(order):
            count = max(1, min(batch_size, _MOST_ELEMENTS // max(1, int(sizes[order[0]]))))
            chosen, order = order[:count], order[count:]
            found[chosen] = logits(chosen).double().softmax(-1).cpu().numpy()
    finally:
        model.train(training)
    return found
