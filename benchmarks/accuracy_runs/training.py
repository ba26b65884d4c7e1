"""One run of the table, by the engine of `slicegraph train`."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, Checkpoint

from benchmarks.accuracy_runs.data import dataset_of
from benchmarks.accuracy_runs.pyg_models import PyGStack
from benchmarks.accuracy_runs.rows import OURS, Run
from slicegraph.train import TrainConfig
from slicegraph.train.data import MoleculeData
from slicegraph.train.freed_memory import freed_memory_kept
from slicegraph.train.module import TrainingModule
from slicegraph.train.stop import StepLimit
from slicegraph.train.trainer import cpu_threads, make_trainer, quiet_lightning


def train(run: Run, root: Path) -> dict[str, Any]:
    """What came out: the error on valid and test of the weights after the last update, the time
    that the updates took, and the parameters."""
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
    """The time of this process for the updates of a run, by the molecules in them."""
    _, clock, molecules = _fit(run, root, tested=False)
    return 1e3 * clock.cpu / molecules


def _fit(run: Run, root: Path, tested: bool) -> tuple[TrainingModule, "_Clock", int]:
    """The trained model, the clock, and how many molecules all updates had together."""
    ours = run.row in OURS
    model = run.model if ours else {"mixer": "sort"}  # for which no distances are computed
    config = TrainConfig(data=run.data, seed=run.seed, model=model, **run.settings).resolved()
    dataset = dataset_of(run.data, run.part, root)
    module, clock = TrainingModule(config) if ours else _Outside(config, run.model), _Clock()
    with quiet_lightning(), cpu_threads(config.threads), freed_memory_kept():
        data = MoleculeData(config, dataset)
        trainer = make_trainer(config, [clock, StepLimit(), _NoCheckpoint()])
        trainer.limit_val_batches = 0
        trainer.fit(module, datamodule=data)
        if tested:
            trainer.test(module, datamodule=data, verbose=False)
    return module, clock, config.epochs * len(dataset.splits["train"])


class _Clock(Callback):
    """The time from the first update to the last, of this process and on the wall."""

    cpu = wall = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.cpu, self.wall = -time.process_time(), -time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.cpu += time.process_time()
        self.wall += time.perf_counter()


class _NoCheckpoint(Checkpoint):
    """In the place of the one that Lightning would add."""


class _Outside(TrainingModule):
    """The engine with a model that is not ours."""

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
