"""Put our encoders on the field's own tables: `python -m benchmarks.published`.

The protocol is that of the published figures: the same inputs (ZINC-12k: the type of each atom and
of each bond, nothing else), the same split, at most 500,000 parameters, and the test score of the
epoch that is best on valid. A row (`published_rows.py`) is a model with its recipe.

`--data-folder` names the folder with the files (`zinc12k_graphs.npz`: for each of `train`, `val`
and `test` the arrays `x`, `edge_index`, `edge_attr`, `num_nodes`, `num_edges` and `y`, graph after
graph). A finished run is a line of the output file and is not repeated unless its settings change.
A run that was stopped goes on from its last saved epoch. Processes with the same arguments share
the runs among them, one process per core; each trains with one thread. `--screen` never looks at
test: its lines, in a file of their own, are what settings are chosen by.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

from benchmarks.json_lines import JsonLines, Line
from benchmarks.markdown import row as cells
from benchmarks.markdown import write_between_marks
from benchmarks.published_rows import PUBLISHED, ROWS
from benchmarks.published_train import TASKS, Run, run_of, train


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", default="zinc", choices=TASKS, help="data set (default: zinc)")
    add("--data-folder", type=Path, default=Path("dataset"), help="folder with its files")
    add("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW", help="default: all")
    add("--seeds", nargs="+", type=int, default=[0], help="random seeds (default: 0)")
    add("--epochs", type=int, help="training epochs (default: from the recipe of the row)")
    add("--screen", action="store_true", help="score valid only, to choose settings")
    add("--print", action="store_true", help="print the finished runs; no new runs")
    add("--runs", type=Path, default=Path("runs", "published"), help="folder for unfinished runs")
    add("--out", type=Path, help="file of JSON lines; runs in it are not repeated")
    add("--markdown", type=Path, help="page to write the table to, between its markers")
    arguments = parser.parse_args(words)
    name = "published_screen" if arguments.screen else "published"
    arguments.out = arguments.out or Path("docs", f"{name}.jsonl")
    return arguments


def finish(run: Run, arguments: argparse.Namespace) -> None:
    """Train a run and write its line, unless it is in the file or another process trains it."""
    if JsonLines(arguments.out).last(run.settings) is not None:
        return
    found = train(run, arguments.data_folder, arguments.runs, tested=not arguments.screen)
    if found is not None and JsonLines(arguments.out).last(run.settings) is None:
        JsonLines(arguments.out).append(run.settings | found)


def table(data: str, lines: list[Line]) -> str:
    """Format the finished runs of a data set beside the published figures, best last."""
    metric = TASKS[data].metric_name
    head = ("Row", "Parameters", "Epochs", "CPU hours", f"Valid {metric}", f"Test {metric}")
    return "\n".join([cells(*head), cells("---", *["---:"] * 5), *_rows(data, lines)])


def _rows(data: str, lines: list[Line]) -> Iterator[str]:
    for name, score in PUBLISHED[data].items():
        yield cells(f"{name} (published)", "", "", "", "", score)
    own: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        if line["data"] == data:
            own.setdefault((line["row"], line["epochs"]), []).append(line)
    order = sorted(own.items(), key=lambda item: mean(line["valid"] for line in item[1]))
    for (name, epochs), runs in reversed(order):
        seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
        yield cells(
            f"{name}, {seeds}",
            f"{runs[0]['parameters']:,}",
            str(epochs),
            f"{mean(line['cpu_hours'] for line in runs):.2f}",
            spread([line["valid"] for line in runs]),
            spread([line["test"] for line in runs if "test" in line]),
        )


def spread(scores: list[float]) -> str:
    """Format the mean and the standard deviation, which a single score does not have."""
    if not scores:
        return ""
    return f"{mean(scores):.4f}" + (f" ± {stdev(scores):.4f}" if len(scores) > 1 else "")


def main() -> None:
    try:
        _run(parse())
    except (ValueError, OSError) as error:
        sys.exit(f"benchmarks.published: {error}")


def _run(arguments: argparse.Namespace) -> None:
    data = arguments.data
    for seed in [] if arguments.print else arguments.seeds:
        for name in arguments.rows:
            finish(run_of(data, name, seed, arguments.epochs, ROWS), arguments)
    text = table(data, JsonLines(arguments.out).lines)
    print(text)
    if arguments.markdown:
        write_between_marks(arguments.markdown, text)


if __name__ == "__main__":
    main()
