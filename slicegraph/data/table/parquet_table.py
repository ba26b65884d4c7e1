"""Tables in Parquet, which needs pyarrow."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from slicegraph.data.table.table_rows import SAMPLE_ROWS, Row, TableSource, choose_columns

_ROWS_AT_ONCE = 4096


class ParquetTable(TableSource):
    """A Parquet file, a few thousand rows of the columns that count in memory at a time."""

    unit = "rows"

    def __init__(self, path: Path, smiles: str | None, labels: Sequence[str] | None) -> None:
        self._name = path.name
        self._file = _open(path)
        self.size = self._file.metadata.num_rows
        self._position = 0
        names = self._file.schema_arrow.names
        if len(set(names)) < len(names):
            raise ValueError(f"{path.name!r} has columns of one name: {', '.join(names)}")
        self.columns = tuple(names)
        sample = [list(fields) for fields in islice(self._fields(names), SAMPLE_ROWS)]
        self.smiles, self.labels = choose_columns(path.name, names, sample, smiles, labels)
        self._columns = [self.smiles, *self.labels]

    @property
    def position(self) -> int:
        return self._position

    def rows(self) -> Iterator[Row]:
        for number, (text, *labels) in enumerate(self._fields(self._columns), start=1):
            self._position = number
            yield Row(text, tuple(labels))

    def _fields(self, names: list[str]) -> Iterator[tuple[str, ...]]:
        try:
            for batch in self._file.iter_batches(_ROWS_AT_ONCE, columns=names):
                columns = [map(_as_text, batch.column(name).to_pylist()) for name in names]
                yield from zip(*columns, strict=True)
        except (OSError, ValueError) as error:
            raise ValueError(f"{self._name!r} is damaged ({error})") from None


def _open(path: Path) -> Any:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError(
            f"{path.name!r} needs pyarrow: pip install 'slicegraph[parquet]'"
        ) from None
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name!r} is damaged, or no Parquet ({error})") from None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)
