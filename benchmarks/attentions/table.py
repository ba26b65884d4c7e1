"""Format the results as tables in Markdown."""

from collections.abc import Iterator
from typing import Any

from benchmarks.attentions.cell import PHASES
from benchmarks.attentions.methods import METHODS
from benchmarks.attentions.results import Outcome
from benchmarks.markdown import row

Figures = dict[str, Any]
"""For each measure a figure, or the reason why there is none; ``why`` if a phase failed."""

Outcomes = dict[tuple[str, int], Figures]
"""The figures of each method and length."""

MEASURES = {
    "training": "Training, steps a second",
    "inference": "Inference, steps a second",
    "memory": "Memory of a training step, MB",
}
OURS = "slice_sort"


def tables(outcomes: Outcomes, batches: dict[int, int]) -> str:
    """Format one table per measure, and a line with the rank of SliceSort.

    Args:
        outcomes: the figures of each method and length.
        batches: the lengths of the columns, and the batch size of each.
    """
    parts = []
    for measure, title in MEASURES.items():
        parts += [f"### {title}", "", *_rows(measure, outcomes, batches), ""]
        parts += [standing(measure, outcomes, batches), ""]
    return "\n".join(parts + notes(outcomes))


def figures(phase: str, outcome: Outcome) -> Figures:
    """Return the table entries of one phase of a method."""
    if "outcome" not in outcome:
        return {measure: outcome[measure] for measure in PHASES[phase]}
    why = {"why": outcome["why"]} if "why" in outcome else {}
    return dict.fromkeys(PHASES[phase], outcome["outcome"]) | why


def has(measure: str, found: Figures) -> bool:
    """Return whether there is a figure."""
    return not isinstance(found.get(measure, ""), str)


def best(measure: str, outcomes: Outcomes, length: int) -> str | None:
    """Return the method with the best figure at a length: most steps, or least memory."""
    values = {m: o[measure] for (m, n), o in outcomes.items() if n == length and has(measure, o)}
    return (min if measure == "memory" else max)(values, key=values.__getitem__, default=None)


def standing(measure: str, outcomes: Outcomes, batches: dict[int, int]) -> str:
    """State at how many lengths SliceSort is first, and which methods are first elsewhere."""
    first = {length: best(measure, outcomes, length) for length in batches}
    others = [
        f"{METHODS[method].label} at {size(length)}"
        for length, method in first.items()
        if method not in (None, OURS)
    ]
    count = sum(method == OURS for method in first.values())
    return f"SliceSort is first at {count} of {len(first)} lengths" + (
        f"; elsewhere: {', '.join(others)}." if others else "."
    )


def size(length: int) -> str:
    return f"{length // 1024}K" if length % 1024 == 0 else str(length)


def notes(outcomes: Outcomes) -> list[str]:
    """Return the reasons for missing figures that the cells themselves do not state."""
    lines = [
        f"- {METHODS[method].label} at {size(length)} failed: {outcome['why']}"
        for (method, length), outcome in outcomes.items()
        if "why" in outcome
    ]
    absent = {m: METHODS[m].source for (m, _), o in outcomes.items() if ABSENT in o.values()}
    if absent:
        packages = ", ".join(dict.fromkeys(absent.values()))
        lines.append(f"- Not installed: {packages}. `{INSTALL}` installs them.")
    return lines


ABSENT = "not installed"
INSTALL = "pip install -c constraints.txt '.[peers]'"


def _rows(measure: str, outcomes: Outcomes, batches: dict[int, int]) -> Iterator[str]:
    columns = [f"{size(length)}, batch {batch}" for length, batch in batches.items()]
    yield row("Method", "Code", *columns)
    yield row("---", "---", *("---:" for _ in columns))
    for name in dict.fromkeys(method for method, _ in outcomes):
        method = METHODS[name]
        cells = (_cell(measure, outcomes, name, length) for length in batches)
        yield row(method.label, method.source, *cells)


def _cell(measure: str, outcomes: Outcomes, method: str, length: int) -> str:
    value = outcomes.get((method, length), {}).get(measure, "")
    if isinstance(value, str):
        return value
    text = f"{value / 1e6:,.0f}" if measure == "memory" else f"{value:.3g}"
    return f"**{text}**" if best(measure, outcomes, length) == method else text
