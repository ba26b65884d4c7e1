"""A file of molecules as a stream of rows: CSV, TSV, SMI, their gzip, and Parquet."""

from collections.abc import Sequence
from pathlib import Path

from slicegraph.data.table.parquet_table import ParquetTable
from slicegraph.data.table.table_rows import Row, TableSource
from slicegraph.data.table.text_table import SmiTable, TextTable

__all__ = ["SUFFIXES", "Row", "TableSource", "open_table"]

_READERS: dict[str, type[TextTable | SmiTable | ParquetTable]] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), TextTable),
    **dict.fromkeys((".smi", ".smiles", ".ism"), SmiTable),
    **dict.fromkeys((".parquet", ".pq"), ParquetTable),
}
SUFFIXES = tuple(_READERS)


def open_table(
    path: str | Path, smiles: str | None = None, labels: Sequence[str] | None = None
) -> TableSource:
    """Opens a file by the ending of its name; columns that are not given are guessed.

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
