"""Ends of a run that are not its last update: a signal, or a limit of updates."""

import signal
from types import FrameType
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from slicegraph.train.checkpoints import RunCheckpoint, can_save
from slicegraph.train.gather import any_rank

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """The run was asked to stop by a signal, has saved its state and can be resumed."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


class StopOnSignal(Callback):
    """SIGTERM and Ctrl-C: the batch is finished, the state saved, and `Stopped` raised.

    A second Ctrl-C interrupts at once.
    """

    def __init__(self, checkpoint: RunCheckpoint) -> None:
        self.checkpoint = checkpoint
        self.received = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # After Lightning has installed its own handlers, which it takes away at the end.
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *arguments: Any) -> None:
        if can_save(trainer) and self._asked(pl_module):
            self.checkpoint.save_last(trainer)
            raise Stopped(self.received or signal.SIGTERM)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._asked(pl_module):
            raise Stopped(self.received or signal.SIGTERM)

    def _asked(self, pl_module: Any) -> bool:
        return any_rank(bool(self.received), pl_module.device)


class StepLimit(Callback):
    """Ends the run after its last update, also in the middle of an epoch, with a validation."""

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *arguments: Any) -> None:
        if trainer.global_step >= self._limit:
            trainer.should_stop = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._limit = pl_module.data.total_steps
        self.on_train_batch_end(trainer, pl_module)
