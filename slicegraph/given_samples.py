"""What a user gives to `predict`, as arrays; what a model cannot take is refused by its number."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from slicegraph.data.sequences.text_tokens import text_reader

_NUMBERS = "buif"
"""The kinds of arrays of numbers: true and false, with and without a sign, floating-point."""
_LARGEST = np.finfo(np.float32).max


def pixels_of(images: Any) -> np.ndarray:
    """Images as numbers from 0 to 1."""
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


def sequences_of(samples: Sequence[Any] | np.ndarray, config: Any) -> list[np.ndarray]:
    """The sequences of all samples, one after another, of a pair both."""
    sequences = list(samples) if config.towers == 1 else _of_pairs(list(samples))
    arrays = _arrays(sequences, config)
    for number, array in enumerate(arrays):
        _check_sequence(number // config.towers, array, config)
    return arrays


def _of_pairs(samples: list[Any]) -> list[Any]:
    for number, sample in enumerate(samples):
        if isinstance(sample, str) or not hasattr(sample, "__len__") or len(sample) != 2:
            raise ValueError(f"predict: sequences[{number}] = {sample!r:.60}, expected a pair")
    return [one for sample in samples for one in sample]


def _arrays(sequences: list[Any], config: Any) -> list[np.ndarray]:
    if not any(isinstance(one, str) for one in sequences):
        return [np.asarray(one) for one in sequences]
    read = text_reader(config.words, config.vocabulary)
    return [read(one) if isinstance(one, str) else np.asarray(one) for one in sequences]


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
