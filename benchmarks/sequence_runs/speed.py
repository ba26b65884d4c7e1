"""Compare the speed of the mixers: training steps that take turns in one process.

The speeds of whole runs are not comparable if the load of the machine changes between runs. So
single steps are timed in turns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.sequence_runs.budgets import with_mixer
from benchmarks.timing import median_ms
from slicegraph.tasks.domain import SequenceData, load_set, model_fields, new_model
from slicegraph.tasks.store import SequenceSet
from slicegraph.train import TrainConfig
from slicegraph.train.machine import cpu_threads


@dataclass(frozen=True)
class SpeedTest:
    """A comparison of speeds.

    Args:
        task, settings: as in :class:`~benchmarks.sequence_runs.budgets.Run`.
        mixers: keys of ``MIXERS``.
        repeats: the number of timed steps per mixer, whose median counts.
    """

    task: str
    settings: dict[str, Any]
    mixers: list[str]
    repeats: int


def measure(test: SpeedTest, root: Path) -> dict[str, Any]:
    """Return the examples per second of a training step (forward, backward, AdamW) per mixer."""
    configs = {
        mixer: TrainConfig(**with_mixer(test.settings, mixer), root=str(root)).resolved()
        for mixer in test.mixers
    }
    with cpu_threads(test.settings["threads"]):
        steps = {mixer: _step(config) for mixer, config in configs.items()}
        ms = median_ms(steps, test.repeats, warmups=2)
    size = test.settings["batch_size"]
    return {"examples_per_second": {mixer: 1e3 * size / ms[mixer] for mixer in ms}}


def _step(config: TrainConfig) -> Callable[[], None]:
    dataset = load_set(config)
    fields = model_fields(config, SequenceData(config, dataset))
    model: Any = new_model(config, fields | config.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    size, longest = config.batch_size or 1, getattr(model.config, "max_length", None)
    batch = dataset.batch(middle(dataset, size), longest)
    labels = batch.y[:, 0].long()

    def step() -> None:
        functional.cross_entropy(model.score(batch)[:, 0], labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def middle(dataset: SequenceSet, size: int) -> np.ndarray:
    """Return the training examples whose lengths are nearest to the median."""
    positions = dataset.splits["train"]
    ordered = positions[np.argsort(dataset.store.lengths[positions], kind="stable")]
    first = max(0, (len(ordered) - size) // 2)
    return ordered[first : first + size]
