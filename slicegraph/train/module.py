"""The model in Lightning's hands: loss, optimizer, schedule, evaluation."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from slicegraph.train.adversarial import adversarial_loss
from slicegraph.train.bad_batch import BadLoss
from slicegraph.train.config import TrainConfig
from slicegraph.train.data import MoleculeData
from slicegraph.train.evaluation import Evaluation, evaluate
from slicegraph.train.gather import Gathered, sum_over_ranks
from slicegraph.train.initial_model import initial_model
from slicegraph.train.label_mean import LabelMean
from slicegraph.train.loss import Loss, LossSum, loss_of
from slicegraph.train.schedule import warmup_and_decay
from slicegraph.train.sequence_data import SequenceData
from slicegraph.train.weight_decay import parameter_groups

_WARMUP = 0.06


class TrainingModule(pl.LightningModule):
    """Trains a model of :mod:`slicegraph.models`, which it makes for the data.

    The loss of an update is the mean over its known labels on *all* ranks and in all parts of the
    batch, by :class:`~slicegraph.train.label_mean.LabelMean`. So ranks and parts with a molecule
    more or less give what one process with all of them would.
    """

    model: Any
    loss: Loss

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        self.config = config
        self.batch: Any = None
        self.evaluations: dict[str, Evaluation] = {}
        self._ready = False

    @property
    def data(self) -> MoleculeData | SequenceData:
        return self.trainer.datamodule  # type: ignore[attr-defined]

    def setup(self, stage: str) -> None:
        if self._ready:
            return
        pl.seed_everything(self.config.seed, verbose=False)
        self.model = initial_model(self.config, self.data)
        task = self.data.dataset.task
        self.loss = loss_of(task.kind, task.metric)
        self._mean = LabelMean(self.trainer.world_size, self.config.accumulate)
        score: Callable[[Any], Tensor] = self.model.score
        if self.config.compile:
            score = torch.compile(score, dynamic=True)
        self._score = score
        self._ready = True

    def configure_optimizers(self) -> Any:
        config, total = self.config, self.data.total_steps
        lr, end_lr = config.lr or 0.0, config.end_lr or 0.0
        warmup = config.warmup_steps
        if warmup is None:
            warmup = math.ceil(_WARMUP * total)
        groups = parameter_groups(self.model, config.weight_decay or 0.0)
        # Lightning clips no gradients of a fused optimizer in mixed precision.
        fused = config.precision == "32-true"
        optimizer = torch.optim.AdamW(groups, lr=lr, fused=fused)
        factor = warmup_and_decay(lr, warmup, total, end_lr)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step", "name": "lr"},
        }

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        self.batch = batch
        found: LossSum

        def local_loss() -> Tensor:
            nonlocal found
            found = self.loss(self.model, self._score(batch), batch.y)
            return found.total

        if self.config.flag_steps:
            config = self.config
            total = adversarial_loss(self.model, local_loss, config.flag_steps, config.flag_size)
        else:
            total = local_loss()
        sums = sum_over_ranks(torch.stack([total.detach().double(), found.count.double()]))
        if not bool(sums.isfinite().all()):
            raise BadLoss(float(total.detach()), batch.index.tolist(), self.trainer.global_step)
        if self.trainer.loggers:
            self.log("train_loss", (sums[0] / sums[1].clamp(min=1)).float())
        return {"loss": total * self._mean.weight(sums[1]).to(total.dtype), "sums": sums}

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._mean.finish(self.model.parameters())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._evaluate(batch, 0)

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._evaluate(batch, dataloader_idx)

    def _evaluate(self, batch: Any, split: int) -> None:
        scores = self._score(batch).float()
        if not bool(scores.isfinite().all()):
            raise BadLoss(math.nan, batch.index.tolist(), self.trainer.global_step)
        self._gathered.setdefault(split, Gathered()).add(batch.index, scores)

    def on_validation_epoch_start(self) -> None:
        self._gathered: dict[int, Gathered] = {}

    def on_test_epoch_start(self) -> None:
        self._gathered = {}

    def on_validation_epoch_end(self) -> None:
        found = self._result("valid", 0)
        if found.score is None:
            raise ValueError(f"train: valid cannot be scored: {found.reason}")
        if self.trainer.loggers:
            self.log("valid_loss", found.loss)
            self.log(f"valid_{self.data.dataset.task.metric}", found.score)

    def on_test_epoch_end(self) -> None:
        for number, split in enumerate(self.data.evaluated):
            self._result(split, number)

    def _result(self, split: str, number: int) -> Evaluation:
        scores = self._gathered[number].in_order(self.data.dataset.splits[split])
        self.evaluations[split] = evaluate(self.model, self.loss, self.data.dataset, split, scores)
        return self.evaluations[split]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["hyper_parameters"] = {
            "model": {"model": type(self.model).__name__, **asdict(self.model.config)},
            "train": asdict(self.config),
        }
