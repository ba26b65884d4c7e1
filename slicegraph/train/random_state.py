"""The random numbers of a run go on where they were."""

import random
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback

from slicegraph.train.gather import from_all_ranks


class RandomState(Callback):
    """Saves the state of Python's, NumPy's and torch's generators with each checkpoint.

    Several ranks draw different numbers, and the state of each is saved. It is put back just before
    the first batch. A rank of which there is none, as more ranks go on with a run than began it,
    begins from the seed, its number and the step.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._saved: list[dict[str, Any]] = []
        self._started = False

    def state_dict(self) -> dict[str, Any]:
        return {"ranks": from_all_ranks(read_random_state())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict["ranks"]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._started:
            return
        self._started = True
        rank = trainer.global_rank
        if rank < len(self._saved):
            set_random_state(self._saved[rank])
        elif rank:
            torch.manual_seed(hash((self.seed, rank, trainer.global_step)))


def read_random_state() -> dict[str, Any]:
    """The state of the generators of this process, on a GPU of its own, too, if it has one."""
    version, numbers, gauss = random.getstate()
    numpy_state: dict[str, Any] = np.random.get_state(legacy=False)
    return {
        "python": [version, list(numbers), gauss],
        "numpy": {**numpy_state, "state": _plain(numpy_state["state"])},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Puts back what `read_random_state` gave."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    words = {**state["numpy"]["state"]}
    words["key"] = np.array(words["key"], dtype=np.uint32)
    np.random.set_state({**state["numpy"], "state": words})
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())


def _plain(words: dict[str, Any]) -> dict[str, Any]:
    return {"key": words["key"].tolist(), "pos": int(words["pos"])}
