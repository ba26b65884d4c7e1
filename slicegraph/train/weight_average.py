"""An average of the weights over the last updates, which often predicts better than the last."""

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

_RAW = "raw_weights"


class WeightAverage(Callback):
    r"""The exponential moving average of the weights, used in validation and saved as the model.

    After update ``n`` (from 1), :math:`a \leftarrow d a + (1 - d) w` with
    :math:`d = \min(\text{decay}, (1 + n) / (10 + n))`, so that the first weights are soon
    forgotten.

    Args:
        decay: the share of the average that stays in an update, such as 0.999.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.average: dict[str, Tensor] = {}
        self._step = 0

    @torch.no_grad()
    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        average = self.average or dict(pl_module.model.named_parameters())
        device = pl_module.device
        self.average = {name: value.detach().clone().to(device) for name, value in average.items()}

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._step = trainer.global_step

    @torch.no_grad()
    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *arguments: Any) -> None:
        if trainer.global_step == self._step:
            return
        self._step = number = trainer.global_step
        decay = min(self.decay, (1 + number) / (10 + number))
        for name, weight in pl_module.model.named_parameters():
            self.average[name].lerp_(weight, 1 - decay)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._swap(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._swap(pl_module)

    @torch.no_grad()
    def _swap(self, pl_module: Any) -> None:
        for name, weight in pl_module.model.named_parameters():
            kept = weight.detach().clone()
            weight.copy_(self.average[name])
            self.average[name] = kept

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        weights = checkpoint["state_dict"]
        checkpoint[_RAW] = {name: weights[f"model.{name}"] for name in self.average}
        checkpoint["state_dict"] = weights | {
            f"model.{name}": value for name, value in self.average.items()
        }

    @torch.no_grad()
    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        self.average = {
            name: weight.detach().clone() for name, weight in pl_module.model.named_parameters()
        }
        for name, weight in pl_module.model.named_parameters():
            weight.copy_(checkpoint[_RAW][name])
