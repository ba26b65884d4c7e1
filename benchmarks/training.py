"""Compare whole training with transformers, with data loading: `python -m benchmarks.training`.

The figures are molecules per second of a training step with its data: a batch of 256 molecules is
read or collated, then forward, backward, clipping and AdamW. All candidates take turns, each in a
separate process as in normal use, with the same molecules, the same size (12 layers, 80 wide, 8
heads) and the same number of threads; the median counts, and ratios are to *transformers*.

- *sliceformer-slim*, *graphormer-slim*: our presets, trained by Lightning as in `slicegraph train`.
  The time of an epoch includes the loader and the callbacks; freed memory is kept.
- *transformers*: the Graphormer of transformers 4.57.1 in a plain loop with its own collator,
  `on_the_fly_processing`. It needs `.[peers]` and a C++ compiler; without it there are no ratios.

- *compiled*, with `--compile`: the same presets by `torch.compile`. Compiling is not timed.

*Data* is the share of the time of a step spent waiting for its batch.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Checkpoint
from torch.nn import functional

from benchmarks.encoder import SMILES, peer_model
from benchmarks.loader import graphs, make_store, peer
from benchmarks.timing import median_ms
from slicegraph.data.datasets import MoleculeDataset
from slicegraph.data.splits import Task
from slicegraph.data.store import MoleculeStore
from slicegraph.models import preset
from slicegraph.train import TrainConfig
from slicegraph.train.data import MoleculeRunData
from slicegraph.train.machine import (
    fast_products,
    freed_memory_kept,
    make_trainer,
    quiet_lightning,
)
from slicegraph.train.module import TrainingModule

BATCH = 256
PRESETS = ("sliceformer-slim", "graphormer-slim")
COMPILED, PEER = ", compiled", "transformers"


class Rate(NamedTuple):
    molecules_per_second: float
    data_share: float


class Waiting:
    """Wraps a loader and adds up the time spent waiting for its batches."""

    def __init__(self, loader: Any) -> None:
        self.loader, self.seconds = loader, 0.0

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            self.seconds += time.perf_counter() - start
            if batch is None:
                return
            yield batch

    def __len__(self) -> int:
        return len(self.loader)


class Stop(Checkpoint):
    """Ends the fit after its first epoch; as a `Checkpoint` it replaces Lightning's own."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.should_stop = True


class Ours:
    """One epoch of a run with Lightning."""

    def __init__(self, name: str, store: MoleculeStore, threads: int) -> None:
        task = Task("regression", ("gap",), "mae")
        everything = {"train": np.arange(len(store)), "valid": np.arange(BATCH)}
        self.dataset = MoleculeDataset("benchmark", store, everything, task, task.evaluator())
        self.config = TrainConfig(
            preset=name.removesuffix(COMPILED),
            compile=name.endswith(COMPILED),
            threads=threads,
            accelerator="cpu",
            precision="32-true",
        ).resolved()
        self.module = TrainingModule(self.config)
        self.waited = 0.0

    def __call__(self) -> None:
        data = MoleculeRunData(self.config, self.dataset)
        trainer = make_trainer(self.config, [Stop()])
        trainer.limit_val_batches = 0
        loader: list[Waiting] = []
        make = data.train_dataloader

        def timed() -> Any:
            loader.append(Waiting(make()))
            return loader[0]

        data.train_dataloader = timed  # type: ignore[method-assign]
        trainer.fit(self.module, datamodule=data)
        self.waited = loader[0].seconds


class Theirs:
    """The same number of steps in a plain loop."""

    def __init__(self, store: MoleculeStore, collator: Callable) -> None:
        self.model = peer_model(preset(PRESETS[1]))
        self.collator = collator
        self.items = graphs(store, np.arange(len(store)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4, fused=True)
        self.waited = 0.0

    def __call__(self) -> None:
        self.model.train()
        self.waited = 0.0
        for first in range(0, len(self.items), BATCH):
            start = time.perf_counter()
            inputs = self.collator([dict(item) for item in self.items[first : first + BATCH]])
            self.waited += time.perf_counter() - start
            labels = inputs.pop("labels")
            scores = self.model(**inputs).logits
            functional.l1_loss(scores.flatten(), labels.flatten().float()).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            self.optimizer.zero_grad()


_run: Ours | Theirs | None = None
"""The candidate of this process."""
_to_the_end = ExitStack()


def start(name: str, folder: Path, threads: int) -> None:
    """Create the candidate of this process."""
    global _run
    torch.set_num_threads(threads)
    store = MoleculeStore(folder)
    if (collator := peer() if name == PEER else None) is None:
        _to_the_end.enter_context(freed_memory_kept())  # as in a run
        _to_the_end.enter_context(fast_products("cpu", "32-true"))
        _run = Ours(name, store, threads)
    else:
        _run = Theirs(store, collator)


def waited() -> float:
    """Run the candidate of this process once; return the share of time spent waiting for data."""
    assert _run is not None
    begun = time.perf_counter()
    with quiet_lightning():
        _run()
    return _run.waited / (time.perf_counter() - begun)


def measure(store: MoleculeStore, names: list[str], threads: int, repeats: int) -> dict[str, Rate]:
    waits: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as stack:
        runs = {}
        for name in names:
            process = ProcessPoolExecutor(
                1, get_context("spawn"), initializer=start, initargs=(name, store.folder, threads)
            )
            stack.enter_context(process)
            runs[name] = lambda name=name, process=process: waits[name].append(
                process.submit(waited).result()
            )
        ms = median_ms(runs, repeats)
    return {
        name: Rate(1e3 * len(store) / ms[name], float(np.median(waits[name][1:]))) for name in names
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--repeats", type=int, default=3, help="timed rounds (default: 3)")
    add("--batches", type=int, default=8, help="batches of 256 molecules per epoch (default: 8)")
    add("--threads", type=int, default=2, help="threads of torch (default: 2)")
    add("--presets", nargs="+", default=PRESETS, help="presets of ours (default: both slim ones)")
    add("--compile", action="store_true", help="also time the presets compiled")
    arguments = parser.parse_args()
    names = [*arguments.presets]
    names += [name + COMPILED for name in names if arguments.compile]
    names += [PEER] if peer() is not None else []
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(Path(folder), SMILES, BATCH * arguments.batches)
        rates = measure(store, names, arguments.threads, arguments.repeats)
    print(
        f"{len(store)} molecules, mean {store.num_atoms.mean():.1f} atoms, batches of {BATCH}, "
        f"{arguments.threads} threads: molecules a second, and the share of data loading"
    )
    theirs = rates.get(PEER)
    for name, rate in rates.items():
        ratio = f"{rate.molecules_per_second / theirs.molecules_per_second:6.1f}x" if theirs else ""
        print(f"  {name:26} {rate.molecules_per_second:9,.0f} {ratio}  data {rate.data_share:6.1%}")


if __name__ == "__main__":
    main()
