"""Read the folder of a training run; a missing or damaged file is noted and is not fatal."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from sklearn import metrics


@dataclass(frozen=True)
class TargetPredictions:
    """Labels and predictions of one target in one split, without the rows that lack one of them."""

    target: str
    true: np.ndarray  # [n]
    predicted: np.ndarray  # [n], values, probabilities of class 1, or class numbers
    smiles: list[str]  # n molecules, or empty
    sizes: np.ndarray  # [n], numbers of atoms, or empty
    rows: list[str]  # n row numbers of the source, or empty
    unlabelled: int = 0  # number of rows without a label
    unusable: int = 0  # number of rows with a label but no finite prediction
    kind: str = "regression"  # a key of SCORES
    unit: str = ""
    noun: str = "molecules"  # what the rows are, in the plural
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.true)

    def class_name(self, number: int) -> str:
        """Name of a class, or its number if it has no name."""
        return self.class_names[number] if number < len(self.class_names) else str(number)

    @property
    def error(self) -> np.ndarray:
        """Predicted minus true; for classes 1 where the prediction is wrong."""
        if self.kind == "multiclass":
            return (self.predicted != self.true).astype(np.float64)
        return self.predicted - self.true

    @cached_property
    def problem(self) -> str | None:
        """Why there are no scores and figures, or None if there are."""
        if not len(self):
            return f"None of the {self.noun} has both a label and a prediction to compare."
        if self.kind == "binary" and not np.isin(self.true, (0, 1)).all():
            return "The task is binary, but some labels are neither 0 nor 1, so it has no figures."
        classes = np.concatenate([self.true, self.predicted])
        if self.kind == "multiclass" and not np.isin(classes, np.arange(10_000)).all():
            return "The task is multiclass, but some values are not class numbers: no figures."
        return None

    @cached_property
    def scores(self) -> dict[str, float]:
        """The scores of the task by name; empty if there is a problem."""
        return {} if self.problem else SCORES[self.kind](self.true, self.predicted)


def regression_scores(true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return "MAE", "RMSE" and, if the labels vary, "R²"."""
    scores = {
        "MAE": float(metrics.mean_absolute_error(true, predicted)),
        "RMSE": float(metrics.mean_squared_error(true, predicted) ** 0.5),
    }
    if true.min() < true.max():
        scores["R²"] = float(metrics.r2_score(true, predicted))
    return scores


def binary_scores(true: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """Return "ROC-AUC" and "AP", if both classes occur, and "accuracy" at the threshold 0.5."""
    scores = {}
    if 0 < true.sum() < len(true):
        scores["ROC-AUC"] = float(metrics.roc_auc_score(true, score))
        scores["AP"] = float(metrics.average_precision_score(true, score))
    return {**scores, "accuracy": float(metrics.accuracy_score(true == 1, score >= 0.5))}


SCORES: dict[str, Callable[[np.ndarray, np.ndarray], dict[str, float]]] = {
    "regression": regression_scores,
    "binary": binary_scores,
    "multiclass": lambda true, classes: {"accuracy": metrics.accuracy_score(true, classes)},
}


def confusion_matrix(true: np.ndarray, predicted: np.ndarray, least: int = 0) -> np.ndarray:
    """Count the samples of class i (row) predicted as class j (column), at least ``least`` each."""
    labels = np.arange(max(least, int(max(true.max(), predicted.max())) + 1))
    return metrics.confusion_matrix(true.astype(int), predicted.astype(int), labels=labels)


def read_predictions(path: Path) -> list[TargetPredictions]:
    """Read a split: one entry for each pair of columns ``<target>_true`` and ``<target>_pred``."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file)) or [[]]
    for line, row in enumerate(rows, start=2):
        if len(row) != len(head):
            raise ValueError(f"{path.name}, line {line}: {len(row)} fields, expected {len(head)}")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(head)}
    names = [name.removesuffix("_true") for name in head if name.endswith("_true")]
    found = [_target(name, columns) for name in names if f"{name}_pred" in columns]
    if not found:
        raise ValueError(f"{path.name} has no columns <target>_true and <target>_pred")
    return found


def _target(name: str, columns: dict[str, list[str]]) -> TargetPredictions:
    true, predicted = _numbers(columns[f"{name}_true"]), _numbers(columns[f"{name}_pred"])
    labelled = np.isfinite(true)
    kept = np.flatnonzero(labelled & np.isfinite(predicted))
    sizes = _numbers(columns.get("num_atoms") or [""] * len(true))[kept]
    smiles, rows = (columns.get(column) for column in ("smiles", "row"))
    return TargetPredictions(
        target=name,
        true=true[kept],
        predicted=predicted[kept],
        smiles=[smiles[i] for i in kept] if smiles else [],
        sizes=sizes if np.isfinite(sizes).all() else sizes[:0],
        rows=[rows[i] for i in kept] if rows else [],
        unlabelled=int((~labelled).sum()),
        unusable=int(labelled.sum()) - len(kept),
    )


def _numbers(texts: list[str]) -> np.ndarray:
    """Convert texts to float64; an empty text is NaN."""
    return np.array([float(text) if text.strip() else np.nan for text in texts], dtype=np.float64)


Curve = tuple[np.ndarray, np.ndarray]  # epochs, counted from 1, and values


def read_log(path: Path) -> pd.DataFrame:
    """Read the columns of log.csv by epoch, from 1; the last value of an epoch counts."""
    table = pd.read_csv(path, index_col=False).astype(float)
    if "epoch" not in table:
        raise ValueError(f"{path.name} has no column 'epoch'")
    return table.groupby(table.pop("epoch") + 1).last()


# SMILES and contributions of the atoms of a molecule, by target and row number of the source.
Contributions = dict[tuple[str, str], tuple[str, list[float]]]


def read_contributions(path: Path) -> Contributions:
    """Read the contributions of the atoms, a row for each atom."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found: Contributions = {}
    for row in rows:
        if missing := {"row", "smiles", "target", "contribution"} - {
            k for k, v in row.items() if v
        }:
            raise ValueError(f"{path.name} has a row without {', '.join(sorted(missing))}")
        _, values = found.setdefault((row["target"], row["row"]), (row["smiles"], []))
        values.append(float(row["contribution"]))
    return found


@dataclass
class RunRecord:
    """Content of a run folder."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)  # config.yaml, with dotted names
    status: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)  # data.json, with dotted names
    bad_batch: dict[str, Any] = field(default_factory=dict)  # only if a loss was not finite
    contributions: Contributions = field(default_factory=dict)  # of some molecules of test
    command: str = ""
    log: pd.DataFrame = field(default_factory=pd.DataFrame)  # log.csv by epoch, from 1
    logs: dict[str, pd.DataFrame] = field(default_factory=dict)  # of each model, if several
    predictions: dict[str, list[TargetPredictions]] = field(default_factory=dict)  # by split
    problems: list[str] = field(default_factory=list)  # files that are missing or damaged
    noun: str = "molecules"  # what the samples are, in the plural
    metric: str = "MAE"  # as the page spells it
    unit: str = ""  # of the labels

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The line of each model of folds, repeats or an ensemble; empty for a single model."""
        found = self.metrics.get("runs")
        return [x for x in found if isinstance(x, dict)] if isinstance(found, list) else []

    def curve(self, name: str, log: pd.DataFrame | None = None) -> Curve:
        """The finite values of a column of the log; empty if there are none."""
        values = (self.log if log is None else log).get(name, pd.Series(dtype=float))
        values = values[np.isfinite(values)]
        return values.index.to_numpy(), values.to_numpy()

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the data; empty for data that is not a table of the user."""
        summary = self.data.get("summary")
        return summary if isinstance(summary, dict) else {}

    @property
    def scores(self) -> dict[str, Any]:
        """All scores of each split and target with their intervals; empty in old folders."""
        scores = self.metrics.get("splits")
        return scores if isinstance(scores, dict) else {}

    @property
    def split(self) -> str | None:
        """The split to show: test, or another one if test has no labels."""
        labelled = [split for split, targets in self.predictions.items() if any(map(len, targets))]
        return min(labelled, key=lambda split: (split != "test", split[:4] != "test"), default=None)

    @property
    def targets(self) -> list[TargetPredictions]:
        """The predictions of that split."""
        return self.predictions[self.split] if self.split else []

    @property
    def kind(self) -> str:
        """Kind of the task; if data.json does not have it, labels of 0 and 1 are binary."""
        if (kind := self.data.get("task")) in SCORES:
            return str(kind)
        labels = np.concatenate([np.empty(0), *(target.true for target in self.targets)])
        return "binary" if len(labels) and np.isin(labels, (0, 1)).all() else "regression"

    @property
    def result(self) -> tuple[float | None, str]:
        """The metric and its split: from metrics.json, or else computed from the predictions."""
        for name in ("test", "valid"):
            if (value := self.number(name)) is not None:
                return value, name
        scores = [target.scores.get(self.metric) for target in self.targets]
        known = [score for score in scores if score is not None]
        return (float(np.mean(known)) if known else None), self.split or "test"

    @property
    def best_epoch(self) -> float | None:
        """Epoch of the saved model, counted from 1, or None if it is not known."""
        best = self.number("best_epoch")
        return best + 1 if best is not None and best >= 0 else None

    def number(self, name: str) -> float | None:
        """A finite number of metrics.json, or None."""
        value: Any = self.metrics.get(name)
        usable = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if usable and np.isfinite(value) else None


def read_run(folder: str | Path) -> RunRecord:
    """Read all files of a run that exist; raise if it is not the folder of a run."""
    folder = Path(folder)
    if not any((folder / name).is_file() for name in ("config.yaml", "status.json")):
        reason = "has neither config.yaml nor status.json" if folder.is_dir() else "is not a folder"
        raise ValueError(f"report: {str(folder)!r} is not a run, it {reason}; see slicegraph train")
    run = RunRecord(folder.resolve().name)

    def read(name: str, reader: Callable[[Path], Any], default: Any) -> Any:
        try:
            return reader(folder / name)
        except FileNotFoundError:
            run.problems.append(f"There is no {name}.")
        except (ValueError, OSError, yaml.YAMLError, RecursionError) as error:
            run.problems.append(f"{name} cannot be read: {' '.join(str(error).split())}")
        return default

    run.settings = _flat(read("config.yaml", _mapping, {}))
    run.status = read("status.json", _mapping, {})
    run.metrics = read("metrics.json", _mapping, {})
    run.data = _flat(read("data.json", _mapping, {}), kept=("splits", "summary"))
    run.command = read("command.txt", lambda path: path.read_text("utf-8").strip(), "")
    if not run.lines:
        run.log = read("log.csv", read_log, run.log)
    for line in run.lines:
        name = f"members/{Path(str(line.get('name'))).name}/log.csv"
        run.logs[str(line.get("name"))] = read(name, read_log, run.log)
    run.noun = str(run.data.get("noun") or "molecules")
    run.unit = str(run.metrics.get("unit") or run.data.get("unit") or "")
    metric = str(run.metrics.get("metric") or run.data.get("metric") or "MAE")
    run.metric = metric.upper() if metric in ("mae", "rmse", "ap") else metric
    if (folder / "bad_batch.json").exists():
        run.bad_batch = read("bad_batch.json", _mapping, {})
    if (folder / "contributions.csv").exists():
        run.contributions = read("contributions.csv", read_contributions, {})
    tables = sorted((folder / "predictions").glob("*.csv"))
    if not tables:
        run.problems.append("There are no prediction tables (predictions/*.csv).")
    for path in tables:
        if targets := read(f"predictions/{path.name}", read_predictions, []):
            run.predictions[path.stem] = targets
    names = run.data.get("class_names")
    task: dict[str, Any] = {"kind": run.kind, "unit": run.unit, "noun": run.noun}
    task["class_names"] = tuple(map(str, names)) if isinstance(names, list) else ()
    for split, targets in run.predictions.items():
        run.predictions[split] = [replace(target, **task) for target in targets]
    return run


def _mapping(path: Path) -> dict[str, Any]:
    load = yaml.safe_load if path.suffix == ".yaml" else json.loads
    value = load(path.read_text("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__}, expected names and values")
    return {str(name): entry for name, entry in value.items()}


def _flat(settings: dict[str, Any], prefix: str = "", kept: tuple[str, ...] = ()) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict) and value and name not in kept:
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
