"""Sorting beside attention on sequences and images: `python -m benchmarks.sequences`.

Every task is learned by the same model with four mixers: `sort` in the orders ascending, interleave
and max_exchange, and `qkv`, which makes it a Transformer. All have the same budget, which stands in
`sequence_runs/budgets.py`: the same updates, batches, optimiser and schedule. Nothing is tuned to a
mixer. A run is that of `slicegraph train`: the weights that were best on valid are tested.

The table has the accuracy on test (mean and standard deviation over the seeds), the parameters and
the speed: as other work on the machine would spoil a comparison of runs, that of single steps which
take turns in one process, with their ratio.

A finished run is a line of the output file and is not made again; one with other settings is. Two
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
from slicegraph.data.sequences.contents import TaskError

REPEATS = 15


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(BUDGETS), choices=BUDGETS)
    parser.add_argument("--mixers", nargs="+", default=list(MIXERS), choices=MIXERS)
    parser.add_argument("--seeds", type=int, help="how many; 3, of listops 1")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="two updates of a toy a run")
    parser.add_argument("--print", action="store_true", help="show what is finished, run nothing")
    parser.add_argument("--root", type=Path, default=Path("dataset"), help="of the data sets")
    parser.add_argument("--out", type=Path, help="JSON lines, taken up again if there")
    parser.add_argument("--markdown", type=Path, help="a page, to write the tables between marks")
    arguments = parser.parse_args(words)
    if arguments.seeds is not None and arguments.seeds < 1:
        parser.error(f"--seeds {arguments.seeds}, expected at least 1")
    name = "sequences_quick" if arguments.quick else "sequences"
    arguments.out = arguments.out or Path("runs", f"{name}.jsonl")
    return arguments


def measure(
    task: str, arguments: argparse.Namespace, results: JsonLines
) -> tuple[Line | None, list[Line]]:
    """The speeds of the mixers of a task, and its runs; what is not in the file yet is done."""
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
    """The line of a run; it is run if it is not in the file, unless only to print was asked."""
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
    """Measures task after task; one that cannot be had is named, and the others go on."""
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
