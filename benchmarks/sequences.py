"""Compare sorting with attention on sequences and images: `python -m benchmarks.sequences`.

The same model learns every task with four mixers: `sort` in the orders ascending, interleave and
max_exchange, and `qkv`, which makes it a Transformer. All have the same budget, defined in
`sequence_runs/budgets.py`: the same updates, batches, optimiser and schedule. Nothing is tuned for
one mixer. A run uses `slicegraph.train`: the weights with the best validation score are tested.

The table has the accuracy on test (mean and standard deviation over the seeds), the parameters and
the speed. Other work on the machine would distort a comparison of whole runs, so the speed is that
of single steps, which take turns in one process; the last column is their ratio.

A finished run is a line of the output file and is not repeated unless its settings change. Two
processes with different `--tasks` can share the file.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.json_lines import JsonLines, Line
from benchmarks.markdown import write_between_marks
from benchmarks.sequence_runs import speed, training
from benchmarks.sequence_runs.budgets import BUDGETS, MIXERS, Run, runs_of, settings_of
from benchmarks.sequence_runs.speed import SpeedTest
from benchmarks.sequence_runs.table import task_table
from slicegraph.tasks import TaskError

REPEATS = 15


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--tasks", nargs="+", default=list(BUDGETS), choices=BUDGETS, help="default: all")
    add("--mixers", nargs="+", default=list(MIXERS), choices=MIXERS, help="default: all")
    add("--seeds", type=int, help="number of seeds (default: 3, for listops 1)")
    add("--threads", type=int, default=1, help="threads of a run (default: 1)")
    add("--quick", action="store_true", help="train a toy model for two updates per run")
    add("--print", action="store_true", help="print the finished runs; no new runs")
    add("--root", type=Path, default=Path("dataset"), help="folder of the data (default: dataset)")
    add("--out", type=Path, help="file of JSON lines; runs in it are not repeated")
    add("--markdown", type=Path, help="page to write the tables to, between its markers")
    arguments = parser.parse_args(words)
    if arguments.seeds is not None and arguments.seeds < 1:
        parser.error(f"--seeds {arguments.seeds}, expected at least 1")
    name = "sequences_quick" if arguments.quick else "sequences"
    arguments.out = arguments.out or Path("runs", f"{name}.jsonl")
    return arguments


def measure(
    task: str, arguments: argparse.Namespace, results: JsonLines
) -> tuple[Line | None, list[Line]]:
    """Return the speeds of the mixers of a task, and its runs; missing ones are measured first."""
    threads, quick = arguments.threads, arguments.quick
    settings = settings_of(task, threads, quick)
    test = SpeedTest(task, settings, arguments.mixers, 1 if quick else REPEATS)
    speeds = finish(test, arguments, results)
    runs = runs_of(task, arguments.mixers, arguments.seeds, threads, quick)
    lines = [finish(run, arguments, results) for run in runs]
    return speeds, [line for line in lines if line]


def finish(
    asked: SpeedTest | Run, arguments: argparse.Namespace, results: JsonLines
) -> Line | None:
    """Return the line of a run; run it if it is not in the file, unless with `--print`."""
    wanted = asdict(asked)
    line = results.last(wanted)
    if line is not None or arguments.print:
        return line
    if isinstance(asked, SpeedTest):
        line = wanted | speed.measure(asked, arguments.root)
    else:
        line = wanted | training.train(asked, arguments.root)
        print(f"{asked.task}, {asked.mixer}, seed {asked.seed}: {line['test']}", file=sys.stderr)
    results.append(line)
    return line


def tables(arguments: argparse.Namespace) -> str:
    """Measure task by task; a task whose data are not available is reported and left out."""
    results, parts = JsonLines(arguments.out), []
    for task in arguments.tasks:
        try:
            speeds, runs = measure(task, arguments, results)
        except TaskError as error:
            print(f"{task} is left out: {error}", file=sys.stderr)
            continue
        if runs:
            parts.append(task_table(task, runs, speeds))
    return "\n\n".join(parts)


def main() -> None:
    arguments = parse()
    text = tables(arguments)
    print(text)
    if arguments.markdown:
        write_between_marks(arguments.markdown, text)


if __name__ == "__main__":
    main()
