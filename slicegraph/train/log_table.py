"""The log of a run: `log.csv`, a row an epoch."""

import csv
import io
import time
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from slicegraph.train.run_folder import LOG, RunFolder, write_text


class LogTable(Callback):
    """Writes loss, score, learning rate and speed of each epoch.

    The table is part of the checkpoints: a run that is resumed goes on with the rows that it had,
    and with the sum of the losses of an epoch that was begun.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []
        self.seconds, self.samples = 0.0, 0
        self._start_epoch()
        self._mark: float | None = None

    def _start_epoch(self) -> None:
        self._loss, self._count = 0.0, 0.0
        self._epoch_seconds, self._epoch_samples = 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "run": [self.seconds, self.samples],
            "epoch": [self._loss, self._count, self._epoch_seconds, self._epoch_samples],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = list(state_dict["rows"])
        self.seconds, self.samples = state_dict["run"]
        self._loss, self._count, self._epoch_seconds, self._epoch_samples = state_dict["epoch"]

    @property
    def samples_per_second(self) -> float:
        """Of the whole run, without the validations."""
        return self.samples / self.seconds if self.seconds else 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._mark = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._mark = time.perf_counter()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        now = time.perf_counter()
        taken, self._mark = now - (self._mark or now), now
        samples = batch.num_graphs * trainer.world_size
        self.seconds += taken
        self.samples += samples
        self._epoch_seconds += taken
        self._epoch_samples += samples
        loss, count = outputs["sums"].tolist()
        self._loss += loss
        self._count += count

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        valid, data = pl_module.evaluations["valid"], pl_module.data.dataset
        self.rows.append(
            {
                "epoch": trainer.current_epoch,
                "step": trainer.global_step,
                "train_loss": self._loss / max(1.0, self._count),
                "valid_loss": valid.loss,
                f"valid_{data.task.metric}": valid.score,
                "lr": trainer.optimizers[0].param_groups[0]["lr"],
                f"{data.noun}_per_second": round(self._epoch_samples / self._epoch_seconds, 1),
                "seconds": round(self.seconds, 3),
            }
        )
        self._start_epoch()
        if trainer.is_global_zero:
            write_text(self.folder.path / LOG, self._text())

    def _text(self) -> str:
        text = io.StringIO()
        table = csv.DictWriter(text, self.rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        return text.getvalue()
