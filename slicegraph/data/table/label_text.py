"""Labels as they stand in a table: numbers, and gaps."""

import math
from collections.abc import Sequence

_GAPS = {"", "nan", "na", "n/a", "null", "none", "<na>"}
_LARGEST = 3.4028234663852886e38  # of float32


def is_gap(text: str) -> bool:
    """Whether the text means that there is no label: nothing, or a word such as NaN or N/A."""
    return text.strip().casefold() in _GAPS


def is_number(text: str) -> bool:
    """Whether the text is a number that float32 can hold; infinity is none."""
    try:
        return not math.isnan(_read(text))
    except ValueError:
        return False


def read_labels(texts: Sequence[str], names: Sequence[str]) -> list[float]:
    """The labels of one row, NaN for a gap; a text that is no number raises a `ValueError`.

    Example:
        >>> read_labels(["0.5", "", "1e-3"], ["gap", "homo", "lumo"])
        [0.5, nan, 0.001]
        >>> read_labels(["high"], ["gap"])
        Traceback (most recent call last):
        ValueError: gap = 'high' is not a number
    """
    values = []
    for text, name in zip(texts, names, strict=True):
        try:
            values.append(_read(text))
        except ValueError as error:
            raise ValueError(f"{name} = {text!r} {error}") from None
    return values


def _read(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if abs(value) <= _LARGEST and "_" not in text:
        return value
    if is_gap(text):
        return math.nan
    raise ValueError(_problem(value))


def _problem(value: float) -> str:
    if math.isinf(value):
        return "is not finite"
    return "is too large for float32" if abs(value) > _LARGEST else "is not a number"
