"""What a run was about and how it ended: task, metric, the split that is shown, the result."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from slicegraph.report.predictions import Predictions
from slicegraph.report.run_folder import RunFolder
from slicegraph.report.target_section import scores_of


@dataclass(frozen=True)
class Summary:
    """The parts of a run that all of the page needs.

    Args:
        kind: "regression", "binary" or "multiclass".
        metric: its title, "MAE".
        unit: of the labels.
        split: the split whose predictions are shown, None if none has labels.
        targets: its tables.
        result: the metric on `result_split`, None if it is not known.
        result_split: "test", or "valid" if the labels of the test split are not published.
        best_epoch: the epoch of the model that is kept, the first is 1; None if it is not known.
    """

    kind: str
    metric: str
    unit: str
    split: str | None
    targets: list[Predictions]
    result: float | None
    result_split: str
    best_epoch: float | None


def summarise(run: RunFolder) -> Summary:
    """Reads the task and the result, and finds from the tables what the other files do not say."""
    split = _shown(run.predictions)
    targets = run.predictions[split] if split else []
    kind = _kind(run, targets)
    metric = str(run.metrics.get("metric") or run.data.get("metric") or "MAE")
    metric = metric.upper() if metric in ("mae", "rmse", "ap") else metric
    unit = str(run.metrics.get("unit") or run.data.get("unit") or "")
    result, result_split = _result(run, split, targets, kind, metric)
    best = as_number(run.metrics.get("best_epoch"))
    best = best + 1 if best is not None and best >= 0 else None
    return Summary(kind, metric, unit, split, targets, result, result_split, best)


def _shown(predictions: dict[str, list[Predictions]]) -> str | None:
    """The test split; the validation split where the test split has no labels."""
    labelled = [split for split, targets in predictions.items() if any(map(len, targets))]
    return min(labelled, key=lambda split: (split != "test", split[:4] != "test"), default=None)


def _kind(run: RunFolder, targets: list[Predictions]) -> str:
    kind = run.data.get("task")
    if kind in ("regression", "binary", "multiclass"):
        return str(kind)
    labels = np.concatenate([target.true for target in targets]) if targets else np.empty(0)
    return "binary" if len(labels) and np.isin(labels, (0, 1)).all() else "regression"


def _result(
    run: RunFolder, split: str | None, targets: list[Predictions], kind: str, metric: str
) -> tuple[float | None, str]:
    for name in ("test", "valid"):
        if (value := as_number(run.metrics.get(name))) is not None:
            return value, name
    scores = [scores_of(target, kind).get(metric) for target in targets]
    known = [score for score in scores if score is not None]
    return (float(np.mean(known)) if known else None), split or "test"


def as_number(value: Any) -> float | None:
    """A finite number of a JSON file, None for anything else."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if usable and np.isfinite(value) else None
