"""Times of candidates that noise hits alike: they take turns, and the median counts."""

import time
from collections.abc import Callable
from statistics import median


def median_ms(
    candidates: dict[str, Callable[[], object]], repeats: int, warmups: int = 1
) -> dict[str, float]:
    """The median time of a call of each candidate, in milliseconds.

    Example:
        >>> ms = median_ms({"torch": lambda: x.sort(0), "ours": lambda: column_sort(x)}, repeats=9)
        >>> ratio = ms["torch"] / ms["ours"]
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for repeat in range(-warmups, repeats):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            if repeat >= 0:
                times[name].append(time.perf_counter() - start)
    return {name: 1e3 * median(taken) for name, taken in times.items()}
