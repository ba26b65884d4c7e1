"""Tables of predictions: a file of molecules with columns added, and labels next to predictions.

The processes of a distributed run share the work; the first has all results in order.
"""

import csv
import io
import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import distributed
from tqdm import tqdm

from slicegraph.data.columns import molecule_columns, number_formats, read_number
from slicegraph.data.pool import PROCESS_ENDED, ordered_map, run_halved
from slicegraph.data.smiles import MoleculeGraph
from slicegraph.data.table import FORMULAS, Chunk, Row, TableSource, cut, open_table, printable
from slicegraph.metrics import most_probable
from slicegraph.models import GraphSliceformerConfig
from slicegraph.predict.predictor import (
    MoleculePredictor,
    Predictions,
    Read,
    RowReader,
    add_isotopes,
    read_graph,
    target_labels,
)

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK_ROWS = 4096  # read, predicted and written at a time


class Rank(NamedTuple):
    """The number of this process and the number of processes."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0


ALONE = Rank()


@contextmanager
def process_group() -> Iterator[Rank]:
    """Join the processes that torchrun started; without torchrun there is one process."""
    world = int(os.environ.get("WORLD_SIZE", 1))
    if world == 1:
        yield ALONE
        return
    joined = distributed.is_initialized()
    if not joined:
        distributed.init_process_group("gloo")
    try:
        yield Rank(distributed.get_rank(), distributed.get_world_size())
    finally:
        if not joined:
            distributed.destroy_process_group()


def default_device() -> str:
    """The GPU of this process, or the CPU without a GPU."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % torch.cuda.device_count()}"


def share(
    work: Callable[[Iterator[Item]], Iterator[Result]], items: Iterable[Item], rank: Rank
) -> Iterator[tuple[Item, Result]]:
    """Yield every item with its result, in order, in the first process; nothing in the others.

    Every process must pass the same items and exhaust the iterator; process ``k % world`` works on
    item ``k``. Only a few items are in memory at a time. ``work`` yields one result for each item,
    in order, and may read items ahead.
    """
    source, pending = iter(items), deque[list[Item]]()

    def own_items() -> Iterator[Item]:
        while turn := list(islice(source, rank.world)):
            pending.append(turn)
            if rank.rank < len(turn):
                yield turn[rank.rank]

    def gather(own: Result | None) -> Iterator[tuple[Item, Result]]:
        found: Any = [own] * rank.world if rank.first else None
        if rank.world > 1:
            distributed.gather_object(own, found)
        turn = pending.popleft()
        if rank.first:
            yield from zip(turn, found[: len(turn)], strict=True)

    for result in work(own_items()):
        yield from gather(result)
    while pending:  # the last turn, without an item for this process
        yield from gather(None)


def labelled_table(
    dataset: Any,
    positions: np.ndarray,
    values: np.ndarray,
    *,
    std: np.ndarray | None = None,
    parts: Sequence[str] | None = None,
) -> bytes:
    """Write labels and predictions of samples of a data set as CSV, a row each.

    Args:
        dataset, positions: the samples.
        values: ``[n, targets]``, or the probabilities ``[n, targets, classes]``, which are columns
            after the most probable class.
        std: ``[n, targets]``, the standard deviations of an ensemble; no columns if None.
        parts: the name of the split in which each sample is held out; no column if None.
    """
    chances = values if values.ndim == 3 else np.empty((*values.shape, 0))
    kinds = ["true", "pred", *(f"p{k}" for k in range(chances.shape[2]))]
    columns = [dataset.labels(positions)[..., None], most_probable(values)[..., None], chances]
    if std is not None:
        kinds, columns = [*kinds, "std"], [*columns, std[..., None]]
    pairs = [f"{name}_{what}" for name in dataset.task.target_names for what in kinds]
    numbers = np.concatenate(columns, axis=-1).reshape(-1, len(pairs))
    cells = [["" if x != x else f"{x:.7g}" for x in row] for row in numbers.tolist()]
    named = [()] * len(cells) if parts is None else [(part,) for part in parts]
    rows = zip(dataset.rows(positions), named, cells, strict=True)
    header = [*dataset.columns, *(["split"] if parts is not None else ()), *pairs]
    return _csv([header, *([*row, *part, *own] for row, part, own in rows)])


def value_columns(config: GraphSliceformerConfig) -> list[str]:
    """``<target>_pred``; for a multiclass model the class, followed by the probabilities.

    A probability has the column ``<target>_p_<class>``, or ``<target>_p0``, ``<target>_p1``, ... if
    the classes have no names.
    """
    classes: list[str] = []
    if config.task == "multiclass":
        numbers = map(str, range(config.num_classes))
        classes = [f"_{name}" for name in config.class_names] or list(numbers)
    return [
        column
        for name in target_labels(config)
        for column in (f"{name}_pred", *(f"{name}_p{own}" for own in classes))
    ]


def value_cells(
    values: np.ndarray, config: GraphSliceformerConfig, form: Callable[[Any], str] = str
) -> list[str]:
    """The cells of `value_columns` of one molecule, with numbers written by ``form``.

    The values are ``[targets]`` or, with classes, ``[targets, classes]``. A molecule with an error,
    whose values are not finite, has empty cells.
    """
    if not np.isfinite(values).all():
        return [""] * values.size if values.ndim == 1 else [""] * (values.size + len(values))
    if values.ndim == 1:
        return list(map(form, values))
    names = config.class_names or tuple(map(str, range(values.shape[1])))
    return [cell for own in values for cell in (names[own.argmax()], *map(form, own))]


def more_cells(
    columns: Sequence[np.ndarray], count: int, form: Callable[[Any], str] = str
) -> list[tuple[str, ...]]:
    """The cells of further columns, a tuple for each of `count` rows; NaN is an empty cell."""
    texts = [
        [("" if x != x else form(x)) if isinstance(x, float) else str(x) for x in column.tolist()]
        for column in columns
    ]
    return list(zip(*texts, strict=True)) if texts else [()] * count


class WholeTable(NamedTuple):
    """A file whose rows are read with all their columns.

    `more` are the further molecules of a row with several, as places in the labels of the rows.
    """

    source: TableSource
    columns: tuple[str, ...]
    place: int
    more: tuple[int, ...] = ()

    @property
    def molecules(self) -> list[str | None]:
        """The columns of the molecules of a row."""
        return [self.source.smiles, *(self.source.labels[place] for place in self.more)]

    def cells(self, row: Row) -> list[str]:
        """The cells of a row in the order of the file; the text of a row that cannot be parsed."""
        others = list(row.labels) or [""] * (len(self.columns) - 1)
        cells = [*others[: self.place], row.text, *others[self.place :]]
        return list(map(printable, cells))


def open_whole(
    path: str | Path, smiles: str | None = None, config: GraphSliceformerConfig | None = None
) -> WholeTable:
    """Open a file of molecules for a model; a single SMILES column is guessed if it is not given.

    Several columns are those of the training if they are not given.
    """
    names: Sequence[str | None] = (smiles,)
    if config is not None and config.molecules > 1:
        names = molecule_columns(path, smiles or config.molecule_columns)
        if len(names) != config.molecules:
            listed = ", ".join(config.molecule_columns)
            given = f"--smiles {smiles}: {len(names)} columns"
            raise ValueError(f"{given}, the model has {config.molecules} molecules ({listed})")
    first = open_table(path, names[0], labels=())
    if first.smiles in first.formulas:
        raise ValueError(f"{Path(path).name!r}: column {first.smiles!r} has {FORMULAS}")
    place = first.columns.index(first.smiles) if first.smiles else 0
    others = first.columns[:place] + first.columns[place + 1 :]
    more = tuple(others.index(str(name)) for name in names[1:])
    return WholeTable(open_table(path, first.smiles, others), first.columns, place, more)


class RowNumbers:
    """Reads the numbers that a model needs from the rows of a table; small when pickled.

    Args:
        table: the table, which must have the columns.
        path: its file.
        names: the columns of the model.
        given: numbers of columns that the table does not have, the same for all rows.
    """

    def __init__(
        self,
        table: WholeTable,
        path: str | Path,
        names: Sequence[str],
        given: Mapping[str, float] | None = None,
    ) -> None:
        given = given or {}
        others = table.columns[: table.place] + table.columns[table.place + 1 :]
        for name in given:
            if name not in names:
                raise ValueError(f"the model has no feature {name!r}: {_listed(names)}")
            if name in table.columns:
                raise ValueError(f"{Path(path).name!r} has a column {name!r}; leave out its number")
        for name in (name for name in names if name not in given):
            if name not in others:
                columns = _listed(table.columns)
                needs = f"has no column {name!r}, which the model needs (feature); there are"
                raise ValueError(f"{Path(path).name!r} {needs} {columns}")
        self.names, self.given = tuple(names), dict(given)
        self.places = {name: others.index(name) for name in names if name not in given}
        self.formats = number_formats(path, [*self.places])

    def __call__(self, row: Row) -> tuple[list[float], str | None]:
        """Return the numbers of a row, and the problem of the row if there is one."""
        numbers, problem = [], row.problem
        for name in self.names:
            if name in self.given or problem:
                numbers.append(self.given.get(name, math.nan))
                continue
            value, reason = read_number(row.labels[self.places[name]], name, self.formats[name])
            numbers.append(value)
            problem = problem or reason or None
        return numbers, problem


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def predicted_rows(
    model: MoleculePredictor,
    table: WholeTable,
    *,
    numbers: RowNumbers | None = None,
    batch_size: int = 256,
    workers: int = 1,
    rank: Rank = ALONE,
    chunk_rows: int = CHUNK_ROWS,
    embed: bool = False,
    interval: float | None = None,
    near: bool = False,
) -> Iterator[tuple[Chunk, Predictions]]:
    """Predict the rows of a table in order, ``chunk_rows`` at a time; with `embed`, their vectors.

    `interval` and `near` are those of :meth:`MoleculePredictor.predict_rows`.

    In a distributed run every process predicts its share of the chunks; the first process yields
    all predictions, the others yield nothing but must be exhausted. ``workers`` processes read
    SMILES; 1 means this process. A row that ends its worker has an error, the others are predicted.
    `numbers` reads the columns of a model with features.
    """
    config = model.config
    read_rows: Any = partial(_read_rows, config.standardize, config.molecule_columns, table.more)
    if not embed and config.num_features:
        read_rows = partial(_read_samples, RowReader.of(config), numbers, table.more)
    alone = partial(run_halved, read_rows, died=lambda row: PROCESS_ENDED)
    compute = model.embed_graphs if embed else partial(model.predict_graphs, interval=interval)

    def predict(chunks: Iterator[Chunk]) -> Iterator[Predictions]:
        texts = (chunk.rows for chunk in chunks)
        with closing(ordered_map(read_rows, texts, workers, alone)) as read:
            yield from map(partial(compute, batch_size=batch_size), read)

    for chunk, found in share(predict, cut(table.source, chunk_rows), rank):
        texts = [row.joined(table.more) for row in chunk.rows]
        yield chunk, found._replace(more=found.more | model.near_columns(texts)) if near else found


class PredictedTable:
    """A table as CSV; predictions, warnings and errors are columns added at its end.

    The columns of the predictions are those of `value_columns`, or the given `columns`; `more`
    names columns of :func:`~slicegraph.predict.predictor.more_columns` that follow.
    """

    def __init__(
        self,
        config: GraphSliceformerConfig,
        table: WholeTable,
        delimiter: str = ",",
        columns: Sequence[str] | None = None,
        more: Sequence[str] = (),
    ) -> None:
        self.config, self.table, self.delimiter = config, table, delimiter
        self.values = value_columns(config) if columns is None else list(columns)
        self.more = list(more)
        self.added = [*self.values, *self.more, "warning", "error"]
        self.rows = self.warnings = self.errors = 0
        for name in self.added:
            if name in table.columns:
                raise ValueError(f"the table already has a column {name!r}; rename it")

    def blocks(self, predicted: Iterable[tuple[Chunk, Predictions]]) -> Iterator[bytes]:
        """The text of the file, chunk by chunk; counts rows, warnings and errors."""
        yield _csv([[*self.table.columns, *self.added]], self.delimiter)
        for chunk, (values, errors, warnings, more) in predicted:
            texts = [row.joined(self.table.more) for row in chunk.rows]
            warnings = add_isotopes(warnings, texts)
            self.rows += len(errors)
            self.warnings += sum(map(bool, warnings))
            self.errors += sum(error is not None for error in errors)
            others = more_cells([more[name] for name in self.more], len(errors))
            each = zip(chunk.rows, values, others, warnings, errors, strict=True)
            rows = (
                [*self.table.cells(row), *value_cells(found, self.config), *own, said, error or ""]
                for row, found, own, said, error in each
            )
            yield _csv(rows, self.delimiter)


def with_bar(
    table: TableSource, name: str, predicted: Iterable[tuple[Chunk, Predictions]]
) -> Iterator[tuple[Chunk, Predictions]]:
    """Show on standard error how much of the table is done."""
    options = {"desc": name, "total": table.size, "unit": table.unit, "unit_scale": True}
    with tqdm(**options, mininterval=0.5) as bar:
        for chunk, predictions in predicted:
            yield chunk, predictions
            bar.update(chunk.position - bar.n)


def compressed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress blocks as one gzip stream without a date."""
    gzip = zlib.compressobj(wbits=31)
    yield from map(gzip.compress, blocks)
    yield gzip.flush()


def _read_rows(
    steps: Sequence[str], columns: Sequence[str], more: Sequence[int], rows: Sequence[Row]
) -> list[MoleculeGraph | str]:
    return [row.problem or read_graph(row.joined(more), steps, columns) for row in rows]


def _read_samples(
    reader: RowReader, numbers: RowNumbers | None, more: Sequence[int], rows: Sequence[Row]
) -> list[Read]:
    found = []
    for row in rows:
        values, problem = ([], row.problem) if numbers is None else numbers(row)
        found.append(reader(row.joined(more), values, problem))
    return found


def _csv(rows: Iterable[Sequence[object]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
