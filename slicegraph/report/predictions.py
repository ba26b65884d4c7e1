"""The prediction table of a split: predictions/<split>.csv of a run folder."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_TRUE, _PREDICTED = "_true", "_pred"


@dataclass(frozen=True)
class Predictions:
    """The labels and predictions of one target; rows without a label or prediction are left out.

    Args:
        target: its name.
        true: ``[n]``, the labels.
        predicted: ``[n]``, values, probabilities of class 1, or class numbers.
        smiles: ``n`` molecules, or empty if the table has none.
        sizes: ``[n]``, the number of atoms, or empty.
        rows: ``n`` row numbers of the source, as the table spells them, or empty.
        unlabelled: how many rows of the table have no label.
        unusable: how many have a label and no finite prediction.
        noun: what the rows are, in the plural.
        class_names: what the classes are called; empty if they are numbers.
    """

    target: str
    true: np.ndarray
    predicted: np.ndarray
    smiles: list[str]
    sizes: np.ndarray
    rows: list[str]
    unlabelled: int = 0
    unusable: int = 0
    noun: str = "molecules"
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.true)

    def class_name(self, number: int) -> str:
        """What a class is called."""
        return self.class_names[number] if number < len(self.class_names) else str(number)

    @property
    def error(self) -> np.ndarray:
        """Predicted minus true."""
        return self.predicted - self.true


def read_predictions(path: Path) -> list[Predictions]:
    """One `Predictions` for each pair of columns ``<target>_true`` and ``<target>_pred``.

    Raises:
        ValueError: if the file has no such pair, or text where a number belongs.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        columns = dict(zip(header, _columns(reader, len(header), path.name), strict=True))
    found = [_target(name, columns) for name in _targets(header)]
    if not found:
        raise ValueError(f"{path.name} has no columns <target>_true and <target>_pred")
    return found


def _columns(rows: Iterator[list[str]], width: int, name: str) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in range(width)]
    for line, row in enumerate(rows, start=2):
        if len(row) != width:
            raise ValueError(f"{name}, line {line}: {len(row)} fields, expected {width}")
        for column, text in zip(columns, row, strict=True):
            column.append(text)
    return columns


def _targets(header: list[str]) -> list[str]:
    names = [name.removesuffix(_TRUE) for name in header if name.endswith(_TRUE)]
    return [name for name in names if name + _PREDICTED in header]


def _target(name: str, columns: dict[str, list[str]]) -> Predictions:
    true, predicted = numbers(columns[name + _TRUE]), numbers(columns[name + _PREDICTED])
    labelled = np.isfinite(true)
    kept = np.flatnonzero(labelled & np.isfinite(predicted))
    sizes = numbers(columns.get("num_atoms") or [""] * len(true))[kept]
    return Predictions(
        target=name,
        true=true[kept],
        predicted=predicted[kept],
        smiles=_pick(columns.get("smiles", []), kept),
        sizes=sizes if np.isfinite(sizes).all() else sizes[:0],
        rows=_pick(columns.get("row", []), kept),
        unlabelled=int((~labelled).sum()),
        unusable=int(labelled.sum()) - len(kept),
    )


def numbers(texts: list[str]) -> np.ndarray:
    """Texts as float64; an empty one is NaN."""
    return np.array([float(text) if text.strip() else np.nan for text in texts], dtype=np.float64)


def _pick(texts: list[str], positions: np.ndarray) -> list[str]:
    return [texts[position] for position in positions] if texts else []
