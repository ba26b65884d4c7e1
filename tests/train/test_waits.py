"""A training step on a GPU: how often the host waits for the device, and for the other ranks."""

import types
from collections import Counter

import pytest
import torch
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from support.tiny_run import tiny_run
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from slicegraph.data.batch import _BatchesOfStore
from slicegraph.train.callbacks import RunCheckpoint
from slicegraph.train.module import TrainingModule

aten, Tensor = torch.ops.aten, torch.Tensor
# Their result, or its size, is read from the device.
WAITING = (aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten._unique2)
READING = (Tensor.tolist, Tensor.item, Tensor.cpu, Tensor.numpy, Tensor.__bool__)
READING += (Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.__array__)


class Waits(TorchDispatchMode):
    """Counts the operators that wait, and what reads tensors that this step has made."""

    def __init__(self) -> None:
        super().__init__()
        self.on, self.found, self.made = False, Counter(), {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if self.on:
            if func.overloadpacket in WAITING:
                self.found[str(func.overloadpacket)] += 1
            for value in (out,) if isinstance(out, Tensor) else ():
                self.made[value.untyped_storage().data_ptr()] = value
        return out


class Reads(TorchFunctionMode):
    """Counts the copies to the host, by what the tensor is: of this step, or an earlier one."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func, types, args=(), kwargs=None):
        to_host = func is Tensor.to and "cpu" in map(str, [*args[1:], *(kwargs or {}).values()])
        if self.waits.on and (func in READING or to_host):
            new = args[0].untyped_storage().data_ptr() in self.waits.made
            self.waits.found["this step" if new else "an earlier step"] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def waits(monkeypatch) -> list[Counter]:
    """What each training step waits for, from the transfer of its batch to its callbacks."""
    steps, mode = [], Waits()
    advance, make = _TrainingEpochLoop.advance, _BatchesOfStore.__getitem__

    def counted(self, data_fetcher):
        mode.on, mode.found, mode.made = True, Counter(), {}
        with Reads(mode), mode:
            advance(self, data_fetcher)
        mode.on = False
        steps.append(mode.found)

    def on_the_host(self, indices):  # by a process of the loader, as a rule
        before, mode.on = mode.on, False
        batch = make(self, indices)
        mode.on = before
        return batch

    monkeypatch.setattr(_TrainingEpochLoop, "advance", counted)
    monkeypatch.setattr(_BatchesOfStore, "__getitem__", on_the_host)
    return steps


def plain_score(module: TrainingModule):
    """A model that waits for nothing, with gradients for all parameters."""

    def score(batch):
        size = sum(parameter.sum() for parameter in module.model.parameters())
        return batch.y.nan_to_num() * 0.1 + size * 1e-3

    return score


@pytest.mark.parametrize("settings", [{}, {"accumulate": 2, "ema": 0.9, "precision": "bf16-mixed"}])
def test_a_step_reads_the_loss_of_the_step_before_and_nothing_else(
    tmp_path, monkeypatch, waits, settings
):
    setup = TrainingModule.setup

    def stand_in(self, stage):
        setup(self, stage)
        self._score = plain_score(self)

    monkeypatch.setattr(TrainingModule, "setup", stand_in)
    pytest.importorskip("tensorboard")
    tiny_run(tmp_path, logger="tensorboard", epochs=2, **settings)
    assert len(waits) == 2 * 4 * settings.get("accumulate", 1)
    assert waits[0] == {}
    assert set(map(repr, waits[1:])) <= {"Counter({'an earlier step': 1})", "Counter()"}
    assert sum(map(bool, waits)) == len(waits) - 2
