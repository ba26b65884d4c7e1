"""Which encoder predicts best for its cost: `python -m benchmarks.accuracy`.

The HOMO-LUMO gap of QM9 (`qm9-gap`, from the extra `.[qm9]`) and of the embedded `mini` data is
learned by Graphormer, by the sorting encoders, by stacks of PyG's `GPSConv` and `GINEConv` of equal
parameters, and by chemprop 2.3.1 with its defaults (`--chemprop COMMAND`; it needs a virtual
environment of its own, and is left out if no command is named). All but chemprop have the same
optimiser, schedule, batch and epochs, which stand in `accuracy_runs/rows.py`, and the engine of
`slicegraph train`. The weights after the last update are tested; nothing is chosen on test.

A finished run is a line of the output file and is not made again; one with other settings is.
Processes with different `--rows`, `--data` or `--seeds` can share the file, one a core. The time is
that of the process on its core, so that other work on the machine does not count.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.accuracy_runs import chemprop, training
from benchmarks.accuracy_runs.figure import write_figure
from benchmarks.accuracy_runs.rows import BUDGETS, CHEMPROP, ROWS, Run, run_of
from benchmarks.accuracy_runs.table import table
from benchmarks.json_lines import JsonLines, Line
from benchmarks.markdown import write_between_marks


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["qm9-gap"], choices=BUDGETS)
    parser.add_argument("--part", type=int, help="molecules of train, if not those of the budget")
    parser.add_argument("--epochs", type=int, help="if not those of the budget")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--chemprop", metavar="COMMAND", help="chemprop 2.3.1, in its own place")
    parser.add_argument("--quick", action="store_true", help="an epoch of a toy a run")
    parser.add_argument("--print", action="store_true", help="show what is finished, run nothing")
    parser.add_argument("--root", type=Path, default=Path("dataset"), help="of the data sets")
    parser.add_argument("--out", type=Path, help="JSON lines, taken up again if there")
    parser.add_argument("--markdown", type=Path, help="a page, to write the tables between marks")
    parser.add_argument("--figure", type=Path, help="a PNG of the first data set")
    arguments = parser.parse_args(words)
    name = "accuracy_quick" if arguments.quick else "accuracy"
    arguments.out = arguments.out or Path("runs", f"{name}.jsonl")
    return arguments


def asked_runs(data: str, arguments: argparse.Namespace) -> list[Run]:
    """All rows of a seed, then those of the next."""
    options = (arguments.threads, arguments.quick, arguments.part, arguments.epochs)
    return [run_of(data, row, seed, *options) for seed in arguments.seeds for row in arguments.rows]


def finish(run: Run, arguments: argparse.Namespace) -> Line | None:
    """The line of a run; it is run if it is not in the file, unless only to print was asked."""
    results = JsonLines(arguments.out)
    line = results.last(asdict(run))
    if line is not None or arguments.print:
        return line
    if run.row != CHEMPROP:
        line = asdict(run) | training.train(run, arguments.root)
    elif arguments.chemprop:
        line = asdict(run) | chemprop.train(run, arguments.root, arguments.chemprop)
    else:
        print(f"{run.data}, {run.row} is left out: name it by --chemprop", file=sys.stderr)
        return None
    results.append(line)
    print(f"{run.data}, {run.row}, seed {run.seed}: {line['test']:.4f}", file=sys.stderr)
    return line


def main() -> None:
    arguments = parse()
    tables = []
    for data in arguments.data:
        found = [finish(run, arguments) for run in asked_runs(data, arguments)]
        if runs := [line for line in found if line]:
            tables.append(table(data, runs))
            if arguments.figure and data == arguments.data[0]:
                write_figure(runs, arguments.figure)
    text = "\n\n".join(tables)
    print(text)
    if arguments.markdown:
        write_between_marks(arguments.markdown, text)


if __name__ == "__main__":
    main()
