"""The end of the page: how to repeat the run, its settings, its data, what is missing."""

from typing import Any

from slicegraph.report.markdown import markdown
from slicegraph.report.markup import (
    cell,
    code_block,
    folded,
    pairs,
    paragraph,
    section,
    spelled,
    table,
)
from slicegraph.report.run_folder import RunFolder

_SHOWN_APART = ("card", "splits", "noun")
_MOST_MOLECULES = 20


def record(run: RunFolder) -> list[str]:
    """The sections that are not about predictions."""
    return [_bad_batch(run), _repeat(run), _settings(run), _data(run), _missing(run)]


def _bad_batch(run: RunFolder) -> str:
    """What was in the batch whose loss was not finite."""
    noun = str(run.data.get("noun") or "molecules")
    listed = run.bad_batch.get(noun)
    entries = listed if isinstance(listed, list) else []
    molecules = [entry for entry in entries if isinstance(entry, dict)]
    if not molecules:
        return ""
    names = [*(("row", "smiles") if noun == "molecules" else ("index", "length")), "labels"]
    rows = [[spelled(entry.get(name)) for name in names] for entry in molecules[:_MOST_MOLECULES]]
    told = f"The loss of these {len(molecules):,} {noun} was not a finite number."
    if len(molecules) > len(rows):
        told += f" The first {len(rows)} of them; all are in bad_batch.json."
    return section(
        "The batch that ended the run", paragraph(told), table(names, rows, names=len(names))
    )


def _repeat(run: RunFolder) -> str:
    versions = run.metrics.get("versions")
    return section(
        "Repeat it",
        code_block(run.command) if run.command else paragraph("The command was not recorded."),
        pairs(versions, "settings") if isinstance(versions, dict) else "",
    )


def _settings(run: RunFolder) -> str:
    return section("Settings", pairs(run.settings, "settings"))


def _data(run: RunFolder) -> str:
    splits: Any = run.data.get("splits")
    facts = {name: value for name, value in run.data.items() if name not in _SHOWN_APART}
    sizes = splits if isinstance(splits, dict) else {}
    noun = str(run.data.get("noun") or "molecules")
    counts = {f"{split} {noun}": cell(size) for split, size in sizes.items()}
    card = str(run.data.get("card") or "")
    return section(
        "Data",
        pairs(facts | counts, "settings"),
        folded("Data card", markdown(card)) if card else "",
    )


def _missing(run: RunFolder) -> str:
    return section("What is missing", *(paragraph(text) for text in run.problems))
