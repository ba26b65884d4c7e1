"""What the columns of a table hold, how their texts become numbers, and which is the target."""

import csv
import io
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np

from slicegraph.data.cells import (
    MARKS,
    NO_NUMBER,
    ColumnFormat,
    Marks,
    Style,
    describe_marks,
    read_cell,
)
from slicegraph.data.table import (
    EMPTY,
    FORMULAS,
    SDF_RECORDS,
    cut,
    meant,
    open_table,
    plain_name,
)

_MOST_CLASSES = 50  # words of a column that can be its classes
_MOST_WORDS = 1000  # counted in a column
_CHUNK_ROWS = 20_000  # counted at a time
_REMEMBERED = 500_000  # texts of all columns that are compared for repetition
_STRAYS = 0.05  # of a column may be spelt in another way than the rest: those cells are bad
_EXAMPLES, _SHOWN = 3, 30  # bad cells of a profile, columns in an error

_IDENTIFIER, _COUNTS = "an identifier or condition, by its name", "it counts the rows"
_PARTS, _MOLECULES = "the parts of a split", "it holds molecules"  # a reason, a problem

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
_CODES = [-1.0, *(s * (10.0**n - 1) for n in range(1, 7) for s in (1, -1))]  # missing?
_USUAL_NUMBERS = {  # as lines of a text
    Style(): re.compile(r"^-?(?:[1-9]\d{0,2}|0)$", re.MULTILINE),
    Style(plain="4"): re.compile(r"^-?[1-9]\d{3,14}$", re.MULTILINE),
    Style(".", ".", either=True): re.compile(r"^-?[1-9]\d{0,2}\.\d{3}$", re.MULTILINE),
    Style("."): re.compile(
        r"^-?(?:0\.\d{1,15}|[1-9]\d{0,2}\.(?:\d{1,2}|\d{4,15})|[1-9]\d{3,9}\.\d{1,9})$",
        re.MULTILINE,
    ),
}
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
    format: ColumnFormat = field(default_factory=ColumnFormat)
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
        gaps = f"{share:.0f} %" if share >= 1 else "<1 %" if self.gaps else "no"
        return self.kind, what, f"{gaps} gaps"


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
        known = f"{meant(name, names)}its columns are {', '.join(map(repr, names))}"
        raise ValueError(f"{self.file!r} has no column {name!r}; {known}")


@dataclass
class _Seen:
    """Numbers of one style."""

    row: int = 0  # of the first
    text: str = ""
    minimum: float = math.inf
    maximum: float = -math.inf
    total: int = 0
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.text!r} (row {self.row})"


class _Column:
    """Counts of the texts of a column, in bounded memory."""

    def __init__(self, name: str, position: int, limit: int) -> None:
        self.name, self.position, self.limit = name, position, limit
        self.kinds: Counter[str] = Counter()  # of the cells
        self.signs: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.meant: Counter[str] = Counter()  # gaps such as ND
        self.styles: dict[Style, _Seen] = {}
        self.bad: list[tuple[int, str]] = []
        self.texts: set[str] = set()
        self.repeated = False
        self.rows = self.dashes = self.bounds = self.negative = 0
        self.codes: Counter[float] = Counter()  # such as -999, and the range of the other values
        self.least, self.most = math.inf, -math.inf
        self.bound = ""  # the first
        self.counting, self.last = True, math.nan  # whether each number is the last plus 1

    def add(self, rows: Sequence[int], texts: Sequence[str]) -> None:
        """Count the texts of the next rows; each different one is read once."""
        self.rows += len(texts)
        self.counting = self.counting and self._goes_on(texts)
        counts = Counter(texts)
        lines = "\n".join(text for text in counts if "\n" not in text)
        usual = {style: pattern.findall(lines) for style, pattern in _USUAL_NUMBERS.items()}
        others = dict[Style, list[str]]()
        rest = set(counts).difference(*usual.values())
        for text in filter(rest.__contains__, counts) if rest else ():
            cell, plain, count = read_cell(text), text.strip(), counts[text]
            if cell.kind == "number":
                others.setdefault(cell.style, []).append(text)
                self.signs[cell.sign] += count
                self.bounds += count * (cell.bound != 0)
                self.bound = self.bound or plain * (cell.bound != 0)
                continue
            self.kinds[cell.kind] += count
            if cell.kind == "gap":
                self.dashes += count * (cell.word == "-")
                if cell.word[:1].isalpha() and cell.word not in EMPTY:
                    self.meant[plain] += count
                continue
            self._remember([cell.word], count > 1)
            self.kinds["spoilt"] += count * (cell.kind == "word" and cell.problem != NO_NUMBER)
            if cell.word in self.words or len(self.words) < _MOST_WORDS:
                self.words[cell.word] += count
            if len(self.bad) < _EXAMPLES:
                self.bad.append((rows[texts.index(text)], plain))
        for style, found in [*usual.items(), *others.items()]:
            if found:
                self._add_numbers(style, found, [counts[text] for text in found])
                seen, row = self.styles[style], rows[texts.index(found[0])]
                if not seen.text or row < seen.row:
                    seen.row, seen.text = row, found[0].strip()

    def _goes_on(self, texts: Sequence[str]) -> bool:
        """Return whether each number is the one before plus 1."""
        numbers = (cell.value for cell in map(read_cell, texts) if cell.kind == "number")
        if len(texts) > 2 and all(map(str.isdecimal, texts)):  # many row numbers
            numbers = iter(np.array(texts, dtype=np.float64).tolist())
        for value in numbers:
            if self.last == self.last and value != self.last + 1:
                return False
            self.last = value
        return True

    def _remember(self, words: Sequence[str], twice: bool) -> None:
        self.repeated = self.repeated or twice or not self.texts.isdisjoint(words)
        self.texts.update(words[: max(0, self.limit + 1 - len(self.texts))])

    def _add_numbers(self, style: Style, texts: list[str], counts: list[int]) -> None:
        """Count different texts of one style."""
        seen = self.styles.setdefault(style, _Seen())
        if style in _USUAL_NUMBERS and _USUAL_NUMBERS[style].match(texts[0]):
            words, values = texts, np.array(texts, dtype=np.float64)
        else:
            words = [read_cell(text).word for text in texts]
            values = np.array([read_cell(text).value for text in texts])
        self._remember(words, max(counts) > 1 or len({*words}) < len(words))
        times = np.array(counts)
        self.kinds["number"] += int(times.sum())
        seen.total += int(times.sum())
        seen.minimum = min(seen.minimum, float(values.min()))
        seen.maximum = max(seen.maximum, float(values.max()))
        seen.whole = seen.whole and bool((values == np.floor(values)).all())
        self.negative += int(times[values < 0].sum())
        coded = np.isin(values, _CODES)
        for value, count in zip(values[coded].tolist(), times[coded].tolist(), strict=True):
            self.codes[value] += count
        self.least = min(self.least, float(values[~coded].min(initial=math.inf)))
        self.most = max(self.most, float(values[~coded].max(initial=-math.inf)))

    def has_decimal_commas(self) -> bool:
        """Return whether most texts are numbers that have decimal commas and nothing else."""
        mostly = 2 * self.kinds["number"] > self.rows - self.kinds["gap"]
        return mostly and self._marks("", False)[0][0] == ","

    def profile(self, delimiter: str, commas: bool) -> ColumnProfile:
        """Decide what the column is; with `commas`, a column of the table has decimal commas."""
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
        if not filled:
            found = replace(found, reason="no values", problem="it has no values")
        elif 2 * self.kinds["date"] > filled:
            found = replace(found, kind="date", reason="dates", problem="it holds dates")
        elif known := self._known_words(filled):
            reason = "one value only" if len({*known.values()}) == 1 else ""
            pairs = sorted(known.items(), key=lambda own: (-own[1], -self.words[own[0]], own[0]))
            found = self._classes(found, pairs, _reason_of_name(self.name, True) or reason)
        elif 2 * self.kinds["number"] > filled:
            found = self._numbers(found, *self._marks(delimiter, commas))
        else:
            found = self._text(found)
        if self.meant and not found.problem:
            gaps = [f"{count:,} x {text!r}" for text, count in self.meant.most_common(5)]
            notes = filter(None, [found.note, f"{', '.join(gaps)} are gaps"])
            return replace(found, note="; ".join(notes))
        return found

    def _numbers(
        self, found: ColumnProfile, marks: Marks, note: str, problem: str
    ) -> ColumnProfile:
        read = {style: seen for style, seen in self.styles.items() if style.fits(marks)}
        scaled = [(style.scale(marks), seen) for style, seen in read.items()]
        whole = all(seen.whole or scale > 1 for scale, seen in scaled)
        least = min((scale * seen.minimum for scale, seen in scaled), default=math.nan)
        most = max((scale * seen.maximum for scale, seen in scaled), default=math.nan)
        percent = 2 * self.signs["%"] > self.kinds["number"]
        strays = self.kinds["number"] - self.signs["%"] if percent else self.signs["%"]
        count = max(0, sum(seen.total for seen in read.values()) - strays)
        bad = found.bad - count
        others = [(seen.row, seen.text) for style, seen in self.styles.items() if style not in read]
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
        two = whole and (least, most) == (0, 1)
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

    def _marks(self, delimiter: str, commas: bool) -> tuple[Marks, str, str]:
        """Return decimal mark and thousands separator, a note, and a problem if there are two."""
        present = {mark for style in self.styles for mark in (style.decimal, style.thousands)}
        marks = [pair for pair in MARKS if pair[1] in ("", *present)]
        counts = {
            pair: sum(seen.total for style, seen in self.styles.items() if style.fits(pair))
            for pair in marks
        }
        fitting = [pair for pair in marks if counts[pair] == max(counts.values())]
        best = fitting[0]  # the plainest of those that read most
        if counts[best] < (1 - _STRAYS) * self.kinds["number"]:
            seen = {style.fits(best): s for style, s in self.styles.items() if any(style[:2])}
            both = " and ".join(map(str, seen.values()))
            return best, "", f"it mixes spellings of numbers, {both}; write all in one way"
        point, comma = (self.styles.get(Style(mark, mark, either=True)) for mark in ".,")
        if best == MARKS[0] or len(fitting) == 1 or not comma:
            if not point or Style(".") in self.styles or best[0] == "," or not commas:
                return best, describe_marks(best), ""
            why = "can be read in two ways, as other columns have decimal commas"
            return best, "", f"{point} {why}; write it without a separator of thousands"
        smaller, value = self.styles.get(Style()), read_cell(comma.text).value
        if (delimiter == ";" or commas) and not point:
            why = "other columns have it" if commas else "semicolons separate the fields"
            return (",", ""), f"decimal comma, as {why} ({comma.text} is {value:g})", ""
        best = (".", ",")
        # With 7,467, 567 is a number below a thousand; 5 may be 5,000 with a decimal comma.
        few = not smaller or smaller.maximum < max(100, comma.maximum)
        if few or point or Style(plain="4") in self.styles:
            ways = f"can be read in two ways, {1000 * value:.0f} or {value:g}"
            return best, "", f"{comma} {ways}; write it without a comma, in the whole column"
        return best, f"{describe_marks(best)} ({comma.text} is {1000 * value:.0f})", ""

    def _numbering(self, least: float, most: float) -> str:
        """Say why whole numbers look like identifiers."""
        count = self.kinds["number"]
        if zeros := self.styles.get(Style(plain="0")):
            return f"leading zeros ({zeros.text!r})"
        if self.repeated or count < 3:
            return ""
        if self.counting:
            return _COUNTS
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
        digits = {text: read_cell(text) for text in self.texts - self.words.keys()}
        if digits and {cell.value for cell in digits.values()} <= {0.0, 1.0} and not self.signs:
            known |= {text: int(cell.value) for text, cell in digits.items()}
            count += self.kinds["number"]
        return known if count >= (1 - _STRAYS) * filled else {}

    def _classes(
        self, found: ColumnProfile, pairs: list[tuple[str, int]], reason: str
    ) -> ColumnProfile:
        words = dict(pairs)
        digits = self.kinds["number"] * any(read_cell(word).kind == "number" for word in words)
        count = sum(self.words[word] for word in words) + digits
        return replace(
            found,
            numbers=count,
            bad=found.bad - count,
            examples=tuple(one for one in self.bad if read_cell(one[1]).word not in words),
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
            problem = f"{text!r} in row {self.bad[0][0]} {read_cell(text).problem}"
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
        return _IDENTIFIER
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
            yield f"column {column.name!r} {column.doubt}; empty these cells if they mean missing"
        units = {re.sub("^[µμ]", "u", word) for word in column.words}
        if len(units) > 1 and _UNIT_NAME.fullmatch(plain_name(column.name)):
            listed = ", ".join(re.sub("^([pnum]?)m$", r"\1M", unit) for unit in sorted(units)[:6])
            which = f"the values are in different units (column {column.name!r}: {listed})"
            yield f"{which} and are read as they are; convert them to one unit"


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
    for column in columns:
        name = column.name
        if column.reason == _PARTS:
            yield f"column {name!r} looks like a split: --split {shlex.quote(f'column:{name}')}"
        if column.kind == "date":
            yield f"column {name!r} has dates: --split {shlex.quote(f'time:{name}')}"
    others = [repr(column.name) for column in columns if column.problem == _MOLECULES]
    if others and source:
        yield f"molecules from {source}, not from {', '.join(others)} (--smiles to change)"


def profile_table(path: str | Path, smiles: str | None = None) -> TableProfile:
    """Read a table once and describe each of its columns; memory does not grow with the rows."""
    table = open_table(path, smiles, ())
    if table.smiles in table.formulas:
        raise ValueError(f"{Path(path).name!r}: column {table.smiles!r} has {FORMULAS}")
    own = table.columns.index(table.smiles) if table.smiles else 0
    names = [*table.columns[:own], *table.columns[own + 1 :]]
    limit = max(100, min(10_000, _REMEMBERED // max(len(names), 1)))
    columns = [_Column(name, k + (k >= own), limit) for k, name in enumerate(names)]
    rows = broken = 0
    # The texts of the molecules are not needed: those of an SDF take long to make.
    for chunk in cut(open_table(path, names[0] if names else table.smiles, names), _CHUNK_ROWS):
        good = [k for k, row in enumerate(chunk.rows) if row.problem is None]
        texts = zip(*(chunk.rows[k].labels for k in good), strict=True)
        for column, found in zip(columns, texts, strict=False):
            column.add([chunk.first_row + k for k in good], found)
        rows, broken = rows + len(chunk.rows), broken + len(chunk.rows) - len(good)
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

    An `AmbiguousTargets` lists the candidates, and completes the `command` with `flag`.
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
    lines = [
        f"{profile.file!r}: {several if len(found) > 1 else 'no column is obviously the target'}",
        *_aligned([(c.name, *c.facts(), c.problem or c.note) for c in found]),
        *(["passed over:"] if passed else []),
        *_aligned([(c.name, *c.facts(), c.reason) for c in passed]),
    ]
    useful = [c for c in passed if not c.problem and c.minimum < c.maximum and c.kind != "text"]
    numbering = (_IDENTIFIER, _COUNTS)  # reasons of whole numbers, which differ from row to row
    useful = [
        c for c in useful if c.distinct < c.numbers or not c.whole or c.reason not in numbering
    ]
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
    return shlex.quote(join_names(names))


def join_names(names: Iterable[str]) -> str:
    """Write names with commas between them, so that `split_names` finds them again."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def split_names(text: str) -> tuple[str, ...]:
    """Split names at commas, except in double quotes.

    Example:
        >>> split_names('logS,"IC50, nM"')
        ('logS', 'IC50, nM')
    """
    names = next(csv.reader([text], skipinitialspace=True), [])
    return tuple(name.strip() for name in names if name.strip())


def molecule_columns(path: str | Path, given: str | Sequence[str] | None) -> tuple[str | None, ...]:
    """Return the columns of the molecules of a row, ``(None,)`` to guess the only one.

    A text is the name of a column or, if there is no such column, of several with commas.
    """
    if isinstance(given, str) and "," in given:
        try:
            open_table(path, given, ())
        except ValueError as error:
            if len(names := split_names(given)) < 2 or "no column" not in str(error):
                raise
            given = names
    if given is None or isinstance(given, str):
        return (given,)
    names = tuple(given)
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{Path(path).name!r}: --smiles has column {twice[0]!r} twice; name once")
    open_table(path, names[0], names[1:])  # raises for a name that is no column
    return names


def read_bounds(
    path: str | Path, columns: Sequence[str], formats: Mapping[str, ColumnFormat]
) -> np.ndarray:
    """Return int8 ``[rows of the file, L]``: 1 for ``>10``, -1 for ``<0.1``, 0 for all else."""
    read = [formats.get(name, ColumnFormat()).read for name in columns]
    found = bytearray()
    for row in open_table(path, columns[0], columns).rows():
        for get, text in zip(read, row.labels or [""] * len(columns), strict=True):
            try:
                found.append(get(text)[1] & 255)
            except ValueError:
                found.append(0)
    return np.frombuffer(found, np.int8).reshape(-1, len(columns))


def read_numbers(
    path: str | Path, profile: TableProfile, name: str
) -> tuple[np.ndarray, dict[int, str]]:
    """Return the numbers of a column, a float64 for each row, and why rows have none, by row.

    A column that does not have numbers is a `ValueError`.
    """
    column = profile[name]
    _check_numbers(profile.file, column)
    values, reasons = [], {}
    for row, text in enumerate(read_column(path, name)):
        value, reason = read_number(text, name, column.format)
        values.append(value)
        if reason:
            reasons[row] = reason
    return np.array(values, np.float64), reasons


def read_number(text: str, name: str, form: ColumnFormat) -> tuple[float, str]:
    """Return the number of a cell, or NaN and the reason why there is none."""
    try:
        value, bound = form.read(text)
    except ValueError as error:
        return math.nan, f"{name} = {text!r} {error}"
    if bound:
        return math.nan, f"{name} = {text!r} is a limit, not a value"
    return value, "" if value == value else f"{name} has no value"


def number_formats(path: str | Path, names: Sequence[str]) -> dict[str, ColumnFormat]:
    """Return how the numbers of some columns are written, judged by the first rows of a file.

    A column that has something else there is a `ValueError`.
    """
    if not names:
        return {}
    table = open_table(path, names[0], names[1:])
    limit = _REMEMBERED // len(names)
    columns = [_Column(name, k, limit) for k, name in enumerate(names)]
    rows = [row for row in islice(table.rows(), _CHUNK_ROWS) if row.problem is None]
    texts = zip(*((row.text, *row.labels) for row in rows), strict=True)
    for column, found in zip(columns, texts, strict=False):
        column.add(range(len(rows)), found)
    commas = any(column.has_decimal_commas() for column in columns)
    profiles = [column.profile(table.delimiter, commas) for column in columns]
    for one in profiles:
        if one.kind != "empty":
            _check_numbers(Path(path).name, one)
    return {one.name: one.format for one in profiles}


def _check_numbers(file: str, column: ColumnProfile) -> None:
    words = "it holds words; write numbers, such as 0 and 1" if column.format.words else ""
    if problem := column.problem or words:
        raise ValueError(f"{file!r}: {column.name!r} cannot be read as numbers: {problem}")


def read_column(path: str | Path, name: str) -> list[str]:
    """Return the texts of a column, one for each row; empty where a row cannot be read."""
    return ["" if row.problem else row.text for row in open_table(path, name, ()).rows()]
