"""The speed of the mixers beside each other: steps that take turns in one process.

The examples a second of whole runs are no measure of one mixer against another when the machine has
other work at one time than at another. So a step of each is timed in turns.
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
from slicegraph.data.sequences.sequence_set import SequenceSet
from slicegraph.train import TrainConfig
from slicegraph.train.sequence_data import load_set
from slicegraph.train.task_model import fields_of_task, preset_model
from slicegraph.train.trainer import cpu_threads


@dataclass(frozen=True)
class SpeedTest:
    """What is timed.

    Args:
        task, settings: as of a :class:`~benchmarks.sequence_runs.budgets.Run`.
        mixers: keys of ``MIXERS``.
        repeats: of a step, of which the median counts.
    """

    task: str
    settings: dict[str, Any]
    mixers: list[str]
    repeats: int


def measure(test: SpeedTest, root: Path) -> dict[str, Any]:
    """The examples a second of a training step (forward, backward, AdamW) of each mixer."""
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
    model: Any = preset_model(config.preset, fields_of_task(config, dataset) | config.model)
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
    """The training examples whose lengths are nearest to the median, as batches are of a length."""
    positions = dataset.splits["train"]
    ordered = positions[np.argsort(dataset.store.lengths[positions], kind="stable")]
    first = max(0, (len(ordered) - size) // 2)
    return ordered[first : first + size]
