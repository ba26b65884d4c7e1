"""Files of molecules as streams of rows: CSV, TSV, SMI and SDF, plain or gzip; Parquet and Excel.

The standard `csv` module reads one record at a time, so that a bad row costs that row alone.
`pandas.read_csv` takes everything after an open quote as one field, and fills short rows silently.
"""

import codecs
import csv
import datetime
import gzip
import io
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from itertools import chain, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from slicegraph.data.smiles import (
    ESCAPED,
    SmilesError,
    is_text,
    join_texts,
    molblock_to_smiles,
    read_smiles,
)
from slicegraph.extras import needs

MAX_CHARACTERS = 1 << 20  # of a line
MAX_LINES = 1000  # of a record with line breaks in quotes
CHUNK_CHARACTERS = 4 << 20  # of the texts of a chunk: a file of long texts must not fill the memory
FORMULAS = "formulas without saved values; open the file in Excel and save it"
SDF_RECORDS = "the SDF records"  # where molecules in molblocks come from

_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}  # the first wins a tie
_NUL = "\udc00"  # "surrogateescape" makes U+DC80 to U+DCFF of bytes 80 to FF, so this one is free
_NOT_ASCII = re.compile("[^\0-\x7f]")
_SAMPLE_ROWS = 1000  # that columns are guessed from
_LAYOUT_ROWS = 200  # that the delimiter and the header are found in
_HEADER_ROWS = 20  # the header is one of the first
_PARQUET_ROWS = 4096  # in memory at a time
_SDF_CHARACTERS = 16 << 20  # of a record
_BLANKS = " \t\r\n"
_SEP = re.compile(r'"?sep=(.)"?', re.IGNORECASE)  # Excel's first line
_PROPERTY = re.compile(r">.*?<(.+)>")
_BOMS = {  # the longer ones first
    **{codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"},
    **{codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"},
}
_FOREIGN = {  # first bytes of a file that is not text
    b"PK\x03\x04": "a zip archive; if it is an Excel workbook, name it .xlsx",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save it as .xlsx or CSV",
    b"PAR1": "Parquet; name it .parquet",
}

EMPTY = {"", "nan", "na", "n/a", "n.a.", "n.a", "null", "none", "nil", "missing"}  # small letters
_NOTHING = """<na> nd n.d. n.d n/d nt n.t. - -- --- . .. ? ?? \\n
    unknown inconclusive unspecified tbd k.a. #n/a #na #value! #div/0! #ref! #num! #name? #null!
    #nv #wert! #zahl! #bezug! #valeur!"""  # also what German and French spreadsheets write
_NOT = ("determined", "tested", "available", "measured", "done", "applicable", "reported")
GAPS = EMPTY | {*_NOTHING.split(), *(f"not {word}" for word in _NOT)}
_REORDERED = "repeats the header in another order, in which the rows below are read"
_RENAMED = "a header with other names: below it, columns that it does not name are gaps"
_LARGEST = 3.4028234663852886e38  # of float32

_SMILES_NAMES = ("smiles", "canonical_smiles", "isomeric_smiles", "can_smiles", "smi")
_INCHI_NAMES = ("inchi", "standard_inchi", "std_inchi")
_MOLECULE_NAMES = ("mol", "molecule", "structure", "compound")  # may be drawings, names, numbers
_NUMBERING = ("", "#", "id", "idx", "index", "row", "mol_id", "molid", "cid", "unnamed:_0")
_NUMBERED = re.compile(r" \(column \d+\)$")  # what repeated names have at their end
_ENOUGH = 20  # values that are tried as SMILES


class Row(NamedTuple):
    """The SMILES and the labels of one row as text, or what is wrong with the row."""

    text: str
    labels: tuple[str, ...] = ()
    problem: str | None = None

    def joined(self, places: Sequence[int]) -> str:
        """Return the text of a row with further molecules at these places of `labels`."""
        return join_texts([self.text, *(self.labels[k] for k in places if not self.problem)])


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
    delimiter: str = ""  # of the fields of a text file
    structure: str = "SMILES"  # how molecules are written there: also "InChI" or "molblock"
    formulas: frozenset[str] = frozenset()  # columns of a workbook that have nothing else
    notes: tuple[str, ...] = ()  # how the file differs from UTF-8 with commas, a line each
    warnings: tuple[str, ...] = ()  # what of it cannot be read, a line each
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
            ``.ism`` (SMILES, blanks, name; no header), an ``.sdf`` or ``.sd`` (its properties are
            columns), each also with ``.gz``; a ``.parquet`` or ``.pq``, which needs
            ``pip install "slicegraph[parquet]"``; or an ``.xlsx`` or ``.xlsm``, which needs
            ``pip install "slicegraph[xlsx]"``.
        smiles: the column of the SMILES or InChI.
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


def printable(field: str) -> str:
    r"""Return the field with such bytes written as \x00 and \xff."""
    if field.isascii():
        return field
    return ESCAPED.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", field)


class _FieldTable(TableSource):
    """A table whose records are fields in the order of the columns."""

    def _set_columns(
        self,
        path: Path,
        names: Sequence[str],
        sample: list[list[str]],
        smiles: str | None,
        labels: Sequence[str] | None,
    ) -> None:
        """Choose the columns of the molecules and the labels, as given or guessed from rows."""
        unique = _unique_names(names)
        renamed = [new for new, old in zip(unique, names, strict=True) if new != old]
        if renamed:
            shown = ", ".join(map(repr, renamed[:3])) + ", ..." * (len(renamed) > 3)
            self.notes += (f"repeated or empty names of columns: they are called {shown}",)
        for name in (*([smiles] if smiles else []), *(labels or ())):
            if name not in unique:
                many = any(_NUMBERED.sub("", one) == name != one for one in unique)
                known = f"{'more than one' if many else 'no'} column {name!r}"
                known += f"; {meant(name, unique)}its columns are {', '.join(unique)}"
                raise ValueError(f"{path.name!r} has {known}")
        smiles = smiles or _guess_smiles(path.name, unique, sample)
        if labels is None:
            others = [k for k, n in enumerate(unique) if n != smiles and not _NUMBERED.search(n)]
            labels = [unique[k] for k in others if _has_labels(unique[k], [r[k] for r in sample])]
        self.columns, self._header = tuple(unique), [name.casefold() for name in names]
        self.smiles, self.labels = smiles, tuple(labels)
        self._places = [unique.index(name) for name in (smiles, *labels)]
        texts = [row[self._places[0]].strip() for row in sample]
        if 2 * sum(text.startswith("InChI=") for text in texts) > sum(map(bool, texts)):
            self.structure = "InChI"

    def rows(self) -> Iterator[Row]:
        place, *labels = self._places
        names, width = {*self._header}, len(self._header)
        usual = next((name for name in self._header if _has_usual_name([name])), None)
        key = self._header.index(usual) if usual else place  # also if it is not asked for
        for fields, line, problem in self._records():
            if width in (place, *labels):
                fields = [*fields, ""]
            cells = () if problem else (fields[place], fields[key])
            if any(cell.strip().casefold() in names for cell in cells):
                again = [field.casefold() for field in _clean_names(fields[:width])]
                if sorted(again) == sorted(self._header):  # files one after another
                    line, problem = line or ", ".join(fields), "repeats the header"
                    place, *labels = self._places
                    if again != self._header:
                        place, *labels = [again.index(self._header[k]) for k in self._places]
                        problem = _REORDERED
                elif usual in again and len({*again}) == width and not any(map(_is_number, again)):
                    line, problem = line or ", ".join(fields), _RENAMED
                    found, names = [self._header[k] for k in self._places], names | {*again}
                    place, *labels = [again.index(n) if n in again else width for n in found]
                if problem:
                    key = again.index(usual) if usual else place
            if problem is None:
                yield Row(fields[place], tuple([fields[label] for label in labels]))
            else:
                yield Row(line.rstrip("\r\n"), problem=problem)

    @abstractmethod
    def _records(self) -> Iterator["_Record"]:
        """Yield the rows below the header."""


class _TextFile(TableSource):
    """A text file, plain or gzip, in UTF-8, UTF-16, UTF-32 or Windows-1252.

    In UTF-8 a byte that is not UTF-8, or NUL, becomes a lone surrogate: only its own field is
    affected; `is_text` detects it and `printable` escapes it. Line endings (LF, CRLF or
    CR) are kept. A line of more than `MAX_CHARACTERS` is cut after one more.
    """

    unit = "B"

    def __init__(self, path: Path) -> None:
        self._path, self.size = path, path.stat().st_size
        self._encoding = _encoding_of(path)
        if self._encoding != "utf-8-sig":
            name = {"cp1252": "Windows-1252 (it is not UTF-8)"}.get(self._encoding)
            self.notes = (f"encoding {name or self._encoding[:6].upper()}",)

    def _lines(self) -> Generator[str]:
        errors = "replace" if self._encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"
        with _plain_bytes(self._path) as (file, plain):
            text = io.TextIOWrapper(plain, self._encoding, errors, newline="")
            while line := text.readline(MAX_CHARACTERS + 1):
                rest = line if len(line) > MAX_CHARACTERS else ""
                while rest and rest[-1] not in "\r\n":
                    rest = text.readline(MAX_CHARACTERS)
                self.position = file.tell()
                if not line.isascii():
                    line = line.replace("\ufeff", "")  # a mark within: files one after another
                yield line.replace("\0", _NUL) if "\0" in line else line
            self.position = self.size


@contextmanager
def _plain_bytes(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file; return it and its unpacked content."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            yield file, cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path.name!r} is damaged or cut off ({error})") from None


def _encoding_of(path: Path) -> str:
    """Return the codec of a text file by its marks and bytes."""
    with _plain_bytes(path) as (_, plain):
        block = plain.read(1 << 16)
        for start, what in _FOREIGN.items():
            if block.startswith(start):
                raise ValueError(f"{path.name!r} is {what}")
        for start, codec in _BOMS.items():
            if block.startswith(start):
                return codec
        half = len(block) // 2
        zeros = block[0::2].count(0), block[1::2].count(0)
        if max(zeros) > 0.7 * half and min(zeros) < 0.1 * half:  # Latin letters in two bytes
            return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
        strays, decoder = False, codecs.getincrementaldecoder("utf-8")("surrogateescape")
        while block:
            if b"\0" in block:
                return "utf-8-sig"  # damaged, whatever it is
            if not block.isascii():
                text = decoder.decode(block)
                escaped = len(ESCAPED.findall(text))
                if len(_NOT_ASCII.findall(text)) > escaped:
                    return "utf-8-sig"
                strays = strays or escaped > 0
            block = plain.read(1 << 20)
        return "cp1252" if strays else "utf-8-sig"


class _DelimitedTable(_TextFile, _FieldTable):
    """A CSV or TSV; its delimiter gives as many fields in the rows as in the header."""

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        super().__init__(path)
        tabs = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
        lines, delimiters = self._first_lines(), "\t,;|" if tabs else ",\t;|"
        self.delimiter, self._skipped, header, rows = _find_layout(lines, delimiters)
        self._width = len(header)
        above = self._skipped - bool(lines and _SEP.fullmatch(lines[0].rstrip("\r\n")))
        _, _, problem = next(self._all_records(), ((), "", "no lines"))
        if problem:
            raise ValueError(f"{path.name!r} has no header ({problem})")
        names = [""] * _has_row_names(header, rows) + _clean_names(header)
        while len(names) > 1 and not _filled([names[-1:], *(r[len(names) - 1 :] for r in rows)]):
            names.pop()
        if len(rows) > 1 and all(_filled([row[len(names) :]]) for row in rows):
            usual = Counter(map(len, rows)).most_common(1)[0][0]
            problem = f"every row has {usual} fields, the header {len(names)}"
            if self.delimiter == ",":
                problem += ": perhaps decimal commas in a comma-separated file"
            raise ValueError(f"{path.name!r}: {problem}; export with ; or quotes")
        self._width = len(names)
        ends = [row[len(names) :] for row in [header, *rows]]
        wrong = sum(len(row) < len(names) for row in rows) + sum(_filled([end]) for end in ends)
        said = {
            f"fields separated by {_DELIMITERS.get(self.delimiter, repr(self.delimiter))}": (
                self.delimiter != delimiters[0] and len(names) > 1
            ),
            f"lines before the header that are skipped: {above}": above,
            "lines end as on old Macs (CR)": lines[0].endswith("\r"),
            "empty fields at the end of rows are ignored": any(ends) and not wrong,
            "the first column has row names, as R writes them": len(names) > len(header),
            f"{wrong} of the first {len(rows)} rows have not as many fields as the header: numbers"
            " with a decimal comma must be in quotes, or the fields separated by semicolons": (
                2 * wrong > len(rows)
            ),
        }
        self.notes += tuple(text for text, holds in said.items() if holds)
        sample = [one for one, _, problem in islice(self._records(), _SAMPLE_ROWS) if not problem]
        self._set_columns(path, names, sample, smiles, labels)

    def _first_lines(self) -> list[str]:
        lines, characters = [], 0
        with closing(self._lines()) as found:
            for line in found:
                lines += [line] if line.strip(_BLANKS) else []
                characters += len(line)
                if len(lines) == _LAYOUT_ROWS or characters > CHUNK_CHARACTERS:
                    break
        return lines

    def _records(self) -> Iterator["_Record"]:
        return islice(self._all_records(), 1, None)

    def _all_records(self) -> Iterator["_Record"]:
        """Yield the header and the rows."""
        lines = self._lines()
        for _ in islice((line for line in lines if line.strip(_BLANKS)), self._skipped):
            pass
        return _read_records(lines, self.delimiter, self._width)


class _SmiTable(_TextFile):
    """Lines of a SMILES, blanks and a name; no header, and no labels but the names."""

    columns = ("smiles", "name")

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        super().__init__(path)
        self.labels = tuple(labels or ())
        if not {smiles or "smiles", *self.labels} <= {*self.columns}:
            raise ValueError(f"{path.name!r} has no columns; make a CSV of it to name some")
        self._places = [self.columns.index(name) for name in (smiles or "smiles", *self.labels)]
        self.notes += ("the first word of a line is the molecule, the rest is the column 'name'",)

    def rows(self) -> Iterator[Row]:
        for line in self._lines():
            if words := line.strip().split(maxsplit=1):
                text, *labels = [(*words, "")[place] for place in self._places]
                yield Row(text, tuple(labels))


_SDF_PROPERTIES: dict[tuple[Path, int, int], tuple[tuple[str, ...], bool]] = {}  # of each file


class _SdfTable(_TextFile):
    """Molecules in molblocks; the columns are the molecule as SMILES, its title, its properties."""

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        super().__init__(path)
        key = path.resolve(), path.stat().st_mtime_ns, self.size
        if key not in _SDF_PROPERTIES:
            _SDF_PROPERTIES[key] = self._find_properties()
        found, titled = _SDF_PROPERTIES[key]
        used = {name.casefold() for name in found}
        own = next(n for n in ("smiles", "structure", "molblock", "") if n not in used)
        self._title = next(n for n in ("name", "title", "") if n not in used) if titled else ""
        self.columns = (*filter(None, [self._title]), *found)
        if smiles in (None, own):
            self.columns = (own, *self.columns)
        asked = [*([smiles] if smiles else []), *(labels or ())]
        if missing := [name for name in asked if name not in self.columns]:
            known = ", ".join(self.columns)
            raise ValueError(f"{path.name!r} has no column {missing[0]!r}; its columns are {known}")
        self.smiles = smiles or own
        self._own, self.structure = own, "molblock" if self.smiles == own else "SMILES"
        if labels is None:
            sample = [values for values, _ in islice(self._molecules(), _SAMPLE_ROWS)]
            columns = {name: [values.get(name, "") for values in sample] for name in found}
            labels = [n for n in found if n != smiles and _has_labels(n, columns[n])]
        self.labels = tuple(labels)

    def _find_properties(self) -> tuple[tuple[str, ...], bool]:
        """Search the file for the names of properties, and for a molecule with a title."""
        found: dict[str, None] = {}
        titled, first = False, True  # whether a molecule has a title, whether a line may be one
        for line in self._lines():
            titled = titled or (first and bool(line.strip()))
            first = line.startswith("$$$$")
            if line[0] == ">" and (name := _PROPERTY.match(line)):
                found[printable(name[1]).strip()] = None
        return tuple(found), titled

    def rows(self) -> Iterator[Row]:
        for values, block in self._molecules():
            problem = None
            try:
                values[self._own] = molblock_to_smiles(block) if self.smiles == self._own else ""
            except ValueError as error:
                problem = error.reason if isinstance(error, SmilesError) else str(error)
                values[self._own] = values.get(self._title) or block.split("\n", 1)[0]
            labels = tuple([values.get(name, "") for name in self.labels])
            yield Row(values.get(cast(str, self.smiles), ""), labels, problem)

    def _molecules(self) -> Iterator[tuple[dict[str, str], str]]:
        """Yield the properties and the molblock of every record."""
        block: list[str] = []
        values: dict[str, str] = {}
        name, in_block, characters = None, True, 0
        for line in chain(self._lines(), ["$$$$"]):
            text, characters = line.rstrip("\r\n"), characters + len(line)
            if text.startswith("$$$$"):
                if values or any(map(str.strip, block)):
                    if self._title:
                        values[self._title] = block[0].strip() if block else ""
                    yield values, "\n".join(block) if characters < _SDF_CHARACTERS else ""
                block, values, name, in_block, characters = [], {}, None, True, 0
            elif text[:1] == ">" and name is None and (found := _PROPERTY.match(text)):
                name, in_block = printable(found[1]).strip(), False
                values[name] = ""
            elif in_block and characters < _SDF_CHARACTERS:
                block.append(text)
            elif name is not None and text.strip() and characters < _SDF_CHARACTERS:
                values[name] = f"{values[name]}\n{text}" if values[name] else text
            elif name is not None and not text.strip():
                name = None


class _ParquetTable(_FieldTable):
    """A Parquet file; a few thousand of its rows are in memory at a time."""

    unit = "rows"

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        self._name = path.name
        with needs(repr(path.name), "parquet"):
            parquet = import_module("pyarrow.parquet")
        try:
            self._file: Any = parquet.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path.name!r} is damaged, or not Parquet ({error})") from None
        self.size = self._file.metadata.num_rows
        names = self._file.schema_arrow.names
        if len(set(names)) < len(names):
            raise ValueError(f"{path.name!r} has columns of one name: {', '.join(names)}")
        sample = [list(fields) for fields in islice(self._fields(names), _SAMPLE_ROWS)]
        self._set_columns(path, names, sample, smiles, labels)
        self._read = [names[place] for place in self._places]
        self._header = [name.casefold() for name in self._read]
        self._places = list(range(len(self._read)))

    def _records(self) -> Iterator["_Record"]:
        for number, fields in enumerate(self._fields(self._read), start=1):
            self.position = number
            yield list(fields), "", None

    def _fields(self, names: list[str]) -> Iterator[tuple[str, ...]]:
        try:
            for batch in self._file.iter_batches(_PARQUET_ROWS, columns=names):
                columns = [map(_as_text, batch.column(name).to_pylist()) for name in names]
                yield from zip(*columns, strict=True)
        except (OSError, ValueError) as error:
            raise ValueError(f"{self._name!r} is damaged ({error})") from None


class _ExcelTable(_FieldTable):
    """A sheet of a workbook: the first one with molecules; formulas have their saved values."""

    unit = "rows"

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        self._path, self._skipped, self._width, self.size = path, 0, 0, 0
        with _workbook(path) as book:
            sheets = sorted(book.worksheets, key=lambda sheet: sheet.sheet_state != "visible")
            names = [sheet.title for sheet in sheets]
        problems = []
        for self._sheet in names:
            try:
                self._choose_sheet(smiles, labels, len(names))
                return
            except ValueError as error:
                problems.append(str(error))
        raise ValueError(problems[0] if problems else f"{path.name!r} has no sheets")

    def _choose_sheet(self, smiles: str | None, labels: Sequence[str] | None, sheets: int) -> None:
        with closing(self._cells()) as cells:
            rows = list(islice(cells, _SAMPLE_ROWS))
        if not rows:
            raise ValueError(f"{self._path.name!r} is empty")
        self._skipped = _find_header(rows)
        header, sample = rows[self._skipped], rows[self._skipped + 1 :]
        self._width = max(map(len, [header, *sample]))
        names = _clean_names(header + [""] * (self._width - len(header)))
        said = f"sheet {self._sheet!r}" + (f", one of {sheets}" if sheets > 1 else "")
        skipped = f"lines before the header that are skipped: {self._skipped}"
        self.notes = (said, skipped) if self._skipped else (said,)
        sample = [row + [""] * (self._width - len(row)) for row in sample]
        stamp = self._path.stat()
        lost = _lost_formulas(self._path, self._sheet, (stamp.st_mtime_ns, stamp.st_size))
        named = {k: name for k, name in enumerate(_unique_names(names)) if lost[k]}
        empty = [k for k in named if not _filled(row[k : k + 1] for row in sample)]
        self.formulas = frozenset(named[k] for k in empty)
        self.warnings = tuple(
            f"{lost[k]:,} cells of column {name!r} are read as gaps: they have {FORMULAS}"
            for k, name in named.items()
        )
        try:
            self._set_columns(self._path, names, sample, smiles, labels)
        except ValueError as error:
            listed = ", ".join(map(repr, sorted(self.formulas)))
            raise ValueError(f"{error}; {listed}: {FORMULAS}" if listed else error) from None

    def _records(self) -> Iterator["_Record"]:
        with closing(self._cells()) as cells:
            for number, row in enumerate(islice(cells, self._skipped + 1, None), start=1):
                self.position = number
                yield row[: self._width] + [""] * (self._width - len(row)), "", None

    def _cells(self) -> Generator[list[str]]:
        """Yield the texts of the rows that have any, without empty ones at their end."""
        with _workbook(self._path) as book:
            self.size = book[self._sheet].max_row or 0
            for cells in _sheet_rows(book[self._sheet]):
                row = [_excel_text(value) for value in cells]
                while row and not row[-1].strip():
                    row.pop()
                if row:
                    yield row


@contextmanager
def _workbook(path: Path, values: bool = True) -> Iterator[Any]:
    """Open a workbook, whose formulas are their saved values, or else their texts."""
    with needs(repr(path.name), "xlsx"):
        open_book = import_module("openpyxl").load_workbook
    try:
        with closing(open_book(path, read_only=True, data_only=values)) as book:
            yield book
    except Exception as error:  # openpyxl, zipfile and the XML parser have their own
        problem = f"is damaged, encrypted, or not an Excel workbook ({error})"
        raise ValueError(f"{path.name!r} {problem}") from None


def _sheet_rows(sheet: Any) -> Iterator[tuple[Any, ...]]:
    sheet.reset_dimensions()  # programs write wrong ones
    return sheet.iter_rows(values_only=True)


@lru_cache(16)
def _lost_formulas(path: Path, sheet: str, _stamp: tuple[int, int]) -> Counter[int]:
    """Count the formulas of each column that have no saved value."""
    found: Counter[int] = Counter()
    with _workbook(path) as values, _workbook(path, values=False) as texts:
        for row, own in zip(*(_sheet_rows(book[sheet]) for book in (values, texts)), strict=False):
            for k, (value, text) in enumerate(zip(row, own, strict=False)):
                if value is None and str(text).startswith(("=", "<openpyxl.")):
                    found[k] += 1
    return found


_READERS: dict[str, Any] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), _DelimitedTable),
    **dict.fromkeys((".smi", ".smiles", ".ism"), _SmiTable),
    **dict.fromkeys((".sdf", ".sd"), _SdfTable),
    **dict.fromkeys((".parquet", ".pq"), _ParquetTable),
    **dict.fromkeys((".xlsx", ".xlsm"), _ExcelTable),
}
SUFFIXES = tuple(_READERS)


def _find_layout(lines: list[str], delimiters: str) -> tuple[str, int, list[str], list[list[str]]]:
    """Return the delimiter, how many lines are before the header, the header and the first rows.

    Blank lines are not counted.
    """
    start = 0
    if lines and (sep := _SEP.fullmatch(lines[0].rstrip("\r\n"))):
        delimiters, start = sep[1], 1
    found: list[tuple[Any, tuple[str, int, list[str], list[list[str]]]]] = []
    for delimiter in delimiters:
        reader, places, records = csv.reader(lines[start:], delimiter=delimiter), [start], []
        try:
            for record in reader:
                records.append(record or [""])
                places.append(start + reader.line_num)
        except csv.Error:
            pass  # the rows up to there will do
        if records:
            k = _find_header(records)
            header, rows = records[k], records[k + 1 :]
            width = len(header)
            fitting = sum(len(row) >= width and not _filled([row[width:]]) for row in rows)
            # "C;-8,5" also has two fields at the comma, but none is a molecule; and a line above
            # the header, here "Structure;logS", counts against a delimiter.
            molecules = any(_is_molecule(field) for row in rows[:5] for field in row)
            share = (fitting + 1) / len(records)
            score = (width > 1, _has_usual_name(header), molecules, share, width)
            found.append((score, (delimiter, places[k], header, rows)))
    return max(found, key=itemgetter(0))[1] if found else (",", 0, [], [])


def _find_header(rows: list[list[str]]) -> int:
    """Return which row is the header: not a comment, a title, or a line above the names."""
    for k, row in enumerate(rows[:_HEADER_ROWS]):
        if _has_usual_name(row) and not any(map(_is_number, row)):
            return k
    ((usual, _),) = Counter(sum(map(bool, row)) for row in rows[1:]).most_common(1) or [(0, 0)]
    k = 0
    while k < len(rows[:_HEADER_ROWS]) - 1 and (
        rows[k][0].startswith("#") or sum(map(bool, rows[k])) == 1 < usual
    ):
        k += 1
    values = any(_is_number(field) or _is_molecule(field) for field in rows[k])
    return k - 1 if k and values and rows[k - 1][0].startswith("#") else k


def _has_usual_name(header: Sequence[str]) -> bool:
    names = {plain_name(name.lstrip("# \ufeff").strip()) for name in header}
    return not names.isdisjoint((*_SMILES_NAMES, *_INCHI_NAMES))


def _has_row_names(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether rows have one field more than the header, which is before the others."""
    wide = [row for row in rows if len(row) == len(header) + 1][:_ENOUGH]
    places = [k for k, name in enumerate(header) if _has_usual_name([name])]
    if 2 * len(wide) < len(rows[:_ENOUGH]) or not wide or not places:
        return False
    here, after = ([_is_molecule(row[places[0] + k]) for row in wide] for k in (0, 1))
    return sum(after) > len(wide) / 2 > sum(here)


def _filled(rows: Iterable[Sequence[str]]) -> bool:
    return any(field.strip() for row in rows for field in row)


def _clean_names(header: Sequence[str]) -> list[str]:
    names = [re.sub(r"\s*[\r\n]\s*", " ", printable(name)).strip() for name in header]
    return [names[0].lstrip("# ") or names[0], *names[1:]] if names else []


def _unique_names(names: Sequence[str]) -> list[str]:
    """Return the names, with the number of the column where it has no name or a repeated one."""
    named = [name or f"column {k}" for k, name in enumerate(names, start=1)]
    counts = Counter(named)
    return [
        f"{name} (column {k})" if counts[name] > 1 else name
        for k, name in enumerate(named, start=1)
    ]


_Record = tuple[list[str], str, str | None]  # the fields; or none, the line and its problem


def _read_records(lines: Iterable[str], delimiter: str, width: int) -> Iterator[_Record]:
    """Yield the records of a CSV, the header first; those of nothing but blanks are skipped.

    Every record but the header must have `width` fields, or more if these are empty. A quoted field
    may hold line breaks; if the quote is not closed, or the record then has the wrong number of
    fields, the first line alone is the bad row and the next line starts a new one.
    """
    fresh, returned = iter(lines), deque[str]()
    expected = None

    def take() -> str | None:
        return returned.popleft() if returned else next(fresh, None)

    while (line := take()) is not None:
        if not line.strip(_BLANKS):
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
                if (line := take()) is None:
                    return
                taken.append(line)

        fields, problem = _parse(feed(), taken, delimiter, expected)
        expected = width
        if problem is not None:
            returned.extendleft(reversed(taken[1:]))
        elif not any(field.strip(_BLANKS) for field in fields):
            continue
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
    if len(fields) > width and not _filled([fields[width:]]):
        return fields[:width], None
    problem = f"{len(fields)} fields where the header has {width}"
    return [], f"a quoted line break gives {problem}" if len(taken) > 1 else problem


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def _excel_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime.datetime):
        return str(value).removesuffix(" 00:00:00")
    return _as_text(value)


def plain_number(text: str) -> tuple[float, str | None]:
    """Return the label, NaN for a gap, and what is wrong with it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if abs(value) <= _LARGEST and "_" not in text:
        return value, None
    if text.strip().casefold() in GAPS:
        return math.nan, None
    if math.isinf(value):
        return value, "is not finite"
    return value, "is too large for float32" if abs(value) > _LARGEST else "is not a number"


def meant(name: str, names: Sequence[str]) -> str:
    """Return the question for a column with a similar name, or nothing."""
    near = get_close_matches(name.casefold(), [found.casefold() for found in names], 1)
    return "".join(f"did you mean {found!r}? " for found in names if found.casefold() in near)


def _guess_smiles(file: str, names: list[str], sample: list[list[str]]) -> str:
    """Return the column with a usual name, or else the longest texts that are molecules."""
    plain = [plain_name(_NUMBERED.sub("", name)) for name in names]
    for usual in (*_SMILES_NAMES, *(name for name in plain if "smiles" in name), *_INCHI_NAMES):
        if plain.count(usual) == 1:
            return names[plain.index(usual)]
        if usual in plain:
            several = [repr(n) for n, found in zip(names, plain, strict=True) if found == usual]
            choice = ", ".join(several)
            raise ValueError(f"{file!r} has more than one column {usual!r}: name one of {choice}")
    values = [[r[k] for r in sample if r[k].strip()][:_ENOUGH] for k in range(len(names))]
    found = [k for k, v in enumerate(values) if 2 * sum(map(_is_molecule, v)) > len(v)]
    if not found:
        known = f"name it, its columns are {', '.join(names)}"
        raise ValueError(f"{file!r} has no column that looks like SMILES; {known}")
    for k in found:
        if plain[k] in _MOLECULE_NAMES:
            return names[k]
    inchi = [values[k][0].lstrip().startswith("InChI=") for k in found]
    found = [k for k, is_inchi in zip(found, inchi, strict=True) if all(inchi) or not is_inchi]
    best = names[max(found, key=lambda k: sum(map(len, values[k])))]
    if _is_molecule(best):
        problem = f"its first line has {best!r}, a molecule; add one, or name the SMILES column"
        raise ValueError(f"{file!r} has no header: {problem}")
    return best


def _has_labels(name: str, values: list[str]) -> bool:
    """Return whether most values are numbers, and do not just number the rows."""
    values = [value for value in values if value.strip().casefold() not in GAPS]
    numbers = [value for value, problem in map(plain_number, values) if problem is None]
    if plain_name(name) in _NUMBERING or 2 * len(numbers) <= len(values):
        return False
    steps = {after - before for before, after in pairwise(numbers)}
    return len(numbers) < 3 or steps != {1.0}


def plain_name(name: str) -> str:
    """Return the name in small letters with ``_`` for blanks and hyphens."""
    return name.casefold().replace(" ", "_").replace("-", "_")


def _is_molecule(text: str) -> bool:
    try:
        return bool(text.strip() and is_text(text) and read_smiles(text, canonical=False))
    except SmilesError:
        return False


def _is_number(text: str) -> bool:
    value, problem = plain_number(text)
    return problem is None and value == value
