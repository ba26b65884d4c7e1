"""Tables of predictions: a file of molecules with columns added, and labels next to predictions."""

import csv
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from slicegraph.data.pool import ordered_map
from slicegraph.data.smiles import MoleculeGraph
from slicegraph.data.table import (
    NOT_TEXT,
    Chunk,
    Row,
    TableSource,
    cut,
    is_text,
    open_table,
    printable,
)
from slicegraph.models import GraphSliceformerConfig
from slicegraph.predict.distributed import ALONE, Rank, share
from slicegraph.predict.predictor import MoleculePredictor, Predictions, read_graph

CHUNK_ROWS = 4096  # read, predicted and written at a time


def labelled_table(dataset: Any, positions: np.ndarray, values: np.ndarray) -> bytes:
    """Write labels and predictions ``[n, targets]`` of samples of a data set as CSV, a row each."""
    pairs = [f"{name}_{what}" for name in dataset.task.target_names for what in ("true", "pred")]
    numbers = np.stack([dataset.labels(positions), values], axis=-1).reshape(-1, len(pairs))
    cells = [["" if x != x else f"{x:.7g}" for x in row] for row in numbers.tolist()]
    rows = [[*row, *own] for row, own in zip(dataset.rows(positions), cells, strict=True)]
    return _csv([[*dataset.columns, *pairs], *rows])


def value_columns(config: GraphSliceformerConfig) -> list[str]:
    """``<target>_pred``; for a multiclass model the class, followed by the probabilities."""
    count = config.num_targets
    unnamed = ("target",) if count == 1 else tuple(f"target{k}" for k in range(count))
    classes = range(config.num_classes if config.task == "multiclass" else 0)
    return [
        column
        for name in config.target_names or unnamed
        for column in (f"{name}_pred", *(f"{name}_p{k}" for k in classes))
    ]


def result_cells(values: np.ndarray, error: str | None, width: int) -> list[str]:
    """The ``width`` cells of `value_columns`, empty for an error, and that of the error column.

    The values of a molecule are ``[targets]`` or, with classes, ``[targets, classes]``.
    """
    if error is not None:
        return [*[""] * width, error]
    if values.ndim == 1:
        return [*map(str, values), ""]
    return [*(str(x) for chances in values for x in (chances.argmax(), *chances)), ""]


class WholeTable(NamedTuple):
    """A file whose rows are read with all their columns."""

    source: TableSource
    columns: tuple[str, ...]
    place: int

    def cells(self, row: Row) -> list[str]:
        """The cells of a row in the order of the file; the text of a row that cannot be parsed."""
        others = list(row.labels) if row.problem is None else [""] * (len(self.columns) - 1)
        cells = [*others[: self.place], row.text, *others[self.place :]]
        return [cell if is_text(cell) else printable(cell) for cell in cells]


def open_whole(path: str | Path, smiles: str | None = None) -> WholeTable:
    """Open a file of molecules; the SMILES column is guessed if it is not given."""
    first = open_table(path, smiles, labels=())
    place = first.columns.index(first.smiles) if first.smiles else 0
    others = first.columns[:place] + first.columns[place + 1 :]
    return WholeTable(open_table(path, first.smiles, others), first.columns, place)


def predicted_rows(
    model: MoleculePredictor,
    table: WholeTable,
    *,
    batch_size: int = 256,
    workers: int = 1,
    rank: Rank = ALONE,
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[tuple[Chunk, Predictions]]:
    """Predict the rows of a table in order, ``chunk_rows`` at a time.

    In a distributed run every process predicts its share of the chunks; the first process yields
    all predictions, the others yield nothing but must be exhausted. ``workers`` processes read
    SMILES; 1 means this process.
    """

    def predict(chunks: Iterator[Chunk]) -> Iterator[Predictions]:
        texts = (chunk.rows for chunk in chunks)
        with closing(ordered_map(_read_rows, texts, workers)) as read:
            yield from map(partial(model.predict_graphs, batch_size=batch_size), read)

    return share(predict, cut(table.source, chunk_rows), rank)


class PredictedTable:
    """A table as CSV with the columns of a model's predictions and of errors added at its end."""

    def __init__(
        self, config: GraphSliceformerConfig, table: WholeTable, delimiter: str = ","
    ) -> None:
        self.table, self.delimiter = table, delimiter
        self.added = [*value_columns(config), "error"]
        self.rows = self.errors = 0
        for name in self.added:
            if name in table.columns:
                raise ValueError(f"the table already has a column {name!r}; rename it")

    def blocks(self, predicted: Iterable[tuple[Chunk, Predictions]]) -> Iterator[bytes]:
        """The text of the file, chunk by chunk; counts ``rows`` and ``errors``."""
        yield _csv([[*self.table.columns, *self.added]], self.delimiter)
        for chunk, (values, errors) in predicted:
            self.rows += len(errors)
            self.errors += sum(error is not None for error in errors)
            rows = (
                self.table.cells(row) + result_cells(found, error, len(self.added) - 1)
                for row, found, error in zip(chunk.rows, values, errors, strict=True)
            )
            yield _csv(rows, self.delimiter)


def with_bar(
    table: TableSource, name: str, predicted: Iterable[tuple[Chunk, Predictions]]
) -> Iterator[tuple[Chunk, Predictions]]:
    """Show on standard error how much of the table is done."""
    bar = tqdm(desc=name, total=table.size, unit=table.unit, unit_scale=True, mininterval=0.5)
    with bar:
        for chunk, predictions in predicted:
            yield chunk, predictions
            bar.update(chunk.position - bar.n)


def compressed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress blocks as one gzip stream without a date."""
    gzip = zlib.compressobj(wbits=31)
    yield from map(gzip.compress, blocks)
    yield gzip.flush()


def _read_rows(rows: Sequence[Row]) -> list[MoleculeGraph | str]:
    bytes_found = NOT_TEXT
    return [
        row.problem or (read_graph(row.text) if is_text(row.text) else bytes_found) for row in rows
    ]


def _csv(rows: Iterable[Sequence[object]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
