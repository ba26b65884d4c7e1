"""One process at a time in a folder; the system releases the lock when the process is killed."""

import os
import sys
import time
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _lock(number: int) -> None:
        msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(number: int) -> None:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


PATIENCE = 2.0
"""Seconds to wait: the workers of a killed process share its lock until they notice, at once."""


class FolderLock:
    """Holds a lock on a file, which is gone afterwards; a `ValueError` if another process has it.

    Example:
        >>> with FolderLock(folder / "prepare.lock"):
        ...     pass  # no other process is here
    """

    def __init__(self, path: str | Path, patience: float = PATIENCE) -> None:
        self._path = Path(path)
        self._patience = patience
        self._number = -1

    def __enter__(self) -> "FolderLock":
        end = time.monotonic() + self._patience
        while not self._try():
            if time.monotonic() > end:
                raise ValueError(
                    f"another process is preparing {str(self._path.parent)!r}; "
                    "wait for it or choose another folder"
                )
            time.sleep(0.02)
        return self

    def __exit__(self, *error: object) -> None:
        if sys.platform == "win32":  # no file that is open can be removed
            os.close(self._number)
        self._path.unlink(missing_ok=True)
        if sys.platform != "win32":
            os.close(self._number)

    def _try(self) -> bool:
        """Whether it is ours: locked, and still the file of that name, which its owner removes."""
        self._number = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(self._number)
            if os.path.samestat(os.fstat(self._number), os.stat(self._path)):
                return True
        except (BlockingIOError, PermissionError, FileNotFoundError):
            pass
        except OSError as error:
            os.close(self._number)
            raise OSError(error.errno, "cannot lock this file", str(self._path)) from None
        os.close(self._number)
        return False
