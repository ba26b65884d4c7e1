"""Compare SliceSort with attentions of other authors: `python -m benchmarks.attention`.

Every method mixes the rows of the same encoder (`attentions/encoder.py`): the Text task of the Long
Range Arena, 256 wide, 4 layers, 4 heads, FFN 1024, bytes in, two classes out. The attention of a
package is used as it is, with its own projections.

- *training*: steps per second; a step is forward, backward and AdamW.
- *inference*: forward passes per second, without gradients.
- *memory*: the memory that the first training step adds to the process (activations, gradients,
  AdamW's state): VmHWM after the step, less VmRSS before it (Linux only), while the C library
  returns freed memory at once.

Training and inference of a method at a length are measured once, each in a separate process. The
result is the median of three timed steps after one warm-up step; timing stops early once the steps
have taken ten seconds. Timed steps reuse the memory that was freed before them, as in
`slicegraph train`: by default the C library keeps or returns it by chance, which changed the speed
of a method by a half from process to process. Training with a batch is the exception, because not
all methods have room for the memory that is kept: there, every large tensor of every method is
newly allocated, and if the first step, whose memory is measured, takes ten seconds or more, its
time counts.

A process that exceeds the limit of memory or time is stopped, and its cell states the reason. The
batch size is the same for all methods at a length: 32, as in the paper, up to 4K, and 1 for longer
sequences, where 32 do not fit. Lengths are multiples of 1,024, as the methods with blocks require:
all blocks, buckets, windows and strides are 64 long. A finished cell is a line of the output file
and is not measured again.
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
"""The batch size up to this length, which fits in memory for most methods; beyond, it is 1."""


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--methods", nargs="+", default=list(METHODS), choices=METHODS, help="default: all")
    add("--lengths", type=int, nargs="+", help="multiples of 1024 (default: 1024 to 16384)")
    add("--batch", type=int, help="sequences per batch (default: 32 up to length 4096, then 1)")
    add("--threads", type=int, default=2, help="threads of torch (default: 2)")
    add("--repeats", type=int, default=3, help="timed steps per cell (default: 3)")
    add("--gigabytes", type=float, default=20.0, help="memory limit of a cell (default: 20)")
    add("--seconds", type=float, default=600.0, help="time limit of a cell (default: 600)")
    add("--quick", action="store_true", help="length 1024, batch 1, one timed step")
    add("--out", type=Path, help="file of JSON lines; cells in it are not measured again")
    add("--markdown", type=Path, help="page to write the tables to, between its markers")
    add("--figure", type=Path, help="PNG file (default: docs/attention.png)")
    arguments = parser.parse_args(words)
    _complete(arguments)
    if wrong := [n for n in arguments.lengths if n < 1024 or n % 1024]:
        parser.error(f"length {wrong[0]} is not a multiple of 1024, which the blocks need")
    return arguments


def _complete(arguments: argparse.Namespace) -> None:
    """Fill in the defaults, which `--quick` makes small and writes to other files."""
    quick = arguments.quick
    name = "attention_quick" if quick else "attention"
    if quick:
        arguments.batch, arguments.repeats = arguments.batch or 1, 1
    arguments.lengths = arguments.lengths or (LENGTHS[:1] if quick else LENGTHS)
    arguments.out = arguments.out or Path("runs", f"{name}.jsonl")
    arguments.figure = arguments.figure or Path("runs" if quick else "docs", f"{name}.png")


def batches_of(arguments: argparse.Namespace) -> dict[int, int]:
    """Return the batch size of each length."""
    given = arguments.batch
    return {n: given or (BATCH if n <= BATCH_LENGTH else 1) for n in arguments.lengths}


def measure(arguments: argparse.Namespace) -> Outcomes:
    """Run the cells that are not in the file yet, and return all outcomes."""
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
    """Return the outcome of a cell from the file, or run the cell and add it to the file."""
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
