"""From a table of SMILES to a store: streamed, in parallel, resumed where it was interrupted.

Everything unfinished is in the folder `parts` of the store: `job.json`, which describes the job and
marks the folder as ours; `parts.log`, to which the arrays of a few thousand rows at a time are
appended, each with a checksum; and the drafts of the final files. `parts` is removed when
`meta.json` is there, `job.json` last. Files that we did not write are never removed.
"""

import errno
import hashlib
import io
import json
import platform
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rdkit
from tqdm import tqdm

from slicegraph import __version__
from slicegraph.data import molecules, store, table
from slicegraph.data.cells import CENSORED, CensoredError, ColumnFormat, read_labels
from slicegraph.data.columns import AmbiguousTargets, TableProfile, choose_targets, profile_table
from slicegraph.data.pool import PROCESS_ENDED, cores, ordered_map, run_halved
from slicegraph.data.smiles import (
    NOT_TEXT,
    OGB_CODES,
    FeatureCode,
    MoleculeGraph,
    SmilesError,
    is_text,
    join_graphs,
    join_texts,
    read_cells,
    read_smiles,
)
from slicegraph.files import folder_lock, sha256_of, sync, sync_folder, write_atomically

CHUNK_ROWS = 2000
_MOST_WORKERS = 8  # unless more are asked for
_MAX_SHOWN = 1000  # characters of a bad row that are kept
_JOB, _LOG = "job.json", "parts.log"
_FORMAT = "slicegraph-prepare-2"
_FILES = (store.REJECTED, store.CHECKSUMS, store.SIZES, *store.ARRAYS)
_NAMES = "|".join(map(re.escape, (_JOB, _LOG, store.META, store.DIGESTS, *_FILES)))
_OURS = re.compile(rf"({_NAMES})(\.\d+\.tmp)?")
_JOB_DRAFT = re.compile(rf"{re.escape(_JOB)}\.\d+\.tmp")
_stamp = attrgetter("st_size", "st_mtime_ns")
_NO_ROOM = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_KEPT = "all finished rows are kept, and the same command goes on from there"

_Rejection = tuple[int, str, str]  # row (0 is the first after the header), text, reason


class PrepareError(ValueError):
    """A store could not be prepared; the message has the reason and the remedy."""


@dataclass(frozen=True)
class PrepareResult:
    """A finished store, and what is in it.

    Args:
        folder: where it is.
        molecules: how many molecules it has.
        rejected: how many rows are in its ``rejected.csv`` instead.
        duplicates: how many molecules have the graph of an earlier one; they are kept.
        smiles: the column of the SMILES, or several; None if the source has no columns.
        labels: the names of the labels.
        kept_rows: how many rows an interrupted run had done before.
        was_complete: whether there was nothing left to do.
    """

    folder: Path
    molecules: int
    rejected: int
    duplicates: int
    smiles: str | list[str] | None
    labels: tuple[str, ...]
    kept_rows: int = 0
    was_complete: bool = False


def prepare(
    source: str | Path,
    folder: str | Path,
    *,
    smiles: str | Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    workers: int | None = None,
    strict: bool = False,
    canonical: bool = True,
    unlabelled: bool = False,
    progress: bool = False,
    restart: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    formats: Mapping[str, ColumnFormat] | None = None,
    standardize: Sequence[str] = (),
) -> PrepareResult:
    """Make a store of the molecules in a file.

    The source is streamed, and memory does not grow with it. Every row is either in the store or in
    its ``rejected.csv``, with the reason. After an interruption the same call
    goes on from there. The files are identical byte for byte, also for any number of workers.

    Args:
        source: a file as :func:`slicegraph.data.table.open_table` takes it.
        folder: where the store is made; new, empty, or that of an interrupted call.
        smiles: the column of the SMILES, guessed by default; or the columns of the molecules of a
            row, if it has several.
        labels: the columns of the labels, ``[]`` for none; by default the only column that can be
            a target, in the format of its texts; several are a `ValueError` that lists them.
        workers: how many processes; by default one for each core, at most 8. With 1 all work is
            done in this process.
        strict: whether the first bad row is an error.
        canonical: whether atoms are put in canonical order, so that a molecule has one graph
            however it is spelt; otherwise they keep the order of the SMILES.
        unlabelled: whether rows without any label are kept, their labels being NaN.
        progress: whether to show the columns and a progress bar on standard error.
        restart: whether to discard what an interrupted call with other settings has done.
        chunk_rows: how many rows are done at a time.
        formats: how the labels of a column are read, by its name; as plain numbers by default.
        standardize: the steps of :func:`slicegraph.data.molecules.standardize` that are applied to
            every molecule; the store has the SMILES that they give, with the isotopes, which
            the step "hydrogens" removes from the graph.

    Example:
        >>> prepare("solubility.csv", "solubility", labels=["logS"]).molecules
        1128
    """
    if chunk_rows < 1 or (workers is not None and workers < 1):
        raise PrepareError(f"{workers = } and {chunk_rows = } must be 1 at the least")
    path = Path(source)
    if not path.is_file():
        is_folder = f"{str(path)!r} is a folder, expected a file ({', '.join(table.SUFFIXES)})"
        raise ValueError(is_folder if path.is_dir() else f"there is no file {str(path)!r}")
    guessed = labels is None
    columns = (smiles,) if smiles is None or isinstance(smiles, str) else tuple(smiles)
    if labels is None:
        labels, found = _choose_labels(path, columns[0], folder)
        formats = found if formats is None else formats
    formats = formats or {}
    changed = {name: one.to_dict() for name, one in formats.items() if one != ColumnFormat()}
    # Only settings that are not the default are kept: stores made before there were any stay valid.
    options = {"formats": changed, "standardize": list(standardize)}
    options = {name: value for name, value in options.items() if value}
    job = _Job(path, columns, labels, unlabelled=unlabelled, canonical=canonical, **options)
    job.formats = {name: one for name, one in formats.items() if name in job.labels}
    job.chunk_rows, job.strict = chunk_rows, strict
    if progress:
        how = [" (guessed)" * one for one in (smiles is None, guessed)]
        said = {name: f" ({one.describe()})" for name, one in job.formats.items() if one.describe()}
        names = ", ".join(f"{name!r}{said.get(name, '')}" for name in job.labels) or "none"
        listed = ", ".join(map(repr, job.columns))
        said_columns = f"SMILES {listed}{how[0]}, labels {names}{how[1]}"
        shown = said_columns if job.table.smiles else "SMILES and names, no labels"
        print(f"{path.name}: {shown}", file=sys.stderr)
    target, kept = _PrepareFolder(folder), None
    untidy = target.parts.exists() or (target.path / store.LOCK).exists()  # left of making it
    meta = None if untidy else target.finished()
    if meta is None:
        with target.lock():
            meta = target.finished()
            if meta is None:
                workers = workers or min(cores(), _MOST_WORKERS)
                meta, kept = job.make(target, workers, restart, progress)
            target.remove_parts()
    if kept is None:
        job.check_is(target.path, meta)
        if strict and meta["rejected"]:
            raise PrepareError(f"{job.name!r} has {meta['rejected']:,} bad rows")
    return PrepareResult(
        target.path,
        **{name: meta[name] for name in ("molecules", "rejected", "duplicates")},
        smiles=job.settings["smiles"],
        labels=tuple(meta["labels"]),
        kept_rows=kept or 0,
        was_complete=kept is None,
    )


def _choose_labels(
    path: Path, smiles: str | None, folder: str | Path
) -> tuple[tuple[str, ...], dict[str, ColumnFormat]]:
    """Return the label that `slicegraph train` takes unasked, none in a table without numbers."""
    profile = profile_table(path, smiles)
    if not any(column.numbers and column.kind != "text" for column in profile.columns):
        return (), {}
    command = f"slicegraph prepare {shlex.quote(str(path))} --out {shlex.quote(str(folder))}"
    try:
        (label,) = choose_targets(profile, None, command, "--labels")
    except AmbiguousTargets as error:
        raise AmbiguousTargets(f"{error}\nor for none: {command} --labels ''") from None
    return (label,), _formats(path, profile, [label])


def _formats(path: Path, profile: TableProfile, labels: Sequence[str]) -> dict[str, ColumnFormat]:
    for label in labels:
        if count := profile[label].censored:
            remedy = f"slicegraph train --data {shlex.quote(f'csv:{path}')} has --censored for them"
            raise ValueError(f"{path.name!r}: {count:,} values of {label!r} are limits; {remedy}")
    return {label: profile[label].format for label in labels}


def label_formats(
    path: str | Path, smiles: str | None, labels: Sequence[str]
) -> dict[str, ColumnFormat]:
    """Return how the columns of labels are read, as `slicegraph train` does; not of empty columns.

    Values such as ``>10``, and a column that cannot be a label, are a `ValueError`.
    """
    profile = profile_table(path, smiles)
    filled = [label for label in labels if profile[label].kind != "empty"]
    if filled:
        choose_targets(profile, filled, "")
    return _formats(Path(path), profile, filled)


def write_graphs(
    folder: str | Path,
    graphs: Iterable[tuple[MoleculeGraph, Sequence[float]]],
    atom_vocabulary: Sequence[int],
    bond_vocabulary: Sequence[int],
    *,
    label_names: Sequence[str],
    source_name: str,
) -> None:
    """Make a store of graphs in memory and their labels; the texts of its molecules are empty.

    Args:
        folder: where the store is made; new or empty.
        graphs: each graph in numpy arrays, and its labels, NaN for a gap.
        atom_vocabulary: how many values each feature of an atom takes.
        bond_vocabulary: the same for bonds.
        label_names: the names of the labels.
        source_name: where the graphs come from.

    Example:
        >>> graphs = [(read_smiles("CCO"), [7.5]), (read_smiles("CC"), [9.0])]
        >>> write_graphs("two", graphs, OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary,
        ...              label_names=["gap"], source_name="by hand")
    """
    given: list[store.Molecule] = [(i, "", *found) for i, found in enumerate(graphs)]
    for number, _, graph, labels in given:
        bonds, most = np.asarray(graph.bonds), min(len(graph.atoms), 1 << 16) - 1
        shape, problem = [len(graph.bond_features), 2], ""
        if len(labels) != len(label_names):
            problem = f"has {len(labels)} labels, expected {len(label_names)}"
        elif list(bonds.shape) != shape:
            problem = f"has bonds of shape {list(bonds.shape)}, expected {shape}"
        elif bonds.size and not 0 <= bonds.min() <= bonds.max() <= most:
            problem = f"has bonds from atom {bonds.min()} to {bonds.max()}, expected 0 to {most}"
        if problem:
            raise ValueError(f"write_graphs: graph {number} {problem}")
    if not given:
        raise ValueError("write_graphs: there are no graphs")
    codes = FeatureCode(atom_vocabulary), FeatureCode(bond_vocabulary)
    part = _Part(store.pack(given, len(label_names), *codes), [])
    content = b"".join(array.tobytes() for array in part.arrays.values())
    identity = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    source = {"name": source_name, **identity}
    facts = _facts(codes, labels=list(label_names), canonical=False, source=source)
    target = _PrepareFolder(folder)
    with target.lock():
        if target.finished() is not None:
            raise store.StoreError(folder, "is a finished store; choose another folder")
        target.begin(facts, restart=False)
        lengths = {name: len(array) for name, array in part.arrays.items()}
        store.write_store(target.path, [part], lengths, facts)
        target.remove_parts()


def _facts(codes: Sequence[FeatureCode], **facts: Any) -> dict[str, Any]:
    """Return the entries of `meta.json` but the counts and checksums."""
    versions = {"slicegraph": __version__, "rdkit": rdkit.__version__, "numpy": np.__version__}
    return {
        "atom_vocabulary": list(codes[0].vocabulary),
        "bond_vocabulary": list(codes[1].vocabulary),
        "software": {**versions, "python": platform.python_version()},
        **facts,
    }


class _Part(NamedTuple):
    """The arrays and rejections of consecutive rows, as `write_store` takes them."""

    arrays: dict[str, np.ndarray]
    rejections: list[_Rejection]

    def rows(self) -> int:
        return len(self.arrays["rows.npy"]) + len(self.rejections)

    def to_bytes(self, first_row: int) -> bytes:
        """Return a checksum, the length and the content."""
        file = io.BytesIO()
        content: dict[str, Any] = {"header": json.dumps([first_row, self.rejections])}
        np.savez(file, **(content | self.arrays))
        body = file.getvalue()
        return hashlib.sha256(body).digest() + len(body).to_bytes(8, "little") + body


def _read_parts(path: Path) -> Iterator[tuple[int, _Part]]:
    """Yield the parts of a log and the position after each, up to the end or the first damage."""
    rows, size = 0, path.stat().st_size
    with open(path, "rb") as file:
        while len(head := file.read(40)) == 40:
            length = int.from_bytes(head[32:], "little")
            body = file.read(length) if length <= size else b""
            if hashlib.sha256(body).digest() != head[:32]:
                return
            with np.load(io.BytesIO(body), allow_pickle=False) as content:
                arrays = dict(content)
            first_row, rejections = json.loads(str(arrays.pop("header")))
            if first_row != rows:
                return
            part = _Part(arrays, [tuple(one) for one in rejections])
            rows += part.rows()
            yield file.tell(), part


def _read_rows(
    rows: Sequence[tuple[int, table.Row]],
    *,
    columns: Sequence[str | None],
    labels: Sequence[str],
    canonical: bool,
    unlabelled: bool,
    formats: Mapping[str, ColumnFormat],
    standardize: Sequence[str],
) -> list[_Part]:
    """Read the molecules and labels of numbered rows into one part; the work of one process."""
    found: list[store.Molecule] = []
    rejections: list[_Rejection] = []
    for number, row in rows:
        try:
            if row.problem:
                raise ValueError(row.problem)
            texts = [row.text, *row.labels[: len(columns) - 1]]
            read_cells(_check_text, texts, columns)
            values = read_labels(row.labels[len(columns) - 1 :], labels, formats)
            if values and not unlabelled and all(value != value for value in values):
                raise ValueError("no label")
            own = read_cells(partial(_read_text, standardize, canonical), texts, columns)
            kept, graphs = zip(*own, strict=True)
            found.append((number, join_texts(kept), join_graphs(graphs), values))
        except CensoredError as error:
            choice = f"choose what becomes of it: {', '.join(CENSORED[1:])} (--censored)"
            raise PrepareError(f"row {number}: {error}; {choice}") from None
        except (ValueError, RuntimeError) as error:  # RDKit's own errors are of both kinds
            reason = error.reason if isinstance(error, SmilesError) else str(error)
            whole = row.joined(range(len(columns) - 1))
            shown, length = whole[:_MAX_SHOWN], len(whole)
            shown += f"... ({length:,} characters)" if length > _MAX_SHOWN else ""
            rejections.append((number, table.printable(shown), reason))
    return [_Part(store.pack(found, len(labels), *OGB_CODES, len(columns)), rejections)]


def _check_text(text: str) -> None:
    if not (text.strip() and is_text(text)):
        raise ValueError(NOT_TEXT if text.strip() else "no SMILES")


def _read_text(steps: Sequence[str], canonical: bool, text: str) -> tuple[str, MoleculeGraph]:
    """Read a SMILES or InChI; return the text that is kept of it, and its graph."""
    drawn, kept = molecules.standard_texts(text, steps)
    return kept, read_smiles(drawn, canonical)


def _read_alone(
    read: Callable[[Sequence[tuple[int, table.Row]]], list[_Part]],
    rows: Sequence[tuple[int, table.Row]],
) -> list[_Part]:
    """Read rows in processes of their own: a row that ends its process is rejected."""

    def died(item: tuple[int, table.Row]) -> _Part:
        return read([(item[0], item[1]._replace(problem=PROCESS_ENDED))])[0]

    parts = run_halved(read, rows, died)
    names = parts[0].arrays
    arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in names}
    return [_Part(arrays, [one for part in parts for one in part.rejections])]


class _Job:
    """The source table of a store, its settings, and the counts of the rows so far."""

    chunk_rows, strict = CHUNK_ROWS, False
    formats: Mapping[str, ColumnFormat] = {}

    def __init__(
        self,
        path: Path,
        columns: Sequence[str | None],
        labels: Sequence[str],
        **settings: Any,
    ) -> None:
        self.name, self._path, self._stamp = path.name, path, _stamp(path.stat())
        self.table = table.open_table(path, columns[0], [*map(str, columns[1:]), *labels])
        self.columns = (self.table.smiles, *columns[1:])
        self.labels = self.table.labels[len(columns) - 1 :]
        self.identity = {"name": path.name, "sha256": sha256_of(path), "bytes": self._stamp[0]}
        smiles = self.table.smiles if len(columns) == 1 else list(self.columns)
        self.settings: dict[str, Any] = {"smiles": smiles, "labels": list(self.labels), **settings}
        self.counts: Counter[str] = Counter()  # parts, rows, rejected, the length of each array
        self._bad: str | None = None  # the first bad row

    def check_is(self, folder: Path, meta: dict[str, Any]) -> None:
        """Raise a `StoreError` if a finished store is that of another job."""
        before = {**meta, **meta["source"], **meta.get("settings", {})}
        now = {"sha256": self.identity["sha256"], **self.settings}
        for key in {**meta.get("settings", {}), **now}:
            if before.get(key) != now.get(key):
                other = f"{key} = {before.get(key)!r}, not {now.get(key)!r}; choose another folder"
                problem = f"is a finished store of another source or setting: {other}"
                raise store.StoreError(folder, problem)

    def make(
        self, folder: "_PrepareFolder", workers: int, restart: bool, progress: bool
    ) -> tuple[dict[str, Any], int]:
        """Make the store; return the content of `meta.json` and how many rows were kept."""
        settings = dict(self.settings)
        facts = _facts(OGB_CODES, **{name: settings.pop(name) for name in ("labels", "canonical")})
        facts |= {"settings": settings, "source": self.identity}
        job = {name: facts[name] for name in ("source", "software")}
        job["settings"] = {**self.settings, "chunk_rows": self.chunk_rows}
        try:
            folder.begin(job, restart)
            kept = self._make_parts(folder.log, workers, progress)
            if _stamp(self._path.stat()) != self._stamp:
                raise ValueError(f"{self.name!r} changed while it was read; restart it (--restart)")
            if not self.counts["rows.npy"]:
                folder.discard()
                bad = f"no molecule: all {self.counts['rows']:,} rows are bad, the first is"
                problem = f"{bad} {self._bad}" if self._bad else "no rows"
                raise PrepareError(f"{self.name!r} has {problem}")
            meta = store.write_store(folder.path, self._parts(folder.log), self.counts, facts)
        except OSError as error:
            folder.remove_parts(but=(_JOB, _LOG))
            full = f"no room is left on the disk of {str(folder.path)!r}"
            problem = full if error.errno in _NO_ROOM else str(error)
            raise PrepareError(f"{problem}, after {self.counts['rows']:,} rows; {_KEPT}") from error
        return meta, kept

    def _make_parts(self, log: Path, workers: int, progress: bool) -> int:
        """Append to the log what is not in it yet; return how many rows were in it."""
        seconds = 0.5 if sys.stderr.isatty() else 30
        options = {"desc": self.name, "total": self.table.size, "unit": self.table.unit}
        bar = tqdm(**options, unit_scale=True, mininterval=seconds, disable=not progress)
        cut = table.cut(self.table, self.chunk_rows)
        chunks, end = ([*enumerate(chunk.rows, chunk.first_row)] for chunk in cut), 0
        settings = {name: self.settings[name] for name in ("labels", "canonical", "unlabelled")}
        steps = self.settings.get("standardize", ())
        settings |= {"columns": self.columns, "formats": self.formats}
        read = partial(_read_rows, **settings, standardize=steps)
        with bar, open(log, "ab") as file:
            for end, part in _read_parts(log):  # noqa: B007
                self._add(part)
                next(chunks)
            kept = self.counts["rows"]
            file.truncate(end)
            alone = partial(_read_alone, read)
            with closing(ordered_map(read, chunks, workers, alone)) as results:
                for (part,) in results:
                    file.write(part.to_bytes(self.counts["rows"]))
                    sync(file)
                    self._add(part)
                    done = f"{self.counts['rows']:,} rows, {self.counts['rejected']:,} rejected"
                    bar.set_postfix_str(done, refresh=False)
                    bar.update(self.table.position - bar.n)
        return kept

    def _parts(self, log: Path) -> Iterator[_Part]:
        found = 0
        for found, (_, part) in enumerate(_read_parts(log), start=1):  # noqa: B007
            yield part
        if found != self.counts["parts"]:
            raise PrepareError(f"{_LOG} was damaged or removed meanwhile; {_KEPT}")

    def _add(self, part: _Part) -> None:
        arrays, rejections = part
        self.counts.update(parts=1, rows=part.rows(), rejected=len(rejections))
        self.counts.update({name: len(array) for name, array in arrays.items()})
        if rejections and self._bad is None:
            self._bad = "row {}: {!r}: {}".format(*rejections[0])
        if self.strict and self._bad:
            raise PrepareError(self._bad)


class _PrepareFolder:
    """The folder of a store that is being made, or is finished."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        self.parts = self.path / store.PARTS
        self.log = self.parts / _LOG

    def lock(self) -> AbstractContextManager[None]:
        """Make the folder and keep other processes out."""
        if self.path.exists() and not self.path.is_dir():
            raise store.StoreError(self.path, "is a file, expected a folder")
        self.path.mkdir(parents=True, exist_ok=True)
        return folder_lock(self.path / store.LOCK)

    def finished(self) -> dict[str, Any] | None:
        """Return the content of `meta.json`, if any; a `StoreError` if the files are damaged."""
        if not (self.path / store.META).exists():
            return None
        meta = store.read_meta(self.path)
        store.check_files(self.path, meta, sha256_of)
        return meta

    def begin(self, job: dict[str, Any], restart: bool) -> None:
        """Make `parts` for a job, or go on with it."""
        job = {"format": _FORMAT, **job}
        begun = self._job()
        self._refuse_foreign_files(begun is not None)
        if begun is None or restart:
            self.discard()
            self.parts.mkdir(exist_ok=True)
            write_atomically(self.parts / _JOB, [json.dumps(job, indent=1).encode()])
            sync_folder(self.parts)
            return
        for group in job:
            found = [one.get(group) for one in (begun, job)]
            before, now = (value if isinstance(value, dict) else {group: value} for value in found)
            changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
            if changed:
                changes = (f"{key} was {before.get(key)!r}, is {now.get(key)!r}" for key in changed)
                problem = f"was begun with another {group} ({', '.join(changes)})"
                remedy = "--restart discards its finished rows, or choose another folder"
                raise store.StoreError(self.path, f"{problem}; {remedy}")
        self.remove_parts(but=(_JOB, _LOG))

    def discard(self) -> None:
        """Remove all that an unfinished job has written, the mark that it is ours last."""
        for name in _FILES if self._job() else ():
            (self.path / name).unlink(missing_ok=True)
        self.remove_parts()

    def remove_parts(self, but: Sequence[str] = ()) -> None:
        """Remove the other files that we wrote to `parts`, and the folder if it is empty then."""
        for path in sorted(self._our_files(), key=lambda path: path.name == _JOB):
            if path.name not in but:
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.parts.rmdir()

    def _job(self) -> dict[str, Any] | None:
        try:
            job = json.loads((self.parts / _JOB).read_bytes())
            return job if str(job["format"]).startswith("slicegraph-prepare-") else None
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def _our_files(self) -> list[Path]:
        """Return what we wrote to `parts`: without our `job.json` at most drafts of it."""
        ours = _OURS if self._job() else _JOB_DRAFT
        return [path for path in self.parts.glob("*") if ours.fullmatch(path.name)]

    def _refuse_foreign_files(self, begun: bool) -> None:
        known = {store.LOCK, store.PARTS, *(_FILES if begun else ())}
        strangers = [path.name for path in self.path.iterdir() if path.name not in known]
        foreign = {*self.parts.glob("*")} - {*self._our_files()}
        strangers += [f"{store.PARTS}/{path.name}" for path in foreign]
        if strangers:
            problem = f"holds {min(strangers)!r}, which is not ours; choose an empty folder"
            raise store.StoreError(self.path, problem)
