"""The folder of a run: created once, never overwritten; its settings, state and results."""

import csv
import io
import json
import os
import shlex
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.data.datasets.qm9 import shipped_folder
from slicegraph.files import write_atomically
from slicegraph.predict.table import labelled_table
from slicegraph.train.config import FILE_PREFIX, TrainConfig

RUNS = Path("runs")
BEST, LAST = "checkpoints/best.ckpt", "checkpoints/last.ckpt"
_CONFIG, _STATUS = "config.yaml", "status.json"


@dataclass(frozen=True)
class RunResult:
    """The result of a finished run.

    Args:
        folder: the folder of the run.
        model: the folder of the best model.
        metric: the title of the metric, such as "MAE".
        unit: the unit of the targets.
        test: the metric on the test split; None if its labels are not known.
        valid: the metric on the validation split.
        metrics: everything in metrics.json.
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


class RunFolder:
    """A folder with the settings, the state and the results of one run.

    Every file is written whole or not at all. The path is None until `claim` creates the folder.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path: Any = None if path is None else Path(path)

    def claim(self, config: TrainConfig, command: str | None = None) -> Path:
        """Create the folder of a new run; raise if the path exists and is not empty."""
        if config.out is None:  # runs/DATE-DATA-PRESET, with a number if it exists
            data = str(config.data or config.task).removeprefix(FILE_PREFIX)
            data = Path(data).name.split(".")[0]
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{data}-{config.preset}"
            RUNS.mkdir(exist_ok=True)
            for number in count(1):
                path = RUNS / (name if number == 1 else f"{name}-{number}")
                with suppress(FileExistsError):
                    path.mkdir()
                    break
        else:
            path = Path(config.out)
            refuse_used(path)
            path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.write(_CONFIG, config.to_yaml())
        again = shlex.join(["slicegraph", "train", "--config", str(path / _CONFIG), "--out", "NEW"])
        self.write("command.txt", (command or again) + "\n")
        self.set_state("running")
        return path

    @property
    def config(self) -> TrainConfig:
        """The settings of the run."""
        if not (self.path / _CONFIG).is_file():
            raise FileNotFoundError(f"train: {self.path} is not a run to resume: no {_CONFIG}")
        return TrainConfig.read(self.path / _CONFIG)

    @property
    def state(self) -> str:
        """ "running", "finished", "stopped" or "failed"."""
        try:
            return json.loads((self.path / _STATUS).read_text("utf-8"))["state"]
        except (OSError, ValueError, KeyError, TypeError):
            return "running"

    def set_state(self, state: str, reason: str = "") -> None:
        self.write(_STATUS, {"state": state, "reason": reason})

    def write(self, name: str, content: str | dict[str, Any]) -> Path:
        """Write text, or a dict as JSON."""
        path = self.path / name
        if isinstance(content, dict):
            content = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, [content.encode()])
        return path

    def write_rows(self, name: str, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> Path:
        """Write a CSV file."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)
        return self.write(name, text.getvalue())

    def write_data_card(self, dataset: Any, unit: str) -> None:
        """Write data.json, a description of the data set."""
        task, card = dataset.task, shipped_folder(dataset.name) / "README.md"
        shipped = not dataset.name.startswith(FILE_PREFIX) and card.is_file()
        content = {
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
        }
        self.write("data.json", content)

    def write_predictions(self, dataset: Any, split: str, values: np.ndarray) -> None:
        """Write predictions/<split>.csv: a row for each sample of the split, in its order."""
        table = labelled_table(dataset, dataset.splits[split], values)
        self.write(f"predictions/{split}.csv", table.decode())

    def write_bad_batch(self, dataset: Any, positions: list[int], loss: float, step: int) -> Path:
        """Write bad_batch.json: the samples of a batch with a loss of NaN or infinity."""
        index = np.array(positions)
        labels = [[None if x != x else x for x in row] for row in dataset.labels(index).tolist()]
        samples = [
            dict(zip(dataset.columns, row, strict=True)) | {"labels": known}
            for row, known in zip(dataset.rows(index), labels, strict=True)
        ]
        content = {"loss": repr(loss), "step": step, dataset.noun: samples}
        return self.write("bad_batch.json", content)


def newest_unfinished(runs: Path = RUNS) -> Path:
    """The run folder that was started last and has not finished."""
    started = [path.parent for path in runs.glob(f"*/{_CONFIG}")]
    found = [path for path in started if RunFolder(path).state != "finished"]
    if not found:
        raise FileNotFoundError(f"train: no unfinished run in {runs}; name it: --resume RUN")
    return max(found, key=lambda path: (path / _CONFIG).stat().st_mtime)


def refuse_used(path: Path) -> None:
    """Raise if the folder of a new run cannot be created."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        remedy = "go on with it by --resume, or choose another --out"
        raise FileExistsError(f"train: {path} exists and is not empty; {remedy}")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        reason = "may not be written to" if above.is_dir() else "is not a folder"
        raise ValueError(f"train: {path} cannot be made, {above} {reason}; choose another --out")


def settings_of_run(model: str | Path) -> TrainConfig | None:
    """The settings of the run that a model belongs to, if it is in the folder of one."""
    model = Path(model)
    place = model.parent if model.is_file() else model
    run = place.parent if place.name in ("model", "checkpoints") else model
    for folder in (model, run):
        if (folder / _CONFIG).is_file():
            return TrainConfig.read(folder / _CONFIG)
    return None


def root_of_run(model: str | Path) -> str:
    """The data folder of the run that made a model if it exists here, else the default."""
    settings = settings_of_run(model)
    return settings.root if settings is not None and Path(settings.root).is_dir() else "dataset"


def data_of_run(model: str | Path, data: str) -> dict[str, Any]:
    """How the run that made a model has read and split this table; empty for another table."""
    settings = settings_of_run(model)
    if settings is None or not settings.is_table:
        return {}
    texts = (settings.data or "", data)
    own, given = (Path(text.removeprefix(FILE_PREFIX)).expanduser() for text in texts)
    if own != given and not (own.exists() and given.exists() and own.samefile(given)):
        return {}
    names = ("smiles", "metric", "split", "fractions")
    return {name: getattr(settings, name) for name in names} | {"seed": settings.split_seed}
