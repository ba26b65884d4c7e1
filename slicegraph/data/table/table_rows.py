"""What the rows of a table are to whoever makes molecules of them, whatever file they are in."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from slicegraph.data.table.column_guess import guess_labels, guess_smiles

SAMPLE_ROWS = 1000
"""How many rows columns are guessed from."""


class Row(NamedTuple):
    """One row as text: the SMILES and the labels, or what is wrong with the row."""

    text: str
    labels: tuple[str, ...] = ()
    problem: str | None = None


class TableSource(ABC):
    """A table whose columns are known, to be read from beginning to end.

    Attributes:
        columns: all columns, in the order of the file.
        smiles: the column of the SMILES, None in a file without columns.
        labels: the columns of the labels.
        size: how much there is to read, in `unit`.
    """

    columns: tuple[str, ...]
    smiles: str | None = None
    labels: tuple[str, ...] = ()
    size: int
    unit: str

    @property
    @abstractmethod
    def position(self) -> int:
        """How much has been read."""

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """All rows, from the first."""


def choose_columns(
    file: str,
    names: list[str],
    sample: list[list[str]],
    smiles: str | None,
    labels: Sequence[str] | None,
) -> tuple[str, tuple[str, ...]]:
    """The column of the SMILES and those of the labels, as given or guessed from a few rows."""
    for name in (*([smiles] if smiles else []), *(labels or ())):
        if names.count(name) != 1:
            many = "more than one column" if name in names else "no column"
            raise ValueError(f"{file!r} has {many} {name!r}; its columns are {', '.join(names)}")
    smiles = smiles or guess_smiles(file, names, sample)
    if labels is None:
        labels = guess_labels(names, sample, smiles)
    return smiles, tuple(labels)
