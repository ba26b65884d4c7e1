"""Reads the folder of a run; whatever is missing or damaged is noted, not fatal."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from slicegraph.report.predictions import Predictions, read_predictions
from slicegraph.report.training_log import TrainingLog, read_log

T = TypeVar("T")


@dataclass
class RunFolder:
    """What a run folder says.

    Args:
        name: of the folder.
        settings: config.yaml, nested settings under dotted names.
        status: status.json.
        metrics: metrics.json.
        data: data.json, likewise; "splits" stays a mapping.
        bad_batch: bad_batch.json, which only a run with a bad loss has.
        command: command.txt.
        log: log.csv.
        predictions: by split, the tables of predictions/, one entry a target.
        problems: a sentence for each file that is missing or cannot be read.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    bad_batch: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    log: TrainingLog | None = None
    predictions: dict[str, list[Predictions]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_run(folder: str | Path) -> RunFolder:
    """Reads everything that is there.

    Raises:
        ValueError: if it is not the folder of a run.
    """
    folder = Path(folder)
    if not any((folder / name).is_file() for name in ("config.yaml", "status.json")):
        reason = "has neither config.yaml nor status.json" if folder.is_dir() else "is no folder"
        raise ValueError(f"report: {str(folder)!r} is not a run, it {reason}; see slicegraph train")
    run = RunFolder(folder.resolve().name)
    read = _Reader(folder, run.problems)
    run.settings = _flat(read("config.yaml", _yaml) or {})
    run.status = read("status.json", _json) or {}
    run.metrics = read("metrics.json", _json) or {}
    run.data = _flat(read("data.json", _json) or {}, kept=("splits",))
    run.command = read("command.txt", lambda path: path.read_text("utf-8").strip()) or ""
    run.log = read("log.csv", read_log)
    if (folder / "bad_batch.json").exists():
        run.bad_batch = read("bad_batch.json", _json) or {}
    tables = sorted((folder / "predictions").glob("*.csv"))
    found = {path.stem: read(f"predictions/{path.name}", read_predictions) for path in tables}
    noun, names = str(run.data.get("noun") or "molecules"), _names(run.data.get("class_names"))
    run.predictions = {
        split: [replace(target, noun=noun, class_names=names) for target in targets]
        for split, targets in found.items()
        if targets
    }
    if not tables:
        run.problems.append("There are no prediction tables (predictions/*.csv).")
    return run


class _Reader:
    def __init__(self, folder: Path, problems: list[str]) -> None:
        self._folder = folder
        self._problems = problems

    def __call__(self, name: str, read: Callable[[Path], T]) -> T | None:
        try:
            return read(self._folder / name)
        except FileNotFoundError:
            self._problems.append(f"There is no {name}.")
        except (ValueError, OSError, yaml.YAMLError, RecursionError) as error:
            self._problems.append(f"{name} cannot be read: {' '.join(str(error).split())}")
        return None


def _json(path: Path) -> dict[str, Any]:
    return _mapping(json.loads(path.read_text("utf-8")))


def _yaml(path: Path) -> dict[str, Any]:
    return _mapping(yaml.safe_load(path.read_text("utf-8")))


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__}, expected names and values")
    return {str(name): entry for name, entry in value.items()}


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _flat(settings: dict[str, Any], prefix: str = "", kept: tuple[str, ...] = ()) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict) and value and name not in kept:
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
