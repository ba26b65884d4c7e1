"""Measure the memory that a call adds to this process in RAM (Linux only)."""

from collections.abc import Callable
from pathlib import Path


def peak_bytes_of(run: Callable[[], object]) -> int:
    """Return VmHWM (the high-water mark that Linux keeps) after the call, less VmRSS before it.

    Example:
        >>> peak_bytes_of(lambda: bytearray(1 << 24)) >= 1 << 24
        True
    """
    Path("/proc/self/clear_refs").write_text("5")  # resets the mark to the current memory
    before = _field("VmRSS")
    run()
    return _field("VmHWM") - before


def _field(name: str) -> int:
    """Return a field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))
