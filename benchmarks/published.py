"""Put our encoders on the field's own tables: `python -m benchmarks.published`.

The protocol is that of the published figures: the same inputs, the same split, the same metric, the
same limit of parameters, and the test score of the epoch that is best on valid. A row
(`published_rows.py`) is a model with its recipe.

`--data-folder` names the folder with the files:

- `zinc`: `zinc12k_graphs.npz`, for each of `train`, `val` and `test` the arrays `x`, `edge_index`,
  `edge_attr`, `num_nodes`, `num_edges` and `y`, graph after graph;
- `peptides-func`: `peptides_func.csv.gz` with the columns `smiles`, `y0` to `y9` and `split`;
- `molhiv`: `ogbg_molhiv.csv.gz` with the columns `smiles`, `HIV_active` and `split`;
- `qm9-gap`: `qm9_part1.csv` to `qm9_part3.csv` of qm9pack; not needed if that is installed.

A finished run is a line of the output file and is not repeated unless its settings change. A run
that was stopped goes on from its last saved epoch. Processes with the same arguments share the runs
among them, one process per core; each trains with one thread. `--screen` never looks at test: its
lines, in a file of their own, are what settings are chosen by. `--time` trains each row for a few
updates and prints what a step costs.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

from benchmarks.json_lines import JsonLines, Line
from benchmarks.markdown import row as cells
from benchmarks.markdown import write_between_marks
from benchmarks.published_data import TASKS
from benchmarks.published_figure import grouped, write_figure
from benchmarks.published_rows import PUBLISHED, ROWS, STUDIES, rows_of
from benchmarks.published_train import Run, run_of, time_steps, train


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", default="zinc", choices=TASKS, help="data set (default: zinc)")
    add("--data-folder", type=Path, default=Path("dataset"), help="folder with its files")
    add("--rows", nargs="+", metavar="ROW", help="rows to train (default: all but the studies)")
    add("--study", choices=STUDIES, help="train the rows of a study")
    add("--seeds", nargs="+", type=int, default=[0], help="random seeds (default: 0)")
    add("--epochs", type=int, help="training epochs (default: from the recipe of the row)")
    add("--screen", action="store_true", help="score valid only, to choose settings")
    add("--print", action="store_true", help="print the finished runs; no new runs")
    add("--time", type=int, metavar="STEPS", help="time this many updates of each row; no runs")
    add("--runs", type=Path, default=Path("runs", "published"), help="folder for unfinished runs")
    add("--out", type=Path, help="file of JSON lines; runs in it are not repeated")
    add("--markdown", type=Path, help="page to write the tables of all data sets to")
    arguments = parser.parse_args(words)
    known = rows_of(arguments.data)
    if arguments.study and arguments.data not in STUDIES[arguments.study]:
        parser.error(f"--study {arguments.study} has no rows for {arguments.data}")
    own = STUDIES[arguments.study] if arguments.study else ROWS
    arguments.rows = arguments.rows or list(own[arguments.data])
    for name in arguments.rows:
        if name not in known:
            parser.error(f"--rows: {arguments.data} has no row {name!r}, only {', '.join(known)}")
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


def table(data: str, lines: list[Line], study: str | None = None) -> str:
    """Format the finished runs of a data set beside the published figures, best last.

    Args:
        data: the data set.
        lines: all runs.
        study: a study, whose rows are formatted alone; without it, the rows of no study are.
    """
    metric = TASKS[data].metric_name
    head = ("Row", "Parameters", "Epochs", "CPU hours", f"Valid {metric}", f"Test {metric}")
    rows = _published(data) if study is None else []
    own = [line for line in lines if line["data"] == data and _study(line) == study]
    return "\n".join([cells(*head), cells("---", *["---:"] * 5), *rows, *_rows(data, own)])


def _study(line: Line) -> str | None:
    found = (name for name, rows in STUDIES.items() if line["row"] in rows.get(line["data"], {}))
    return next(found, None)


def _published(data: str) -> Iterator[str]:
    for name, score in PUBLISHED[data].items():
        yield cells(f"{name} (published)", "", "", "", "", score)


def _rows(data: str, lines: list[Line]) -> Iterator[str]:
    def score(runs: list[Line]) -> float:
        return mean(line["valid"] for line in runs) * (1 if TASKS[data].largest_is_best else -1)

    for (name, epochs), runs in sorted(grouped(lines).items(), key=lambda item: score(item[1])):
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


def write_page(file: Path, lines: list[Line]) -> None:
    """Write the tables of all data sets, and a figure for each one that has tested runs."""
    parts = []
    for data, task in TASKS.items():
        parts += [f"## {task.title}", ""]
        own = [line for line in lines if line["data"] == data]
        if tested := [line for line in own if "test" in line and _study(line) is None]:
            picture = file.with_name(f"{file.stem}_{data}.png")
            named = {name: float(score.split()[0]) for name, score in PUBLISHED[data].items()}
            best = dict(list(named.items())[-5:])
            write_figure(tested, task, best, picture)
            title = f"{task.metric_name} against CPU hours and parameters, and on valid by epoch"
            parts += [f"![{title}]({picture.name})", ""]
        parts += [table(data, lines), ""]
        for study in STUDIES:
            if any(_study(line) == study for line in own):
                parts += [f"### What the {study} is worth", "", table(data, lines, study), ""]
    write_between_marks(file, "\n".join(parts[:-1]))


def main() -> None:
    try:
        _run(parse())
    except (ValueError, OSError) as error:
        sys.exit(f"benchmarks.published: {error}")


def _run(arguments: argparse.Namespace) -> None:
    data, known = arguments.data, rows_of(arguments.data)
    runs = [
        run_of(data, name, seed, arguments.epochs, known)
        for seed in arguments.seeds
        for name in arguments.rows
    ]
    if arguments.time:
        splits = TASKS[data].read(arguments.data_folder, arguments.runs)
        for run in runs:
            print(f"{run.row}: {time_steps(run, splits, arguments.time)}", flush=True)
        return
    for run in [] if arguments.print else runs:
        finish(run, arguments)
    lines = JsonLines(arguments.out).lines
    print(table(data, lines, arguments.study))
    if arguments.markdown:
        write_page(arguments.markdown, lines)


if __name__ == "__main__":
    main()
