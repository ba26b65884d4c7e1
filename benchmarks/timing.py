"""Time candidates in turns, so that noise affects all of them; the median counts."""

import random
import time
from collections.abc import Callable
from statistics import median


def median_ms(
    candidates: dict[str, Callable[[], object]], repeats: int, warmups: int = 1
) -> dict[str, float]:
    """Return the median time of a call of each candidate, in milliseconds.

    Example:
        >>> ms = median_ms({"torch": lambda: x.sort(0), "ours": lambda: column_sort(x)}, repeats=9)
        >>> ratio = ms["torch"] / ms["ours"]
    """
    times = times_ms(candidates, repeats, warmups)
    return {name: median(taken) for name, taken in times.items()}


def times_ms(
    candidates: dict[str, Callable[[], object]],
    repeats: int,
    warmups: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the times of all calls, round by round, in milliseconds.

    Each round calls every candidate once, in a random order. With `time.process_time` as the clock
    they are CPU times, which depend less on other processes.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    shuffle = random.Random(0)
    for repeat in range(-warmups, repeats):
        for name in shuffle.sample(list(candidates), len(candidates)):
            start = clock()
            candidates[name]()
            if repeat >= 0:
                times[name].append(1e3 * (clock() - start))
    return times


def print_rates(title: str, rates: dict[str, float]) -> None:
    """Print the molecules per second of each run, and their ratio to those of transformers."""
    print(f"{title}, molecules a second")
    peer = rates.get("transformers")
    for run, rate in rates.items():
        ratio = f"{rate / peer:9.1f}x" if peer else ""
        print(f"  {run:12} {rate:10,.0f} {ratio}", flush=True)
