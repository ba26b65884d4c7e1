"""Compare the accuracy and the cost of encoders: `python -m benchmarks.accuracy`.

Graphormer, the sorting encoders, stacks of PyG's `GPSConv` and `GINEConv` with equal parameters,
and chemprop 2.3.1 with its defaults learn the HOMO-LUMO gap of QM9 (`qm9-gap`, from the extra
`.[qm9]`) and of the shipped data `mini`. chemprop (`--chemprop COMMAND`) needs its own virtual
environment and is left out if no command is given. The other rows have the same optimiser,
schedule, batch size and epochs, defined in `accuracy_runs/rows.py`, and use the training code of
`slicegraph train`. The weights after the last update are tested; nothing is chosen on test.
chemprop has its own settings; the row to compare it with is the command `slicegraph train`, which
also has its own settings, and fewer epochs.

A finished run is a line of the output file and is not repeated unless its settings change.
Processes with different `--rows`, `--data` or `--seeds` can share the file, one process per core.
Times are CPU times of a process, so that other work on the machine matters little: for a command
the time of the whole command, for other rows that of the updates. `--time` trains the rows in turns
for an epoch of 4,000 molecules each, three times, and writes the times to the file. The times of
the table are then computed from these, so the runs themselves can be of different days.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.accuracy_runs import chemprop, command, training
from benchmarks.accuracy_runs.child import ChildError
from benchmarks.accuracy_runs.figure import write_figure
from benchmarks.accuracy_runs.rows import BUDGETS, CHEMPROP, COMMAND, ROWS, Run, run_of
from benchmarks.accuracy_runs.table import table
from benchmarks.accuracy_runs.turns import retimed, time_in_turns
from benchmarks.json_lines import JsonLines, Line
from benchmarks.markdown import write_between_marks


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r}, expected a number of at least 1")
    return int(word)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", nargs="+", default=["qm9-gap"], choices=BUDGETS, help="data (default: qm9-gap)")
    add("--part", type=_count, help="training molecules (default: from the budget of the data)")
    add("--epochs", type=_count, help="training epochs (default: from the budget of the data)")
    add("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW", help="default: all")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2], help="random seeds (default: 0 1 2)")
    add("--threads", type=int, default=1, help="threads of a run (default: 1)")
    add("--chemprop", metavar="COMMAND", help="path of the command of chemprop 2.3.1")
    add("--quick", action="store_true", help="train a toy model for one epoch per run")
    add("--time", action="store_true", help="time the rows in turns; no runs")
    add("--print", action="store_true", help="print the finished runs; no new runs")
    add("--root", type=Path, default=Path("dataset"), help="folder of the data (default: dataset)")
    add("--out", type=Path, help="file of JSON lines; runs in it are not repeated")
    add("--markdown", type=Path, help="page to write the tables to, between its markers")
    add("--figure", type=Path, help="PNG file for a figure of the first data set")
    arguments = parser.parse_args(words)
    name = "accuracy_quick" if arguments.quick else "accuracy"
    arguments.out = arguments.out or Path("runs", f"{name}.jsonl")
    return arguments


def asked_runs(data: str, arguments: argparse.Namespace) -> list[Run]:
    """Return the runs seed by seed; the command `slicegraph train` takes whole data sets only."""
    options = (arguments.threads, arguments.quick, arguments.part, arguments.epochs)
    runs = [run_of(data, row, seed, *options) for seed in arguments.seeds for row in arguments.rows]
    return [run for run in runs if run.row != COMMAND or run.part is None]


def finish(run: Run, arguments: argparse.Namespace) -> Line | None:
    """Return the line of a run; run it if it is not in the file, unless with `--print`."""
    results = JsonLines(arguments.out)
    line = results.last(asdict(run))
    if line is not None or arguments.print:
        return line
    if run.row == COMMAND:
        line = asdict(run) | command.train(run, arguments.root)
    elif run.row != CHEMPROP:
        line = asdict(run) | training.train(run, arguments.root)
    elif arguments.chemprop:
        line = asdict(run) | chemprop.train(run, arguments.root, arguments.chemprop)
    else:
        print(f"{run.data}, {run.row} is left out: name it by --chemprop", file=sys.stderr)
        return None
    results.append(line)
    print(f"{run.data}, {run.row}, seed {run.seed}: {line['test']:.4f}", file=sys.stderr)
    return line


def time_rows(arguments: argparse.Namespace) -> None:
    """Write the times of the rows to the file; no new runs follow."""
    arguments.print = True
    results = JsonLines(arguments.out)
    for data in arguments.data:
        for line in time_in_turns(data, arguments.rows, arguments.threads, arguments.root):
            results.append(line)


def main() -> None:
    try:
        _run(parse())
    except (ValueError, OSError, ChildError) as error:
        sys.exit(f"benchmarks.accuracy: {error}")


def _run(arguments: argparse.Namespace) -> None:
    if arguments.time:
        time_rows(arguments)
    tables = []
    for data in arguments.data:
        found = [finish(run, arguments) for run in asked_runs(data, arguments)]
        if runs := retimed([line for line in found if line], JsonLines(arguments.out).lines):
            tables.append(table(data, runs))
            if arguments.figure and data == arguments.data[0]:
                write_figure(runs, arguments.figure)
    if not tables:
        raise ValueError(f"none of these runs is finished in {arguments.out}")
    text = "\n\n".join(tables)
    print(text)
    if arguments.markdown:
        write_between_marks(arguments.markdown, text)


if __name__ == "__main__":
    main()
