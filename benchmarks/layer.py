"""Compare SliceSort with attention: `python -m benchmarks.layer`.

The layers are `SliceSort` (value projection, sort, output projection) and
`torch.nn.MultiheadAttention(need_weights=False)`, both 512 wide, attention with 8 heads. A training
step is forward, and backward to the parameters and the input. A batch has about 16,384 rows for
every length N of its sets.

*Speed* is the time of attention divided by ours: medians of repeats that take turns in one process.
*Growth* is our time per row and log2 N, divided by that of the first size: 1 or less means that the
time of a set grows no faster than N log N.

*Memory* is our peak divided by that of attention. A peak is what one training step adds to the
memory of the process in RAM: VmHWM (the high-water mark that Linux keeps) after the step, less
VmRSS before it, where the mark was reset (Linux only). Every peak is measured in a separate
process, after the input has been made and a step at a tiny size has loaded the libraries. It
includes activations, gradients, and the buffers inside the matrix products.
"""

import argparse
import math
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch
from torch import Tensor

from benchmarks.peak import peak_bytes_of
from benchmarks.timing import median_ms
from slicegraph.nn import SliceSort
from slicegraph.ops.operator import choose

SIZES = (16, 64, 256, 1024, 2048, 4096, 8192, 16384)
WIDTH, HEADS, ROWS = 512, 8, 16384
LAYERS = ("attention", "slice_sort")


def forward_of(layer: str) -> Callable[[Tensor], Tensor]:
    if layer == "slice_sort":
        return SliceSort(WIDTH)
    attention = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    return lambda x: attention(x, x, x, need_weights=False)[0]


def training_step(layer: str, n: int, rows: int = ROWS) -> Callable[[], None]:
    """Return a function that runs a layer on sets of n rows, forward and backward."""
    forward = forward_of(layer)
    x = torch.randn(max(1, rows // n), n, WIDTH, requires_grad=True)
    gradient = torch.randn(x.shape)

    def step() -> None:
        forward(x).backward(gradient)
        x.grad = None

    return step


def peak_bytes(layer: str, n: int, threads: int) -> int:
    """Return the memory that a training step adds to this process."""
    torch.set_num_threads(threads)
    training_step(layer, n=4, rows=16)()
    return peak_bytes_of(training_step(layer, n))


def peak_in_new_process(layer: str, n: int, threads: int) -> int:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as process:
        return process.submit(peak_bytes, layer, n, threads).result()


def repeats_of(n: int) -> int:
    return 9 if n <= 1024 else 5 if n <= 2048 else 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="lengths of the sets")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default: 2)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    backend = choose("cpu").__name__.rpartition(".")[2]
    print(f"width {WIDTH}, {HEADS} heads, {arguments.threads} threads, backend {backend}")
    print("     N     B  attention   slice_sort   speed   growth  attention  slice_sort  memory")
    first = None
    for n in arguments.sizes:
        ms = median_ms({name: training_step(name, n) for name in LAYERS}, repeats_of(n))
        peak = {name: peak_in_new_process(name, n, arguments.threads) for name in LAYERS}
        sets = max(1, ROWS // n)
        per_step = ms["slice_sort"] / (sets * n * math.log2(n))
        first = first or per_step
        print(
            f"{n:6} {sets:5} {ms['attention']:7.0f} ms {ms['slice_sort']:9.0f} ms "
            f"{ms['attention'] / ms['slice_sort']:6.2f}x {per_step / first:8.2f} "
            f"{peak['attention'] / 2**20:7.0f} MB {peak['slice_sort'] / 2**20:8.0f} MB "
            f"{peak['slice_sort'] / peak['attention']:6.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
