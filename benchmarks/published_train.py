"""Train one row of `benchmarks.published`: the recipe, the loop, and where a run goes on.

A run is a function of its settings and its seed, and it is saved after every few epochs: a process
that is stopped goes on from there when the same run is asked for again.
"""

import fcntl
import math
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.published_data import TASKS, Splits
from benchmarks.published_kekule import KekuleFlips
from benchmarks.published_models import count_parameters, make_model, ring_nodes
from slicegraph.data.batch import SizeGroupedBatchSampler
from slicegraph.ops.paths import random_walks
from slicegraph.train.machine import fast_products, freed_memory_kept
from slicegraph.train.optimizer import make_optimizer
from slicegraph.transforms import StructuralEncoding

MOST_PAIRS = 1_500_000
"""The pairs of nodes that are in memory at a time. The gradients of a batch with more are summed
over parts, each with its own batch norm; no batch of ZINC-12k has so many."""


@dataclass(frozen=True)
class Recipe:
    """How a row is trained: a linear warm-up, then half a cosine down to ``end_lr``.

    Args:
        epochs: how often every training graph is seen.
        batch_size: the graphs of an update.
        lr, end_lr: the learning rate after the warm-up and after the last update.
        warmup: the part of all updates that are warm-up.
        weight_decay: of the matrices of linear layers.
        clip: the largest norm of a gradient.
        average: the decay of the running mean of the weights, which is what is evaluated; with 0
            the weights themselves are.
        kekule: whether to draw the Kekulé structure of each molecule in each epoch, see
            :class:`~benchmarks.published_kekule.KekuleFlips`.
        window: how many batches share graphs of similar size; 0 for batches drawn at random.
        optimizer: ``"adamw"`` or ``"muon"``.
    """

    epochs: int = 100
    batch_size: int = 32
    lr: float = 1e-3
    end_lr: float = 1e-6
    warmup: float = 0.025
    weight_decay: float = 1e-5
    clip: float = 1.0
    average: float = 0.0
    window: int = 0
    kekule: bool = False
    optimizer: str = "adamw"

    def factor(self, step: int, steps: int) -> float:
        """Return the learning rate of an update, from 0, as a multiple of ``lr``."""
        warmup = max(1, round(self.warmup * steps))
        if step < warmup:
            return (step + 1) / warmup
        done = (step - warmup) / max(1, steps - 1 - warmup)
        low = self.end_lr / self.lr
        return low + (1 - low) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class Run:
    """One training: a data set, a row of the table with its settings, and a seed."""

    data: str
    row: str
    seed: int
    model: dict[str, Any]
    recipe: Recipe

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the result; a line of the file belongs to a run that has the same."""
        return asdict(self)

    @property
    def file_name(self) -> str:
        words = (self.data, self.row, str(self.recipe.epochs), str(self.seed))
        return "_".join(words).replace(" ", "-").replace("/", "-") + ".pt"


def encoding_of(model: Any) -> Callable[[Data], Data]:
    """Return what computes the structure that a model reads: distances, paths, walks, or none."""
    c = model.config
    if getattr(model, "structural_bias", None) is not None:
        return StructuralEncoding(c.max_distance, c.max_hops, c.walk_length)

    def add_walks(data: Data) -> Data:
        if c.walk_length:
            data.pair_walk = random_walks(data.edge_index, data.ptr, c.walk_length)
        return data

    return add_walks


class Training:
    """A run that can be stopped after any epoch; see :meth:`finish`."""

    def __init__(self, run: Run, splits: Splits) -> None:
        self.run, self.task, self.recipe = run, TASKS[run.data], run.recipe
        self.flips = KekuleFlips(splits["train"]) if run.recipe.kekule else None
        if rings := ring_nodes(run.model, self.task):
            splits = {name: graphs.with_rings(rings) for name, graphs in splits.items()}
        if not run.model.get("fingerprint"):
            splits = {name: replace(graphs, counts=None) for name, graphs in splits.items()}
        if steps := run.model.get("random_walk_pe"):
            splits = {name: graphs.with_walks(steps) for name, graphs in splits.items()}
        self.splits = splits
        torch.manual_seed(run.seed)
        self.model = make_model(run.row, run.model, self.task, splits["train"])
        self.encode = encoding_of(self.model)
        train, recipe = splits["train"], self.recipe
        rates: Any = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, "fused": True}
        self.optimizer = make_optimizer(self.model, recipe.optimizer, **rates)
        self.sampler = SizeGroupedBatchSampler(
            train.sizes, recipe.batch_size, seed=run.seed, window=recipe.window
        )
        self.average = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.best: dict[str, Tensor] = {}
        self.epoch, self.step, self.cpu_seconds = 0, 0, 0.0
        self.curve: list[float] = []

    def train_epoch(self) -> None:
        """Train for an epoch, evaluate valid, and keep the weights if they are the best so far."""
        start, recipe = time.process_time(), self.recipe
        self.sampler.set_epoch(self.epoch)
        steps = len(self.sampler) * recipe.epochs
        parameters = list(self.model.parameters())
        self.model.train()
        for chosen in self.sampler:
            for group in self.optimizer.param_groups:
                group["lr"] = recipe.lr * recipe.factor(self.step, steps)
            self.optimizer.zero_grad()
            self.add_gradients(chosen)
            torch.nn.utils.clip_grad_norm_(parameters, recipe.clip, foreach=True)
            self.optimizer.step()
            self.step += 1
            self._update_average()
        self.epoch += 1
        own, averaged = _copy(self.model), recipe.average > 0
        if averaged:
            self.model.load_state_dict(self.average)
        self.curve.append(self.evaluate("valid"))
        if self.curve[-1] == self.task.best(self.curve):
            self.best = _copy(self.model)
        if averaged:
            self.model.load_state_dict(own)
        self.cpu_seconds += time.process_time() - start

    def add_gradients(self, chosen: list[int]) -> None:
        """Compute the gradients of some training graphs, in parts if they have many pairs."""
        graphs = self.splits["train"]
        for part in graphs.parts(chosen, MOST_PAIRS):
            batch = graphs.batch(part, self.encode)
            if self.flips is not None:
                counts = graphs.edge_ptr[np.array(part) + 1] - graphs.edge_ptr[part]
                first = np.cumsum(counts) - counts
                self.flips(batch.edge_attr, first, part, [self.run.seed, self.step])
            loss = self.task.loss(self.model.score(batch), self._scaled(batch.y))
            if not bool(loss.isfinite()):
                raise ValueError(f"{self.run.row}: the loss of update {self.step} is {loss.item()}")
            (loss if len(part) == len(chosen) else loss * (len(part) / len(chosen))).backward()

    def _scaled(self, y: Tensor) -> Tensor:
        mean, std = self.model.target_mean, self.model.target_std
        return y if mean is None or std is None else (y - mean) / std

    @torch.no_grad()
    def _update_average(self) -> None:
        if not self.recipe.average:
            return
        decay = min(self.recipe.average, (1 + self.step) / (10 + self.step))
        own = self.model.state_dict()
        floats = [name for name, value in own.items() if value.is_floating_point()]
        mean = [self.average[name] for name in floats]
        torch._foreach_lerp_(mean, [own[name] for name in floats], 1 - decay)

    @torch.no_grad()
    def evaluate(self, split: str) -> float:
        """Return the metric of the model on a split, in evaluation mode."""
        self.model.eval()
        graphs = self.splits[split]
        order = np.argsort(graphs.sizes, kind="stable")
        hundreds = (order[first : first + 100] for first in range(0, len(order), 100))
        parts = (part for some in hundreds for part in graphs.parts(some, MOST_PAIRS))
        found = [self.model(graphs.batch(part, self.encode)) for part in parts]
        return self.task.metric(torch.from_numpy(graphs.y[order]), torch.cat(found))

    def finish(self, file: Path, tested: bool, every: int = 2) -> dict[str, Any]:
        """Train until the last epoch, from where the file left off, and return the results.

        Args:
            file: where the state is saved.
            tested: whether to evaluate test with the weights of the best epoch on valid. What is
                chosen by its results is never tested.
            every: how many epochs to train between two saves.
        """
        if file.exists():
            self.load(file)
        while self.epoch < self.recipe.epochs:
            self.train_epoch()
            if self.epoch % every == 0 or self.epoch == self.recipe.epochs:
                self.save(file)
            mark = f"{self.run.row}, seed {self.run.seed}, epoch {self.epoch}"
            rate = len(self.splits["train"]) * self.epoch / self.cpu_seconds
            print(f"{mark}: valid {self.curve[-1]:.4f}, {rate:.0f} a second", flush=True)
        best = self.task.best(self.curve)
        results = {
            "parameters": count_parameters(self.model),
            "epochs": self.epoch,
            "cpu_hours": round(self.cpu_seconds / 3600, 3),
            "graphs_per_second": round(self.epoch * len(self.splits["train"]) / self.cpu_seconds),
            "best_epoch": self.curve.index(best) + 1,
            "valid": round(best, 5),
            "curve": [round(score, 4) for score in self.curve],
        }
        if tested:
            self.model.load_state_dict(self.best)
            results["test"] = round(self.evaluate("test"), 5)
        return results

    def save(self, file: Path) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
            "best": self.best,
            "curve": self.curve,
            "random": torch.get_rng_state(),
            "counts": (self.epoch, self.step, self.cpu_seconds),
            "settings": self.run.settings,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, part := file.with_suffix(".part"))
        part.replace(file)

    def load(self, file: Path) -> None:
        state = torch.load(file, weights_only=True)
        if state["settings"] != self.run.settings:
            raise ValueError(
                f"{file} is of a run with other settings; delete it, or rename the row"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average, self.best, self.curve = state["average"], state["best"], state["curve"]
        self.epoch, self.step, self.cpu_seconds = state["counts"]
        torch.set_rng_state(state["random"])


def _copy(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def train(run: Run, folder: Path, runs: Path, tested: bool) -> dict[str, Any] | None:
    """Finish a run and return its results; None if another process is at it.

    Args:
        run: the run.
        folder: the folder with the files of the data.
        runs: the folder for the states of runs, and for tables that were read.
        tested: as in :meth:`Training.finish`.
    """
    torch.set_num_threads(1)
    file = runs / run.file_name
    with claimed(file.with_suffix(".lock")) as free, freed_memory_kept(), _products():
        if not free:
            return None
        return Training(run, TASKS[run.data].read(folder, runs)).finish(file, tested)


def _products() -> AbstractContextManager[None]:
    return fast_products("cpu", "32-true")


@contextmanager
def claimed(file: Path) -> Iterator[bool]:
    """Hold a lock while a run is trained; gives False if another process holds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def time_steps(run: Run, splits: Splits, steps: int) -> str:
    """Train for some updates, and describe what they cost; nothing is saved.

    The memory is the largest of the process so far, so it is that of the first rows of a call.
    """
    torch.set_num_threads(1)
    training = Training(run, splits)
    training.model.train()
    cpu, wall, graphs = time.process_time(), time.perf_counter(), 0
    with _products():
        for chosen, _ in zip(training.sampler, range(steps), strict=False):
            training.optimizer.zero_grad()
            training.add_gradients(chosen)
            training.optimizer.step()
            graphs += len(chosen)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    hours = cpu / graphs * len(splits["train"]) * run.recipe.epochs / 3600
    return (
        f"{count_parameters(training.model):,} parameters, {cpu / steps:.3f} CPU seconds "
        f"({wall / steps:.3f} by the clock) a step, {graphs / cpu:.0f} graphs a CPU second, "
        f"{hours:.1f} CPU hours for {run.recipe.epochs} epochs, at most {memory:.2f} GB"
    )


def run_of(data: str, row: str, seed: int, epochs: int | None, rows: dict[str, Any]) -> Run:
    """Return the run of a row; `epochs` replaces those of its recipe."""
    model, recipe = rows[row]
    return Run(data, row, seed, model, replace(recipe, epochs=epochs or recipe.epochs))
