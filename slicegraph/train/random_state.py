"""The random numbers of a run go on where they were."""

import random
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback


class RandomState(Callback):
    """Saves the state of Python's, NumPy's and torch's generators with each checkpoint.

    They are put back just before the first batch. Several ranks draw different numbers; only those
    of the first are saved, and the others begin anew from the seed, their number and the step.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._saved: dict[str, Any] | None = None
        self._started = False

    def state_dict(self) -> dict[str, Any]:
        return read_random_state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._started:
            return
        self._started = True
        if self._saved is not None and trainer.global_rank == 0:
            set_random_state(self._saved)
        elif trainer.global_rank:
            torch.manual_seed(hash((self.seed, trainer.global_rank, trainer.global_step)))


def read_random_state() -> dict[str, Any]:
    """The state of all generators, as plain values and tensors."""
    version, numbers, gauss = random.getstate()
    numpy_state: dict[str, Any] = np.random.get_state(legacy=False)
    return {
        "python": [version, list(numbers), gauss],
        "numpy": {**numpy_state, "state": _plain(numpy_state["state"])},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Puts back what `read_random_state` gave."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    words = {**state["numpy"]["state"]}
    words["key"] = np.array(words["key"], dtype=np.uint32)
    np.random.set_state({**state["numpy"], "state": words})
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def _plain(words: dict[str, Any]) -> dict[str, Any]:
    return {"key": words["key"].tolist(), "pos": int(words["pos"])}
