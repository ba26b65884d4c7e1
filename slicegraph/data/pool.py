"""Work spread over processes: in order, in bounded memory, and safe against a process that dies."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

PROCESS_ENDED = "reading it ended the process: RDKit crashed, or memory ran out"
_MOST_AHEAD = 2  # items a worker that are read before the next result in order is there


class WorkerDied(RuntimeError):
    """A worker process died while it processed `item`, for example because memory ran out."""

    def __init__(self, item: Any) -> None:
        super().__init__("a worker process died; if memory ran out, use fewer workers")
        self.item = item


def ordered_map(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    alone: Callable[[Item], Result] | None = None,
) -> Generator[Result]:
    """Yield the results of `map(work, items)`, computed in `workers` processes.

    With one worker everything is done in this process. Memory stays bounded: at most two items a
    worker are read before the next result in order is there. If a process dies, the items that were
    under way are repeated one by one with `alone`, in this process; by default with `run_alone`,
    which raises `WorkerDied` with the item that ends its process. `work`, items and results must be
    picklable.
    """
    if workers == 1:
        yield from map(work, items)
        return
    items = iter(items)
    first = list(islice(items, workers))  # no more processes than items
    pool = _pool(max(1, len(first)))
    pending: deque[tuple[Item, Future[Result]]] = deque()

    def take() -> Result:
        item, future = pending.popleft()
        try:
            return future.result()
        except BrokenProcessPool:
            return alone(item) if alone else run_alone(work, item)

    try:
        for item in chain(first, items):
            try:
                future = _submit(pool, work, item)
            except BrokenProcessPool:
                pool.shutdown()
                pool = _pool(workers)
                future = _submit(pool, work, item)
            pending.append((item, future))
            if len(pending) >= _MOST_AHEAD * workers:
                yield take()
        while pending:
            yield take()
    except BaseException:  # also if the caller stops early: running work is not waited for
        # Python has no public way to do so before 3.14; without this name the pool ends its work.
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(
    pool: ProcessPoolExecutor, work: Callable[[Item], Result], item: Item
) -> Future[Result]:
    """Let Ctrl-C wait: `submit` forks, and Python drops an exception in the hooks of a fork."""
    if threading.current_thread() is not threading.main_thread():
        return pool.submit(work, item)
    caught: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *arguments: caught.append(arguments))
    try:
        future = pool.submit(work, item)
    finally:
        signal.signal(signal.SIGINT, before)
    if caught and callable(before):
        before(*caught[0])
    return future


def run_alone(work: Callable[[Item], Result], item: Item) -> Result:
    """Return `work(item)`, computed in a process of its own; `WorkerDied` if that ends."""
    with _pool(1) as pool:
        try:
            return _submit(pool, work, item).result()
        except BrokenProcessPool:
            raise WorkerDied(item) from None


def run_halved(
    work: Callable[[Sequence[Item]], list[Result]],
    items: Sequence[Item],
    died: Callable[[Item], Result],
) -> list[Result]:
    """Return `work(items)`, computed in processes of their own, a result for each item.

    An item that ends its process costs itself alone: its result is `died(item)`.
    """
    try:
        return run_alone(work, items)
    except WorkerDied:
        if len(items) == 1:
            return [died(items[0])]
        half = len(items) // 2
        return run_halved(work, items[:half], died) + run_halved(work, items[half:], died)


def _pool(workers: int) -> ProcessPoolExecutor:
    # To fork takes milliseconds and shares what is loaded.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    return ProcessPoolExecutor(workers, context, _start_worker, (os.getpid(),))


def _start_worker(parent: int) -> None:
    gc.freeze()  # or looking for garbage would copy the memory that is shared with the parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent

    def end_with_parent() -> None:  # without finishing anything
        process = multiprocessing.parent_process()
        while os.getppid() == parent and (process is None or process.is_alive()):
            time.sleep(0.05)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
