"""What a call adds to the memory that this process holds in RAM (Linux only)."""

from collections.abc import Callable
from pathlib import Path


def peak_bytes_of(run: Callable[[], object]) -> int:
    """VmHWM after the call, the kernel's own high-water mark, less VmRSS before it.

    Example:
        >>> peak_bytes_of(lambda: bytearray(1 << 24)) >= 1 << 24
        True
    """
    Path("/proc/self/clear_refs").write_text("5")  # the mark starts from what is held now
    before = _field("VmRSS")
    run()
    return _field("VmHWM") - before


def _field(name: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))
