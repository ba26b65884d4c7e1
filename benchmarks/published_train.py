"""Train one row of `benchmarks.published`: data in memory, the loop, and where a run goes on.

A run is a function of its settings and its seed, and it is saved after every few epochs: a process
that is stopped goes on from there when the same run is asked for again.
"""

import fcntl
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool

from slicegraph.data.batch import SizeGroupedBatchSampler
from slicegraph.models import GraphSliceformer
from slicegraph.models.graph import GraphSliceformerConfig, pair_rows
from slicegraph.nn.embedding import FeatureTable, WalkEncoder
from slicegraph.ops.layout import set_of_row
from slicegraph.train.machine import freed_memory_kept
from slicegraph.train.module import parameter_groups
from slicegraph.transforms import StructuralEncoding


@dataclass(frozen=True)
class Recipe:
    """How a row is trained: AdamW, a linear warm-up, then half a cosine down to ``end_lr``.

    Args:
        epochs: how often every training graph is seen.
        batch_size: the graphs of an update.
        lr, end_lr: the learning rate after the warm-up and after the last update.
        warmup: the part of all updates that are warm-up.
        weight_decay: of the matrices of linear layers.
        clip: the largest norm of a gradient.
        average: the decay of the running mean of the weights, which is what is evaluated; with 0
            the weights themselves are.
        window: how many batches share graphs of similar size; 0 for batches drawn at random.
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


@dataclass(frozen=True)
class Graphs:
    """One split in memory: graph ``g`` has nodes ``ptr[g]`` and edges ``edge_ptr[g]`` onwards."""

    x: np.ndarray
    edge_index: np.ndarray
    edge_attr: np.ndarray
    ptr: np.ndarray
    edge_ptr: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.ptr)

    def batch(self, chosen: list[int] | np.ndarray, encode: StructuralEncoding | None) -> Data:
        """Join some graphs into one `Data` with ``ptr``, and encode it."""
        nodes, ptr = _rows(self.ptr, chosen)
        edges, edge_ptr = _rows(self.edge_ptr, chosen)
        shift = (ptr[:-1] - self.ptr[chosen]).repeat(np.diff(edge_ptr))
        data = Data(
            x=torch.from_numpy(self.x[nodes]),
            edge_index=torch.from_numpy(self.edge_index[:, edges] + shift),
            edge_attr=torch.from_numpy(self.edge_attr[edges]),
            y=torch.from_numpy(self.y[chosen]),
            ptr=torch.from_numpy(ptr),
        )
        return data if encode is None else encode(data)


def _rows(ptr: np.ndarray, chosen: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of these sets, one set after the other, and where each set then begins."""
    counts = np.diff(ptr)[chosen]
    new = np.concatenate([[0], np.cumsum(counts)])
    return np.arange(new[-1]) + (ptr[chosen] - new[:-1]).repeat(counts), new


def read_zinc(folder: Path) -> dict[str, Graphs]:
    """Read ZINC-12k: 28 types of atoms, 3 types of bonds (1 to 3), and nothing else."""
    with np.load(folder / "zinc12k_graphs.npz") as file:
        return {
            split: _graphs({name: file[f"{part}_{name}"] for name in _ARRAYS})
            for split, part in (("train", "train"), ("valid", "val"), ("test", "test"))
        }


_ARRAYS = ("x", "edge_index", "edge_attr", "num_nodes", "num_edges", "y")


def _graphs(arrays: dict[str, np.ndarray]) -> Graphs:
    ptr, edge_ptr = (
        np.concatenate([[0], np.cumsum(arrays[name], dtype=np.int64)])
        for name in ("num_nodes", "num_edges")
    )
    shift = ptr[:-1].repeat(np.diff(edge_ptr))  # the file counts the nodes of each graph from 0
    return Graphs(
        x=arrays["x"].astype(np.uint8)[:, None],
        edge_index=arrays["edge_index"].astype(np.int64) + shift,
        edge_attr=arrays["edge_attr"].astype(np.uint8)[:, None],
        ptr=ptr,
        edge_ptr=edge_ptr,
        y=arrays["y"].astype(np.float32)[:, None],
    )


@dataclass(frozen=True)
class Task:
    """One data set: how it is read, its model fields, its loss, and its metric on (y, scores)."""

    read: Callable[[Path], dict[str, Graphs]]
    fields: dict[str, Any]
    loss: Callable[[Tensor, Tensor], Tensor]
    metric: Callable[[Tensor, Tensor], float]
    metric_name: str
    largest_is_best: bool = False


TASKS = {
    "zinc": Task(
        read_zinc,
        {"node_vocabulary": (28,), "edge_vocabulary": (4,), "max_distance": 40, "max_degree": 7},
        functional.l1_loss,
        lambda y, scores: float((y - scores).abs().mean()),
        "MAE",
    ),
}
"""The data sets by name. Distances and degrees above the largest share a row of their tables."""


class Training:
    """A run that can be stopped after any epoch; see :meth:`finish`."""

    def __init__(self, run: Run, splits: dict[str, Graphs]) -> None:
        self.run, self.splits, self.task, self.recipe = run, splits, TASKS[run.data], run.recipe
        torch.manual_seed(run.seed)
        self.model = make_model(run, splits["train"])
        c = self.model.config
        self.encode = StructuralEncoding(c.max_distance, c.max_hops, c.walk_length)
        groups = parameter_groups(self.model, self.recipe.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, lr=self.recipe.lr, fused=True)
        train, recipe = splits["train"], self.recipe
        self.sampler = SizeGroupedBatchSampler(
            train.sizes, recipe.batch_size, seed=run.seed, window=recipe.window
        )
        self.average = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.best: dict[str, Tensor] = {}
        self.epoch, self.step, self.cpu_seconds = 0, 0, 0.0
        self.curve: list[float] = []

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def train_epoch(self) -> None:
        """Train for an epoch, evaluate valid, and keep the weights if they are the best so far."""
        start, recipe = time.process_time(), self.recipe
        self.sampler.set_epoch(self.epoch)
        steps = len(self.sampler) * recipe.epochs
        parameters = list(self.model.parameters())
        self.model.train()
        for chosen in self.sampler:
            batch = self.splits["train"].batch(chosen, self.encode)
            loss = self.task.loss(self.model.score(batch), self._scaled(batch.y))
            if not bool(loss.isfinite()):
                raise ValueError(f"{self.run.row}: the loss of update {self.step} is {loss.item()}")
            for group in self.optimizer.param_groups:
                group["lr"] = recipe.lr * recipe.factor(self.step, steps)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, recipe.clip, foreach=True)
            self.optimizer.step()
            self.step += 1
            self._update_average()
        self.epoch += 1
        own, averaged = _copy(self.model), recipe.average > 0
        if averaged:
            self.model.load_state_dict(self.average)
        self.curve.append(self.evaluate("valid"))
        best = max(self.curve) if self.task.largest_is_best else min(self.curve)
        if self.curve[-1] == best:
            self.best = _copy(self.model)
        if averaged:
            self.model.load_state_dict(own)
        self.cpu_seconds += time.process_time() - start

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
        parts = [order[first : first + 100] for first in range(0, len(order), 100)]
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
        best = (max if self.task.largest_is_best else min)(self.curve)
        results = {
            "parameters": self.parameters,
            "epochs": self.epoch,
            "cpu_hours": round(self.cpu_seconds / 3600, 3),
            "graphs_per_second": round(self.epoch * len(self.splits["train"]) / self.cpu_seconds),
            "best_epoch": self.curve.index(best) + 1,
            "valid": round(best, 5),
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


MOST_PARAMETERS = 500_000


def make_model(run: Run, train: Graphs) -> Any:
    """Make the model of a row, which predicts standardised targets."""
    y = train.y.astype(np.float64)
    target = {"target_mean": (float(y.mean()),), "target_std": (float(y.std()),)}
    fields = TASKS[run.data].fields | target | run.model
    kind = MODELS[fields.pop("kind", "ours")]
    model = kind(GraphSliceformerConfig.from_dict(fields))
    if (found := sum(p.numel() for p in model.parameters())) > MOST_PARAMETERS:
        raise ValueError(f"{run.row}: {found} parameters, expected at most {MOST_PARAMETERS}")
    return model


class GPS(torch.nn.Module):
    """PyG's `GPSConv` as in `"Recipe for a General, Powerful, Scalable Graph Transformer"
    <https://arxiv.org/abs/2205.12454>`_: GINE and attention, RWSE, batch norm, a sum of the nodes.

    It reads the sizes, the vocabularies, the walks and the target from the configuration of one of
    our models; of its channels, 28 are for the walks.
    """

    def __init__(self, config: GraphSliceformerConfig) -> None:
        super().__init__()
        self.config, c, walks = config, config.channels, 28
        self.nodes = FeatureTable(config.node_vocabulary or (), c - walks)
        self.walks = WalkEncoder(config.walk_length - 1, walks)  # no step always leads back
        self.edges = FeatureTable(config.edge_vocabulary or (), c)
        self.layers = torch.nn.ModuleList(self._layer() for _ in range(config.num_layers))
        sizes, relu = (c, c // 2, c // 4), torch.nn.ReLU()
        hidden = [part for pair in pairwise(sizes) for part in (torch.nn.Linear(*pair), relu)]
        self.head = torch.nn.Sequential(*hidden, torch.nn.Linear(sizes[-1], config.num_targets))
        for name, values in config.pick("target_mean", "target_std").items():
            self.register_buffer(name, torch.tensor(values), persistent=False)

    def _layer(self) -> GPSConv:
        c, linear = self.config.channels, torch.nn.Linear
        gine = GINEConv(torch.nn.Sequential(linear(c, c), torch.nn.ReLU(), linear(c, c)))
        dropout = {"dropout": self.config.attention_dropout}
        return GPSConv(c, gine, self.config.heads, norm="batch_norm", attn_kwargs=dropout)

    def score(self, batch: Data) -> Tensor:
        """Predict standardised targets."""
        graph = set_of_row(batch.ptr, len(batch.x))
        walks = self.walks(batch.pair_walk[pair_rows(batch.ptr)][:, 1:])
        x, edges = torch.cat([self.nodes(batch.x), walks], 1), self.edges(batch.edge_attr)
        for layer in self.layers:
            x = layer(x, batch.edge_index, graph, edge_attr=edges)
        return self.head(global_add_pool(x, graph))

    def forward(self, batch: Data) -> Tensor:
        return self.score(batch) * self.target_std + self.target_mean


MODELS: dict[str, Callable[[GraphSliceformerConfig], Any]] = {"ours": GraphSliceformer, "gps": GPS}


def _copy(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def train(run: Run, folder: Path, runs: Path, tested: bool) -> dict[str, Any] | None:
    """Finish a run and return its results; None if another process is at it.

    Args:
        run: the run.
        folder: the folder with the files of the data.
        runs: the folder for the states of runs.
        tested: as in :meth:`Training.finish`.
    """
    torch.set_num_threads(1)
    file = runs / run.file_name
    with claimed(file.with_suffix(".lock")) as free, freed_memory_kept():
        if not free:
            return None
        return Training(run, TASKS[run.data].read(folder)).finish(file, tested)


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


def run_of(data: str, row: str, seed: int, epochs: int | None, rows: dict[str, Any]) -> Run:
    """Return the run of a row; `epochs` replaces those of its recipe."""
    model, recipe = rows[row]
    return Run(data, row, seed, model, replace(recipe, epochs=epochs or recipe.epochs))
