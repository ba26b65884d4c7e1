"""Compare the Triton kernel with torch.sort on a GPU: `python -m benchmarks.column_sort_gpu`.

Every figure is a ratio of times. *Training* (the forward pass with an input that requires grad:
values, and the permutation saved for the gradient) and *inference* (values only) are the time of
`torch.sort(x, dim=-2)` divided by ours. *Backward* is the time of torch's scatter by index divided
by ours. *Copies* is our time in inference divided by that of `x.clone()`, the lower bound. In both
cases torch sorts sets of more than 1,024 rows.
"""

import argparse
import sys
from collections.abc import Callable
from statistics import median

import torch

from slicegraph.ops import column_sort, use_backend

SHAPES = (
    (256, 16, 768),
    (256, 32, 768),
    (256, 52, 768),
    (64, 128, 768),
    (32, 256, 512),
    (8, 1024, 512),
    (4, 4096, 512),
    (1, 16384, 512),
)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def median_ms(candidates: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median time of each candidate on the GPU; the candidates take turns."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for repeat in range(-3, repeats):
        for name, run in candidates.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            end.synchronize()
            if repeat >= 0:
                times[name].append(start.elapsed_time(end))
    return {name: median(taken) for name, taken in times.items()}


def measure(shape: tuple[int, ...], dtype: torch.dtype, repeats: int) -> dict[str, float]:
    """Return the times of torch, of our kernels and of a copy, in milliseconds."""
    x = torch.randn(shape, device="cuda").to(dtype)
    g = torch.randn(shape, device="cuda").to(dtype)
    leaf = x.clone().requires_grad_()
    values = column_sort(leaf, return_indices=False)
    indices = torch.sort(x, dim=-2).indices

    def inference() -> None:
        with torch.no_grad():
            column_sort(x, return_indices=False)

    return median_ms(
        {
            "copy": lambda: x.clone(),
            "sort": lambda: torch.sort(x, dim=-2),
            "scatter": lambda: torch.zeros_like(g).scatter_(-2, indices, g),
            "training": lambda: column_sort(leaf, return_indices=False),
            "inference": inference,
            "backward": lambda: torch.autograd.grad(values, leaf, g, retain_graph=True),
        },
        repeats,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ["float32", "bfloat16"]
    help = f"default: {' '.join(default)}"
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=default, help=help)
    parser.add_argument("--repeats", type=int, default=50, help="timed rounds (default: 50)")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("column_sort_gpu: there is no CUDA device, nothing was timed", file=sys.stderr)
        sys.exit(2)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("shape                  dtype     training  inference  backward  copies")
    for shape in SHAPES:
        for name in arguments.dtypes:
            with use_backend("triton"):
                ms = measure(shape, DTYPES[name], arguments.repeats)
            print(
                f"{list(shape)!s:22} {name:9} {ms['sort'] / ms['training']:7.1f}x "
                f"{ms['sort'] / ms['inference']:9.1f}x {ms['scatter'] / ms['backward']:8.1f}x "
                f"{ms['inference'] / ms['copy']:7.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
