"""Parts of a page: the summary of the data, and the scores with their intervals.

The summary is the dict of :func:`slicegraph.data.summary.summarize`; the scores are those of
metrics.json, ``{split: {target: {metric: {"value", "low", "high"}}}}``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from slicegraph.metrics import METRICS, TITLES, number
from slicegraph.report.plots import summary_plots

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
