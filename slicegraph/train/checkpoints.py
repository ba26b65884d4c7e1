"""When and how a run is saved: the best model, the last state, each file whole."""

import io
import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from slicegraph.data.store.atomic_file import write_atomically
from slicegraph.torch_damage import DAMAGE
from slicegraph.train.run_folder import RunFolder


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the file and renames; reads tensors and plain values, and runs no code."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike, storage_options: Any = None
    ) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(path), [content.getbuffer()])

    def load_checkpoint(
        self, path: str | os.PathLike, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        try:
            return torch.load(path, map_location=map_location, weights_only=True)
        except DAMAGE:
            raise ValueError(
                f"train: {path} is damaged, and the run cannot go on from it; remove it to begin "
                "the run again"
            ) from None


class RunCheckpoint(Checkpoint):
    """Saves the last state every few updates and after each epoch, and the best after epochs.

    A checkpoint is only made where a run can go on from exactly: after an update that is not the
    last of its epoch, and after an epoch with its validation.

    Args:
        folder: of the run.
        every: updates between two saves.
        patience: after how many epochs without a better one to stop; 0 for never.
    """

    def __init__(self, folder: RunFolder, every: int, patience: int) -> None:
        self.folder, self.every, self.patience = folder, every, patience
        self.best: float | None = None
        self.best_epoch = -1
        self._saved_step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_epoch": self.best_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.best_epoch = state_dict["best"], state_dict["best_epoch"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._saved_step = trainer.global_step
        self._stop_if_stuck(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *arguments: Any
    ) -> None:
        if trainer.global_step >= self._saved_step + self.every and can_save(trainer):
            self.save_last(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        evaluator = pl_module.data.dataset.evaluator
        score = pl_module.evaluations["valid"].score
        sign = -1 if evaluator.higher_is_better else 1
        if self.best is None or sign * score < sign * self.best:
            self.best, self.best_epoch = score, trainer.current_epoch
            trainer.save_checkpoint(self.folder.best)
        self.save_last(trainer)
        self._stop_if_stuck(trainer)

    def save_last(self, trainer: pl.Trainer) -> None:
        """Saves the state to go on from."""
        trainer.save_checkpoint(self.folder.last)
        self._saved_step = trainer.global_step

    def _stop_if_stuck(self, trainer: pl.Trainer) -> None:
        done = epochs_done(trainer) - 1
        if self.patience and self.best is not None and done - self.best_epoch >= self.patience:
            trainer.should_stop = True


def epochs_done(trainer: pl.Trainer) -> int:
    """How many epochs have ended, the one whose end is now included."""
    progress: Any = trainer.fit_loop.epoch_progress.current
    return progress.processed


def can_save(trainer: pl.Trainer) -> bool:
    """Whether this batch ended with an update and is not the last of its epoch."""
    loop = trainer.fit_loop.epoch_loop
    return not loop._should_accumulate() and not loop._num_ready_batches_reached()
