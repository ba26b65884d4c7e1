"""Lines and records of a text that may be broken: what cannot be read costs one row, no more."""

import csv
import gzip
import io
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

MAX_CHARACTERS = 1 << 20
MAX_LINES = 1000
"""How long a line, and how many lines a record with line breaks in quotes, may be."""

_NUL = "\udc00"  # "surrogateescape" makes U+DC80 to U+DCFF of bytes 80 to FF, so this one is free
_ESCAPED = re.compile("[\udc00-\udcff]")


class Record(NamedTuple):
    """The fields of one row; if there is a `problem`, no fields but the `line` it is about."""

    fields: list[str]
    line: str
    problem: str | None


class TextFile:
    """The lines of a text file, plain or gzip, UTF-8 with or without byte order mark.

    A byte that is not UTF-8, or NUL, becomes a lone surrogate: it disturbs nothing but the field
    that it is in, and `is_text` and `printable` know it. Lines end with LF, CRLF or CR, which stays
    on. A line of more than `MAX_CHARACTERS` is cut after one more.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.size = self.path.stat().st_size
        self._file: BinaryIO | None = None

    @property
    def position(self) -> int:
        """How many bytes of the file have been read."""
        if self._file is None:
            return 0
        return self.size if self._file.closed else self._file.tell()

    def lines(self) -> Iterator[str]:
        with open(self.path, "rb") as self._file:
            text = io.TextIOWrapper(
                self._decompressed(self._file), "utf-8-sig", "surrogateescape", newline=""
            )
            try:
                yield from _whole_lines(text)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"{self.path.name!r} is damaged or cut off ({error})") from None

    def _decompressed(self, file: BinaryIO) -> BinaryIO:
        start = file.read(2)
        file.seek(0)
        if start in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError(f"{self.path.name!r} is UTF-16; save it as UTF-8")
        return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if start == b"\x1f\x8b" else file


def read_records(lines: Iterable[str], delimiter: str) -> Iterator[Record]:
    """The records of a CSV, the header first; lines of nothing but blanks are none.

    Every record must have as many fields as the header. A quoted field may hold line breaks; if the
    quote is not closed, or the record then has the wrong number of fields, the first line alone is
    the bad row and the next line starts a new one.
    """
    source = _Lines(lines)
    blanks = " \t\r\n".replace(delimiter, "")
    width = None
    for line in source:
        if line.strip(blanks):
            record = _parse(line, source, delimiter, width)
            width = width or len(record.fields)
            yield record


def is_text(field: str) -> bool:
    """Whether the field holds neither a NUL nor bytes that are not UTF-8."""
    return field.isascii() or _ESCAPED.search(field) is None


def printable(field: str) -> str:
    r"""The field with such bytes written as \x00 and \xff."""
    return _ESCAPED.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", field)


class _Lines:
    """An iterator of lines that takes lines back."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._fresh = iter(lines)
        self._returned: deque[str] = deque()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return self._returned.popleft() if self._returned else next(self._fresh)

    def take_back(self, lines: list[str]) -> None:
        self._returned.extendleft(reversed(lines))


def _parse(line: str, source: _Lines, delimiter: str, width: int | None) -> Record:
    if len(line) > MAX_CHARACTERS:
        return Record([], line, f"longer than {MAX_CHARACTERS:,} characters")
    taken = [line]
    try:
        fields = next(csv.reader(_feed(taken, source), delimiter=delimiter, strict=True))
    except csv.Error as error:
        unclosed = len(taken) > 1 or "unexpected end" in str(error)
        problem = "not CSV: a quote is not closed" if unclosed else f"not CSV: {error}"
    else:
        if width is None or len(fields) == width:
            return Record(fields, line, None)
        problem = f"{len(fields)} fields where the header has {width}"
        if len(taken) > 1:
            problem = f"a quoted line break gives {problem}"
    source.take_back(taken[1:])
    return Record([], line, problem)


def _feed(taken: list[str], source: _Lines) -> Iterator[str]:
    """The first line, and as many more as the reader asks for to close a quote."""
    yield taken[0]
    characters = len(taken[0])
    while len(taken) < MAX_LINES and characters < MAX_CHARACTERS:
        line = next(source, None)
        if line is None:
            return
        taken.append(line)
        characters += len(line)
        yield line


def _whole_lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_CHARACTERS + 1):
        rest = line if len(line) > MAX_CHARACTERS else ""
        while rest and rest[-1] not in "\r\n":
            rest = text.readline(MAX_CHARACTERS)
        yield line.replace("\0", _NUL) if "\0" in line else line
