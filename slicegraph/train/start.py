"""The first thing of a run: its folder, the same on all ranks, and what it is about."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from slicegraph.train.config import TrainConfig
from slicegraph.train.evaluation import check_defined
from slicegraph.train.initial_model import say
from slicegraph.train.loggers import logger_of
from slicegraph.train.result import write_data_card
from slicegraph.train.run_folder import RunFolder

_MOST_CLASSES = 10
"""How many are named."""


class RunStart(Callback):
    """Checks the data, claims the folder on the first rank and tells it to the others.

    Args:
        config: the settings.
        folder: of the run; claimed here unless it is a resumed one.
        command: what repeats the run.
        show: whether to say what is trained.
    """

    def __init__(
        self, config: TrainConfig, folder: RunFolder, command: str | None, show: bool
    ) -> None:
        self.config, self.folder, self.command, self.show = config, folder, command, show
        self._done = False

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        if self._done:
            return
        self._done = True
        data = trainer.datamodule  # type: ignore[attr-defined]
        check_defined(data.dataset, "valid")
        _ = data.local_batch

    def _claim_once(self, trainer: pl.Trainer) -> Path:
        """Claims on the first rank; all get the same folder, or raise the same error."""
        found: Any = None
        if trainer.is_global_zero:
            try:
                self.folder.claim(self.config, self.command)
                found = self.folder.path
            except OSError as error:
                found = error
        found = trainer.strategy.broadcast(found)
        if isinstance(found, OSError):
            raise found
        return found

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        # The model is there: what is wrong with the settings has been found, and left no folder.
        if not self.folder.claimed:
            self.folder.path = self._claim_once(trainer)
        if self.config.logger != "csv":
            trainer.loggers = [logger_of(self.config.logger, self.folder.path)]
        if not trainer.is_global_zero:
            return
        data = trainer.datamodule  # type: ignore[attr-defined]
        write_data_card(self.folder, data.dataset, data.unit)
        if self.show:
            self._say(trainer, data, pl_module)

    def _say(self, trainer: pl.Trainer, data: Any, pl_module: Any) -> None:
        dataset, config = data.dataset, pl_module.model.config
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in dataset.splits.items())
        unit = f" in {data.unit}" if data.unit else ""
        parameters = sum(p.numel() for p in pl_module.model.parameters())
        say(self.config.to_yaml())
        say(f"data    {dataset.name}: {sizes}")
        if data.remark:
            say(f"note    {data.remark}")
        say(
            f"task    {dataset.task.kind} of {', '.join(dataset.task.target_names)}{unit}"
            f"{_classes(dataset)}, scored by {dataset.evaluator.name}"
        )
        say(f"model   {self.config.preset}: {parameters:,} parameters, mixer {config.mixer}")
        say(
            f"run     {self.folder.path}: {data.total_steps:,} updates of {self.config.batch_size} "
            f"{dataset.noun} ({data.epochs:,} epochs) on {trainer.world_size} x "
            f"{trainer.strategy.root_device.type}, {self.config.precision}"
        )


def _classes(dataset: Any) -> str:
    """The names of the classes, as far as they have some: folders may be others than one thinks."""
    names = getattr(dataset, "class_names", ())
    if not names:
        return ""
    shown = ", ".join(names[:_MOST_CLASSES]) + (", ..." if len(names) > _MOST_CLASSES else "")
    return f" ({len(names)}: {shown})"
