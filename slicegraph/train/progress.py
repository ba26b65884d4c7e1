"""What a run shows of itself: a bar with loss, speed and time left, and a line an epoch."""

import sys
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from tqdm import tqdm

from slicegraph.train.log_table import LogTable

_FORMAT = "{percentage:3.0f}% {bar} {n_fmt}/{total_fmt} updates, {remaining} left{postfix}"


class Progress(Callback):
    """One bar for the whole run on standard error, if that is a terminal; a line for each epoch.

    Args:
        table: where the numbers are.
        show: whether to show anything.
    """

    def __init__(self, table: LogTable, show: bool = True) -> None:
        self.table, self.show = table, show
        self._bar: Any = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not self.show or not trainer.is_global_zero:
            return
        self._bar = tqdm(
            total=pl_module.data.total_steps,
            initial=trainer.global_step,
            bar_format=_FORMAT,
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
        )

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, *_: Any
    ) -> None:
        if self._bar is None or self._bar.disable:
            return
        loss, count = outputs["sums"].tolist()
        speed = f"{self.table.samples_per_second:,.0f} {pl_module.data.dataset.noun}/s"
        self._bar.set_postfix_str(f"loss {loss / max(1, count):.3f}, {speed}", refresh=False)
        self._bar.update(trainer.global_step - self._bar.n)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._bar is None:
            return
        row, data = self.table.rows[-1], pl_module.data
        dataset, noun, epochs = data.dataset, data.dataset.noun, data.epochs
        score = f"{dataset.evaluator.name} {row[f'valid_{dataset.task.metric}']:.4f}"
        self._bar.write(
            f"epoch {row['epoch'] + 1:{len(str(epochs))}}/{epochs}  loss {row['train_loss']:.4f}  "
            f"valid {score} {data.unit}".rstrip()
            + f"  {row[f'{noun}_per_second']:,.0f} {noun}/s",
            file=sys.stdout,
        )
        sys.stdout.flush()

    def teardown(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        self._close()

    def on_exception(self, *arguments: Any) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
