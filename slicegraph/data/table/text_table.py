"""Tables in text: CSV and TSV with a header, SMI without."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from slicegraph.data.table.table_rows import SAMPLE_ROWS, Row, TableSource, choose_columns
from slicegraph.data.table.text_rows import Record, TextFile, printable, read_records

_DELIMITERS = ",\t;|"  # the first wins a tie


class TextTable(TableSource):
    """A CSV or TSV; its delimiter is the one of ``, ; |`` and tab that the header has most of."""

    unit = "B"

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        self._text = TextFile(path)
        self.size = self._text.size
        records = self._records()
        header = next(records, None)
        if header is None or header.problem:
            raise ValueError(f"{path.name!r} has no header ({header and header.problem})")
        names = [printable(name).strip() for name in header.fields]
        self.columns = tuple(names)
        sample = [record.fields for record in islice(records, SAMPLE_ROWS) if not record.problem]
        self.smiles, self.labels = choose_columns(path.name, names, sample, smiles, labels)
        self._column = names.index(self.smiles)
        self._label_columns = [names.index(name) for name in self.labels]

    @property
    def position(self) -> int:
        return self._text.position

    def rows(self) -> Iterator[Row]:
        column, label_columns = self._column, self._label_columns
        for fields, line, problem in islice(self._records(), 1, None):
            if problem is None:
                yield Row(fields[column], tuple([fields[label] for label in label_columns]))
            else:
                yield Row(line.rstrip("\r\n"), problem=problem)

    def _records(self) -> Iterator[Record]:
        lines = self._text.lines()
        first = next((line for line in lines if line.strip()), "")
        return read_records(chain([first], lines), max(_DELIMITERS, key=first.count))


class SmiTable(TableSource):
    """Lines of a SMILES, blanks and a name; no header, and no labels but the names."""

    unit = "B"
    columns = ("smiles", "name")

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        self.labels = tuple(labels or ())
        if smiles or self.labels not in ((), self.columns[1:]):
            raise ValueError(f"{path.name!r} has no columns; make a CSV of it to name some")
        self._text = TextFile(path)
        self.size = self._text.size

    @property
    def position(self) -> int:
        return self._text.position

    def rows(self) -> Iterator[Row]:
        for line in self._text.lines():
            if words := line.strip().split(maxsplit=1):
                yield Row(words[0], ("".join(words[1:]),) if self.labels else ())
