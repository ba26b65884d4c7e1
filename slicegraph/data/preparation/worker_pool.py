"""Work spread over processes that never hangs: a worker that dies is an error."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_AHEAD = 2
"""Items a worker that may be begun or finished before the next result in order is there."""


class WorkerDied(RuntimeError):
    """A worker process ended in the middle of `item`, for instance for want of memory."""

    def __init__(self, item: Any, exit_code: int | None) -> None:
        super().__init__(f"a worker process died (exit code {exit_code})")
        self.item, self.exit_code = item, exit_code


def ordered_map(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result]:
    """As `map(work, items)`, with the work in `workers` processes; 1 means in this process.

    Memory stays bounded: no item is begun that is two a worker beyond the next result in order,
    which may take long, and one more is read. On Linux the processes are forked, which takes
    milliseconds and shares what is loaded; elsewhere they are spawned. They ignore Ctrl-C, which is
    for this process, and end by themselves when it is killed.

    Args:
        work: a function at the top of a module, or a `functools.partial` of one.
        items: anything that can be pickled.
        workers: how many processes, at most as many as there are items.
    """
    if workers == 1:
        yield from map(work, items)
        return
    with _Pool(work, workers) as pool:
        yield from pool.map(items)


class _Worker(Generic[Item, Result]):
    """A process, and our end of the pipe to it."""

    def __init__(self, context: BaseContext, work: Callable[[Item], Result]) -> None:
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(theirs, work, os.getpid()), daemon=True
        )
        self.process.start()
        theirs.close()
        self.number = -1
        self.item: Item | None = None

    def give(self, number: int, item: Item) -> None:
        self.number, self.item = number, item
        try:
            self.pipe.send(item)
        except OSError:
            raise self._died() from None

    def take(self) -> tuple[int, Result]:
        try:
            result, error, story = self.pipe.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if error is not None:
            raise error from RuntimeError(f"in a worker process:\n{story}")
        return self.number, result

    def _died(self) -> WorkerDied:
        self.process.join()
        return WorkerDied(self.item, self.process.exitcode)


class _Pool(Generic[Item, Result]):
    def __init__(self, work: Callable[[Item], Result], workers: int) -> None:
        self._context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self._work = work
        self._workers = workers
        self._idle: list[_Worker[Item, Result]] = []
        self._busy: dict[Connection, _Worker[Item, Result]] = {}

    def __enter__(self) -> "_Pool[Item, Result]":
        return self

    def __exit__(self, *error: object) -> None:
        everyone = [*self._idle, *self._busy.values()]
        for worker in everyone:
            worker.process.kill()
        for worker in everyone:
            worker.process.join()
            worker.pipe.close()

    def map(self, items: Iterable[Item]) -> Iterator[Result]:
        numbered = enumerate(items)
        upcoming = next(numbered, None)
        done: dict[int, Result] = {}
        wanted = 0
        while upcoming is not None or self._busy:
            ahead = wanted + _MOST_AHEAD * self._workers
            while upcoming is not None and upcoming[0] < ahead and self._give(*upcoming):
                upcoming = next(numbered, None)
            done.update(self._take())
            while wanted in done:
                yield done.pop(wanted)
                wanted += 1

    def _give(self, number: int, item: Item) -> bool:
        """Whether a worker had nothing to do, or could still be started."""
        if not self._idle and len(self._busy) == self._workers:
            return False
        worker = self._idle.pop() if self._idle else _Worker(self._context, self._work)
        self._busy[worker.pipe] = worker
        worker.give(number, item)
        return True

    def _take(self) -> Iterator[tuple[int, Result]]:
        """What the workers have finished, at least one thing."""
        for pipe in wait(list(self._busy)):
            worker = self._busy[pipe]  # type: ignore[index]
            yield worker.take()
            self._idle.append(self._busy.pop(worker.pipe))


def _serve(pipe: Connection, work: Callable[[Any], Any], parent: int) -> None:
    gc.freeze()  # or looking for garbage would copy the memory that is shared with the parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        try:
            reply: tuple[Any, Exception | None, str] = work(item), None, ""
        except Exception as error:
            reply = None, error, traceback.format_exc()
        pipe.send(reply)


def _end_with(parent: int) -> None:
    """Ends this process when its parent is gone, without finishing anything."""
    alive = multiprocessing.parent_process()
    while os.getppid() == parent and (alive is None or alive.is_alive()):
        time.sleep(0.05)
    os._exit(1)
