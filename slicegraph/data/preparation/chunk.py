"""From rows of text to a part of a store: the work of one process."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from slicegraph.data.molecule.feature_code import OGB_ATOM_CODE, OGB_BOND_CODE
from slicegraph.data.molecule.molecule_reader import read_smiles
from slicegraph.data.molecule.smiles_parser import SmilesError
from slicegraph.data.store.part import (
    Molecule,
    Rejection,
    StorePart,
    Vocabularies,
    build_part,
    read_part,
    write_part,
)
from slicegraph.data.table.label_text import read_labels
from slicegraph.data.table.table_source import Row, TableSource
from slicegraph.data.table.text_rows import is_text, printable

_MAX_CHARACTERS = 4 << 20  # of a chunk: a file of long texts must not fill the memory
_MAX_SHOWN = 1000  # characters of a bad row that are kept


class Chunk(NamedTuple):
    """Consecutive rows of the source, and how much of it was read with them."""

    number: int
    first_row: int
    rows: list[Row]
    position: int


class ChunkReport(NamedTuple):
    """What became of a chunk; `kept` if its part was there already."""

    rows: int
    lengths: dict[str, int]
    rejected: int
    first_rejection: Rejection | None
    position: int
    kept: bool


@dataclass(frozen=True)
class ChunkWork:
    """Makes the part of a chunk, unless a whole one of the same job is there.

    Args:
        parts: the folder of the parts.
        job: what the parts must belong to.
        labels: the names of the labels.
        canonical: whether the atoms are put in canonical order.
        unlabelled: whether rows without any label are kept.
    """

    parts: Path
    job: str
    labels: tuple[str, ...]
    canonical: bool
    unlabelled: bool

    def __call__(self, chunk: Chunk) -> ChunkReport:
        path = part_path(self.parts, chunk.number)
        part = read_part(path, self.job)
        kept = part is not None and part[:2] == (chunk.first_row, len(chunk.rows))
        if part is None or not kept:
            part = self.read(chunk)
            write_part(path, self.job, part)
        first = part.rejections[0] if part.rejections else None
        rejected = len(part.rejections)
        return ChunkReport(part.rows, part.lengths(), rejected, first, chunk.position, kept)

    def read(self, chunk: Chunk) -> StorePart:
        molecules, rejections = [], []
        for number, row in enumerate(chunk.rows, chunk.first_row):
            try:
                molecules.append(self._molecule(number, row))
            except (ValueError, RuntimeError) as error:  # RDKit's own errors are of both kinds
                text = printable(row.text if len(row.text) <= _MAX_SHOWN else _shortened(row.text))
                rejections.append(Rejection(number, text, _reason(error)))
        return build_part(
            chunk.first_row, len(chunk.rows), molecules, rejections, self.vocabularies()
        )

    def vocabularies(self) -> Vocabularies:
        return Vocabularies(OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary, len(self.labels))

    def _molecule(self, number: int, row: Row) -> Molecule:
        if row.problem is not None:
            raise ValueError(row.problem)
        if not row.text.strip():
            raise ValueError("no SMILES")
        if not is_text(row.text):
            raise ValueError("holds bytes that are not UTF-8, or NUL")
        labels = read_labels(row.labels, self.labels)
        if labels and not self.unlabelled and all(label != label for label in labels):
            raise ValueError("no label")
        return Molecule(number, row.text, read_smiles(row.text, self.canonical), labels)


def part_path(parts: Path, number: int) -> Path:
    return parts / f"{number:08}.part"


def cut(table: TableSource, rows: int) -> Iterator[Chunk]:
    """The table in chunks of so many rows, fewer where their texts are long."""
    source = table.rows()
    number = first_row = 0
    while chunk := _take(source, rows):
        yield Chunk(number, first_row, chunk, table.position)
        number += 1
        first_row += len(chunk)


def _take(source: Iterator[Row], rows: int) -> list[Row]:
    taken: list[Row] = []
    characters = 0
    for row in islice(source, rows):
        taken.append(row)
        characters += len(row.text)
        if characters > _MAX_CHARACTERS:
            break
    return taken


def _shortened(text: str) -> str:
    return f"{text[:_MAX_SHOWN]}... ({len(text):,} characters)"


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error)) if isinstance(error, SmilesError) else str(error)
