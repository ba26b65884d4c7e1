"""Work shared by the processes of a distributed run, the results in order in the first one."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple, TypeVar

import torch
from torch import distributed

Item = TypeVar("Item")
Result = TypeVar("Result")


class Rank(NamedTuple):
    """Which process this is, and of how many."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0


ALONE = Rank()


@contextmanager
def process_group() -> Iterator[Rank]:
    """Joins the processes that torchrun has started; without it, this one is alone."""
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
    """The GPU of this process if there is one, else the CPU."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % torch.cuda.device_count()}"


def share(
    work: Callable[[Iterator[Item]], Iterator[Result]], items: Iterable[Item], rank: Rank
) -> Iterator[tuple[Item, Result]]:
    """Every item with its result, in order, in the first process; nothing in the others.

    Every process must have the same items and exhaust this; item ``k`` is worked on by process
    ``k % world``. Only a few items are in memory at a time.

    Args:
        work: gives one result for each item, in order; it may take items ahead.
        items: what to work on.
        rank: which process this is.
    """
    source, pending = iter(items), deque[list[Item]]()

    def own_items() -> Iterator[Item]:
        while turn := list(islice(source, rank.world)):
            pending.append(turn)
            if rank.rank < len(turn):
                yield turn[rank.rank]

    for result in work(own_items()):
        yield from _turn(pending.popleft(), result, rank)
    while pending:  # the last turn, if it has no item for this process
        yield from _turn(pending.popleft(), None, rank)


def _turn(turn: list[Item], own: Result | None, rank: Rank) -> Iterator[tuple[Item, Result]]:
    found = _gather(own, rank)
    if rank.first:
        yield from zip(turn, found[: len(turn)], strict=True)


def _gather(own: Result | None, rank: Rank) -> list[Result]:
    if rank.world == 1:
        return [own]  # type: ignore[list-item]
    found: list[Result] | None = [None] * rank.world if rank.first else None  # type: ignore[list-item]
    distributed.gather_object(own, found)
    return found or []
