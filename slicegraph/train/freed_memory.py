"""Memory that is freed in one step and needed again in the next."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_USUAL_TRIM = 256 << 10
_ALL = (1 << 31) - 1
_LARGEST = (1 << 30, 32 << 20)
"""The first is refused by older ones."""


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """While it lasts, glibc keeps the memory of freed tensors for those to come.

    Usually it hands large pieces back to the system at once, and every step gets the same ones
    anew, page by page and full of zeros: up to a fifth of the time of a small model on a CPU. At
    the end they are handed back. Without glibc this does nothing.
    """
    mallopt = getattr(_library(), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(_TRIM_THRESHOLD, _ALL)
    any(mallopt(_MMAP_THRESHOLD, size) for size in _LARGEST)
    try:
        yield
    finally:
        mallopt(_TRIM_THRESHOLD, _USUAL_TRIM)
        _library().malloc_trim(0)


def _library() -> Any:
    return ctypes.CDLL(None) if sys.platform == "linux" else None
