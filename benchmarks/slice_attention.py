"""Compare slice attention with the column sort and with scaled dot-product attention, on a CPU.

    python -m benchmarks.slice_attention
    python -m benchmarks.slice_attention --lengths 256 4096 --width 256 --heads 8 --json

Every row is one kernel and one set of `N` rows of the same width and heads. The candidates take
turns; the medians of their CPU times are compared within one run. *forward* is without gradients,
*training* is forward and backward; the gradients are those of queries, keys and values (and tau).
- head: a key for each head, `q is k`; split: a key for each head, separate queries;
- channel: a key for each channel, `q is k`;
- sort: `column_sort` with indices of all channels;
- sdpa: `torch.nn.functional.scaled_dot_product_attention`.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.timing import times_ms
from slicegraph.ops import column_sort, cpu, slice_attention
from slicegraph.ops.slice_attention import KERNELS

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
OURS, OTHERS = ("head", "split", "channel"), ("sort", "sdpa")


def candidates(n: int, width: int, heads: int, trains: bool) -> dict[str, Callable[[], object]]:
    """Return the calls to time for one set of `n` rows."""
    values, grad = torch.randn(1, n, width), torch.randn(1, n, width)
    by_head = [torch.randn(1, n, heads) for _ in range(2)]
    by_channel = torch.randn(1, n, width)
    q, k, v = (torch.randn(1, heads, n, width // heads) for _ in range(3))
    for x in (values, *by_head, by_channel, q, k, v):
        x.requires_grad_(trains)
    tau = torch.full((heads,), 0.3, requires_grad=trains)
    taus = torch.full((width,), 0.3, requires_grad=trains)

    def timed(function: Callable[[], Tensor], leaves: list[Tensor], grad: Tensor) -> object:
        if trains:
            return torch.autograd.grad(function(), leaves, grad)
        with torch.no_grad():
            return function()

    a, b = by_head
    functions: dict[str, tuple[Callable[[], Tensor], list[Tensor], Tensor]] = {
        "sort": (lambda: column_sort(by_channel)[0], [by_channel], grad),
        "sdpa": (lambda: scaled_dot_product_attention(q, k, v), [q, k, v], torch.randn_like(q)),
    }
    for kernel, has_width in KERNELS.items():
        ours = {
            "head": (a, a, tau),
            "split": (a, b, tau),
            "channel": (by_channel, by_channel, taus),
        }
        for name, (queries, keys, width_) in ours.items():
            call = partial(slice_attention, queries, keys, values, tau=width_, kernel=kernel)
            leaves = [*{queries, keys}, values, *([width_] if has_width else [])]
            functions[f"{kernel} {name}"] = (call, leaves, grad)
    return {name: lambda call=call: timed(*call) for name, call in functions.items()}


def measure(lengths: list[int], width: int, heads: int, repeats: int) -> list[dict[str, object]]:
    """Return the milliseconds of every candidate at every length."""
    rows: list[dict[str, object]] = []
    for n in lengths:
        for trains in (False, True):
            calls = candidates(n, width, heads, trains)
            times = times_ms(calls, repeats, warmups=2, clock=time.process_time)
            ms = {name: median(taken) for name, taken in times.items()}
            for kernel in KERNELS:
                ours = {name: ms[f"{kernel} {name}"] for name in OURS}
                others = {name: ms[name] for name in OTHERS}
                phase = "training" if trains else "forward"
                rows.append({"kernel": kernel, "rows": n, "phase": phase, **ours, **others})
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """Return a Markdown table of milliseconds and ratios."""
    names = (*OURS, *OTHERS)
    times = " | ".join(f"{name}, ms" for name in names)
    pairs = [(name, "sort") for name in OURS] + [("sdpa", name) for name in OURS]
    titles = " | ".join(f"{one} / {other}" for one, other in pairs)
    lines = [
        f"| kernel | N | phase | {times} | {titles} |",
        "|" + "---|" * (3 + len(names) + len(pairs)),
    ]
    for row in rows:
        ms = {name: float(str(row[name])) for name in names}
        ratios = [ms[one] / ms[other] for one, other in pairs]
        cells = [f"{ms[name]:.2f}" for name in names] + [f"{ratio:.1f}" for ratio in ratios]
        lines.append(f"| {row['kernel']} | {row['rows']} | {row['phase']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add(
        "--lengths",
        type=int,
        nargs="+",
        default=LENGTHS,
        help="rows of a set (default: 64 to 4096)",
    )
    add("--width", type=int, default=256, help="channels (default: 256)")
    add("--heads", type=int, default=4, help="heads (default: 4)")
    add("--repeats", type=int, default=9, help="timed rounds (default: 9)")
    add("--threads", type=int, default=1, help="threads of torch (default: 1)")
    add("--json", action="store_true", help="print JSON lines instead of a table")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows = measure(arguments.lengths, arguments.width, arguments.heads, arguments.repeats)
    if arguments.json:
        print("\n".join(map(json.dumps, rows)))
        return
    level = cpu.simd_level() if cpu.problem("cpu") is None else "no kernels"
    print(f"torch {torch.__version__}, {level}, float32, width {arguments.width}, "
          f"{arguments.heads} heads, {arguments.threads} threads\n")  # fmt: skip
    print(table(rows))


if __name__ == "__main__":
    main()
