"""The log of a run: log.csv, one value an epoch and column."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class TrainingLog:
    """The columns of the log by epoch; NaN where a column has no value in an epoch.

    Args:
        epochs: ``[n]``, ascending, the first is 1; the file counts from 0.
        columns: by name, ``[n]`` each.
    """

    epochs: np.ndarray
    columns: dict[str, np.ndarray]

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The epochs in which a column has a finite value, and the values; empty if it has none."""
        values = self.columns.get(name, np.full(len(self.epochs), np.nan))
        finite = np.isfinite(values)
        return self.epochs[finite], values[finite]

    @property
    def metric(self) -> str | None:
        """The column of the validation metric: the first valid_* that is not the loss."""
        names = (name for name in self.columns if name.startswith("valid_"))
        return next((name for name in names if name != "valid_loss"), None)


def read_log(path: Path) -> TrainingLog:
    """Reads the log; of several values of an epoch the last one counts.

    Raises:
        ValueError: if there is no column "epoch", or text where a number belongs.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names = [name for name in reader.fieldnames or [] if name != "epoch"]
        if len(names) == len(reader.fieldnames or []):
            raise ValueError(f"{path.name} has no column 'epoch'")
        epochs: dict[float, dict[str, float]] = {}
        for row in reader:
            if row["epoch"]:
                known = {name: float(row[name]) for name in names if row[name]}
                epochs.setdefault(float(row["epoch"]), {}).update(known)
    order = sorted(epochs)
    columns = {n: np.array([epochs[e].get(n, math.nan) for e in order]) for n in names}
    return TrainingLog(np.array(order) + 1, columns)
