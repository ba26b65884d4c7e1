"""Files that survive interruption: atomic writes, checksums, a lock, damage of torch files."""

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import IO

# What `torch.load` raises for a damaged or foreign file, found with thousands of changed files;
# errors of the system and of memory are not among them.
DAMAGE: tuple[type[Exception], ...] = (UnpicklingError, RuntimeError, EOFError, ValueError)
DAMAGE += (TypeError, LookupError, AttributeError, AssertionError, ArithmeticError, struct.error)


class FolderBusy(ValueError):
    """Another process holds the lock of a folder."""


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


@contextmanager
def folder_lock(path: str | Path, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock file `path`, which is removed afterwards.

    The system releases the lock when the process is killed.

    Raises:
        FolderBusy: another process holds the lock for more than `patience` seconds.

    Example:
        >>> with folder_lock(folder / "prepare.lock"):
        ...     pass  # no other process is here
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
