"""Compare the column sort with `torch.sort` and with a plain copy, on a CPU.

    python -m benchmarks.column_sort            # the shapes of the models, then the grid of sizes
    python -m benchmarks.column_sort --shapes   # the shapes of the models only
    python -m benchmarks.column_sort --dtype bfloat16

Every figure is a ratio of medians within one run; the candidates take turns.
- training: time of `torch.sort(x, dim=-2)`, with an input that requires grad, divided by ours
  (values, and the permutation saved for the gradient);
- inference: the same under no_grad, where ours returns the values only;
- backward: time of torch's scatter by int64 index (`zeros_like`, `scatter_`), divided by ours by
  the saved permutation;
- copies: our time divided by that of `x.clone()`, the lower bound.
"""

import argparse
import itertools

import torch

from benchmarks.timing import median_ms
from slicegraph.ops import column_sort, cpu, sort
from slicegraph.ops.operator import default

SHAPES = [
    *[(256, 16, 768), (256, 32, 768), (256, 52, 768)],
    *[(64, 128, 768), (32, 256, 512)],
    *[(8, 1024, 512), (4, 4096, 512), (1, 16384, 512)],
]
GRID_ROWS = [1, 2, 5, 16, 33, 100, 256, 1000, 1366, 4096, 9000, 20000]
GRID_CHANNELS = [1, 3, 7, 33, 768]
GRID_ELEMENTS = 4096


def measure(shape: tuple[int, int, int], dtype: torch.dtype, repeats: int) -> dict[str, float]:
    """Return the milliseconds of every candidate at one shape."""
    plain = torch.randn(shape).to(dtype)
    x = plain.clone().requires_grad_()
    g = torch.randn(shape).to(dtype)
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        column_sort(x, return_indices=False)
    narrow = saved[0]
    wide = narrow.long()

    def inference() -> torch.Tensor:
        with torch.no_grad():
            return column_sort(plain, return_indices=False)

    return median_ms(
        {
            "copy": lambda: plain.clone(),
            "torch training": lambda: torch.sort(x, dim=-2),
            "torch inference": lambda: torch.sort(plain, dim=-2),
            "torch backward": lambda: torch.zeros_like(g).scatter_(-2, wide, g),
            "training": lambda: column_sort(x, return_indices=False),
            "inference": inference,
            "backward": lambda: sort.column_scatter_op(g, narrow, None, None),
        },
        repeats,
        warmups=2,
    )


def ratios(ms: dict[str, float]) -> list[float]:
    return [ms[f"torch {kind}"] / ms[kind] for kind in ("training", "inference", "backward")]


def print_shapes(dtype: torch.dtype, repeats: int) -> None:
    print(f"{'shape':>16} {'training':>9} {'inference':>9} {'backward':>9}   our time in copies")
    for shape in SHAPES:
        ms = measure(shape, dtype, repeats)
        training, inference, backward = ratios(ms)
        copies = [ms[kind] / ms["copy"] for kind in ("training", "inference", "backward")]
        print(
            f"{list(shape)!s:>16} {training:8.1f}x {inference:8.1f}x {backward:8.1f}x   "
            f"{copies[0]:.1f} / {copies[1]:.1f} / {copies[2]:.1f}",
            flush=True,
        )


def print_grid(dtype: torch.dtype) -> None:
    """Time small batches of at least 4,096 elements, where the cost per call matters most."""
    print(f"\n{'shape':>16} {'training':>9} {'inference':>9} {'backward':>9}")
    worst = [float("inf")] * 3
    for rows, channels in itertools.product(GRID_ROWS, GRID_CHANNELS):
        batch = -(-GRID_ELEMENTS // (rows * channels))
        size = batch * rows * channels
        ms = measure((batch, rows, channels), dtype, 200 if size < 50_000 else 7)
        found = ratios(ms)
        worst = [min(a, b) for a, b in zip(worst, found, strict=True)]
        print(
            f"{[batch, rows, channels]!s:>16} " + " ".join(f"{r:8.2f}x" for r in found), flush=True
        )
    print(f"{'worst':>16} " + " ".join(f"{r:8.2f}x" for r in worst))


def print_overhead() -> None:
    ms = measure((2, 2, 2), torch.float32, 2000)
    kinds = ("training", "inference", "backward")
    more = [1e3 * (ms[kind] - ms[f"torch {kind}"]) for kind in kinds]
    print("\nmicroseconds a call more than torch, 8 elements: ", end="")
    print(", ".join(f"{kind} {value:+.1f}" for kind, value in zip(kinds, more, strict=True)))


def print_widths() -> None:
    """Compare our sort in bfloat16 with our sort in float32."""
    print("\ntime of float32 over bfloat16, training / inference")
    for shape in SHAPES:
        single = torch.randn(shape, requires_grad=True)
        half = single.detach().bfloat16().requires_grad_()
        constants = single.detach(), half.detach()
        ms = median_ms(
            {
                "float32": lambda x=single: column_sort(x, return_indices=False),
                "bfloat16": lambda x=half: column_sort(x, return_indices=False),
                "float32 values": lambda x=constants[0]: column_sort(x, return_indices=False),
                "bfloat16 values": lambda x=constants[1]: column_sort(x, return_indices=False),
            },
            9,
        )
        training = ms["float32"] / ms["bfloat16"]
        inference = ms["float32 values"] / ms["bfloat16 values"]
        print(f"{list(shape)!s:>16} {training:8.1f}x {inference:8.1f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    dtypes = ["float32", "bfloat16", "float16"]
    parser.add_argument("--dtype", default="float32", choices=dtypes, help="default: float32")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default: 2)")
    parser.add_argument("--repeats", type=int, default=9, help="timed rounds (default: 9)")
    parser.add_argument("--shapes", action="store_true", help="only the shapes of the models")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    level = f", {cpu.simd_level()}" if cpu.problem("cpu") is None else ""
    print(f"torch {torch.__version__}, backend {default('cpu')}{level}, {arguments.dtype}, "
          f"{arguments.threads} threads")  # fmt: skip
    dtype = getattr(torch, arguments.dtype)
    print_shapes(dtype, arguments.repeats)
    if not arguments.shapes:
        print_widths()
        print_grid(dtype)
        print_overhead()


if __name__ == "__main__":
    main()
