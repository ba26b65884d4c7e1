"""What a run leaves: the model, the numbers and the predictions."""

import csv
import io
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import lightning.pytorch as pl
import numpy as np
import torch

import slicegraph
from slicegraph.data.sets.shipped import shipped_folder
from slicegraph.train.data import AnyDataSet
from slicegraph.train.evaluation import Evaluation
from slicegraph.train.log_table import LogTable
from slicegraph.train.run_folder import RunFolder, write_json, write_text


@dataclass(frozen=True)
class RunResult:
    """A run that has finished.

    Args:
        folder: of the run.
        model: the folder of the best model.
        metric: the title of the metric, such as "MAE".
        unit: of the targets.
        test: the metric on test; None if its labels are not known.
        valid: the metric on valid.
        metrics: all of metrics.json.
    """

    folder: Path
    model: Path
    metric: str
    unit: str
    test: float | None
    valid: float | None
    metrics: dict[str, Any]

    def __str__(self) -> str:
        split, score = ("valid", self.valid) if self.test is None else ("test", self.test)
        return f"{split} {self.metric} {score:.3f} {self.unit}".rstrip()


def write_results(
    folder: RunFolder, module: Any, trainer: pl.Trainer, log: LogTable, best_epoch: int
) -> RunResult:
    """Writes the model, the numbers and the predictions; on the first rank."""
    dataset, evaluations = module.data.dataset, module.evaluations
    scores = {split: found.score for split, found in evaluations.items()}
    metrics = {
        "metric": dataset.evaluator.name,
        "unit": module.data.unit,
        "higher_is_better": dataset.evaluator.higher_is_better,
        "test": scores.get("test"),
        "valid": scores.get("valid"),
        "train_seconds": round(log.seconds, 3),
        f"{dataset.noun}_per_second": round(log.samples_per_second, 1),
        "parameters": sum(p.numel() for p in module.model.parameters()),
        "epochs": len(log.rows),
        "best_epoch": best_epoch,
        "steps": log.rows[-1]["step"],
        "device": f"{trainer.world_size} x {_device(trainer)}",
        "versions": versions(),
    }
    if metrics["test"] is None:
        found = evaluations.get("test")
        metrics["test_reason"] = found.reason if found else "the data set has no split 'test'"
    if trainer.is_global_zero:
        module.model.save(folder.model)
        for split, found in evaluations.items():
            write_predictions(folder, dataset, split, found)
        write_json(folder.path / "metrics.json", metrics)
    return RunResult(
        folder.path,
        folder.model,
        metrics["metric"],
        metrics["unit"],
        metrics["test"],
        metrics["valid"],
        metrics,
    )


def _device(trainer: pl.Trainer) -> str:
    device = trainer.strategy.root_device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def versions() -> dict[str, str]:
    """Of what made the result."""
    return {
        "slicegraph": slicegraph.__version__,
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def write_data_card(folder: RunFolder, dataset: AnyDataSet, unit: str) -> None:
    """data.json: what the run learns from."""
    task, card = dataset.task, shipped_folder(dataset.name) / "README.md"
    shipped = not dataset.name.startswith("csv:") and card.is_file()
    write_json(
        folder.path / "data.json",
        {
            "name": dataset.name,
            "task": task.kind,
            "targets": list(task.target_names),
            "metric": dataset.evaluator.name,
            "unit": unit,
            "noun": dataset.noun,
            "class_names": list(getattr(dataset, "class_names", ())),
            "splits": {name: len(part) for name, part in dataset.splits.items()},
            "source": dataset.source,
            "card": card.read_text("utf-8") if shipped else "",
        },
    )


def write_predictions(
    folder: RunFolder, dataset: AnyDataSet, split: str, found: Evaluation
) -> Path:
    """predictions/<split>.csv: a row for each sample of the split, in its order."""
    positions = dataset.splits[split]
    names = dataset.task.target_names
    header = list(dataset.columns)
    header += [f"{name}_{what}" for name in names for what in ("true", "pred")]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    columns = zip(dataset.rows(positions), dataset.labels(positions), found.values, strict=True)
    for row, labels, values in columns:
        pairs = [_text(x) for pair in zip(labels, values, strict=True) for x in pair]
        table.writerow([*row, *pairs])
    path = folder.path / "predictions" / f"{split}.csv"
    path.parent.mkdir(exist_ok=True)
    write_text(path, text.getvalue())
    return path


def _text(value: Any) -> str:
    return "" if value != value else f"{float(value):.7g}"
