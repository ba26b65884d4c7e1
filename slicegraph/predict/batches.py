"""Prediction as a map over batches and over parts: for Ray, Spark, and folders of Parquet files."""

import json
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from slicegraph.data.pool import PROCESS_ENDED, run_halved
from slicegraph.files import sha256_of
from slicegraph.models.base import WEIGHTS_FILE, find_model, member_folders
from slicegraph.predict.predictor import (
    MoleculePredictor,
    Read,
    RowReader,
    load_predictor,
    more_columns,
    row_text,
)
from slicegraph.predict.table import CHUNK_ROWS, default_device, value_columns

_KEY = b"slicegraph"  # of the record in the metadata of a part
_DRAFT = ".draft"


class BatchPredictor:
    """A callable that adds predictions to a batch of rows; every row stays in its place.

    A batch is a dict of numpy arrays, a `pandas.DataFrame` or a `pyarrow.Table`, and the result is
    of the same type: with the columns of :func:`slicegraph.predict.table.value_columns`,
    ``warning`` and ``error`` added. A row that is not a molecule has NaN (a class has ``""``) and
    its reason in ``error``. Any other iterable is taken as one of batches, and the result is an
    iterator over their results. The model of a path is loaded once in each process that uses it.

    Args:
        model: a model, or what :func:`slicegraph.load` takes; only a path is small when pickled.
        smiles: the column of the SMILES; or the columns of the molecules of a row, by default
            those of the training.
        batch_size: molecules computed at once; does not change the values.
        device: where a model that is given by path is put (default: a GPU if there is one).
        features: numbers of the model's feature columns that batches do not have, the same for all
            rows; the other feature columns are read from the batches.

    Example:
        >>> rows = ray.data.read_parquet("molecules")  # one model for each of 8 actors
        >>> rows.map_batches(BatchPredictor, fn_constructor_args=["runs/base"], concurrency=8)
        >>> predict = BatchPredictor("runs/base")
        >>> schema = molecules.schema  # of a Spark DataFrame
        >>> for name, kind in predict.columns.items():
        ...     schema = schema.add(name, kind)
        >>> molecules.mapInPandas(predict, schema)
    """

    def __init__(
        self,
        model: str | Path | MoleculePredictor,
        smiles: str | Sequence[str] = "smiles",
        batch_size: int = 256,
        device: str | None = None,
        features: Mapping[str, float] | None = None,
    ) -> None:
        self.features = dict(features or {})
        self.batch_size, self.device = batch_size, device
        given = isinstance(model, MoleculePredictor)
        self._path, self._model = None if given else str(model), model if given else None
        takes = getattr(self.model, "takes", "something else")
        if takes != MoleculePredictor.takes:
            raise ValueError(f"BatchPredictor: {model} is a model of {takes}, not of molecules")
        default = smiles == "smiles" and self.model.config.molecule_columns
        self.smiles = default or ((smiles,) if isinstance(smiles, str) else tuple(smiles))
        if len(self.smiles) != self.model.config.molecules:
            wanted = ", ".join(self.model.config.molecule_columns) or "one molecule in a row"
            listed = ", ".join(self.smiles)
            raise ValueError(f"BatchPredictor: smiles = {listed}, the model takes {wanted}")

    @property
    def model(self) -> Any:
        """The model, loaded on first use."""
        if self._model is None:
            self._model = load_predictor(str(self._path), self.device or default_device())
        return self._model

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are added, with their types in SQL."""
        config = self.model.config
        words, added = {"warning", "error"}, value_columns(config)
        more = more_columns(config, len(self.model.members))
        if config.task == "multiclass":
            words |= {*added[:: 1 + config.num_classes]}
        names = (*added, *more, "warning", "error")
        return {n: "string" if n in words else "double" for n in names}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | ({"_model": None} if self._path else {})

    def __call__(self, batch: Any) -> Any:
        if isinstance(batch, dict):
            return {**batch, **self.added(self._texts(batch, batch), self._numbers(batch, batch))}
        if isinstance(batch, pd.DataFrame):
            columns = batch.columns
            numbers = self._numbers(batch, columns)
            return batch.assign(**self.added(self._texts(batch, columns), numbers))
        if hasattr(batch, "append_column"):  # of pyarrow, which may not be installed
            return self.on_arrow(batch)
        return map(self, batch)

    def on_arrow(self, table: Any, careful: bool = False) -> Any:
        """Add the columns to a `pyarrow.Table`; a row with an error has null for its numbers."""
        import pyarrow as pa

        kinds = {"double": pa.float64(), "string": pa.string()}
        texts = self._texts(table, table.column_names)
        numbers = self._numbers(table, table.column_names)
        for name, values in self.added(texts, numbers, careful).items():
            own = pa.array(values, kinds[self.columns[name]], from_pandas=True)
            table = table.append_column(name, own)
        return table

    def _texts(self, batch: Any, columns: Iterable[str]) -> Any:
        found = list(map(str, columns))
        for name in (name for name in self.smiles if name not in found):
            listed = ", ".join(found)
            raise ValueError(f"BatchPredictor: no column {name!r}, there are {listed}")
        for name in self.columns:
            if name in found:
                raise ValueError(f"BatchPredictor: there is a column {name!r} already; rename it")
        cells = (batch[name] for name in self.smiles)
        columns = [own.to_pylist() if hasattr(own, "to_pylist") else own for own in cells]
        return columns[0] if len(columns) == 1 else list(map(row_text, zip(*columns, strict=True)))

    def _numbers(self, batch: Any, columns: Iterable[str]) -> dict[str, Any]:
        """Return the numbers of the model's feature columns, NaN for what is not a number."""
        found, known = {}, list(map(str, columns))
        for name in self.model.config.feature_columns:
            if name not in self.features and name not in known:
                listed = ", ".join(known)
                text = f"no column {name!r}, which the model needs (feature), there are {listed}"
                raise ValueError(f"BatchPredictor: {text}")
            values = self.features.get(name, None)
            if values is None:
                values = (
                    batch[name].to_pylist() if hasattr(batch[name], "to_pylist") else batch[name]
                )
                values = pd.to_numeric(pd.Series(values), errors="coerce").to_numpy(np.float64)
            found[name] = values
        return found

    def added(
        self, texts: Iterable[Any], numbers: Mapping[str, Any] | None = None, careful: bool = False
    ) -> dict[str, np.ndarray]:
        """Return the added columns for these SMILES, ``[N]`` each, and numbers of their features.

        With `careful`, SMILES are read in processes of their own: a text that ends its process,
        because RDKit crashes, has an error.
        """
        rows = ["" if text is None or text != text else text for text in texts]
        reader = RowReader.of(self.model.config)
        pairs = list(zip(rows, reader.numbers(numbers or None, len(rows)), strict=True))
        read = partial(_read_pairs, reader)
        graphs = run_halved(read, pairs, lambda pair: PROCESS_ENDED) if careful else read(pairs)
        values, errors, warnings, more = self.model.predict_graphs(graphs, self.batch_size)
        config, columns = self.model.config, list[np.ndarray]()
        for own in np.moveaxis(values, 1, 0).astype(np.float64):
            if config.task == "multiclass":
                names = config.class_names or tuple(map(str, range(own.shape[1])))
                chosen = ["" if np.isnan(row).any() else names[row.argmax()] for row in own]
                columns += [np.array(chosen, object), *own.T]
            else:
                columns.append(own)
        columns += [own.astype(np.float64) for own in more.values()]
        columns += [np.array(warnings, object), np.array([one or "" for one in errors], object)]
        return dict(zip(self.columns, columns, strict=True))


class Counts(NamedTuple):
    """What is in parts that are done."""

    rows: int
    errors: int
    warnings: int


def _read_pairs(reader: RowReader, pairs: Sequence[tuple[Any, np.ndarray]]) -> list[Read]:
    return [reader(*pair) for pair in pairs]


class PartPredictor:
    """Predicts a Parquet file and writes it, whole or not at all, with the predictions added.

    The result has the name of the part, and a record of the model and of the size of the part in
    its metadata. A part that a process died of is read carefully the next time, see
    `BatchPredictor.added`: its draft is still there.
    """

    def __init__(self, out: str, predictor: BatchPredictor) -> None:
        self.out, self.predictor = Path(out), predictor
        place = find_model(str(predictor._path))
        weights = [place]
        if place.is_dir():
            weights = [folder / WEIGHTS_FILE for folder in (place, *member_folders(place))]
        self.record = {"model": "-".join(map(sha256_of, weights))}

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Predict the parts in the column "part"; for Ray's `map_batches`."""
        return batch | {"rows": np.array([self.predict(Path(part)).rows for part in batch["part"]])}

    def predict(self, part: Path) -> Counts:
        """Predict a part, unless it is done."""
        import pyarrow as pa
        from pyarrow import parquet

        if (done := self.done(part)) is not None:
            return done
        careful = any(self.out.glob(f"{part.name}.*{_DRAFT}"))
        owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        draft = self.out / f"{part.name}.{owner}{_DRAFT}"
        counts = dict.fromkeys(Counts._fields, 0)
        with parquet.ParquetFile(part) as source:
            schema = self.predictor.on_arrow(source.schema_arrow.empty_table()).schema
            with parquet.ParquetWriter(draft, schema) as file:
                for batch in source.iter_batches(CHUNK_ROWS):
                    table = self.predictor.on_arrow(pa.Table.from_batches([batch]), careful)
                    file.write_table(table.cast(schema))
                    counts["rows"] += len(table)
                    for name, column in (("errors", "error"), ("warnings", "warning")):
                        counts[name] += sum(map(bool, table[column].to_pylist()))
                record = self.record | {"bytes": part.stat().st_size} | counts
                file.add_key_value_metadata({_KEY: json.dumps(record)})
        os.replace(draft, self.out / part.name)
        return Counts(**counts)

    def done(self, part: Path) -> Counts | None:
        """Return what is in the result of a part, None if there is none.

        Raises:
            ValueError: the result is of another model, or of another file of this name.
        """
        from pyarrow import ArrowInvalid, parquet

        target = self.out / part.name
        if not target.is_file():
            return None
        try:
            found = parquet.read_metadata(target)
            record = json.loads((found.metadata or {})[_KEY])
            counts = Counts(*(record[name] for name in Counts._fields))
        except (ArrowInvalid, KeyError, ValueError, TypeError):
            raise ValueError(f"{target} is not a result of predict; choose another --out") from None
        now = self.record | {"bytes": part.stat().st_size}
        for name, what in (("model", "model"), ("bytes", part.name)):
            if record.get(name) != now[name]:
                problem = f"was predicted from another {what}"
                raise ValueError(f"{target} {problem}; choose another --out")
        if not counts.rows == found.num_rows == parquet.read_metadata(part).num_rows:
            raise ValueError(f"{target} has {found.num_rows:,} rows, expected those of {part}")
        return counts


def predict_parts(
    predictor: BatchPredictor,
    folder: Path,
    out: Path,
    engine: str = "local",
    workers: int | None = None,
) -> tuple[Counts, int]:
    """Predict every Parquet file of a folder into a file of the same name in another folder.

    Returns what is in all parts, and how many of the rows were predicted by this call. Files that
    are done are left as they are, so that the same call goes on after an interruption.
    """
    parts = sorted(folder.glob("*.parquet"))
    if not parts:
        raise ValueError(f"{folder} has no .parquet files")
    if out.exists() and (not out.is_dir() or out.samefile(folder)):
        raise ValueError(f"--out {out} is not a folder of its own; choose another")
    out.mkdir(parents=True, exist_ok=True)
    work = PartPredictor(str(out.absolute()), predictor)
    before = {part: work.done(part) for part in parts}
    waiting = [part.absolute() for part, counts in before.items() if counts is None]
    with tqdm(total=len(parts), initial=len(parts) - len(waiting), unit="part") as bar:
        for done in ENGINES[engine](work, waiting, workers):
            bar.update(done)
    for draft in out.glob(f"*.parquet.*{_DRAFT}"):
        draft.unlink()
    found = [work.done(part) for part in parts]
    for part, counts in zip(parts, found, strict=True):
        if counts is None:
            raise RuntimeError(f"{part} has no result; run the same command again")
    total = Counts(*(sum(each) for each in zip(*filter(None, found), strict=True)))
    return total, total.rows - sum(counts.rows for counts in before.values() if counts)


def _locally(work: PartPredictor, parts: list[Path], workers: int | None) -> Iterator[int]:
    """Predict one part after another in this process."""
    for part in parts:
        work.predict(part)
        yield 1


def _with_ray(work: PartPredictor, parts: list[Path], workers: int | None) -> Iterator[int]:
    """Predict parts in actors of Ray, each with a model; a part whose actor dies is repeated."""
    if find_spec("ray") is None:
        raise ValueError('--engine ray needs ray: pip install "slicegraph[ray]"')
    import ray

    if not parts:
        return
    if not ray.is_initialized():
        alone = workers is not None and "RAY_ADDRESS" not in os.environ
        ray.init(log_to_driver=False, num_cpus=workers if alone else None)
    gpus = ray.cluster_resources().get("GPU", 0)
    count = workers or int(gpus or ray.cluster_resources().get("CPU", 1))
    items = [{"part": str(part)} for part in parts]
    rows = ray.data.from_items(items, override_num_blocks=len(items))
    done = rows.map_batches(
        PartPredictor,
        fn_constructor_args=[str(work.out), work.predictor],
        concurrency=min(count, len(parts)),
        batch_size=1,
        num_gpus=1 if gpus else 0,
        num_cpus=1,
    )
    for batch in done.iter_batches(batch_size=1, prefetch_batches=0):
        yield len(batch["part"])


ENGINES: dict[str, Callable[[PartPredictor, list[Path], int | None], Iterator[int]]] = {
    "local": _locally,
    "ray": _with_ray,
}
