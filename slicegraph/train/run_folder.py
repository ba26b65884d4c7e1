"""The folder of a run: created once, never overwritten; its settings, state and results."""

import csv
import io
import json
import os
import shlex
import time
import warnings
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import rdkit

from slicegraph.data.datasets.source import shipped_folder
from slicegraph.files import write_atomically
from slicegraph.predict.table import labelled_table
from slicegraph.train.config import FILE_PREFIX, TrainConfig
from slicegraph.train.results import class_names, headline

RUNS = Path("runs")
BEST, LAST = "checkpoints/best.ckpt", "checkpoints/last.ckpt"
EPOCH = "checkpoints/epoch-{}.ckpt"  # the weights of one of the best epochs, from 1
_RDKIT = "rdkit"  # the entry of molecules.npz with its version
_CONFIG, _STATUS, _MOLECULES = "config.yaml", "status.json", "molecules.npz"


@dataclass(frozen=True)
class RunResult:
    """The result of a finished run."""

    folder: Path  # of the run
    model: Path  # the folder of the best model
    metric: str  # the title of the metric, such as "MAE"
    unit: str  # of the targets
    test: float | None  # the metric on the test split; None if its labels are not known
    valid: float | None  # the metric on the validation split
    metrics: dict[str, Any]  # everything in metrics.json

    def __str__(self) -> str:
        return headline(self.metrics)


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
        return _read_json(self.path / _STATUS).get("state", "running")

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
        own, file = dataset.name.startswith(FILE_PREFIX), dataset.name.removeprefix(FILE_PREFIX)
        shipped = not own and card.is_file()
        content = {
            "name": dataset.name,
            "task": task.kind,
            "targets": list(task.target_names),
            "metric": dataset.evaluator.name,
            "unit": unit,
            "noun": dataset.noun,
            "class_names": class_names(dataset),
            "splits": {name: len(part) for name, part in dataset.splits.items()},
            "source": dataset.source,
            "path": str(Path(file).expanduser().absolute()) if own else "",
            "split": getattr(dataset, "split", ""),
            "card": card.read_text("utf-8") if shipped else "",
            "summary": getattr(dataset, "summary", None),
        }
        self.write("data.json", content)

    def check_same_data(self, dataset: Any) -> bool:
        """Raise if a run goes on with other data than it began with; return whether that is known.

        Otherwise molecules that it was trained on could be among those that it is tested on.
        """
        if not (before := _read_json(self.path / "data.json")):
            return False
        known = molecules_of_run(self.path) or {}
        sizes = {name: len(part) for name, part in dataset.splits.items()}
        keys = getattr(dataset, "keys", None)
        same = before.get("splits") == sizes and all(
            np.array_equal(keys[part], known[name])
            for name, part in dataset.splits.items()
            if keys is not None and name in known
        )
        if not same:
            raise ValueError(
                f"train: {dataset.name} or its splits have changed since {self.path} began, and "
                "the run cannot go on with other data; restore the file, or start a new run"
            )
        return True

    def write_molecules(self, dataset: Any) -> None:
        """Write molecules.npz, the keys of the molecules of each split, if there are keys."""
        if (keys := getattr(dataset, "keys", None)) is not None:
            self.write_keys({name: keys[part] for name, part in dataset.splits.items()})

    def write_keys(self, parts: dict[str, Any]) -> None:
        """Write molecules.npz from the keys of each split."""
        file = io.BytesIO()
        np.savez_compressed(file, **parts | {_RDKIT: np.array(rdkit.__version__)})
        write_atomically(self.path / _MOLECULES, [file.getbuffer()])

    def write_predictions(
        self, dataset: Any, split: str, values: np.ndarray, std: np.ndarray | None = None
    ) -> None:
        """Write predictions/<split>.csv: a row for each sample of the split, in its order."""
        table = labelled_table(dataset, dataset.splits[split], values, std=std)
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
    path = _file_of_run(model, _CONFIG)
    return None if path is None else TrainConfig.read(path)


def metrics_of_run(model: str | Path) -> dict[str, Any]:
    """The content of metrics.json of the run that a model belongs to; empty if it has none."""
    return _read_json(_file_of_run(model, "metrics.json"))


def molecules_of_run(model: str | Path) -> dict[str, np.ndarray] | None:
    """The keys of the molecules of each split of the run that a model belongs to, if it has them.

    The keys are uint64 numbers, those of :func:`slicegraph.data.molecules.molecule_keys`.
    """
    if (path := _file_of_run(model, _MOLECULES)) is None:
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            keys = dict(file)
        made_with = str(keys.pop(_RDKIT, rdkit.__version__))
        if made_with != rdkit.__version__:
            warnings.warn(
                f"{path} was made with RDKit {made_with}, this is {rdkit.__version__}: molecules "
                "that it writes in another way are not recognised",
                stacklevel=2,
            )
        return keys
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        remedy = "copy it again from where the run was made"
        raise ValueError(f"{path} is damaged ({error}); {remedy}") from None


def _read_json(path: Path | None) -> dict[str, Any]:
    """The content of a JSON file; empty if it is missing or damaged."""
    try:
        found = {} if path is None else json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        found = {}
    return found if isinstance(found, dict) else {}


def _file_of_run(model: str | Path, name: str) -> Path | None:
    """The file with this name of the run that a model belongs to."""
    model = Path(model)
    place = model.parent if model.is_file() else model
    run = place.parent if place.name in ("model", "checkpoints") else model
    found = (folder / name for folder in (model, run))
    return next((path for path in found if path.is_file()), None)


def data_path_of_run(model: str | Path) -> str | None:
    """The data of the run that a model belongs to; a table where it was when the run began."""
    if (settings := settings_of_run(model)) is None:
        return None
    before = _read_json(_file_of_run(model, "data.json")).get("path")
    found = Path((settings.data or "").removeprefix(FILE_PREFIX)).expanduser().is_file()
    moved = settings.is_table and not found and before and Path(before).is_file()
    return f"{FILE_PREFIX}{before}" if moved else settings.data


def root_of_run(model: str | Path) -> str | None:
    """The data folder that the run of a model was given if it exists here, else None."""
    settings = settings_of_run(model)
    root = None if settings is None else settings.root
    return root if root is not None and Path(root).is_dir() else None


def data_of_run(model: str | Path, data: str) -> dict[str, Any]:
    """How the run that made a model has read and split this table; empty for another table."""
    settings = settings_of_run(model)
    if settings is None or not settings.is_table:
        return {}
    texts = (settings.data or "", data)
    own, given = (Path(text.removeprefix(FILE_PREFIX)).expanduser() for text in texts)
    if own != given and not (own.exists() and given.exists() and own.samefile(given)):
        return {}
    names = ("smiles", "metric", "split", "fractions", "replicates", "censored", "allow_rejected")
    return {name: getattr(settings, name) for name in names} | {"seed": settings.split_seed}
