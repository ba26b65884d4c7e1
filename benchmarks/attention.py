"""SliceSort against attentions that others wrote: `python -m benchmarks.attention`.

Every method mixes the rows of the same encoder (`attentions/encoder.py`): the Text task of the Long
Range Arena, 256 wide, 4 layers, 4 heads, FFN 1024, bytes in, two classes out. A package's attention
is used as it is, with its own projections.

- *training*: steps a second; a step is forward, backward and AdamW.
- *inference*: forward passes a second, without gradients.
- *memory*: what the first training step adds to the memory of the process (activations, gradients,
  AdamW's state): VmHWM after the step, less VmRSS before it (Linux only), while the C library gives
  freed memory back at once.

Training and inference of a method at a length are measured once, each in a process of its own. The
median of three timed steps counts, after one that does not; fewer steps are timed once they have
taken ten seconds. Timed steps find the memory that was freed before them, as in `slicegraph train`:
left alone, the C library keeps it or gives it back by chance, which moved a method by a half from
process to process. Training with a batch is the exception, as not all methods have room for what is
kept: there every large tensor of every method is new, and a first step of ten seconds or more, that
of the memory, is the timed one.

A process that would pass the limit of memory or time is stopped, and its cell says so. The batch is
the same for all methods at a length: that of the paper, 32, up to 4K; of longer sequences, of which
32 do not fit, one. Lengths are multiples of 1,024, as the methods with blocks need: all blocks,
buckets, windows and strides are 64 long. A finished cell is a line of the output file and is not
measured again.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.attentions.cell import PHASES, Cell
from benchmarks.attentions.figure import draw
from benchmarks.attentions.methods import METHODS
from benchmarks.attentions.process import run
from benchmarks.attentions.results import LIMITS, Outcome, Results
from benchmarks.attentions.table import Outcomes, figures, tables
from benchmarks.markdown import write_between_marks

LENGTHS = (1024, 2048, 3072, 4096, 8192, 16384)
BATCH, BATCH_LENGTH = 32, 4096
"""The batch, and the longest sequences of which it fits for most methods; of others, it is 1."""


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--lengths", type=int, nargs="+", help="multiples of 1024")
    parser.add_argument("--batch", type=int, help="sequences, at all lengths alike")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="timed steps a cell")
    parser.add_argument("--gigabytes", type=float, default=20.0, help="limit of a cell")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of a cell")
    parser.add_argument("--quick", action="store_true", help="1K, batch 1, one timed step")
    parser.add_argument("--out", type=Path, help="JSON lines, taken up again if there")
    parser.add_argument("--markdown", type=Path, help="a page, to write the tables between marks")
    parser.add_argument("--figure", type=Path, help="a PNG (default: docs/attention.png)")
    arguments = parser.parse_args(words)
    _complete(arguments)
    if wrong := [n for n in arguments.lengths if n < 1024 or n % 1024]:
        parser.error(f"length {wrong[0]} is not a multiple of 1024, which the blocks need")
    return arguments


def _complete(arguments: argparse.Namespace) -> None:
    """What `--quick` makes small and puts elsewhere, unless it is given."""
    quick = arguments.quick
    name = "attention_quick" if quick else "attention"
    if quick:
        arguments.batch, arguments.repeats = arguments.batch or 1, 1
    arguments.lengths = arguments.lengths or (LENGTHS[:1] if quick else LENGTHS)
    arguments.out = arguments.out or Path("runs", f"{name}.jsonl")
    arguments.figure = arguments.figure or Path("runs" if quick else "docs", f"{name}.png")


def batches_of(arguments: argparse.Namespace) -> dict[int, int]:
    """The batch of each length."""
    given = arguments.batch
    return {n: given or (BATCH if n <= BATCH_LENGTH else 1) for n in arguments.lengths}


def measure(arguments: argparse.Namespace) -> Outcomes:
    """Runs the cells that are not in the file yet."""
    results, outcomes = Results(arguments.out), Outcomes()
    limits = (arguments.threads, arguments.repeats, arguments.gigabytes, arguments.seconds)
    for length, batch in batches_of(arguments).items():
        for method in arguments.methods:
            outcomes[method, length] = {}
            for phase in PHASES:
                keeps = phase == "inference" or batch == 1
                outcome = _outcome_of(Cell(method, phase, length, batch, *limits, keeps), results)
                outcomes[method, length] |= figures(phase, outcome)
    return outcomes


def _outcome_of(cell: Cell, results: Results) -> Outcome:
    """What the file has of this cell, or what a run gives, which then stands in the file."""
    outcome = results.find(cell)
    if outcome is None:
        outcome = run(cell)
        if outcome.get("outcome") in (None, *LIMITS):
            results.add(cell, outcome)
    name = f"{cell.method}, {cell.phase} at {cell.length}, batch {cell.batch}"
    print(f"{name}: {outcome}", file=sys.stderr, flush=True)
    return outcome


def main() -> None:
    arguments = parse()
    outcomes, batches = measure(arguments), batches_of(arguments)
    text = tables(outcomes, batches)
    print(text)
    if arguments.markdown:
        write_between_marks(arguments.markdown, text)
    draw(outcomes, batches, arguments.figure)


if __name__ == "__main__":
    main()
