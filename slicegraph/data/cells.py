"""How the text of a cell becomes a number: spellings, gaps, bounds, dates and words of classes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from slicegraph.data.table import GAPS, plain_number

CENSORED = ("stop", "drop", "value", "loss")
NO_NUMBER = "is not a number"

_SPELLING = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\u2014\u2015\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        **dict.fromkeys("\u2018\u2019\u02bc\u00b4`", "'"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff"),
    }
)
_BOUND = re.compile(
    r"(?P<above>[>≥≧⩾]+=?|=>|&gt;=?)|(?P<below>[<≤≦⩽]+=?|=<|&lt;=?)"
    r"|(?P<about>[~≈≃]|ca\.|ca |approx\.?)|=",
    re.IGNORECASE,
)
_NUMBER = re.compile(  # sign, whole part, its separator, decimal mark, decimals, exponent
    r"([+-]?)([1-9]\d{0,2}(?:([ ',.])\d{3})(?:\3\d{3})*|\d*)(?:([.,])(\d*))?(e[+-]?\d+)?",
    re.IGNORECASE,
)
_USUAL = re.compile(r"-?([1-9]?)\d{0,2}\.(\d{1,20})")  # most labels: a short way
_RANGE = re.compile(r"[\d.,]+ ?(-|to|\.\.\.?|bis) ?[\d.,]+.*")
_UNIT = re.compile(r"[+-]?[\d.,' ]*\d(?:e[+-]?\d+)? ?([^\d\s_.,'].*)", re.IGNORECASE)
_DAY, _MONTH, _YEAR = r"(?P<day>\d{1,2})", r"(?P<month>\d{1,2})", r"(?P<year>\d{4}|\d{2})"
_WORD = r"(?P<month>[^\W\d]{3,9})"
DATES = {  # forms of a date, which may have a time of day, in the order of preference
    form: re.compile(pattern + r"([T ,].*)?", re.IGNORECASE)
    for form, pattern in {
        "2024-12-31": rf"(?P<year>\d{{4}})(?P<mark>[-/.]){_MONTH}((?P=mark){_DAY})?",
        "31.12.2024": rf"{_DAY}\.{_MONTH}\.{_YEAR}",
        "31-Dec-2024": rf"{_DAY}[-. ]{{1,2}}{_WORD}\.?[-. ]{_YEAR}",
        "Dec 31, 2024": rf"{_WORD}\.? {_DAY}, ?{_YEAR}",
        "month/day/year": rf"{_MONTH}(?P<mark>[-/]){_DAY}(?P=mark){_YEAR}",
        "day/month/year": rf"{_DAY}(?P<mark>[-/]){_MONTH}(?P=mark){_YEAR}",
    }.items()
}

Marks = tuple[str, str]  # the decimal mark and the separator of thousands
MARKS: list[Marks] = [(".", ""), (",", ""), (".", ","), (",", ".")]
MARKS += [(mark, space) for space in " '" for mark in ".,"]


class CensoredError(ValueError):
    """A bound such as ``>10`` where a value is needed."""


class Style(NamedTuple):
    """How a number is written."""

    decimal: str = ""  # the decimal mark, "" for a number without one
    thousands: str = ""  # the separator of thousands, "" for a number without one
    either: bool = False  # whether a separator may be both, as in 1,234
    plain: str = ""  # of a number without marks: "0" for 007, "4" for 1234

    def scale(self, marks: Marks) -> int:
        """Return what the value of a `Cell` is multiplied by: 1,234 is 1.234, or 1234."""
        return 1000 if self.either and self.thousands == marks[1] else 1

    def fits(self, marks: Marks) -> bool:
        """Return whether it is a number with this decimal mark and separator of thousands."""
        if self.either:
            return self.decimal in marks
        return self.decimal in ("", marks[0]) and self.thousands in ("", marks[1])


class Cell(NamedTuple):
    """A text by itself; the value of 1,234 and 1.234 is that of decimals."""

    kind: str  # "number", "gap", "date" or "word"
    word: str  # the text in plain spelling and small letters
    value: float = math.nan
    bound: int = 0
    style: Style = Style()
    sign: str = ""  # "%" after the number, "~" before it
    problem: str = ""


@lru_cache(1 << 16)
def read_cell(text: str) -> Cell:
    """Read a text without its column."""
    if usual := _USUAL.fullmatch(text):
        either = bool(usual[1]) and len(usual[2]) == 3
        return Cell("number", text, float(text), 0, _EITHER_POINT if either else _POINT)
    plain = (text if text.isascii() else text.translate(_SPELLING)).strip()
    if plain[:1] in ("'", '"'):
        plain = plain.strip("'\" ")
    word = plain.casefold()
    if word in GAPS:
        return Cell("gap", word)
    mark = _BOUND.match(plain)
    number = plain[mark.end() :].lstrip() if mark else plain
    sign = "~" if mark and mark["about"] else ""
    if number.endswith("%"):
        number, sign = number[:-1].rstrip(), "%"
    if found := _read_number(number):
        value, problem = plain_number(found[0])
        if problem:
            return Cell("word", word, problem=problem)
        return Cell("number", word, value, _bound(mark), found[1], sign)
    if any(date.fullmatch(plain) for date in DATES.values()):
        return Cell("date", word, problem="is a date, not a number")
    return Cell("word", word, problem=_problem(number))


_POINT, _EITHER_POINT = Style("."), Style(".", ".", either=True)


def _read_number(text: str) -> tuple[str, Style] | None:
    """Return a number as Python writes it, with its style; None for another text."""
    found = _NUMBER.fullmatch(text)
    if not found:
        return None
    sign, whole, separator, decimal, decimals, exponent = found.groups("")
    if not (whole or decimals) or (separator and separator == decimal):
        return None
    style = Style(decimal, separator)
    if separator in (".", ",") and not decimal and whole.count(separator) == 1:
        style = Style(separator, separator, either=True)
        whole = whole.replace(separator, ".")
    elif not separator and not decimal:
        zero = whole[0] == "0" and len(whole) > 1
        style = Style(plain="0" if zero else "4" * (len(whole) > 3))
    else:
        whole = f"{whole.replace(separator, '') if separator else whole}.{decimals}"
    return sign + whole + exponent, style


def _bound(mark: re.Match[str] | None) -> int:
    return bool(mark["above"]) - bool(mark["below"]) if mark else 0


def sign_of(text: str) -> int:
    """Return the bound that a relation such as ``>`` or ``'<='`` gives to its value, or 0."""
    return _bound(_BOUND.fullmatch(text.translate(_SPELLING).strip("'\" ")))


def _problem(number: str) -> str:
    """Say why a text is not a number."""
    if "±" in number or "+/-" in number:
        return "has an uncertainty; keep the value alone"
    if _RANGE.fullmatch(number):
        return "is a range; keep one value"
    if unit := _UNIT.fullmatch(number):
        return f"has {unit[1]!r} after the number; keep the number alone"
    return plain_number(number)[1] or NO_NUMBER


@dataclass(frozen=True)
class ColumnFormat:
    """How the texts of one column become numbers.

    Example:
        >>> ColumnFormat(decimal=",", thousands=".").read("> 1.234,5")
        (1234.5, 1)
    """

    decimal: str = "."  # the decimal mark, or ","
    thousands: str = ""  # the separator of thousands: none, or one of , . ' and a blank
    percent: bool = False  # whether the numbers have a percent sign; "45 %" is 45
    # Words in small letters and the number of their class, whose most frequent word comes first.
    words: tuple[tuple[str, int], ...] = ()
    # What becomes of ">10": an error, a gap ("drop"), the number, or a bound for the loss.
    censored: str = "stop"

    def __post_init__(self) -> None:
        if (self.decimal, self.thousands) not in MARKS:
            raise ValueError(f"ColumnFormat: {self.decimal!r} and {self.thousands!r} do not fit")
        if self.censored not in CENSORED:
            raise ValueError(f"censored = {self.censored!r}, expected {', '.join(CENSORED)}")

    def read(self, text: str) -> tuple[float, int]:
        """Return the value, NaN for a gap, and its bound: 1 for ``>10``, -1 for ``<0.1``, else 0.

        Another text is a `ValueError` with the problem. `censored` does not count here.
        """
        cell = read_cell(text)
        if self.words and (number := dict(self.words).get(cell.word)) is not None:
            return float(number), 0
        if cell.kind == "gap":
            return math.nan, 0
        if self.words:
            raise ValueError(f"is not one of {', '.join(word for word, _ in self.words)}")
        if cell.problem:
            raise ValueError(cell.problem)
        marks = self.decimal, self.thousands
        if not cell.style.fits(marks):
            raise ValueError(f"is not a number with a {describe_marks(marks) or 'decimal point'}")
        if (cell.sign == "%") != self.percent:
            has = "no percent sign, and others have" if self.percent else "a percent sign"
            raise ValueError(f"has {has}; write all values in one way")
        return cell.style.scale(marks) * cell.value, cell.bound

    def label(self, text: str) -> float:
        """Return the value with `censored` applied; a `CensoredError` if it is to stop."""
        value, bound = self.read(text)
        if bound and self.censored == "stop":
            raise CensoredError("is a bound, not a value")
        return math.nan if bound and self.censored == "drop" else value

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each class in the order of their numbers: the first of its words."""
        first = {number: word for word, number in reversed(self.words)}
        return tuple(first.get(number, str(number)) for number in range(max(first, default=-1) + 1))

    def describe(self) -> str:
        """Describe what is not a plain number: marks, percent signs and the words of classes."""
        said = [describe_marks((self.decimal, self.thousands)), "percent" * self.percent]
        said += [f"{word} = {number}" for word, number in self.words]
        return ", ".join(filter(None, said))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {**asdict(self), "words": [list(pair) for pair in self.words]}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "ColumnFormat":
        """Make the format of the fields of `to_dict`."""
        words = tuple((str(word), int(number)) for word, number in fields.get("words", ()))
        return cls(**{**fields, "words": words})


def describe_marks(marks: Marks) -> str:
    """Describe a decimal mark and a thousands separator that are not the plain ones."""
    said = ["decimal comma"] if marks[0] == "," else []
    return ", ".join([*said, f"thousands separator {marks[1]!r}"] if marks[1] else said)


def read_labels(
    texts: Sequence[str], names: Sequence[str], formats: Mapping[str, ColumnFormat]
) -> list[float]:
    """Convert the labels of one row, NaN for a gap; other texts raise a `ValueError`.

    A column without a format has plain numbers. If there are several labels, a text that its format
    does not read is a gap, as long as another label of the row is known.
    """
    values, errors = [], []
    for text, name in zip(texts, names, strict=True):
        if name in formats:
            value = math.nan
            try:
                value = formats[name].label(text)
            except ValueError as error:
                errors.append(type(error)(f"{name} = {text!r} {error}"))
        else:
            value, problem = plain_number(text)
            if problem:
                raise ValueError(f"{name} = {text!r} {problem}")
        values.append(value)
    for found in errors:
        if isinstance(found, CensoredError) or all(value != value for value in values):
            raise found
    return values
