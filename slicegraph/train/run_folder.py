"""The folder of a run: claimed once, never written over."""

import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

from slicegraph.data.store.atomic_file import write_atomically
from slicegraph.train.config import TrainConfig

CONFIG, STATUS, COMMAND, LOG = "config.yaml", "status.json", "command.txt", "log.csv"
RUNS = Path("runs")
_REMEDY = "go on with it by --resume, or choose another --out"


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    write_atomically(path, [text.encode()])


class RunFolder:
    """A folder with the settings, the state and the results of one run.

    Args:
        path: of a run that exists; None until `claim` makes one.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = None if path is None else Path(path)

    @property
    def claimed(self) -> bool:
        """Whether it is known which folder it is."""
        return self._path is not None

    @property
    def path(self) -> Path:
        if self._path is None:
            raise RuntimeError("RunFolder: not claimed")
        return self._path

    @path.setter
    def path(self, path: Path) -> None:
        self._path = path

    def claim(self, config: TrainConfig, command: str | None = None) -> None:
        """Makes the folder of a new run; an existing one that is not empty is refused by name."""
        path = _new_folder(config) if config.out is None else _empty_folder(Path(config.out))
        write_text(path / CONFIG, config.to_yaml())
        again = shlex.join(["slicegraph", "train", "--config", str(path / CONFIG), "--out", "NEW"])
        write_text(path / COMMAND, (command or again) + "\n")
        self.path = path
        self.set_state("running")

    @classmethod
    def reopen(cls, path: str | Path) -> "RunFolder":
        """The folder of a run that shall go on: from its last checkpoint, or from the beginning."""
        folder = cls(path)
        if not (folder.path / CONFIG).is_file():
            raise FileNotFoundError(f"train: {path} is no run to resume, it has no {CONFIG}")
        return folder

    @property
    def best(self) -> Path:
        return self.path / "checkpoints" / "best.ckpt"

    @property
    def last(self) -> Path:
        return self.path / "checkpoints" / "last.ckpt"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def config(self) -> TrainConfig:
        return TrainConfig.read(self.path / CONFIG)

    @property
    def state(self) -> str:
        """ "running", "finished", "stopped" or "failed"."""
        try:
            return json.loads((self.path / STATUS).read_text("utf-8"))["state"]
        except (OSError, ValueError, KeyError, TypeError):
            return "running"

    def set_state(self, state: str, reason: str = "") -> None:
        """Writes the state, whole or not at all."""
        write_json(self.path / STATUS, {"state": state, "reason": reason})


def newest_unfinished(runs: Path = RUNS) -> Path:
    """The run folder that was begun last and has not finished."""
    found = [path.parent for path in runs.glob(f"*/{CONFIG}")]
    found = [path for path in found if RunFolder(path).state != "finished"]
    if not found:
        raise FileNotFoundError(
            f"train: there is no unfinished run in {runs}; name it: --resume RUN"
        )
    return max(found, key=lambda path: (path / CONFIG).stat().st_mtime)


def refuse_used(path: Path) -> None:
    """Raises if there is something at the place of a new run."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"train: {path} exists and is not empty; {_REMEDY}")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        reason = "may not be written to" if above.is_dir() else "is no folder"
        raise ValueError(f"train: {path} cannot be made, {above} {reason}; choose another --out")


def _empty_folder(path: Path) -> Path:
    refuse_used(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _new_folder(config: TrainConfig) -> Path:
    data = Path(str(config.data or config.task).removeprefix("csv:")).name.split(".")[0]
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{data}-{config.preset}"
    RUNS.mkdir(exist_ok=True)
    for number in range(1, 1000):
        path = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"train: {RUNS / name} exists; {_REMEDY}")
