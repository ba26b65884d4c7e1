"""What the columns of a table hold, how their texts become numbers, and which is the target."""

import csv
import io
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from slicegraph.data.table import (
    EMPTY,
    FORMULAS,
    GAPS,
    SDF_RECORDS,
    open_table,
    plain_name,
    plain_number,
)

CENSORED = ("stop", "drop", "value", "loss")

_MOST_CLASSES = 50  # words of a column that can be its classes
_MOST_WORDS = 1000  # counted in a column
_REMEMBERED = 500_000  # texts of all columns that are compared for repetition
_STRAYS = 0.05  # of a column may be spelt in another way than the rest: those cells are bad
_EXAMPLES, _SHOWN = 3, 30  # bad cells of a profile, columns in an error

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
_NUMBER = re.compile(r"([+-]?)(\d[\d.,' ]*|[.,]\d+)((?:e[+-]?\d+)?)", re.IGNORECASE)
_USUAL = re.compile(r"-?\d{1,3}(\.\d{1,20})")  # most labels: a short way for a common shape
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
_NO_NUMBER = "is not a number"
_PARTS, _MOLECULES = "the parts of a split", "it holds molecules"  # a reason, a problem

# The shape of a number is its separators: "" for none, "." and "," for one, with "3" if it may as
# well group thousands (1.234), twice for groups (1.234.567), ",." for 1,234.5, "0" for 007 and "4"
# for 1234. Each fits one of these pairs of a decimal mark and a thousands separator; None is any.
_SHAPES: dict[str, tuple[tuple[str | None, str | None], ...]] = {
    **dict.fromkeys(("", "0", "4"), ((None, None),)),
    **{mark: ((mark, None),) for mark in ".,"},
    **{mark + "3": ((mark, None), (None, mark)) for mark in ".,"},
    **{mark * 2: ((None, mark),) for mark in ".,"},
    **{",.": ((".", ","),), ".,": ((",", "."),)},
    **{space: ((None, space),) for space in " '"},
    **{space + mark: ((mark, space),) for space in " '" for mark in ".,"},
}
_Marks = tuple[str, str]
_PLAIN: _Marks = (".", "")
_MARKS: list[_Marks] = [_PLAIN, (",", ""), (".", ","), (",", ".")]
_MARKS += [(mark, space) for space in " '" for mark in ".,"]

_POSITIVE = {"active", "yes", "true", "positive", "pos", "y", "t", "+", "toxic", "high", "pass"}
_POSITIVE |= {"aktiv", "ja", "wahr", "positiv", "actif", "oui", "vrai", "positif"}
_NEGATIVE = {"inactive", "no", "false", "negative", "neg", "n", "f", "-", "nontoxic", "low", "fail"}
_NEGATIVE |= {"inaktiv", "nein", "falsch", "negativ", "inactif", "non", "faux", "négatif"}
_OPPOSITES = ("in", "im", "un", "non", "not", "no")  # insoluble, impermeable, non-binder
SPLIT_WORDS = {  # also before "set", with the number of the part
    **dict.fromkeys(("train", "training", "trn", "tr"), 0),
    **dict.fromkeys(("valid", "val", "validation", "dev", "cal", "calibration"), 1),
    **dict.fromkeys(("test", "testing", "tst", "te", "holdout", "hold-out", "external"), 2),
}
_FLAG_NAME = re.compile(r"(?:i[sn]_?)?(train|training|test|testing|holdout|external)(?:_?set)?")
_RELATIONS = {"=", ">", "<", ">=", "<=", "~", ">>", "<<", "≥", "≤"}

_ID_WORDS = {"cid", "sid", "aid", "cas", "casrn", "batch", "plate", "barcode", "mw", "molwt"}
_ID_WORDS |= {"date", "datum", "timestamp", "molgewicht", "unnamed", "inchikey"}
_ID_ENDS = {"weight", "gewicht", "wt", "mass", "split", "fold", "set", "dataset", "year", "jahr"}
_ID_ENDS_OF_INTEGERS = {"id", "ids", "idx", "index", "no", "nr", "num", "number", "nummer"}
_ID_ENDS_OF_INTEGERS |= {"numero", "numéro", "row", "well", "lot", "ref", "registry", "molid"}
_CODES = frozenset([-1.0, *(s * (10.0**n - 1) for n in range(1, 7) for s in (1, -1))])  # missing?
_POSITIVE_NAME = re.compile(  # IC50 (nM), not pIC50
    r"(?<![^\W_])((ic|ec|ac|gi|cc|ld)_?50|k[id]|conc|concentration|konzentration)(?![^\W_])",
    re.IGNORECASE,
)
_MEASURED = re.compile(
    r"(?<![^\W_])(p|log|ln)?_?((ic|ec|ac|gi|cc|ld)_?50|k[id]|m?ic|chembl)(?![^\W_])"
    r"|(?<![^\W_])(log_?[dps](?![a-z])|papp|hits?|class|labels?|targets?|y|endpoint|values?)(?![^\W_])"
    r"|solubility|activity|active|potency|inhibition|clearance|toxic|clint",
    re.IGNORECASE,
)
_UNIT_NAME = re.compile(r"(.*_)?(units?|einheit(en)?|unités?)")
_CONDITION = re.compile(
    r"((assay|test|buffer|incubation|storage|room|measurement|final|start) )?"
    r"(ph|ph value|ph wert|temp|temperature|temperatur|température)( (in )?(deg )?[cfk])?"
)
_NO_NAME = re.compile(r"column \d+( \(column \d+\))?")
_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_CAPITALS = re.compile(r"(?<=[a-zà-ÿ])(?=[A-Z])")


class AmbiguousTargets(ValueError):
    """A table with no obvious target; the message lists the candidates and gives the command."""


class CensoredError(ValueError):
    """A bound such as ``>10`` where a value is needed."""


class _Cell(NamedTuple):
    """A text by itself; the value of the shape 1.234 is that of decimals."""

    kind: str  # "number", "gap", "date" or "word"
    word: str  # the text in plain spelling and small letters
    value: float = math.nan
    bound: int = 0
    shape: str = ""
    sign: str = ""  # "%" after the number, "~" before it
    problem: str = ""


@lru_cache(1 << 16)
def _cell(text: str) -> _Cell:
    if usual := _USUAL.fullmatch(text):
        may_group = len(usual[1]) == 4 and text.lstrip("-")[0] != "0"
        return _Cell("number", text, float(text), 0, ".3" if may_group else ".")
    plain = (text if text.isascii() else text.translate(_SPELLING)).strip()
    if plain[:1] in ("'", '"'):
        plain = plain.strip("'\" ")
    word = plain.casefold()
    if word in GAPS:
        return _Cell("gap", word)
    mark = _BOUND.match(plain)
    number = plain[mark.end() :].lstrip() if mark else plain
    bound = 0 if not mark else 1 if mark["above"] else -1 if mark["below"] else 0
    sign = "~" if mark and mark["about"] else ""
    if number.endswith("%"):
        number, sign = number[:-1].rstrip(), "%"
    found = _NUMBER.fullmatch(number)
    shape = _shape(found[2]) if found else None
    if found and shape is not None:
        thousands = _SHAPES[shape][0][1]
        digits = found[2].replace(thousands, "") if thousands else found[2]
        value, problem = plain_number(found[1] + digits.replace(",", ".") + found[3])
        if problem:
            return _Cell("word", word, problem=problem)
        return _Cell("number", word, value, bound, shape, sign)
    if any(date.fullmatch(plain) for date in DATES.values()):
        return _Cell("date", word, problem="is a date, not a number")
    return _Cell("word", word, problem=_problem(number))


def _shape(digits: str) -> str | None:
    """Return the key of `_SHAPES` for a number without sign and exponent, None for a wrong one."""
    marks = re.sub(r"\d", "", digits)
    if not marks:
        return "0" if digits[0] == "0" and len(digits) > 1 else "4" * (len(digits) > 3)
    first, last = marks[0], marks[-1]
    if len(marks) == 1 and first in ".,":
        return first + "3" * bool(re.fullmatch(r"[1-9]\d{0,2}.\d{3}", digits))
    rest = "" if last == first else re.escape(last) + r"\d*"
    if not re.fullmatch(rf"\d{{1,3}}({re.escape(first)}\d{{3}})+{rest}", digits):
        return None
    shape = first + last if last != first else first if first in " '" else 2 * first
    return shape if shape in _SHAPES else None


def _problem(number: str) -> str:
    """Say why a text is not a number."""
    if "±" in number or "+/-" in number:
        return "has an uncertainty; keep the value alone"
    if _RANGE.fullmatch(number):
        return "is a range; keep one value"
    if unit := _UNIT.fullmatch(number):
        return f"has {unit[1]!r} after the number; keep the number alone"
    return plain_number(number)[1] or _NO_NUMBER


def _fits(shape: str, marks: _Marks) -> bool:
    return any(d in (None, marks[0]) and t in (None, marks[1]) for d, t in _SHAPES[shape])


@dataclass(frozen=True)
class ColumnFormat:
    """How the texts of one column become numbers.

    Args:
        decimal: the decimal mark, ``.`` or ``,``.
        thousands: the separator of thousands; none, or one of ``, . '`` and a blank.
        percent: whether the numbers have a percent sign; ``45 %`` is 45.
        words: words in small letters and the number of their class, which may have several; the
            most frequent one comes first.
        censored: what becomes of ``>10`` and ``<0.1``: an error ("stop"), a gap ("drop"), the
            number itself ("value"), or a bound for the loss ("loss").

    Example:
        >>> ColumnFormat(decimal=",", thousands=".").read("> 1.234,5")
        (1234.5, 1)
    """

    decimal: str = "."
    thousands: str = ""
    percent: bool = False
    words: tuple[tuple[str, int], ...] = ()
    censored: str = "stop"

    def __post_init__(self) -> None:
        if (self.decimal, self.thousands) not in _MARKS:
            raise ValueError(f"ColumnFormat: {self.decimal!r} and {self.thousands!r} do not fit")
        if self.censored not in CENSORED:
            raise ValueError(f"censored = {self.censored!r}, expected {', '.join(CENSORED)}")

    def read(self, text: str) -> tuple[float, int]:
        """Return the value, NaN for a gap, and its bound: 1 for ``>10``, -1 for ``<0.1``, else 0.

        Another text is a `ValueError` with the problem. `censored` does not count here.
        """
        cell = _cell(text)
        if self.words and (number := dict(self.words).get(cell.word)) is not None:
            return float(number), 0
        if cell.kind == "gap":
            return math.nan, 0
        if self.words:
            raise ValueError(f"is not one of {', '.join(word for word, _ in self.words)}")
        if cell.problem:
            raise ValueError(cell.problem)
        marks = self.decimal, self.thousands
        if not _fits(cell.shape, marks):
            raise ValueError(f"is not a number with a {_said(marks) or 'decimal point'}")
        if (cell.sign == "%") != self.percent:
            has = "no percent sign, and others have" if self.percent else "a percent sign"
            raise ValueError(f"has {has}; write all values in one way")
        grouped = cell.shape == f"{self.thousands}3"
        return (1000 * cell.value if grouped else cell.value), cell.bound

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

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {**asdict(self), "words": [list(pair) for pair in self.words]}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "ColumnFormat":
        """Make the format of the fields of `to_dict`."""
        words = tuple((str(word), int(number)) for word, number in fields.get("words", ()))
        return cls(**{**fields, "words": words})


def _two_ways(seen: "_Seen") -> str:
    return f"{seen.text!r} (row {seen.row}) can be read in two ways"


def _said(marks: _Marks) -> str:
    """Describe a decimal mark and a thousands separator that are not the plain ones."""
    said = ["decimal comma"] if marks[0] == "," else []
    return ", ".join([*said, f"thousands separator {marks[1]!r}"] if marks[1] else said)


@dataclass(frozen=True)
class ColumnProfile:
    """What is in a column; of a column of labels ``gaps + numbers + bad == rows``."""

    name: str
    position: int  # the first column is 0
    rows: int = 0  # that could be split into columns
    gaps: int = 0
    numbers: int = 0  # values that `format` reads: numbers, bounds and words of classes
    censored: int = 0  # of these, bounds such as ">10"
    bad: int = 0  # values that `format` does not read
    examples: tuple[tuple[int, str], ...] = ()  # the first of these, with their rows
    minimum: float = math.nan
    maximum: float = math.nan
    whole: bool = False  # whether all numbers are integers
    distinct: int = 0  # different texts, as far as they were counted
    many: bool = False  # whether there may be more
    words: Mapping[str, int] = field(default_factory=dict)  # other texts, the first 1,000
    kind: str = "empty"  # SMILES, InChI, molblock, (whole) number, class, identifier, date, text
    format: ColumnFormat = ColumnFormat()
    note: str = ""  # how `format` differs from plain numbers
    reason: str = ""  # why it is not taken as the target unasked; empty for a candidate
    problem: str = ""  # why it cannot be the target even if asked for
    doubt: str = ""  # what its numbers may be instead

    def facts(self) -> tuple[str, str, str]:
        """Return the type, the range or the classes, and the share of gaps, for a person."""
        words = [word for word, _ in self.format.words if word in self.format.names]
        what = " / ".join(words[:4] + ["..."] * (len(words) > 4))
        if self.numbers and not words and not self.problem:
            what = f"{self.minimum:.6g} to {self.maximum:.6g}"
        share = 100 * self.gaps / max(self.rows, 1)
        shown = "no gaps" if not self.gaps else f"{share:.0f} % gaps" if share >= 1 else "<1 % gaps"
        return self.kind, what, shown


@dataclass(frozen=True)
class TableProfile:
    """What is in a table."""

    file: str  # its name
    rows: int
    broken: int  # rows that cannot be split into columns
    columns: tuple[ColumnProfile, ...]
    smiles: str | None  # the column of the molecules; None in a file without columns (.smi)
    structure: str  # how they are written: SMILES, InChI or molblock
    notes: tuple[str, ...] = ()  # how the file differs from UTF-8 with commas, a line each
    warnings: tuple[str, ...] = ()  # what makes its labels doubtful, a line each

    def __getitem__(self, name: str) -> ColumnProfile:
        """Return the profile of a column; a `ValueError` names those that there are."""
        names = [column.name for column in self.columns]
        if name in names:
            return self.columns[names.index(name)]
        if several := [found for found in names if found.startswith(f"{name} (column ")]:
            choice = ", ".join(map(repr, several))
            raise ValueError(f"{self.file!r} has more than one column {name!r}: choose of {choice}")
        near = get_close_matches(name.casefold(), [found.casefold() for found in names], 1)
        meant = "".join(f"did you mean {n!r}? " for n in names if n.casefold() in near)
        shown = ", ".join(map(repr, names))
        raise ValueError(f"{self.file!r} has no column {name!r}; {meant}its columns are {shown}")


@dataclass
class _Seen:
    """Numbers of one shape."""

    row: int  # of the first
    text: str
    minimum: float
    maximum: float
    total: int = 0
    whole: bool = True


class _Column:
    """Counts of the texts of a column, in bounded memory."""

    def __init__(self, name: str, position: int, limit: int) -> None:
        self.name, self.position, self.limit = name, position, limit
        self.kinds: Counter[str] = Counter()  # of the cells
        self.signs: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.meant: Counter[str] = Counter()  # gaps such as ND
        self.shapes: dict[str, _Seen] = {}
        self.bad: list[tuple[int, str]] = []
        self.texts: set[str] = set()
        self.repeated = False
        self.rows = self.dashes = self.bounds = self.negative = 0
        self.codes: Counter[float] = Counter()  # such as -999, and the range of the other values
        self.least, self.most = math.inf, -math.inf
        self.bound = ""  # the first
        self.counting, self.last = True, math.nan  # whether each number is the last plus 1

    def add(self, row: int, text: str) -> None:
        """Count the text of the next row."""
        self.rows += 1
        cell = _cell(text)
        self.kinds[cell.kind] += 1
        if cell.kind == "gap":
            self.dashes += cell.word == "-"
            if cell.word[:1].isalpha() and cell.word not in EMPTY:
                self.meant[text.strip()] += 1
            return
        if cell.word in self.texts:
            self.repeated = True
        elif len(self.texts) <= self.limit:
            self.texts.add(cell.word)
        if cell.kind == "number":
            self._add_number(row, text.strip(), cell)
            return
        self.kinds["spoilt"] += cell.kind == "word" and cell.problem != _NO_NUMBER
        if cell.word in self.words or len(self.words) < _MOST_WORDS:
            self.words[cell.word] += 1
        if len(self.bad) < _EXAMPLES:
            self.bad.append((row, text.strip()))

    def _add_number(self, row: int, text: str, cell: _Cell) -> None:
        value, seen = cell.value, self.shapes.get(cell.shape)
        if seen is None:
            seen = self.shapes[cell.shape] = _Seen(row, text, value, value)
        seen.total += 1
        if value < seen.minimum:
            seen.minimum = value
        elif value > seen.maximum:
            seen.maximum = value
        if seen.whole:
            seen.whole = value.is_integer()
        if self.counting:
            self.counting = self.last != self.last or value == self.last + 1
            self.last = value
        if value in _CODES:
            self.codes[value] += 1
        elif value < self.least or value > self.most:
            self.least, self.most = min(value, self.least), max(value, self.most)
        self.negative += value < 0
        if cell.sign:
            self.signs[cell.sign] += 1
        if cell.bound:
            self.bounds += 1
            self.bound = self.bound or text

    def has_decimal_commas(self) -> bool:
        """Return whether most texts are numbers that have decimal commas and nothing else."""
        mostly = 2 * self.kinds["number"] > self.rows - self.kinds["gap"]
        return mostly and self._marks("", False)[0][0] == ","

    def profile(self, delimiter: str, commas: bool) -> ColumnProfile:
        """Decide what the column is.

        Args:
            delimiter: that of the fields; semicolons are used where commas are decimal.
            commas: whether a column of the table has decimal commas.
        """
        if any({*word} == {"+"} for word in self.words) and not self.kinds["number"]:
            self.kinds["gap"] -= self.dashes  # a dash is the opposite of +
            self.words += Counter({"-": self.dashes})
        filled = self.rows - self.kinds["gap"]
        found = ColumnProfile(
            self.name,
            self.position,
            rows=self.rows,
            gaps=self.kinds["gap"],
            bad=filled,
            examples=tuple(self.bad),
            distinct=len(self.texts),
            many=len(self.texts) > self.limit,
            words=dict(self.words),
        )
        found = self._decide(found, filled, delimiter, commas)
        if self.meant and not found.problem:
            gaps = [f"{count:,} x {text!r}" for text, count in self.meant.most_common(5)]
            note = "; ".join([*filter(None, [found.note]), f"{', '.join(gaps)} are gaps"])
            return replace(found, note=note)
        return found

    def _decide(
        self, found: ColumnProfile, filled: int, delimiter: str, commas: bool
    ) -> ColumnProfile:
        if not filled:
            return replace(found, reason="no values", problem="it has no values")
        if 2 * self.kinds["date"] > filled:
            return replace(found, kind="date", reason="dates", problem="it holds dates")
        if known := self._known_words(filled):
            reason = "one value only" if len({*known.values()}) == 1 else ""
            pairs = sorted(
                known.items(), key=lambda pair: (-pair[1], -self.words[pair[0]], pair[0])
            )
            return self._classes(found, pairs, _reason_of_name(self.name, True) or reason)
        if 2 * self.kinds["number"] > filled:
            return self._numbers(found, *self._marks(delimiter, commas))
        return self._text(found)

    def _numbers(
        self, found: ColumnProfile, marks: _Marks, note: str, problem: str
    ) -> ColumnProfile:
        read = {shape: seen for shape, seen in self.shapes.items() if _fits(shape, marks)}
        scaled = [(1000 if shape == marks[1] + "3" else 1, seen) for shape, seen in read.items()]
        whole = all(seen.whole or scale > 1 for scale, seen in scaled)
        least = min((scale * seen.minimum for scale, seen in scaled), default=math.nan)
        most = max((scale * seen.maximum for scale, seen in scaled), default=math.nan)
        percent = 2 * self.signs["%"] > self.kinds["number"]
        strays = self.kinds["number"] - self.signs["%"] if percent else self.signs["%"]
        count = max(0, sum(seen.total for seen in read.values()) - strays)
        bad = found.bad - count
        others = [(seen.row, seen.text) for shape, seen in self.shapes.items() if shape not in read]
        examples = tuple(sorted([*self.bad, *others])[:_EXAMPLES])
        such = "".join(f", such as {text!r} in row {row}" for row, text in examples[:1])
        notes = {
            note: note,
            "percent signs dropped (45 % is 45)": percent,
            f"read as exact in spite of ~: {self.signs['~']:,}": self.signs["~"],
            f"bounds: {self.bounds:,}, such as {self.bound!r}": self.bounds,
            f"not readable: {bad:,}{such}": bad and not problem,
        }
        reason = _reason_of_name(self.name, whole)
        if whole and not problem:
            reason = reason or self._numbering(least, most)
        two = whole and least == 0 and most == 1
        if two and flagged_part(self.name) is not None:
            reason = _PARTS
        one = f"one value only ({least:g}), so that no split can help" if least == most else ""
        return replace(
            found,
            numbers=count,
            censored=self.bounds,
            bad=bad,
            examples=examples,
            minimum=least,
            maximum=most,
            whole=whole,
            kind="identifier" if reason else "class" if two else "whole number" * whole or "number",
            format=ColumnFormat(*marks, percent=percent),
            note="; ".join(text for text, holds in notes.items() if holds),
            reason=reason or (one if not problem else ""),
            problem=problem,
            doubt="" if any(scale > 1 for scale, _ in scaled) else self._doubt(),
        )

    def _doubt(self) -> str:
        """Say which numbers may stand for missing values, with the remedy."""
        least, most = self.least, self.most
        two, enough = (least, most) == (0, 1), max(2, min(3, 0.02 * self.kinds["number"]))
        codes = [
            f"{value:g} ({count:,} times)"
            for value, count in sorted(self.codes.items())
            if (count >= enough and max(least - value, value - most) > most - least > 0)
            or (two and value in (-1, 9))
        ]
        if codes:
            return f"has {', '.join(codes)}, far from all other values ({least:g} to {most:g})"
        if self.negative and _POSITIVE_NAME.search(self.name) and "log" not in self.name.casefold():
            return f"has {self.negative:,} negative values, which its name does not allow"
        return ""

    def _marks(self, delimiter: str, commas: bool) -> tuple[_Marks, str, str]:
        """Return decimal mark and thousands separator, a note, and a problem if there are two."""
        present = "".join(self.shapes)
        marks = [pair for pair in _MARKS if not pair[1] or pair[1] in present]
        counts = {
            pair: sum(seen.total for shape, seen in self.shapes.items() if _fits(shape, pair))
            for pair in marks
        }
        fitting = [pair for pair in marks if counts[pair] == max(counts.values())]
        best = fitting[0]  # the plainest of those that read most
        if counts[best] < (1 - _STRAYS) * self.kinds["number"]:
            seen = {_fits(shape, best): s for shape, s in self.shapes.items() if shape.strip("04")}
            both = " and ".join(f"{s.text!r} (row {s.row})" for s in seen.values())
            return best, "", f"it mixes spellings of numbers, {both}; write all in one way"
        if best == _PLAIN or len(fitting) == 1 or ",3" not in self.shapes:
            first = self.shapes.get(".3")
            if not first or "." in self.shapes or best[0] == "," or not commas:
                return best, _said(best), ""
            why = "as other columns have decimal commas"
            return best, "", f"{_two_ways(first)}, {why}; write it without a separator of thousands"
        first, smaller = self.shapes[",3"], self.shapes.get("")
        value = _cell(first.text).value
        if (delimiter == ";" or commas) and ".3" not in self.shapes:
            why = "other columns have it" if commas else "semicolons separate the fields"
            return (",", ""), f"decimal comma, as {why} ({first.text} is {value:g})", ""
        best = (".", ",")
        # 567 beside 7,467 is a number below a thousand; 5 may be 5,000 with a decimal comma.
        if not smaller or smaller.maximum < max(100, first.maximum) or {".3", "4"} & {*self.shapes}:
            remedy = "write it without a comma, in the whole column"
            return best, "", f"{_two_ways(first)}, {1000 * value:.0f} or {value:g}; {remedy}"
        return best, f"{_said(best)} ({first.text} is {1000 * value:.0f})", ""

    def _numbering(self, least: float, most: float) -> str:
        """Say why whole numbers look like identifiers."""
        count = self.kinds["number"]
        if "0" in self.shapes:
            return f"leading zeros ({self.shapes['0'].text!r})"
        if self.repeated or count < 3:
            return ""
        if self.counting:
            return "it counts the rows"
        dense = most - least < 2 * count
        return "unique whole numbers" if count >= 20 and (dense or least >= 1000) else ""

    def _known_words(self, filled: int) -> dict[str, int]:
        """Return the class of each word if almost all are words such as active and inactive."""
        names = {word: re.sub(r"(?<=.)[-_ ](?=.)", "", word) for word in self.words}
        all_names, known = {*names.values()}, {}
        for word, name in names.items():
            if name in _NEGATIVE or any(
                name.startswith(o) and name[len(o) :] in all_names for o in _OPPOSITES
            ):
                known[word] = 0
            elif name in _POSITIVE or any(o + name in all_names for o in _OPPOSITES):
                known[word] = 1
        if not known or (len(known) > 1 and len({*known.values()}) == 1):
            return {}
        count = sum(self.words[word] for word in known)
        digits = {text: _cell(text) for text in self.texts - self.words.keys()}
        if digits and {cell.value for cell in digits.values()} <= {0.0, 1.0} and not self.signs:
            known |= {text: int(cell.value) for text, cell in digits.items()}
            count += self.kinds["number"]
        return known if count >= (1 - _STRAYS) * filled else {}

    def _classes(
        self, found: ColumnProfile, pairs: list[tuple[str, int]], reason: str
    ) -> ColumnProfile:
        words = dict(pairs)
        digits = self.kinds["number"] * any(_cell(word).kind == "number" for word in words)
        count = sum(self.words[word] for word in words) + digits
        return replace(
            found,
            numbers=count,
            bad=found.bad - count,
            examples=tuple(one for one in self.bad if _cell(one[1]).word not in words),
            minimum=min(words.values()),
            maximum=max(words.values()),
            whole=True,
            kind="class",
            format=ColumnFormat(words=tuple(pairs)),
            note=", ".join(f"{word} = {number}" for word, number in pairs),
            reason=reason,
        )

    def _text(self, found: ColumnProfile) -> ColumnProfile:
        words, filled, number = self.words.keys(), found.bad, self.kinds["number"]
        if words <= _RELATIONS:
            return replace(found, kind="text", reason="relations", problem="it holds relations")
        text = self.bad[0][1]
        if "smiles" in plain_name(self.name) or text.startswith("InChI="):
            kind = "InChI" if text.startswith("InChI=") else "SMILES"
            return replace(found, kind=kind, reason="molecules", problem=_MOLECULES)
        if 2 * (self.kinds["spoilt"] + number) > filled:
            problem = f"{text!r} in row {self.bad[0][0]} {_cell(text).problem}"
            return replace(found, kind="text", reason=problem, problem=problem)
        if len(words) <= _MOST_CLASSES and number <= _STRAYS * filled:
            split = {*map(split_word, words)} <= SPLIT_WORDS.keys()
            reason = _PARTS if split else "words; name it to predict them as classes"
            pairs = [(word, number) for number, word in enumerate(sorted(words))]
            classes = self._classes(found, pairs, reason)
            return classes if self.repeated else replace(classes, kind="text")
        holds = f"numbers and text such as {text!r}" if number else f"text such as {text!r}"
        kind = "text" if self.repeated or number else "identifier"
        return replace(found, kind=kind, reason=holds, problem=f"it holds {holds}")


def _reason_of_name(name: str, integers: bool) -> str:
    """Say why a column of this name is not a measurement; integers may be numbers of something."""
    bare = _BRACKETS.sub("", name)
    spellings = [re.findall(r"[^\W\d_]+", text) for text in (bare, _CAPITALS.sub(" ", bare))]
    parts = [[word.casefold() for word in words] for words in spellings]
    ends = _ID_ENDS | (_ID_ENDS_OF_INTEGERS if integers else set())
    if _NO_NAME.fullmatch(name) or not any(parts):
        return "it has no name"
    if _CONDITION.fullmatch(" ".join(parts[0])):
        return "a condition, by its name"
    if any(words[-1] in ends or _ID_WORDS.intersection(words) for words in parts):
        return "an identifier or condition, by its name"
    return ""


def _warnings(columns: Iterable[ColumnProfile]) -> Iterator[str]:
    """Yield what makes the labels of a table doubtful."""
    for column in columns:
        bounds = sum(count for word, count in column.words.items() if word not in ("=", "~"))
        if column.reason == "relations" and bounds:
            yield (
                f"column {column.name!r} has {bounds:,} relations such as > and <: the values that"
                " belong to them are bounds, but are read as exact; remove these rows, or write"
                " the relation before the value (>10)"
            )
        if column.doubt and not column.reason:
            remedy = "empty these cells if they mean missing"
            yield f"column {column.name!r} {column.doubt}; {remedy}"
        units = {re.sub("^[µμ]", "u", word) for word in column.words}
        if len(units) > 1 and _UNIT_NAME.fullmatch(plain_name(column.name)):
            listed = ", ".join(re.sub("^([pnum]?)m$", r"\1M", unit) for unit in sorted(units)[:6])
            yield (
                f"the values are in different units (column {column.name!r}: {listed}) and are read"
                " as they are; convert them to one unit"
            )


def split_word(text: str) -> str:
    """Return the word of a part of a split: ``Training set`` is ``training``, ``1.0`` is ``1``."""
    word = text.strip().casefold().removesuffix(".0")
    return re.sub(r"(?<=[^\W\d])[ _-]*set$", "", word)


def flagged_part(name: str) -> int | None:
    """Return the part whose rows have 1 in a column called ``is_test`` or ``train``, or None."""
    flag = _FLAG_NAME.fullmatch(plain_name(name.strip()))
    return SPLIT_WORDS[flag[1]] if flag else None


def _hints(columns: Sequence[ColumnProfile], source: str) -> Iterator[str]:
    """Yield which columns could be the split or the molecules, with the flags."""
    for name, kind, reason in [(column.name, column.kind, column.reason) for column in columns]:
        if reason == _PARTS:
            yield f"column {name!r} looks like a split: --split {shlex.quote(f'column:{name}')}"
        if kind == "date":
            yield f"column {name!r} has dates: --split {shlex.quote(f'time:{name}')}"
    others = [repr(column.name) for column in columns if column.problem == _MOLECULES]
    if others and source:
        yield f"molecules from {source}, not from {', '.join(others)} (--smiles to change)"


def profile_table(path: str | Path, smiles: str | None = None) -> TableProfile:
    """Read a table once and describe each of its columns; memory does not grow with the rows."""
    table = open_table(path, smiles, ())
    own = table.columns.index(table.smiles) if table.smiles else 0
    names = [*table.columns[:own], *table.columns[own + 1 :]]
    limit = max(100, min(10_000, _REMEMBERED // max(len(names), 1)))
    columns = [_Column(name, k + (k >= own), limit) for k, name in enumerate(names)]
    rows = broken = 0
    # The texts of the molecules are not needed: those of an SDF take long to make.
    for row in open_table(path, names[0] if names else table.smiles, names).rows():
        if row.problem is None:
            for column, text in zip(columns, row.labels, strict=True):
                column.add(rows, text)
        broken += row.problem is not None
        rows += 1
    commas = any(column.has_decimal_commas() for column in columns)
    profiles = [column.profile(table.delimiter, commas) for column in columns]
    molecules = ColumnProfile(table.columns[own], own, rows - broken, kind=table.structure)
    profiles.insert(own, replace(molecules, reason="molecules", problem="it holds the molecules"))
    for k, name in enumerate(table.columns):
        if name in table.formulas and profiles[k].kind == "empty":
            profiles[k] = replace(profiles[k], reason=FORMULAS, problem=f"it has {FORMULAS}")
    source = SDF_RECORDS if table.structure == "molblock" else f"column {table.smiles!r}"
    return TableProfile(
        file=Path(path).name,
        rows=rows,
        broken=broken,
        columns=tuple(profiles),
        smiles=table.smiles,
        structure=table.structure,
        notes=(*table.notes, *_hints(profiles, "" if smiles else source)),
        warnings=(*table.warnings, *_warnings(profiles)),
    )


def choose_targets(
    profile: TableProfile, given: Sequence[str] | None, command: str, flag: str = "--targets"
) -> tuple[str, ...]:
    """Return the targets: those given, or the only column that can be one.

    Args:
        profile: the table.
        given: the names of the targets, None to choose.
        command: the command so far, which errors complete with `flag`.
        flag: the option that names targets.
    """
    for name in given or ():
        if problem := profile[name].problem:
            raise ValueError(f"{profile.file!r}: {name!r} cannot be a target: {problem}")
    if given:
        return tuple(dict.fromkeys(given))
    found = sorted([c for c in profile.columns if not c.reason], key=lambda c: _rank(c.name))
    if len(found) == 1 and not found[0].problem:
        return (found[0].name,)
    passed = [column for column in profile.columns if column.reason not in ("", "molecules")]
    good = [column for column in found if not column.problem]
    several = f"{len(found)} columns can be the target, name one or more:"
    none = "no column is obviously the target"
    lines = [
        f"{profile.file!r}: {several if len(found) > 1 else none}",
        *_aligned([(c.name, *c.facts(), c.problem or c.note) for c in found]),
        *(["passed over:"] if passed else []),
        *_aligned([(c.name, *c.facts(), c.reason) for c in passed]),
    ]
    useful = [c for c in passed if not c.problem and c.minimum < c.maximum and c.kind != "text"]
    for column in [*good, *sorted(useful, key=lambda c: _rank(c.name))][:1]:
        lines.append(f"for example: {command} {flag} {quoted_names([column.name])}")
    many = [column.name for column in good if _rank(column.name) < 2]
    if len(many) > 1:
        lines.append(f"or for all: {command} {flag} {quoted_names(many)}")
    raise AmbiguousTargets("\n".join(lines))


@lru_cache(1 << 12)
def _rank(name: str) -> int:
    """Return 0 for the name of a measurement such as pIC50, 2 for a descriptor of RDKit, else 1."""
    if name in {known for known, _ in import_module("rdkit.Chem.Descriptors").descList}:
        return 2
    return 0 if _MEASURED.search(name) else 1


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Lay rows out in columns; a long list is cut."""
    shown = rows[:_SHOWN]
    widths = [min(40, max(map(len, column))) for column in zip(*shown, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in shown]
    more = [f"... and {len(rows) - _SHOWN:,} more"] if len(rows) > _SHOWN else []
    return [f"  {line}" for line in lines + more]


def quoted_names(names: Iterable[str]) -> str:
    """Write names as one argument of a shell, so that `split_names` finds them again."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return shlex.quote(text.getvalue())


def split_names(text: str) -> tuple[str, ...]:
    """Split names at commas, except in double quotes.

    Example:
        >>> split_names('logS,"IC50, nM"')
        ('logS', 'IC50, nM')
    """
    names = next(csv.reader([text], skipinitialspace=True), [])
    return tuple(name.strip() for name in names if name.strip())


def read_labels(
    texts: Sequence[str], names: Sequence[str], formats: Mapping[str, ColumnFormat]
) -> list[float]:
    """Convert the labels of one row, NaN for a gap; other texts raise a `ValueError`.

    A column without a format has plain numbers. If there are several labels, a text that its format
    does not read is a gap, as long as another label of the row is known.
    """
    values, errors = [], []
    for text, name in zip(texts, names, strict=True):
        value, problem = math.nan, None
        if name not in formats:
            value, problem = plain_number(text)
        else:
            try:
                value = formats[name].label(text)
            except ValueError as error:
                errors.append(type(error)(f"{name} = {text!r} {error}"))
        if problem:
            raise ValueError(f"{name} = {text!r} {problem}")
        values.append(value)
    for found in errors:
        if isinstance(found, CensoredError) or all(value != value for value in values):
            raise found
    return values


def read_bounds(
    path: str | Path, columns: Sequence[str], formats: Mapping[str, ColumnFormat]
) -> np.ndarray:
    """Return int8 ``[rows, L]``: 1 for ``>10``, -1 for ``<0.1``, 0 for all else.

    The rows are those of the file, as in `MoleculeStore.rows`. The `censored` of a format does not
    count.
    """
    read = [formats.get(name, ColumnFormat()).read for name in columns]
    found = bytearray()
    for row in open_table(path, columns[0], columns).rows():
        for get, text in zip(read, row.labels or [""] * len(columns), strict=True):
            try:
                found.append(get(text)[1] & 255)
            except ValueError:
                found.append(0)
    return np.frombuffer(found, np.int8).reshape(-1, len(columns))


def sign_of(text: str) -> int:
    """Return the bound that a relation such as ``>`` or ``'<='`` gives to its value, or 0."""
    mark = _BOUND.fullmatch(text.translate(_SPELLING).strip("'\" "))
    return 0 if not mark else 1 if mark["above"] else -1 if mark["below"] else 0


def read_column(path: str | Path, name: str) -> list[str]:
    """Return the texts of a column, one for each row; empty where a row cannot be read."""
    return ["" if row.problem else row.text for row in open_table(path, name, ()).rows()]
