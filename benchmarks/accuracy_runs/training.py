"""Train one row of the table with the training code of `slicegraph train`."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, Checkpoint

from benchmarks.accuracy_runs.data import dataset_of
from benchmarks.accuracy_runs.pyg_models import PyGStack
from benchmarks.accuracy_runs.rows import OURS, Run
from slicegraph.train import TrainConfig
from slicegraph.train.callbacks import StepLimit
from slicegraph.train.data import MoleculeRunData
from slicegraph.train.machine import cpu_threads, freed_memory_kept, make_trainer, quiet_lightning
from slicegraph.train.module import TrainingModule


def train(run: Run, root: Path) -> dict[str, Any]:
    """Train and return the results.

    These are the error of the last weights on valid and test, the time of the updates, and the
    number of parameters.
    """
    module, clock, molecules = _fit(run, root, tested=True)
    return {
        "test": module.evaluations["test"].score,
        "valid": module.evaluations["valid"].score,
        "parameters": sum(p.numel() for p in module.model.parameters()),
        "cpu_seconds": round(clock.cpu, 1),
        "seconds": round(clock.wall, 1),
        "molecules_per_second": round(molecules / clock.cpu, 1),
    }


def ms_a_molecule(run: Run, root: Path) -> float:
    """Return the CPU time of the updates of a run per molecule, in milliseconds."""
    _, clock, molecules = _fit(run, root, tested=False)
    return 1e3 * clock.cpu / molecules


def _fit(run: Run, root: Path, tested: bool) -> tuple[TrainingModule, "_Clock", int]:
    """Return the trained model, the clock, and the number of molecules in all updates together."""
    ours = run.row in OURS
    model = run.model if ours else {"mixer": "sort"}  # needs no distances, so none are computed
    settings = run.settings | {"optimizer": "adamw"}  # which all rows have
    config = TrainConfig(data=run.data, seed=run.seed, model=model, **settings).resolved()
    dataset = dataset_of(run.data, run.part, root)
    module, clock = TrainingModule(config) if ours else _Outside(config, run.model), _Clock()
    with quiet_lightning(), cpu_threads(config.threads), freed_memory_kept():
        data = MoleculeRunData(config, dataset)
        trainer = make_trainer(config, [clock, StepLimit(), _NoCheckpoint()])
        trainer.limit_val_batches = 0
        trainer.fit(module, datamodule=data)
        if tested:
            trainer.test(module, datamodule=data, verbose=False)
    return module, clock, config.epochs * len(dataset.splits["train"])


class _Clock(Callback):
    """Measures the CPU and wall time from the first update to the last."""

    cpu = wall = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.cpu, self.wall = -time.process_time(), -time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.cpu += time.process_time()
        self.wall += time.perf_counter()


class _NoCheckpoint(Checkpoint):
    """Replaces the checkpoint callback that Lightning would add."""


class _Outside(TrainingModule):
    """The training module with a stack of PyG's layers as its model."""

    def __init__(self, config: TrainConfig, fields: dict[str, Any]) -> None:
        super().__init__(config)
        self.fields = fields

    def setup(self, stage: str) -> None:
        ready = self._ready
        super().setup(stage)
        if not ready:
            pl.seed_everything(self.config.seed, verbose=False)
            self.model = PyGStack(self.fields, self.model.config)
            self._score = self.model.score
