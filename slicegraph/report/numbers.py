"""How the page spells numbers."""

import math


def number(value: float) -> str:
    """Three decimals, or three significant digits where that says more.

    Example:
        >>> number(0.23147), number(0.071234), number(1234.5), number(2e-9)
        ('0.231', '0.0712', '1,234', '2e-09')
    """
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size >= 1e7 or 0 < size < 1e-4:
        return f"{value:.3g}"
    if size >= 100:
        return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}"
    if 0 < size < 0.1:
        digits = 2 - math.floor(math.log10(size))
        return f"{value:.{digits}f}"
    return f"{value:.3f}"


def with_unit(value: float, unit: str) -> str:
    """A number and its unit, if it has one."""
    return f"{number(value)} {unit}".strip()


def duration(seconds: float) -> str:
    """Seconds as people say them.

    Example:
        >>> duration(42.4), duration(135), duration(7300)
        ('42 s', '2 min 15 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
