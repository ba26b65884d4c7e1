"""A run from its settings to its results."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_only

from slicegraph.data.sequences.contents import Request
from slicegraph.data.sequences.tasks import check_request
from slicegraph.models import GraphSliceformer, preset
from slicegraph.train.bad_batch import (
    BadLoss,
    TrainingError,
    describe_out_of_memory,
    is_out_of_memory,
    save_bad_batch,
)
from slicegraph.train.checkpoints import RunCheckpoint
from slicegraph.train.config import TrainConfig
from slicegraph.train.data import MoleculeData
from slicegraph.train.freed_memory import freed_memory_kept
from slicegraph.train.log_table import LogTable
from slicegraph.train.loggers import check_logger
from slicegraph.train.module import TrainingModule
from slicegraph.train.progress import Progress
from slicegraph.train.random_state import RandomState
from slicegraph.train.result import RunResult, write_results
from slicegraph.train.run_folder import RunFolder, refuse_used
from slicegraph.train.sequence_data import SequenceData
from slicegraph.train.setting import DEFAULT
from slicegraph.train.start import RunStart
from slicegraph.train.stop import StepLimit, StopOnSignal, Stopped
from slicegraph.train.task_model import preset_model
from slicegraph.train.task_presets import TASK_PRESETS
from slicegraph.train.trainer import cpu_threads, default_precision, make_trainer, quiet_lightning
from slicegraph.train.weight_average import WeightAverage


def train(
    config: TrainConfig | dict[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    command: str | None = None,
    progress: bool = True,
) -> RunResult:
    """Trains a model and evaluates it; everything is in the folder of the run.

    Args:
        config: the settings, or a dict of them; by default `mini` on `mini`.
        resume: the folder of a run to go on with instead, from its last checkpoint, or from the
            beginning if it has none. On one CPU process it ends with the same weights as if it had
            not been interrupted.
        command: the command that repeats the run, to be kept with it.
        progress: whether to show how it goes.

    Example:
        >>> result = slicegraph.train(TrainConfig(data="csv:my.csv", targets=("logS",)))
        >>> result.test, result.model
    """
    if resume is not None and config is not None:
        raise ValueError("train: a run is resumed with its own settings; leave out config")
    if resume is not None:
        folder = RunFolder.reopen(resume)
        settings = folder.config
    else:
        given = TrainConfig.from_dict(config) if isinstance(config, dict) else config
        settings = (given or TrainConfig()).resolved()
        precision = settings.precision or default_precision(settings.accelerator)
        settings = replace(settings, precision=precision)
        _check_early(settings)
        folder = RunFolder()
    with quiet_lightning(), cpu_threads(settings.threads), freed_memory_kept():
        return _Run(settings, folder, resume is not None, command, progress).result()


def _check_early(config: TrainConfig) -> None:
    """What can be seen to be wrong before the data is prepared, and processes are started."""
    if config.task in TASK_PRESETS:
        check_request(Request(config.task, examples=config.examples))
    if config.init is None:
        with torch.device("meta"):
            if config.task in TASK_PRESETS:
                preset_model(config.preset, config.model)
            else:
                GraphSliceformer(preset(config.preset or DEFAULT, **config.model))
    check_logger(config.logger)
    if config.out is not None:
        rank_zero_only(refuse_used)(Path(config.out))


class _Run:
    """The parts of a run, put together."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        resumed: bool,
        command: str | None,
        progress: bool,
    ) -> None:
        self.config, self.folder, self.resumed = config, folder, resumed
        self.data: MoleculeData | SequenceData
        self.data = (SequenceData if config.task in TASK_PRESETS else MoleculeData)(config)
        self.module = TrainingModule(config)
        self.log = LogTable(folder)
        self.checkpoint = RunCheckpoint(folder, config.checkpoint_steps, config.patience or 0)
        callbacks: list[Callback] = [
            RunStart(config, folder, command, progress),
            RandomState(config.seed),
            *([WeightAverage(config.ema)] if config.ema else []),
            self.log,
            Progress(self.log, progress),
            StepLimit(),
            StopOnSignal(self.checkpoint),
            self.checkpoint,
        ]
        self.trainer: pl.Trainer = make_trainer(config, callbacks)

    def result(self) -> RunResult:
        with self._noting_the_end():
            resumed = self.resumed and self.folder.last.is_file()
            last = str(self.folder.last) if resumed else None
            self.trainer.fit(self.module, datamodule=self.data, ckpt_path=last)
            self._take_best_weights()
            self.trainer.test(self.module, datamodule=self.data, verbose=False)
            return write_results(
                self.folder, self.module, self.trainer, self.log, self.checkpoint.best_epoch
            )

    def _take_best_weights(self) -> None:
        best = torch.load(self.folder.best, map_location="cpu", weights_only=True)
        self.module.load_state_dict(best["state_dict"])

    @contextmanager
    def _noting_the_end(self) -> Iterator[None]:
        try:
            yield
        except Stopped as stopped:
            self._set_state("stopped", str(stopped))
            raise
        except BadLoss as error:
            path = self.folder.path
            if not isfinite(error.loss):
                path = save_bad_batch(self.folder.path, error, self.data.dataset)
            self._set_state("failed", str(error))
            raise TrainingError(
                f"train: {error}; its {self.data.dataset.noun} are in {path}"
            ) from None
        except BaseException as error:
            if is_out_of_memory(error):
                noun = self.data.dataset.noun if self.module.batch is not None else ""
                text = describe_out_of_memory(self.module.batch, noun, self.config.accumulate)
                self._set_state("failed", text)
                raise TrainingError(f"train: {text}") from error
            self._set_state("failed", f"{type(error).__name__}: {error}")
            raise
        self._set_state("finished", "")

    @rank_zero_only
    def _set_state(self, state: str, reason: str) -> None:
        if self.folder.claimed:
            self.folder.set_state(state, reason)
