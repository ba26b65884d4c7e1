"""Predictors of classes: models that batch and pad sequences or images as users give them."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slicegraph.models import SequenceSliceformer, VisionSliceformer
from slicegraph.models.base import Model
from slicegraph.tasks.store import Sequences, SequenceSet, pad
from slicegraph.tasks.texts import text_reader

_MOST_ELEMENTS = 1 << 18  # or patches, in a batch
_NUMBERS = "buif"  # kinds of arrays: booleans, integers with and without a sign, floating-point
_LARGEST = np.finfo(np.float32).max


class _ClassPredictor(Model):
    """The part of the predictors that sequences and images share."""

    def predict_set(
        self, dataset: SequenceSet, positions: np.ndarray, batch_size: int = 64
    ) -> np.ndarray:
        """As `predict`, for samples of a task."""
        most = getattr(self.config, "max_length", None)
        sizes = dataset.store.sequences.sizes(positions, most)
        read = partial(dataset.batch, max_length=most)
        return self._probabilities(sizes, batch_size, lambda chosen: read(positions[chosen]).inputs)

    @torch.inference_mode()
    def _probabilities(
        self, sizes: np.ndarray, batch_size: int, inputs: Callable[[np.ndarray], tuple[Tensor, ...]]
    ) -> np.ndarray:
        """Computes samples of similar sizes together, the largest first."""
        if batch_size < 1:
            raise ValueError(f"predict: batch_size = {batch_size}, expected at least 1")
        if (patches := getattr(self.config, "num_patches", None)) is not None:
            sizes = np.full(len(sizes), patches)
        order, training = np.argsort(-sizes, kind="stable"), self.training
        found = np.zeros((len(sizes), self.config.num_classes))
        device = next(self.parameters()).device
        self.eval()
        try:
            while len(order):
                count = max(1, min(batch_size, _MOST_ELEMENTS // max(1, int(sizes[order[0]]))))
                chosen, order = order[:count], order[count:]
                logits = self(*(tensor.to(device) for tensor in inputs(chosen)))
                found[chosen] = logits.double().softmax(-1).cpu().numpy()
        finally:
            self.train(training)
        return found


class SequencePredictor(SequenceSliceformer, _ClassPredictor):
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
        """The samples of the model, in the plural."""
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
            batch_size: the largest number of samples in a batch.
        """
        most = self.config.max_length
        packed = _packed([sequences] if isinstance(sequences, str) else sequences, self.config)
        everything = np.arange(len(packed.labels))
        if note := packed.cut_note(everything, most):
            warnings.warn(f"predict: {note}", stacklevel=2)

        def inputs(chosen: np.ndarray) -> tuple[Tensor, Tensor]:
            x, mask, _ = pad(packed, chosen, most)
            return torch.from_numpy(x), torch.from_numpy(mask)

        return self._probabilities(packed.sizes(everything, most), batch_size, inputs)


class VisionPredictor(VisionSliceformer, _ClassPredictor):
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
            batch_size: the largest number of samples in a batch.
        """
        x = torch.from_numpy(_pixels(images))
        x = x[:, None] if x.dim() == 3 else x
        return self._probabilities(np.ones(len(x)), batch_size, lambda chosen: (x[chosen],))


def _pixels(images: Any) -> np.ndarray:
    """Images as numbers from 0 to 1; raises for the first value that is not a pixel."""
    given = np.atleast_1d(np.asarray(images))
    kind = given.dtype.kind
    values = given if kind in _NUMBERS else np.full(given.shape, np.nan)
    pixels = values.astype(np.float32) / (255 if kind in "ui" else 1)
    wrong = np.argwhere(~((pixels >= 0) & (pixels <= 1)))
    if len(wrong):
        raise ValueError(
            f"predict: images[{wrong[0][0]}] has {given.item(*wrong[0])!r:.60}, expected integers "
            "from 0 to 255 or numbers from 0 to 1"
        )
    return pixels


def _packed(samples: Sequence[Any] | np.ndarray, config: Any) -> Sequences:
    """The sequences of all samples; raises for the first that the model cannot take."""
    towers, channels = config.towers, config.in_channels
    given = list(samples)
    if towers == 2:
        for number, sample in enumerate(given):
            if isinstance(sample, str) or not hasattr(sample, "__len__") or len(sample) != 2:
                raise ValueError(f"predict: sequences[{number}] = {sample!r:.60}, expected a pair")
    sequences = given if towers == 1 else [one for sample in given for one in sample]
    texts = any(isinstance(one, str) for one in sequences)
    read: Any = text_reader(config.words, config.vocabulary) if texts else None
    arrays = [read(one) if isinstance(one, str) else np.asarray(one) for one in sequences]
    for number, array in enumerate(arrays):
        _check_sequence(number // towers, array, config)
    empty = np.zeros(0, np.int64) if channels is None else np.zeros((0, channels), np.float32)
    parts = [array.reshape(-1, *empty.shape[1:]).astype(empty.dtype) for array in arrays]
    ptr = np.cumsum([0, *map(len, parts)])
    return Sequences(np.concatenate([empty, *parts]), ptr, np.zeros(len(given)), towers)


def _check_sequence(number: int, array: np.ndarray, config: Any) -> None:
    if config.in_channels is None:
        fits = array.ndim == 1 and array.dtype.kind in "ui" and len(array)
        fits = fits and array.min() >= 0 and array.max() < config.vocabulary
        wanted = f"tokens from 0 to {config.vocabulary - 1}"
    else:
        rows = ((config.in_channels,), ()) if config.in_channels == 1 else ((config.in_channels,),)
        fits = array.ndim and len(array) and array.shape[1:] in rows
        fits = fits and array.dtype.kind in _NUMBERS
        wanted = f"numbers of shape [length, {config.in_channels}]"
    if not fits:
        raise ValueError(f"predict: sequences[{number}] = {array!r:.60}, expected {wanted}")
    if config.in_channels and len(wrong := array[~(np.abs(array) <= _LARGEST)]):
        raise ValueError(f"predict: sequences[{number}] has {wrong[0]}, expected finite numbers")
