"""The machine under a run: Lightning's trainer, checkpoint files, ranks, threads, memory, loggers.

The only names here that are not documented are glibc's ``mallopt`` and ``malloc_trim``, and the
exchange of signals in Lightning's loop: without them a run is slower and otherwise the same.
"""

import ctypes
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor, distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

from slicegraph.files import DAMAGE, write_atomically
from slicegraph.train.config import TrainConfig

_HINTS = (
    "You're resuming from a checkpoint that ended before",  # the sampler is resumed
    ".*does not have many workers",
    "The number of training batches",
    "Using .DistributedSampler. with the dataloaders",  # every molecule is evaluated once
    ".*module.s. in eval mode",
    ".*isinstance.treespec, LeafSpec",
)
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_cpu")
_LOGGER_PACKAGES = {"csv": (), "tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",)}

# From glibc's malloc.h. Older versions refuse the first size of _MMAP_SIZES, so both are tried.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_DEFAULT_TRIM, _NO_TRIM, _MMAP_SIZES = 256 << 10, (1 << 31) - 1, (1 << 30, 32 << 20)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a temporary file and renames it; reads tensors and plain values, and runs no code.

    Lightning's own atomic write moves a file from the folder for temporary files, which is a copy
    if that is on another disk, and does not sync it.
    """

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(path), [content.getbuffer()])

    def load_checkpoint(self, path: Any, *_: Any, **options: Any) -> Any:
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except DAMAGE:
            reason = "is damaged, and the run cannot go on from it; remove it to begin again"
            raise ValueError(f"train: {path} {reason}") from None


def make_trainer(config: TrainConfig, callbacks: list[Callback]) -> pl.Trainer:
    """Make a trainer for the devices of the settings; its callbacks decide when it stops."""
    devices: int | str = config.devices if config.devices == "auto" else int(config.devices)
    nodes = config.nodes
    if devices == "auto" and "LOCAL_WORLD_SIZE" in os.environ:  # started by torchrun
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ.get("WORLD_SIZE", devices)) // devices
    precision = config.precision or default_precision(config.accelerator)
    alone = devices in ("auto", 1) and nodes == 1
    try:
        trainer = pl.Trainer(
            accelerator=config.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy="auto" if alone else ddp(precision, config.accumulate),
            precision=precision,  # type: ignore[arg-type]
            max_epochs=10**9,
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
    except (MisconfigurationException, ModuleNotFoundError) as error:
        reason = " ".join(str(error).split())
        used = f"accelerator = {config.accelerator!r} with devices = {config.devices!r}"
        remedy = f"cannot be used here: {reason}; choose cpu or auto"
        raise ValueError(f"train: {used} {remedy}") from None
    # All ranks would wait for one another before each batch; `RunCheckpoint` does this instead.
    if hasattr(trainer.fit_loop.epoch_loop, "_broadcast_sigterm_tensor"):
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore
    return trainer


def ddp(precision: str, accumulate: int) -> DDPStrategy:
    """Make the strategy of several ranks.

    Gradients are views of the buffers that are sent. Every update uses the same parameters, which
    DDP is told; it fails if its first backward pass sends nothing, as with `accumulate`. In
    bf16-mixed gradients are sent as bfloat16: Lightning does this on CUDA alone, with NCCL.
    """
    hook = bf16_compress_hook if precision == "bf16-mixed" else None
    static = accumulate == 1
    return DDPStrategy(gradient_as_bucket_view=True, static_graph=static, ddp_comm_hook=hook)


def default_precision(accelerator: str) -> str:
    """Mixed precision on a GPU, with bfloat16 if the GPU supports it; float32 elsewhere."""
    if accelerator not in ("auto", "gpu", "cuda") or not torch.cuda.is_available():
        return "32-true"
    return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"


def device_name(device: torch.device) -> str:
    """The model and memory of a GPU; "cpu" for a CPU."""
    if device.type != "cuda":
        return device.type
    memory = torch.cuda.get_device_properties(device).total_memory / 2**30
    return f"{torch.cuda.get_device_name(device)} ({memory:.0f} GiB)"


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's hints, which do not apply to these runs."""
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
def fast_products(device_type: str, precision: str | None) -> Iterator[None]:
    """Multiply the float32 matrices of "32-true" by the faster routine of the device.

    A GPU multiplies in TF32: 10 bits after the point, not 23. On an AMD processor with AVX-512,
    oneDNN takes the place of MKL, which uses 256-bit vectors there: the same precision in half the
    time.
    """
    before = torch.get_float32_matmul_precision()
    if precision == "32-true" and device_type == "cuda":
        torch.set_float32_matmul_precision("high")
    elif precision == "32-true" and device_type == "cpu" and _mkl_is_slow():
        torch.set_float32_matmul_precision("medium")  # rounds to bfloat16 only where there is AMX
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _mkl_is_slow() -> bool:
    """Whether this is an AMD processor with AVX-512, and without AMX."""
    info = Path("/proc/cpuinfo")
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not info.is_file():
        return False
    words = info.read_text().split()
    return "AuthenticAMD" in words and "amx_tile" not in words


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Set the number of threads of torch's operators; None keeps it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep glibc from returning freed memory to the system between steps.

    Otherwise every step gets them back page by page, filled with zeros: up to a fifth of the time
    of a small model on a CPU. At the end they are returned.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    mallopt, malloc_trim = (getattr(library, name, None) for name in ("mallopt", "malloc_trim"))
    if mallopt is None or malloc_trim is None:
        yield
        return
    mallopt(_TRIM_THRESHOLD, _NO_TRIM)
    any(mallopt(_MMAP_THRESHOLD, size) for size in _MMAP_SIZES)
    try:
        yield
    finally:
        mallopt(_TRIM_THRESHOLD, _DEFAULT_TRIM)
        malloc_trim(0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the memory of a device is used up."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


def check_logger(name: str) -> None:
    """Raise if the package that a logger needs is not installed."""
    packages = _LOGGER_PACKAGES[name]
    if packages and not any(map(find_spec, packages)):
        remedy = f"pip install {packages[0]}, or leave out logger"
        raise ValueError(f"train: logger = {name!r} needs {packages[0]}; {remedy}")


def make_loggers(name: str, folder: Path) -> list[Any]:
    """Make Lightning's logger "tensorboard" or "wandb"; "csv" needs none."""
    if name == "csv":
        return []
    from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

    if name == "tensorboard":
        return [TensorBoardLogger(folder, name="", version="tensorboard")]
    return [WandbLogger(save_dir=folder, name=folder.name, project="slicegraph")]


@rank_zero_only
def say(text: str) -> None:
    """Print on the first rank only."""
    print(text, flush=True)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows bars without a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def gather_from_ranks(own: Any) -> list[Any]:
    """The objects of all ranks, in the order of the ranks, on each of them."""
    found = [own]
    if _several_ranks():
        found *= distributed.get_world_size()
        distributed.all_gather_object(found, own)
    return found


def largest_on_ranks(values: list[float], device: torch.device) -> list[float]:
    """The largest of each value on all ranks; it waits for the device, unless there is one rank."""
    if not _several_ranks():
        return values
    found = torch.tensor(values, dtype=torch.float64, device=device)
    distributed.all_reduce(found, distributed.ReduceOp.MAX)
    return found.tolist()


def sum_over_ranks(values: Tensor) -> Tensor:
    """Sum a tensor over all ranks, without a gradient."""
    if _several_ranks():
        values = values.clone()
        distributed.all_reduce(values)
    return values


def _several_ranks() -> bool:
    ready = distributed.is_available() and distributed.is_initialized()
    return ready and distributed.get_world_size() > 1
