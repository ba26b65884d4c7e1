"""Files that survive interruption: atomic writes, checksums, a lock, damage of torch files."""

import hashlib
import json
import os
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

# What `torch.load` raises for a damaged or foreign file, found with thousands of changed files;
# errors of the system and of memory are not among them.
DAMAGE: tuple[type[Exception], ...] = (UnpicklingError, RuntimeError, EOFError, ValueError)
DAMAGE += (TypeError, LookupError, AttributeError, AssertionError, ArithmeticError, struct.error)


class FolderBusy(ValueError):
    """Another process holds the lock of a folder."""


_YOUNG = 2 * 10**9  # nanoseconds, more than the resolution of the times of any file system
PATIENCE = 2.0  # seconds to wait for a lock: a killed process may take a moment to give it up


def write_atomically(path: Path, blocks: Iterable[bytes | memoryview]) -> None:
    """Write a draft next to the file, flush it to the disk, then rename it to the file."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(draft, "wb") as file:
            file.writelines(blocks)
            sync(file)
        os.replace(draft, path)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError) and error.filename == str(draft):
            error.filename = str(path)
        raise


def sync(file: IO) -> None:
    """Flush what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    with suppress(OSError, AttributeError):
        number = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


class Checksums:
    """The SHA-256 of files, which are read again only if their size or one of their times changed.

    What is known is kept in a JSON file, if that can be written; `save` writes it. A file that is
    younger than two seconds is not remembered: another change could leave it with the same times.
    """

    def __init__(self, memory: Path) -> None:
        self.memory, self._changed = memory, False
        self._known: dict[str, Any] = {}
        with suppress(OSError, ValueError, TypeError):
            self._known = dict(json.loads(memory.read_bytes()))

    def of(self, path: Path) -> str:
        """Return the SHA-256 of a file."""
        stat = path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        name = os.path.relpath(path, self.memory.parent)
        known = self._known.get(name)
        if isinstance(known, list) and known[:-1] == stamp:
            return str(known[-1])
        found = sha256_of(path)
        if time.time_ns() - max(stamp[1:]) > _YOUNG:
            self._known[name], self._changed = [*stamp, found], True
        return found

    def save(self) -> None:
        """Write what is known, if it has changed and the folder is not read-only."""
        if self._changed:
            with suppress(OSError):
                write_atomically(self.memory, [json.dumps(self._known, indent=1).encode()])


@contextmanager
def folder_lock(path: str | Path, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock file `path`, which is removed afterwards.

    The system releases the lock when the process is killed. A `FolderBusy` is raised if another
    process holds it for more than `patience` seconds.
    """
    from filelock import FileLock, Timeout  # which saving a model does not need

    path = Path(path)
    lock = FileLock(path, timeout=patience, poll_interval=0.02)
    try:
        lock.acquire()
    except Timeout:
        busy = f"another process is preparing {str(path.parent)!r}"
        raise FolderBusy(f"{busy}; wait for it or choose another folder") from None
    try:
        yield
    finally:
        # Removed while it is held: since 3.20.4 filelock tries again if its file is unlinked.
        with suppress(OSError):
            path.unlink()
        lock.release()
