"""Files of molecules as streams of rows: CSV, TSV and SMI, plain or gzip, and Parquet.

The standard `csv` module reads one record at a time, so that a row that cannot be read costs that
row alone. `pandas.read_csv` does not keep this promise: after a quote that is not closed it takes
everything up to the next quote as one field, and it fills short rows silently.
"""

import csv
import gzip
import io
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from slicegraph.data.smiles import SmilesError, read_smiles

MAX_CHARACTERS = 1 << 20  # of a line
MAX_LINES = 1000  # of a record with line breaks in quotes
CHUNK_CHARACTERS = 4 << 20  # of the texts of a chunk: a file of long texts must not fill the memory
NOT_TEXT = "holds bytes that are not UTF-8, or NUL"  # the problem of a row that fails `is_text`

_DELIMITERS = ",\t;|"  # the first wins a tie
_NUL = "\udc00"  # "surrogateescape" makes U+DC80 to U+DCFF of bytes 80 to FF, so this one is free
_ESCAPED = re.compile("[\udc00-\udcff]")
_SAMPLE_ROWS = 1000  # that columns are guessed from
_PARQUET_ROWS = 4096  # in memory at a time

_GAPS = {"", "nan", "na", "n/a", "null", "none", "<na>"}
_LARGEST = 3.4028234663852886e38  # of float32

_SMILES_NAMES = ("smiles", "canonical_smiles", "isomeric_smiles", "can_smiles", "smi")
_MOLECULE_NAMES = ("mol", "molecule", "structure", "compound")  # may be drawings, names, numbers
_NUMBERING = ("", "#", "id", "idx", "index", "row", "mol_id", "molid", "cid", "unnamed:_0")
_ENOUGH = 20  # values that tell whether a column has SMILES


class Row(NamedTuple):
    """The SMILES and the labels of one row as text, or what is wrong with the row."""

    text: str
    labels: tuple[str, ...] = ()
    problem: str | None = None


class Chunk(NamedTuple):
    """Consecutive rows of a table, and how much of the file was read up to their end."""

    first_row: int
    rows: list[Row]
    position: int


class TableSource(ABC):
    """A table with known columns that is read from beginning to end."""

    columns: tuple[str, ...]  # all of them, in the order of the file
    smiles: str | None = None  # the column of the SMILES, None in a file without columns
    labels: tuple[str, ...] = ()  # the columns of the labels
    size: int  # how much there is to read, in `unit`
    unit: str
    position: int = 0  # how much has been read

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """Yield all rows, from the first."""


def open_table(
    path: str | Path, smiles: str | None = None, labels: Sequence[str] | None = None
) -> TableSource:
    """Open a file by the ending of its name; columns that are not given are guessed.

    Args:
        path: a ``.csv``, ``.tsv``, ``.tab`` or ``.txt`` with a header, a ``.smi``, ``.smiles`` or
            ``.ism`` (SMILES, blanks, name; no header), each also with ``.gz``; or a ``.parquet`` or
            ``.pq``, which needs ``pip install 'slicegraph[parquet]'``.
        smiles: the column of the SMILES.
        labels: the columns of the labels, none for ``[]``.

    Example:
        >>> table = open_table("solubility.csv")
        >>> table.smiles, table.labels
        ('smiles', ('logS',))
        >>> next(table.rows())
        Row(text='CCO', labels=('1.1',), problem=None)
    """
    path = Path(path)
    suffix = Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()
    if suffix not in _READERS:
        raise ValueError(f"{path.name!r} has no known ending, expected {', '.join(SUFFIXES)}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name!r} is empty")
    return _READERS[suffix](path, smiles, labels)


def read_labels(texts: Sequence[str], names: Sequence[str]) -> list[float]:
    """Convert the labels of one row, NaN for a gap; other texts raise a `ValueError`."""
    values = []
    for text, name in zip(texts, names, strict=True):
        value, problem = _number(text)
        if problem:
            raise ValueError(f"{name} = {text!r} {problem}")
        values.append(value)
    return values


def cut(table: TableSource, rows: int) -> Iterator[Chunk]:
    """Yield a table in chunks of so many rows, fewer where their texts are long."""
    first_row = characters = 0
    taken: list[Row] = []
    for row in table.rows():
        taken.append(row)
        characters += len(row.text)
        if len(taken) == rows or characters > CHUNK_CHARACTERS:
            yield Chunk(first_row, taken, table.position)
            first_row, characters, taken = first_row + len(taken), 0, []
    if taken:
        yield Chunk(first_row, taken, table.position)


def is_text(field: str) -> bool:
    """Return whether the field holds neither a NUL nor bytes that are not UTF-8."""
    return field.isascii() or _ESCAPED.search(field) is None


def printable(field: str) -> str:
    r"""Return the field with such bytes written as \x00 and \xff."""
    return _ESCAPED.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", field)


class _TextFile(TableSource):
    """A text file, plain or gzip, in UTF-8 with or without byte order mark.

    A byte that is not UTF-8, or NUL, becomes a lone surrogate: only its own field is
    affected; `is_text` detects it and `printable` escapes it. Line endings (LF, CRLF or
    CR) are kept. A line of more than `MAX_CHARACTERS` is cut after one more.
    """

    unit = "B"

    def __init__(self, path: Path) -> None:
        self._path, self.size = path, path.stat().st_size

    def _lines(self) -> Iterator[str]:
        with open(self._path, "rb") as file:
            start = file.read(2)
            file.seek(0)
            if start in (b"\xff\xfe", b"\xfe\xff"):
                raise ValueError(f"{self._path.name!r} is UTF-16; save it as UTF-8")
            packed = start == b"\x1f\x8b"
            plain = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
            text = io.TextIOWrapper(plain, "utf-8-sig", "surrogateescape", newline="")
            try:
                while line := text.readline(MAX_CHARACTERS + 1):
                    rest = line if len(line) > MAX_CHARACTERS else ""
                    while rest and rest[-1] not in "\r\n":
                        rest = text.readline(MAX_CHARACTERS)
                    self.position = file.tell()
                    yield line.replace("\0", _NUL) if "\0" in line else line
                self.position = self.size
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"{self._path.name!r} is damaged or cut off ({error})") from None


class _DelimitedTable(_TextFile):
    """A CSV or TSV; its delimiter is the one of ``, ; |`` and tab that the header has most of."""

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        super().__init__(path)
        records = self._records()
        header, _, problem = next(records, ([], "", "no lines"))
        if problem:
            raise ValueError(f"{path.name!r} has no header ({problem})")
        names = [printable(name).strip() for name in header]
        self.columns = tuple(names)
        sample = [fields for fields, _, problem in islice(records, _SAMPLE_ROWS) if not problem]
        self.smiles, self.labels = _choose_columns(path.name, names, sample, smiles, labels)
        self._column = names.index(self.smiles)
        self._label_columns = [names.index(name) for name in self.labels]

    def rows(self) -> Iterator[Row]:
        column, label_columns = self._column, self._label_columns
        for fields, line, problem in islice(self._records(), 1, None):
            if problem is None:
                yield Row(fields[column], tuple([fields[label] for label in label_columns]))
            else:
                yield Row(line.rstrip("\r\n"), problem=problem)

    def _records(self) -> Iterator["_Record"]:
        lines = self._lines()
        first = next((line for line in lines if line.strip()), "")
        return _read_records(chain([first], lines), max(_DELIMITERS, key=first.count))


class _SmiTable(_TextFile):
    """Lines of a SMILES, blanks and a name; no header, and no labels but the names."""

    columns = ("smiles", "name")

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        super().__init__(path)
        self.labels = tuple(labels or ())
        if smiles or self.labels not in ((), self.columns[1:]):
            raise ValueError(f"{path.name!r} has no columns; make a CSV of it to name some")

    def rows(self) -> Iterator[Row]:
        for line in self._lines():
            if words := line.strip().split(maxsplit=1):
                yield Row(words[0], ("".join(words[1:]),) if self.labels else ())


class _ParquetTable(TableSource):
    """A Parquet file; a few thousand of its rows are in memory at a time."""

    unit = "rows"

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        self._name = path.name
        try:
            parquet = import_module("pyarrow.parquet")
        except ImportError:
            remedy = "pip install 'slicegraph[parquet]'"
            raise ValueError(f"{path.name!r} needs pyarrow: {remedy}") from None
        try:
            self._file: Any = parquet.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path.name!r} is damaged, or not Parquet ({error})") from None
        self.size = self._file.metadata.num_rows
        names = self._file.schema_arrow.names
        if len(set(names)) < len(names):
            raise ValueError(f"{path.name!r} has columns of one name: {', '.join(names)}")
        self.columns = tuple(names)
        sample = [list(fields) for fields in islice(self._fields(names), _SAMPLE_ROWS)]
        self.smiles, self.labels = _choose_columns(path.name, names, sample, smiles, labels)

    def rows(self) -> Iterator[Row]:
        fields = self._fields([cast(str, self.smiles), *self.labels])
        for self.position, (text, *labels) in enumerate(fields, start=1):
            yield Row(text, tuple(labels))

    def _fields(self, names: list[str]) -> Iterator[tuple[str, ...]]:
        try:
            for batch in self._file.iter_batches(_PARQUET_ROWS, columns=names):
                columns = [map(_as_text, batch.column(name).to_pylist()) for name in names]
                yield from zip(*columns, strict=True)
        except (OSError, ValueError) as error:
            raise ValueError(f"{self._name!r} is damaged ({error})") from None


_READERS: dict[str, type[_DelimitedTable | _SmiTable | _ParquetTable]] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), _DelimitedTable),
    **dict.fromkeys((".smi", ".smiles", ".ism"), _SmiTable),
    **dict.fromkeys((".parquet", ".pq"), _ParquetTable),
}
SUFFIXES = tuple(_READERS)


_Record = tuple[list[str], str, str | None]  # the fields; or none, the line and its problem


def _read_records(lines: Iterable[str], delimiter: str) -> Iterator[_Record]:
    """Yield the records of a CSV, the header first; lines of nothing but blanks are skipped.

    Every record must have as many fields as the header. A quoted field may hold line breaks; if the
    quote is not closed, or the record then has the wrong number of fields, the first line alone is
    the bad row and the next line starts a new one.
    """
    fresh, returned = iter(lines), deque[str]()
    blanks = " \t\r\n".replace(delimiter, "")
    width = None
    while (line := returned.popleft() if returned else next(fresh, None)) is not None:
        if not line.strip(blanks):
            continue
        taken = [line]

        def feed(taken: list[str] = taken) -> Iterator[str]:
            """Yield the first line, and as many more as the reader needs to close a quote."""
            characters = 0
            while True:
                yield taken[-1]
                characters += len(taken[-1])
                if len(taken) == MAX_LINES or characters >= MAX_CHARACTERS:
                    return
                line = returned.popleft() if returned else next(fresh, None)
                if line is None:
                    return
                taken.append(line)

        fields, problem = _parse(feed(), taken, delimiter, width)
        if problem is not None:
            returned.extendleft(reversed(taken[1:]))
        width = width or len(fields)
        yield fields, line, problem


def _parse(
    lines: Iterator[str], taken: list[str], delimiter: str, width: int | None
) -> tuple[list[str], str | None]:
    """Return the fields of a record, or what is wrong with it; `taken` is what it has read."""
    if len(taken[0]) > MAX_CHARACTERS:
        return [], f"longer than {MAX_CHARACTERS:,} characters"
    try:
        fields = next(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error as error:
        unclosed = len(taken) > 1 or "unexpected end" in str(error)
        return [], "not CSV: a quote is not closed" if unclosed else f"not CSV: {error}"
    if width is None or len(fields) == width:
        return fields, None
    problem = f"{len(fields)} fields where the header has {width}"
    return [], f"a quoted line break gives {problem}" if len(taken) > 1 else problem


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def _number(text: str) -> tuple[float, str | None]:
    """Return the label, NaN for a gap, and what is wrong with it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if abs(value) <= _LARGEST and "_" not in text:
        return value, None
    if _is_gap(text):
        return math.nan, None
    if math.isinf(value):
        return value, "is not finite"
    return value, "is too large for float32" if abs(value) > _LARGEST else "is not a number"


def _is_gap(text: str) -> bool:
    return text.strip().casefold() in _GAPS


def _choose_columns(
    file: str,
    names: list[str],
    sample: list[list[str]],
    smiles: str | None,
    labels: Sequence[str] | None,
) -> tuple[str, tuple[str, ...]]:
    """Return the columns of the SMILES and the labels, as given or guessed from a few rows."""
    for name in (*([smiles] if smiles else []), *(labels or ())):
        if names.count(name) != 1:
            many = "more than one column" if name in names else "no column"
            raise ValueError(f"{file!r} has {many} {name!r}; its columns are {', '.join(names)}")
    smiles = smiles or _guess_smiles(file, names, sample)
    if labels is None:
        single = [k for k, name in enumerate(names) if name != smiles and names.count(name) == 1]
        labels = [names[k] for k in single if _has_labels(names[k], [row[k] for row in sample])]
    return smiles, tuple(labels)


def _guess_smiles(file: str, names: list[str], sample: list[list[str]]) -> str:
    """Return the column with a usual name, or else the longest texts that are molecules."""
    plain = [_plain(name) for name in names]
    for usual in (*_SMILES_NAMES, *(name for name in plain if "smiles" in name)):
        if plain.count(usual) == 1:
            return names[plain.index(usual)]
    values = [[r[k] for r in sample if r[k].strip()][:_ENOUGH] for k in range(len(names))]
    found = [k for k, v in enumerate(values) if 2 * sum(map(_is_molecule, v)) > len(v)]
    if not found:
        known = f"name it, its columns are {', '.join(names)}"
        raise ValueError(f"{file!r} has no column that looks like SMILES; {known}")
    for k in found:
        if plain[k] in _MOLECULE_NAMES:
            return names[k]
    best = names[max(found, key=lambda k: sum(map(len, values[k])))]
    if _is_molecule(best):
        problem = f"its first line has {best!r}, a molecule; add one, or name the SMILES column"
        raise ValueError(f"{file!r} has no header: {problem}")
    return best


def _has_labels(name: str, values: list[str]) -> bool:
    """Return whether most values are numbers, and do not just number the rows."""
    values = [value for value in values if not _is_gap(value)]
    numbers = [value for value, problem in map(_number, values) if problem is None]
    if _plain(name) in _NUMBERING or 2 * len(numbers) <= len(values):
        return False
    steps = {after - before for before, after in pairwise(numbers)}
    return len(numbers) < 3 or steps != {1.0}


def _plain(name: str) -> str:
    return name.casefold().replace(" ", "_").replace("-", "_")


def _is_molecule(text: str) -> bool:
    try:
        return bool(text.strip() and is_text(text) and read_smiles(text, canonical=False))
    except SmilesError:
        return False
