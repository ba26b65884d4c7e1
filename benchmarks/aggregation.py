"""Compare SliceSortAggregation with PyG's aggregations: `python -m benchmarks.aggregation`.

All read five values per channel of every set: `SliceSortAggregation(k=5)` and PyG's
`QuantileAggregation([0, 0.25, 0.5, 0.75, 1])` the same quantiles, which are compared first, and
PyG's `SortAggregation(k=5)` five whole rows, those with the largest last channel, so it sorts one
channel instead of all. `mean` is PyG's `MeanAggregation`, which does not sort.

Sets have random sizes around the mean; the rows are grouped by set, as in a batch of graphs, and
`index` is given, as in PyG's layers. A time is that of a training step (forward, and backward to
the rows), the median of repeats that take turns in one process; *CPU* is the CPU time of all
threads.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch_geometric.nn.aggr import (
    Aggregation,
    MeanAggregation,
    QuantileAggregation,
    SortAggregation,
)

from slicegraph.nn import SliceSortAggregation
from slicegraph.ops.operator import choose

LEVELS = [0.0, 0.25, 0.5, 0.75, 1.0]
AGGREGATIONS: dict[str, Callable[[], Aggregation]] = {
    "slicesort": lambda: SliceSortAggregation(len(LEVELS)),
    "quantile": lambda: QuantileAggregation(LEVELS),
    "sort": lambda: SortAggregation(len(LEVELS)),
    "mean": MeanAggregation,
}


def random_index(rows: int, size: int) -> Tensor:
    """Return the set of each row, for sets of `size` rows on average."""
    sets = max(1, rows // size)
    return torch.randint(sets, (rows,)).sort().values


def step(aggregation: Aggregation, x: Tensor, index: Tensor, gradient: Tensor) -> None:
    aggregation(x, index, dim_size=int(index[-1]) + 1).backward(gradient)
    x.grad = None


def compare(rows: int, channels: int, size: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Return the median wall time and CPU time of each aggregation, in seconds."""
    x, index = torch.randn(rows, channels, requires_grad=True), random_index(rows, size)
    sets = int(index[-1]) + 1
    made = {name: make() for name, make in AGGREGATIONS.items()}
    ours, theirs = (made[name](x.double(), index, dim_size=sets) for name in list(made)[:2])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.05)  # PyG rounds ranks to float32
    gradients = {name: torch.randn_like(one(x, index, dim_size=sets)) for name, one in made.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    for _ in range(repeats):
        for name, aggregation in made.items():
            wall, cpu = time.perf_counter(), time.process_time()
            step(aggregation, x, index, gradients[name])
            times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {
        name: (median(wall for wall, _ in taken), median(cpu for _, cpu in taken))
        for name, taken in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="rows (default: 200,000)")
    parser.add_argument("--channels", type=int, default=64, help="channels (default: 64)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=(4, 20, 200, 2000), help="mean rows of a set"
    )
    parser.add_argument("--repeats", type=int, default=5, help="repeats (default: 5)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default: 2)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    backend = choose("cpu").__name__.rpartition(".")[2]
    shape = f"{arguments.rows:,} x {arguments.channels}"
    print(f"{shape}, {arguments.threads} threads, backend {backend}; times over ours, and in s")
    print(" size  " + "".join(f"{name:>26}" for name in AGGREGATIONS))
    for size in arguments.sizes:
        found = compare(arguments.rows, arguments.channels, size, arguments.repeats)
        ours = found["slicesort"][0]
        cells = [f"{wall / ours:9.1f}x {wall:6.3f} CPU {cpu:6.3f}" for wall, cpu in found.values()]
        print(f"{size:5}  " + " ".join(cells), flush=True)


if __name__ == "__main__":
    main()
