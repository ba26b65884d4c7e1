"""A table of molecules, of any size, with columns of predictions added to it."""

import csv
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from slicegraph.data.molecule.molecule_graph import MoleculeGraph
from slicegraph.data.preparation.chunk import Chunk, cut
from slicegraph.data.preparation.worker_pool import ordered_map
from slicegraph.data.table.table_source import Row, TableSource, open_table
from slicegraph.data.table.text_rows import is_text, printable
from slicegraph.models import GraphSliceformerConfig
from slicegraph.predictor import MoleculePredictor, Predictions, read_graph
from slicegraph.ranks import ALONE, Rank, share

CHUNK_ROWS = 4096
"""How many rows are read, predicted and written at a time."""

ERROR = "error"


class Tally:
    """How many rows were written, and how many of them have an error."""

    rows = 0
    errors = 0


def target_names(config: GraphSliceformerConfig) -> tuple[str, ...]:
    """What a model predicts; a model that was not told has "target" or "target0", "target1"..."""
    if config.target_names:
        return config.target_names
    count = config.num_targets
    return ("target",) if count == 1 else tuple(f"target{k}" for k in range(count))


def value_columns(config: GraphSliceformerConfig) -> list[str]:
    """``<target>_pred``; of a multiclass model it is the class, and its probabilities follow."""
    classes = range(config.num_classes if config.task == "multiclass" else 0)
    return [
        column
        for name in target_names(config)
        for column in (f"{name}_pred", *(f"{name}_p{k}" for k in classes))
    ]


def value_cells(values: np.ndarray) -> list[str]:
    """The texts for `value_columns` of one molecule: ``[targets]`` or ``[targets, classes]``."""
    if values.ndim == 1:
        return [str(value) for value in values]
    return [
        text
        for chances in values
        for text in (str(int(chances.argmax())), *(str(chance) for chance in chances))
    ]


def result_cells(values: np.ndarray, error: str | None, width: int) -> list[str]:
    """`value_cells` and no error; or as many empty cells, and the error."""
    return [*value_cells(values), ""] if error is None else [*[""] * width, error]


class WholeTable(NamedTuple):
    """A file whose rows are read with all their columns."""

    source: TableSource
    columns: tuple[str, ...]
    place: int

    def cells(self, row: Row) -> list[str]:
        """The row as it was, in the order of the file; of a row that is none, its text."""
        others = list(row.labels) if row.problem is None else [""] * (len(self.columns) - 1)
        cells = [*others[: self.place], row.text, *others[self.place :]]
        return [cell if is_text(cell) else printable(cell) for cell in cells]


def open_whole(path: str | Path, smiles: str | None = None) -> WholeTable:
    """Opens a file of molecules; the column of the SMILES is guessed if it is not given."""
    first = open_table(path, smiles, labels=())
    place = first.columns.index(first.smiles) if first.smiles else 0
    others = first.columns[:place] + first.columns[place + 1 :]
    return WholeTable(open_table(path, first.smiles, others), first.columns, place)


def predicted_rows(
    model: MoleculePredictor,
    table: WholeTable,
    batch_size: int = 256,
    workers: int = 1,
    rank: Rank = ALONE,
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[tuple[Chunk, Predictions]]:
    """The rows of a table with their predictions, in order, a few thousand at a time.

    Args:
        model: what predicts.
        table: what is read, once, from beginning to end.
        batch_size: how many molecules are computed at once.
        workers: how many processes read SMILES; 1 means in this one.
        rank: of the processes of a distributed run each does its share of the chunks, and the
            first has all predictions; the others get none, but must exhaust this, too.
        chunk_rows: how many rows are in memory, for each of the processes and workers.
    """

    def predict(chunks: Iterator[Chunk]) -> Iterator[Predictions]:
        texts = (chunk.rows for chunk in chunks)
        with closing(ordered_map(_read_rows, texts, workers)) as read:
            yield from map(partial(model.predict_graphs, batch_size=batch_size), read)

    return share(predict, cut(table.source, chunk_rows), rank)


def csv_blocks(
    model: MoleculePredictor,
    table: WholeTable,
    predicted: Iterable[tuple[Chunk, Predictions]],
    tally: Tally,
    delimiter: str = ",",
) -> Iterator[bytes]:
    """The table as CSV, with the columns of the predictions and the column "error" at its end."""
    added = [*value_columns(model.config), ERROR]
    for name in added:
        if name in table.columns:
            raise ValueError(
                f"the table has a column {name!r} already, which is to be added; rename it"
            )
    yield _csv([[*table.columns, *added]], delimiter)
    for chunk, (values, errors) in predicted:
        tally.rows += len(errors)
        tally.errors += sum(error is not None for error in errors)
        results = (
            result_cells(*result, len(added) - 1) for result in zip(values, errors, strict=True)
        )
        rows = map(table.cells, chunk.rows)
        yield _csv((row + result for row, result in zip(rows, results, strict=True)), delimiter)


def with_bar(
    table: TableSource, name: str, predicted: Iterable[tuple[Chunk, Predictions]]
) -> Iterator[tuple[Chunk, Predictions]]:
    """Shows on the standard error how much of the table is done."""
    bar = tqdm(desc=name, total=table.size, unit=table.unit, unit_scale=True, mininterval=0.5)
    with bar:
        for chunk, predictions in predicted:
            yield chunk, predictions
            bar.update(chunk.position - bar.n)


def compressed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks as gzip, without a date."""
    gzip = zlib.compressobj(wbits=31)
    yield from map(gzip.compress, blocks)
    yield gzip.flush()


def _read_rows(rows: Sequence[Row]) -> list[MoleculeGraph | str]:
    return [_read_row(row) for row in rows]


def _read_row(row: Row) -> MoleculeGraph | str:
    if row.problem is not None:
        return row.problem
    return read_graph(row.text) if is_text(row.text) else "holds bytes that are not UTF-8, or NUL"


def _csv(rows: Iterable[Sequence[object]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
