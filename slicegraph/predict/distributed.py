"""Work shared by the processes of a distributed run; the first process has all results in order."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import torch
from torch import distributed

Item = TypeVar("Item")
Result = TypeVar("Result")


class Rank(NamedTuple):
    """The number of this process and the number of processes."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0


ALONE = Rank()


@contextmanager
def process_group() -> Iterator[Rank]:
    """Join the processes that torchrun started; without torchrun there is one process."""
    world = int(os.environ.get("WORLD_SIZE", 1))
    if world == 1:
        yield ALONE
        return
    joined = distributed.is_initialized()
    if not joined:
        distributed.init_process_group("gloo")
    try:
        yield Rank(distributed.get_rank(), distributed.get_world_size())
    finally:
        if not joined:
            distributed.destroy_process_group()


def default_device() -> str:
    """The GPU of this process, or the CPU without a GPU."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % torch.cuda.device_count()}"


def share(
    work: Callable[[Iterator[Item]], Iterator[Result]], items: Iterable[Item], rank: Rank
) -> Iterator[tuple[Item, Result]]:
    """Yield every item with its result, in order, in the first process; nothing in the others.

    Every process must pass the same items and exhaust the iterator; process ``k % world`` works on
    item ``k``. Only a few items are in memory at a time. ``work`` yields one result for each item,
    in order, and may read items ahead.
    """
    source, pending = iter(items), deque[list[Item]]()

    def own_items() -> Iterator[Item]:
        while turn := list(islice(source, rank.world)):
            pending.append(turn)
            if rank.rank < len(turn):
                yield turn[rank.rank]

    def gather(own: Result | None) -> Iterator[tuple[Item, Result]]:
        found: Any = [own] * rank.world if rank.first else None
        if rank.world > 1:
            distributed.gather_object(own, found)
        turn = pending.popleft()
        if rank.first:
            yield from zip(turn, found[: len(turn)], strict=True)

    for result in work(own_items()):
        yield from gather(result)
    while pending:  # the last turn, without an item for this process
        yield from gather(None)
