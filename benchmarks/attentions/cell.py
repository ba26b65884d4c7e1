"""Measure one cell of the table in this process: `python -m benchmarks.attentions.cell`.

The request is a JSON object on standard input; the answer is a JSON object in the last line of the
output.
"""

import ctypes
import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch.nn import functional

from benchmarks.attentions.encoder import VOCABULARY, Encoder
from benchmarks.attentions.methods import METHODS
from benchmarks.peak import peak_bytes_of
from slicegraph.train.machine import freed_memory_kept

WARM_UP_LENGTH = 1024  # BigBird needs at least 704
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # parameters of mallopt, from malloc.h
ENOUGH_SECONDS = 10.0  # timing stops after so many seconds
LONG_SECONDS = 30.0  # in a first call of this length, the warm-up hardly matters

PHASES = {"training": ("training", "memory"), "inference": ("inference",)}
"""The phases, each measured in its own process, and their figures."""


@dataclass(frozen=True)
class Cell:
    """One cell of the table.

    Args:
        method: a key of ``METHODS``.
        phase: a key of ``PHASES``.
        length, batch: the size of the input.
        threads: the number of threads of torch.
        repeats: the number of timed steps, whose median counts; fewer if they are long.
        gigabytes, seconds: the limits of memory and time of the process.
        keeps: whether timed steps reuse the memory that earlier steps have freed. If not, large
            tensors are newly allocated in every step: memory that is kept becomes fragmented, and
            some methods have no room for that.
    """

    method: str
    phase: str
    length: int
    batch: int
    threads: int = 2
    repeats: int = 3
    gigabytes: float = 16.0
    seconds: float = 120.0
    keeps: bool = True


def training_and_inference(cell: Cell) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return a training step (forward, backward, AdamW) and a forward pass without gradients."""
    method = METHODS[cell.method]
    torch.manual_seed(0)
    model = Encoder(cell.length, lambda layer: method.mixer(cell.length, layer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(VOCABULARY, (cell.batch, cell.length))
    labels = torch.arange(cell.batch) % 2

    def train() -> None:
        model.train()
        functional.cross_entropy(model(tokens), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.inference_mode()
    def infer() -> None:
        model.eval()
        model(tokens)

    return train, infer


def measure(cell: Cell) -> dict[str, float]:
    """Return the figures of a cell."""
    return _measure_training(cell) if cell.phase == "training" else _measure_inference(cell)


def _measure_training(cell: Cell) -> dict[str, float]:
    """Return the steps per second, and the memory that the first step adds."""
    _give_back(all_but=1 << 16 if cell.keeps else 32 << 20)
    warm_up, _ = training_and_inference(replace(cell, length=WARM_UP_LENGTH, batch=1))
    warm_up()
    train, _ = training_and_inference(cell)
    start = time.perf_counter()
    peak = peak_bytes_of(train)
    seconds = time.perf_counter() - start
    if cell.keeps:
        with freed_memory_kept():
            seconds = seconds_of(train, cell.repeats)
    elif seconds < ENOUGH_SECONDS:
        seconds = seconds_of(train, cell.repeats)
    return {"training": 1 / seconds, "memory": peak}


def _give_back(all_but: int) -> None:
    """Make the C library return freed tensors of at least so many bytes at once."""
    c_library = ctypes.CDLL(None)
    c_library.mallopt(MMAP_THRESHOLD, all_but)
    c_library.mallopt(TRIM_THRESHOLD, 2 * all_but)


def _measure_inference(cell: Cell) -> dict[str, float]:
    """Return the steps per second, in a process that has never trained.

    Memory that training has freed makes some methods half as fast again.
    """
    _, infer = training_and_inference(cell)
    with freed_memory_kept() if cell.keeps else nullcontext():
        return {"inference": 1 / seconds_of(infer, cell.repeats)}


def seconds_of(
    run: Callable[[], None], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the median time of a call, after one warm-up call.

    Timing stops after `ENOUGH_SECONDS`. A first call of at least `LONG_SECONDS` counts, too.
    """
    times: list[float] = []
    for number in range(repeats + 1):
        start = clock()
        run()
        times.append(clock() - start)
        if number == 0 and times[0] < LONG_SECONDS:
            times.clear()
        if sum(times) >= ENOUGH_SECONDS:
            break
    return median(times)


def answer(cell: Cell) -> dict[str, float | str]:
    """Return the figures of a cell, or the reason why there are none."""
    try:
        return dict(measure(cell))
    except MemoryError:
        return {"outcome": "out of memory"}
    except RuntimeError as error:
        if "allocate memory" in str(error):
            return {"outcome": "out of memory"}
        raise


def main() -> None:
    cell = Cell(**json.load(sys.stdin))
    limit = int(cell.gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    torch.set_num_threads(cell.threads)
    torch.backends.mha.set_fastpath_enabled(False)  # slower than SDPA on the CPU
    print(json.dumps(answer(cell)))


if __name__ == "__main__":
    main()
