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


def print_rates(title: str, rates: dict[str, float]) -> None:
    """Molecules a second of each run, and how many times that is what transformers does."""
    print(f"{title}, molecules a second")
    peer = rates.get("transformers")
    for run, rate in rates.items():
        ratio = f"{rate / peer:9.1f}x" if peer else ""
        print(f"  {run:12} {rate:10,.0f} {ratio}", flush=True)
