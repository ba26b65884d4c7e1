"""Parts of a page: the summary of the data, and the scores with their intervals.

The summary is the dict of :func:`slicegraph.data.summary.summarize`; the scores are those of
metrics.json, ``{split: {target: {metric: {"value", "low", "high"}}}}``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from slicegraph.metrics import METRICS, TITLES, number
from slicegraph.report.plots import in_unit, summary_plots, uncertainty_plots

Part = dict[str, Any]  # of a section: text, items, code, head and rows, pairs, plots or molecules

MOST_ROWS = 24  # a table with more rows is folded
MOST_TARGETS = 3  # with figures; the tables have all of them
_COUNTS = ("n", "positives")  # numbers of molecules among the scores


def data_parts(summary: Mapping[str, Any]) -> list[Part]:
    """Describe a table: counts, labels by split, figures, rejected rows and what was assumed."""
    rejected, sizes = summary["rejected"], summary["sizes"]
    lost = summary.get("lost") or {"rejected": sum(entry["count"] for entry in rejected)}
    facts: dict[str, Any] = {
        "file": summary["file"],
        "rows": summary["rows"],
        "rows read": summary["accepted"],
        **{f"rows {how}": n for how, n in lost.items() if n or how == "rejected"},
        "rows merged or left out": summary.get("left_out", 0),
        "rows that repeat a molecule": summary["duplicates"],
        "molecules with different labels": summary["conflicts"],
        "molecules in two splits": summary["overlap"],
        "heavy atoms": f"{sizes['smallest']} to {sizes['largest']}, median {sizes['median']:g}",
        "odd molecules": summary.get("odd", {}).get("text", "none"),
        "standardisation": ", ".join(summary["standardize"]) or "none",
    }
    counts = {name: f"{x:,}" if isinstance(x, int) else x for name, x in facts.items()}
    parts: list[Part] = [{"pairs": counts}, *_label_tables(summary["splits"], summary["targets"])]
    parts.append({"plots": list(summary_plots(summary, MOST_TARGETS))})
    if summary["notes"]:
        parts.append({"title": "What was assumed", "items": list(summary["notes"])})
    if rejected:
        rows = [[entry["reason"], _examples(entry), entry["count"]] for entry in rejected]
        head = ["reason", "first data rows (counted from 0, without the header)", "rows"]
        table: Part = {"title": "Rows that are not used", "head": head, "rows": rows, "names": 2}
        if where := summary.get("rejected_file"):
            table["after"] = f"All of them are in {where}."
        parts.append(table)
    return parts


def _examples(entry: Mapping[str, Any]) -> str:
    found = [f"data row {e['row']}: {e['text']}".rstrip(": ") for e in entry["examples"]]
    return ", ".join(text if len(text) <= 50 else f"{text[:49]}…" for text in found)


def _label_tables(splits: Mapping[str, Any], targets: list[Mapping[str, Any]]) -> Iterator[Part]:
    """One table of regression targets and one of classes, with a row for each split and target."""
    for wanted in (True, False):
        chosen = [target for target in targets if bool(target["classes"]) == wanted]
        found = [(t, split, facts) for t in chosen for split, facts in t["splits"].items()]
        if not found:
            continue
        titles = ["share of each class"] if wanted else ["mean", "deviation", "smallest", "largest"]
        gaps = [key for key in ("missing", "censored") if any(facts[key] for *_, facts in found)]
        head = [*(["target"] if len(targets) > 1 else []), "split", "rows", "molecules", "labels"]
        rows = []
        for target, split, facts in found:
            if wanted:
                pairs = zip(target["classes"], facts["classes"], strict=True)
                whole = max(facts["count"], 1)
                values: list[Any] = [
                    ", ".join(f"{name}: {count:,} ({count / whole:.0%})" for name, count in pairs)
                ]
            else:
                values = [facts[key] for key in ("mean", "std", "min", "max")]
            first = [*([target["name"]] if len(targets) > 1 else []), split]
            sizes = [splits[split]["rows"], splits[split]["molecules"], facts["count"]]
            rows.append([*first, *sizes, *(facts[key] for key in gaps), *values])
        table: Part = {"head": [*head, *gaps, *titles], "rows": rows, "names": len(head) - 3}
        if len(rows) > MOST_ROWS:
            table["folded"] = f"Labels of {len(chosen)} targets"
        yield table


def score_parts(scores: Mapping[str, Any], noun: str) -> list[Part]:
    """Make the table of all splits and targets, each score with its interval."""
    found = [(split, name, entry) for split, part in scores.items() for name, entry in part.items()]
    several = len({name for _, name, _ in found}) > 1
    keys = dict.fromkeys(key for *_, entry in found for key in entry)
    metrics = [key for key in keys if key not in _COUNTS]
    counts = [key for key in _COUNTS if key in keys]
    rows, reasons = [], []
    for split, name, entry in found:
        where = [split, name] if several else [split]
        rows.append([*where, *(_plain(entry.get(key)) for key in counts)])
        for key in metrics:
            rows[-1].append(_with_interval(entry.get(key)))
        for reason, titles in _reasons(entry, metrics).items():
            reasons.append(f"{', '.join(where)}: {', '.join(titles)}: {reason}")
    names = {"n": noun, "positives": "of class 1"}
    head = ["split", *(["target"] if several else []), *map(names.__getitem__, counts)]
    table: Part = {"head": [*head, *map(title_of, metrics)], "rows": rows, "names": 1 + several}
    if len(rows) > MOST_ROWS:
        table["folded"] = f"{len(rows)} rows of scores"
    if any(isinstance(value, dict) and value["small"] for row in rows for value in row):
        table["after"] = "Small numbers: 95 % interval of the score, from a bootstrap."
    return [table, *([{"items": list(dict.fromkeys(reasons))}] if reasons else [])]


def run_parts(metrics: Mapping[str, Any], unit: str) -> list[Part]:
    """Make the table of several models: a line for each, and their mean and deviation."""
    groups, runs = metrics["groups"], metrics["runs"]
    joined = len(groups) > 1 and len(runs) > len(groups)
    parts: list[Part] = []
    for lines, title in ((groups, "Splits"), (runs, "Models")):
        if lines is groups and not joined:
            continue
        named = (
            ["test", "valid", "forest"] if any(x.get("forest") is not None for x in lines) else []
        )
        named = named or ["test", "valid"]
        more = ["best epoch", "epochs", "seconds"] if lines is runs else ["models"]
        rows: list[list[Any]] = []
        for line in lines:
            best = line.get("best_epoch")
            facts = {"best epoch": None if best is None else best + 1, "epochs": line.get("epochs")}
            facts |= {"seconds": line.get("train_seconds"), "models": line.get("models")}
            rows.append([line["name"], *map(line.get, named), *map(facts.get, more)])
        for what, measure in (("mean", np.mean), ("deviation", lambda x: np.std(x, ddof=1))):
            columns = [[line[n] for line in lines if line.get(n) is not None] for n in named]
            means = [float(measure(own)) if len(own) > 1 else None for own in columns]
            rows.append([what, *means, *[None] * len(more)])
        titles = {"test": f"test {metrics['metric']}", "valid": f"valid {metrics['metric']}"}
        head = [titles.get(n, f"{n}, test {metrics['metric']}") for n in named]
        table: Part = {"head": ["", *head, *more], "rows": rows, "names": 1}
        parts.append(table | ({"title": title} if joined else {}))
    notes = [f"The design is {metrics['design']}."]
    if len(groups) == 1:
        notes.append("The score at the top is that of the mean prediction of the models.")
    else:
        notes.append(
            "Every split has train, valid and test rows of its own: the epoch of a model is"
        )
        notes.append("chosen on valid, and its score is that of test.")
    failed = metrics.get("failed") or {}
    items = [f"{name} failed: {reason}" for name, reason in failed.items()]
    return [{"text": " ".join(notes)}, *parts, *([{"items": items}] if items else [])]


def uncertainty_parts(found: Mapping[str, Any], unit: str, several: bool) -> list[Part]:
    """Show how often intervals and sets have the true label, and what probabilities mean."""
    parts: list[Part] = []
    source = "the test split; the intervals are fitted to valid"
    if several:
        source = (
            "each split, by the models of that split, half of them by the intervals of the rest"
        )
    parts.append({"text": f"Measured on the held-out molecules of {source}."})
    rows = []
    for name, facts in list(found.items())[:MOST_TARGETS]:
        each = zip(facts["levels"], facts["coverage"], facts["size"], strict=True)
        rows += [
            [name, f"{level:.0%}", None if own is None else f"{own:.1%}", size]
            for level, own, size in each
        ]
    classes = any("reliability" in facts for facts in found.values())
    size = "mean number of classes" if classes else in_unit("mean width", unit)
    table: Part = {"head": ["target", "asked for", "covered", size], "rows": rows, "names": 2}
    parts.append(table | ({"folded": f"{len(rows)} levels"} if len(rows) > MOST_ROWS else {}))
    for place, (name, facts) in enumerate(list(found.items())[:MOST_TARGETS], start=1):
        prefix = f"{place}-" if len(found) > 1 else ""
        plots = list(uncertainty_plots(facts, unit, f"{prefix}sure-"))
        parts.append({"plots": plots} | ({"title": name} if len(found) > 1 else {}))
    return parts


def _reasons(entry: Mapping[str, Any], metrics: list[str]) -> dict[str, list[str]]:
    """The scores that are not defined or have no interval, by their reason."""
    found: dict[str, list[str]] = {}
    for key in metrics:
        score = entry.get(key)
        if isinstance(score, Mapping) and (reason := score.get("reason")):
            missing = "no " if score.get("value") is None else ""
            found.setdefault(str(reason), []).append(missing + title_of(key))
    return found


def title_of(metric: str) -> str:
    """Return the name of a metric as a page spells it."""
    return TITLES.get(metric, METRICS[metric].title if metric in METRICS else metric)


def interval_of(score: Any) -> str:
    """Format the interval of a score; empty if it has none."""
    ends = [score.get(key) for key in ("low", "high")] if isinstance(score, Mapping) else []
    return " to ".join(number(end) for end in ends if isinstance(end, (int, float)))


def _plain(score: Any) -> Any:
    return score.get("value") if isinstance(score, Mapping) else score


def _with_interval(score: Any) -> dict[str, str]:
    value = _plain(score)
    text = "" if value is None else number(float(value))
    return {"text": text or "none", "small": interval_of(score)}
