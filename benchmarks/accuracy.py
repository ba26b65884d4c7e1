"""Which encoder predicts best for its cost: `python -m benchmarks.accuracy`.

The HOMO-LUMO gap of QM9 (`qm9-gap`, from the extra `.[qm9]`) and of the embedded `mini` data is
learned by Graphormer, by the sorting encoders, by stacks of PyG's `GPSConv` and `GINEConv` of equal
parameters, and by chemprop 2.3.1 with its defaults (`--chemprop COMMAND`; it needs a virtual
environment of its own, and is left out if no command is named). All these have the same optimiser,
schedule, batch and epochs, which stand in `accuracy_runs/rows.py`, and the engine of `slicegraph
train`; the weights after the last update are tested, and nothing is chosen on test. chemprop has
its own settings, and beside it stands the command `slicegraph train` with its own, in fewer epochs.

A finished run is a line of the output file and is not made again; one with other settings is.
Processes with different `--rows`, `--data` or `--seeds` can share the file, one a core. Times are
those of a process on its core, so that other work on the machine counts little: of a command all
that it does, of other rows the updates. `--time` lets the rows take turns for an epoch of 4,000
molecules each, three times, and writes their times to the file, from which those of the table are
then computed: the runs themselves may be of different days.
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
    parser.add_argument("--data", nargs="+", default=["qm9-gap"], choices=BUDGETS)
    parser.add_argument("--part", type=_count, help="molecules of train, if not of the budget")
    parser.add_argument("--epochs", type=_count, help="if not those of the budget")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--chemprop", metavar="COMMAND", help="chemprop 2.3.1, in its own place")
    parser.add_argument("--quick", action="store_true", help="an epoch of a toy a run")
    parser.add_argument("--time", action="store_true", help="time the rows in turns, train nothing")
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
    """All rows of a seed, then those of the next; the command reads whole data sets only."""
    options = (arguments.threads, arguments.quick, arguments.part, arguments.epochs)
    runs = [run_of(data, row, seed, *options) for seed in arguments.seeds for row in arguments.rows]
    return [run for run in runs if run.row != COMMAND or run.part is None]


def finish(run: Run, arguments: argparse.Namespace) -> Line | None:
    """The line of a run; it is run if it is not in the file, unless only to print was asked."""
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
    """Writes the times to the file, and leaves it at that."""
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
