"""The making of one store: parts, then files, whatever goes wrong on the way."""

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from slicegraph.data.preparation.chunk import ChunkWork, cut, part_path
from slicegraph.data.preparation.folder import PrepareFolder, software
from slicegraph.data.preparation.source import PrepareSource
from slicegraph.data.preparation.tally import AGAIN, Tally, bad_row
from slicegraph.data.preparation.worker_pool import WorkerDied, ordered_map
from slicegraph.data.store.layout import StoreError
from slicegraph.data.store.part import StorePart, read_part
from slicegraph.data.store.writer import write_store


class PrepareError(ValueError):
    """A store could not be prepared; the message says why, and what to do."""


@dataclass(frozen=True)
class PrepareResult:
    """A finished store, and what is in it.

    Args:
        folder: where it is.
        molecules: how many molecules it has.
        rejected: how many rows are in its ``rejected.csv`` instead.
        duplicates: how many molecules have the graph of an earlier one; they are kept.
        smiles: the column of the SMILES, None if the source has no columns.
        labels: the names of the labels.
        kept_rows: how many rows an interrupted run had done before.
        was_complete: whether there was nothing left to do.
    """

    folder: Path
    molecules: int
    rejected: int
    duplicates: int
    smiles: str | None
    labels: tuple[str, ...]
    kept_rows: int = 0
    was_complete: bool = False


class PrepareJob:
    """Makes the store of a source in a folder; the arguments are those of `prepare`."""

    def __init__(
        self,
        source: PrepareSource,
        folder: PrepareFolder,
        *,
        canonical: bool,
        workers: int,
        strict: bool,
        progress: bool,
        chunk_rows: int,
    ) -> None:
        self._source, self._folder = source, folder
        self._settings = {**source.settings(), "canonical": canonical}
        self._workers, self._chunk_rows = workers, chunk_rows
        self._strict, self._progress = strict, progress
        self._tally = Tally()

    def run(self, restart: bool) -> PrepareResult:
        if self._folder.is_tidy() and (meta := self._folder.finished()):
            return self._complete(meta)
        with self._folder.lock():
            if meta := self._folder.finished():
                result = self._complete(meta)
            else:
                result = self._make(restart)
            self._folder.remove_parts()
        return result

    def _complete(self, meta: dict[str, Any]) -> PrepareResult:
        """The result, if the store in the folder is the one that is asked for."""
        now = {"sha256": self._source.identity["sha256"], **self._settings}
        before = {**meta, **meta["source"], **meta.get("settings", {})}
        for key, value in now.items():
            if before.get(key) != value:
                raise StoreError(
                    self._folder.path,
                    f"is a finished store of another source or setting: {key} = "
                    f"{before.get(key)!r}, not {value!r}; choose another folder",
                )
        if self._strict and meta["rejected"]:
            raise PrepareError(f"{self._source.name!r} has {meta['rejected']:,} bad rows")
        return replace(self._result(meta), was_complete=True)

    def _make(self, restart: bool) -> PrepareResult:
        job = {
            "source": self._source.identity,
            "settings": {**self._settings, "chunk_rows": self._chunk_rows},
            "software": software(),
        }
        try:
            key = self._folder.begin(job, restart)
            self._make_parts(key)
            meta = self._join_parts(key)
        except OSError as error:
            self._folder.remove_drafts()
            raise PrepareError(self._tally.cannot_write(self._folder.path, error)) from error
        except WorkerDied as error:
            raise PrepareError(self._tally.worker_died(error)) from error
        return replace(self._result(meta), kept_rows=self._tally.kept_rows)

    def _make_parts(self, key: str) -> None:
        table = self._source.table
        bar = tqdm(
            desc=self._source.name,
            total=table.size,
            unit=table.unit,
            unit_scale=True,
            mininterval=0.5 if sys.stderr.isatty() else 30,
            disable=not self._progress,
        )
        chunks = cut(table, self._chunk_rows)
        with bar, closing(ordered_map(self._work(key), chunks, self._workers)) as reports:
            for report in reports:
                self._tally.add(report)
                if self._strict and report.first_rejection:
                    raise PrepareError(bad_row(report.first_rejection))
                bar.set_postfix_str(self._tally.describe(), refresh=False)
                bar.update(report.position - bar.n)
        self._source.check_unchanged()

    def _join_parts(self, key: str) -> dict[str, Any]:
        if not self._tally.lengths["rows.npy"]:
            self._folder.discard()
            raise PrepareError(self._tally.no_molecule(self._source.name))
        facts = {
            "labels": self._settings["labels"],
            "canonical": self._settings["canonical"],
            "source": self._source.identity,
            "settings": {name: self._settings[name] for name in ("smiles", "unlabelled")},
            "software": software(),
        }
        return write_store(
            self._folder.path,
            self._folder.parts,
            self._read_parts(key),
            self._tally.lengths,
            self._work(key).vocabularies(),
            facts,
        )

    def _work(self, key: str) -> ChunkWork:
        labels = tuple(self._settings["labels"])
        canonical, unlabelled = self._settings["canonical"], self._settings["unlabelled"]
        return ChunkWork(self._folder.parts, key, labels, canonical, unlabelled)

    def _read_parts(self, key: str) -> Iterator[StorePart]:
        for number in range(self._tally.chunks):
            part = read_part(part_path(self._folder.parts, number), key)
            if part is None:
                raise PrepareError(f"part {number} was damaged or removed meanwhile; {AGAIN}")
            yield part

    def _result(self, meta: dict[str, Any]) -> PrepareResult:
        counts = meta["molecules"], meta["rejected"], meta["duplicates"]
        smiles, labels = self._settings["smiles"], tuple(meta["labels"])
        return PrepareResult(self._folder.path, *counts, smiles, labels)
