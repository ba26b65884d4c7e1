"""Lightning's trainer for a run: devices, precision, clipping, and none of its own chatter."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback

from slicegraph.train.checkpoints import AtomicCheckpointIO
from slicegraph.train.config import TrainConfig

_NO_LIMIT = 10**9
_HINTS = (
    "You're resuming from a checkpoint that ended before",  # the sampler is resumed
    ".*does not have many workers",
    "The number of training batches",
    "Using .DistributedSampler. with the dataloaders",  # every molecule is evaluated once
    ".*module.s. in eval mode",
    ".*isinstance.treespec, LeafSpec",
)


def make_trainer(config: TrainConfig, callbacks: list[Callback]) -> pl.Trainer:
    """A trainer that stops when its callbacks say so."""
    try:
        return _trainer(config, callbacks)
    except (MisconfigurationException, ModuleNotFoundError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"train: accelerator = {config.accelerator!r} with devices = {config.devices!r} cannot "
            f"be used here: {reason}; choose cpu or auto"
        ) from None


def _trainer(config: TrainConfig, callbacks: list[Callback]) -> pl.Trainer:
    devices, nodes = _processes(config)
    distributed = devices not in ("auto", 1) or nodes > 1
    return pl.Trainer(
        accelerator=config.accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if distributed else "auto",
        precision=config.precision or default_precision(config.accelerator),  # type: ignore[arg-type]
        max_epochs=_NO_LIMIT,
        accumulate_grad_batches=config.accumulate,
        gradient_clip_val=config.clip or None,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def default_precision(accelerator: str) -> Any:
    """Mixed on a GPU, with bfloat16 if it has it; float32 elsewhere."""
    if accelerator not in ("auto", "gpu", "cuda") or not torch.cuda.is_available():
        return "32-true"
    return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"


def _processes(config: TrainConfig) -> tuple[int | str, int]:
    """Devices a node and nodes; those of torchrun if it has started this process."""
    devices: int | str = config.devices if config.devices == "auto" else int(config.devices)
    if devices == "auto" and "LOCAL_WORLD_SIZE" in os.environ:
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        return local, int(os.environ.get("WORLD_SIZE", local)) // local
    return devices, config.nodes


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Without Lightning's hints, which are about other set-ups than ours."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for hint in _HINTS:
            warnings.filterwarnings("ignore", hint)
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """With this many threads for an operation of torch; None leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
