"""Write a page: one HTML file from the template page.html.j2, and its figures as PNG files."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from slicegraph.drawing import CARD, as_html, draw_molecule
from slicegraph.files import write_atomically
from slicegraph.metrics import counted, number
from slicegraph.report import plots
from slicegraph.report.data import (
    MOST_ROWS,
    MOST_TARGETS,
    Part,
    data_parts,
    interval_of,
    run_parts,
    score_parts,
    title_of,
    uncertainty_parts,
)
from slicegraph.report.plots import DARK, LIGHT, in_unit, render
from slicegraph.report.read import Contributions, RunRecord, TargetPredictions, read_run

MOST_SAMPLES = 20  # of a bad batch that are listed
MOST_MOLECULES = 10  # with the largest and with the smallest errors that are drawn
_HEADLINES = 10  # targets of a regression whose scores are at the top
_DAMAGE = (LookupError, TypeError, ValueError, AttributeError)  # from a dict of another shape


@dataclass
class Page:
    """Content of a page; the template decides how it looks, and escapes all text."""

    title: str  # of the browser tab
    heading: str
    what: str  # what the value is
    value: str  # in large letters
    unit: str
    facts: Mapping[str, Any]
    sections: Sequence[tuple[str, Sequence[Part]]]  # a section without parts is left out
    remark: str = ""
    values: Sequence[tuple[str, str]] = ()  # names and values in large letters, instead of `value`
    banners: Sequence[str] = ()  # what went wrong
    hints: Sequence[str] = ()  # what is good to know


def write_report(run: str | Path) -> Path:
    """Write ``report.html`` and ``figures/*.png`` into a run folder, from its other files.

    The page, whose path is returned, is a single file that needs no network. It names the files
    that are missing. The same files give the same page, byte for byte. The run may have failed.
    """
    path = Path(run) / "report.html"
    write_page(path, report_page(read_run(run)))
    return path


def write_check(path: str | Path, summary: Mapping[str, Any], command: str) -> None:
    """Write the page of a table that was not trained on, as one file without a folder of figures.

    The summary is that of :func:`slicegraph.data.summary.summarize`; the command trains on it.
    """
    splits = {f"{name} rows": f"{part['rows']:,}" for name, part in summary["splits"].items()}
    lost = summary.get("lost") or {"rejected": sum(e["count"] for e in summary["rejected"])}
    counts = {f"rows {how}": f"{n:,}" for how, n in lost.items() if n or how == "rejected"}
    counts["repeated rows"] = f"{summary['duplicates']:,}"
    near = summary["similarity"]
    similarity = {"similarity to train": f"{near['median']:.2f}"} if near else {}
    targets = [target["name"] for target in summary["targets"]]
    kinds = dict.fromkeys(target["kind"] for target in summary["targets"])
    facts = {"target" if len(targets) == 1 else "targets": targets, "task": list(kinds)}
    page = Page(
        title=f"{summary['file']}: check",
        heading=str(summary["file"]),
        what="rows that can be used",
        value=f"{summary['accepted']:,}",
        unit=f"of {summary['rows']:,}",
        facts=facts | counts | splits | similarity,
        banners=list(map(sentence, summary["warnings"])),
        sections=[("Data", data_parts(summary)), ("Train on it", [{"code": command}])],
    )
    write_page(Path(path), page, figures=False)


def write_page(path: Path, page: Page, figures: bool = True) -> None:
    """Draw the figures of a page, and write it and ``figures/*.png`` into the folder of ``path``.

    Without ``figures`` the page alone is written, which has the figures in it. Otherwise it ends
    with a comment that lists the figures. Figures that an earlier page lists and this one does not
    have are removed, unless they were changed since.
    """
    shown = [plot for _, parts in page.sections for part in parts for plot in part.get("plots", ())]
    pictures = {plot.name: [render(plot, theme) for theme in (LIGHT, DARK)] for plot in shown}
    template = _TEMPLATES.get_template("page.html.j2")
    text = template.render(page=page, pictures=pictures, light=vars(LIGHT), dark=vars(DARK))
    if not figures:
        write_atomically(path, [text.encode("utf-8", "replace")])
        return
    folder = path.parent / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    written = {f"{name}.png": light for name, (light, _) in pictures.items()}
    for name, content in written.items():
        write_atomically(folder / name, [content])
    lines = path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
    if lines and lines[-1].startswith("<!-- figures:"):
        for entry in lines[-1].split()[2:]:
            checksum, _, name = entry.partition("/")
            old = folder / Path(name).name
            if name not in written and old.is_file() and _checksum(old.read_bytes()) == checksum:
                old.unlink()
    listed = " ".join(f"{_checksum(content)}/{name}" for name, content in written.items())
    write_atomically(path, [f"{text}<!-- figures: {listed} -->\n".encode("utf-8", "replace")])


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def cell(value: Any) -> str:
    """Format a value of a table."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else str(value)


def spelled(value: Any) -> str:
    """Format a value of a settings file."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(spelled(entry) for entry in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {spelled(entry)}" for name, entry in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def sentence(text: str) -> str:
    """Begin a text with a capital letter and end it with a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def duration(seconds: float) -> str:
    """Format seconds: 42 s, 2 min 15 s, 2 h 1 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


_SPACE: Any = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
_LOADER = PackageLoader("slicegraph.report", "")
_TEMPLATES = Environment(loader=_LOADER, autoescape=True, undefined=StrictUndefined, **_SPACE)
_TEMPLATES.filters |= {"cell": cell, "spelled": spelled, "base64": lambda x: b64encode(x).decode()}


def report_page(run: RunRecord) -> Page:
    """Build the page of a run."""
    result, split = run.result
    title, what, value = "no result", "", "No result"
    values = _target_scores(run, split)
    if result is not None:
        what, value = f"{split} {run.metric}", number(result)
        if (std := run.number(f"{split}_std")) is not None:
            value = f"{value} ± {number(std)}"
        title = f"{what} {', '.join(map(' '.join, values)) or number(result, run.unit)}"
    several = run.metrics if run.lines else {}
    groups = several.get("groups")
    folds = isinstance(groups, list) and len(groups) > 1
    data = f"Data ({run.lines[0].get('name')})" if folds else "Data"
    sure = run.metrics.get("uncertainty")
    learning = list(plots.learning_plots(run))
    no_curve = {"text": "The log has no epoch with a loss or a metric."}
    versions = run.metrics.get("versions")
    stopped = str(run.metrics.get("stopped") or "")
    command = {"code": run.command} if run.command else {"text": "The command was not recorded."}
    return Page(
        title=f"{run.name}: {title}",
        heading=run.name,
        what=what,
        value=value,
        unit=run.unit if what else "",
        remark=_interval(run, split) + _baseline(run) + _forest(run),
        values=values,
        banners=_banners(run),
        hints=[sentence(stopped)] if stopped else [],
        facts=_facts(run),
        sections=[
            ("Folds and models", _or_problem(run, _RUNS, run_parts, several, run.unit)),
            (data, _or_problem(run, "data.json has a summary", data_parts, run.summary)),
            ("Learning", [{"plots": learning} if learning else no_curve]),
            ("Predictions", _scores(run)),
            ("How sure it is", _or_problem(run, _SURE, uncertainty_parts, sure, run.unit, folds)),
            *_targets(run),
            ("The batch that ended the run", _bad_batch(run)),
            ("Repeat it", [command, {"pairs": versions if isinstance(versions, dict) else {}}]),
            ("Settings", [{"pairs": run.settings}] if run.settings else []),
            ("Source of the data", _source(run)),
            ("Missing or damaged files", [{"text": problem} for problem in run.problems]),
        ],
    )


def _or_problem(
    run: RunRecord, what: str, parts: Callable[..., list[Part]], content: Any, *options: Any
) -> list[Part]:
    """Return the parts of this content, or none if it is empty or not as we write it."""
    try:
        return parts(content, *options) if content else []
    except _DAMAGE as error:
        run.problems.append(f"{what} that cannot be read: {type(error).__name__}: {error}")
        return []


def _target_scores(run: RunRecord, split: str) -> list[tuple[str, str]]:
    """The score of each target, if there are several and their errors have no common scale."""
    found = run.scores.get(split)
    if run.kind != "regression" or not isinstance(found, dict) or not 1 < len(found) <= _HEADLINES:
        return []
    scores = {name: _score(run, entry) for name, entry in found.items()}
    known = [(name, score.get("value")) for name, score in scores.items()]
    return [(name, number(value)) for name, value in known if isinstance(value, (int, float))]


def _interval(run: RunRecord, split: str) -> str:
    """The interval of the score of a single target, or what a deviation is of, as a sentence."""
    if run.number(f"{split}_std") is not None:
        return f"Mean and standard deviation of {run.metrics.get('design')}. "
    found = run.scores.get(split)
    score = _score(run, *found.values()) if isinstance(found, dict) and len(found) == 1 else {}
    if interval := interval_of(score):
        return f"95 % interval {interval}. "
    return f"{sentence(str(score['reason']))} " if score.get("reason") else ""


def _baseline(run: RunRecord) -> str:
    """The score of one value for all samples, as a sentence."""
    targets = run.metrics.get("targets")
    entries = targets.items() if isinstance(targets, dict) else ()
    known = [(t, e["baseline"]) for t, e in entries if isinstance(e, dict) and "baseline" in e]
    known = [pair for pair in known if isinstance(pair[1], (int, float))][:_HEADLINES]
    constant, metric = f"the mean training label for all {run.noun}", f"test {run.metric}"
    if run.kind == "multiclass":
        constant = f"the most frequent training class for all {run.noun}"
    scores = [f"{name} {number(value)}" for name, value in known]
    if len(known) == 1:
        scores = [number(known[0][1], run.unit)]
    elif not known and run.kind == "regression" and len(run.targets) == 1 and len(run.targets[0]):
        labels = run.targets[0].true  # a folder of an older version
        constant, metric = f"the mean {run.split} label for all {run.noun}", "MAE"
        scores = [number(float(np.abs(labels - labels.mean()).mean()), run.unit)]
    if not scores:
        return ""
    return f"For comparison: predicting {constant} has {metric} {', '.join(scores)}."


def _forest(run: RunRecord) -> str:
    """The score of the random forest on the same rows, as a sentence."""
    forest = run.metrics.get("forest")
    if not isinstance(forest, dict) or not forest:
        return ""
    if not isinstance(score := forest.get("test"), (int, float)):
        reason = str(forest.get("reason") or "not known").rstrip(".")
        return f" A random forest was not trained for comparison: {reason}."
    std = forest.get("test_std")
    spread = f" ± {number(std)}" if isinstance(std, (int, float)) else ""
    value = f"{number(score)}{spread} {run.unit}".rstrip()
    return f" A random forest on Morgan counts of the same rows has test {run.metric} {value}."


def _score(run: RunRecord, entry: Any) -> dict[str, Any]:
    """The score of the run's metric among all scores of a target."""
    known = entry.items() if isinstance(entry, dict) else ()
    found = {title_of(name): score for name, score in known if isinstance(score, dict)}
    return found.get(run.metric) or (found.get("PR-AUC", {}) if run.metric == "AP" else {})


_RUNS, _SURE = "metrics.json has lines of models", "metrics.json has coverage"
_FEW = "test split has only"  # of a warning about a small split, with the number of molecules
_STATES = {
    "running": "This run had not ended when the page was made",
    "stopped": "This run was stopped; slicegraph train --resume continues it",
    "failed": "This run failed",
}


def _banners(run: RunRecord) -> list[str]:
    found: list[str] = []
    state, reason = str(run.status.get("state", "")), str(run.status.get("reason") or "")
    if state != "finished":
        text = _STATES.get(state, "It is not known how this run ended")
        found.append(f"{text}: {reason.rstrip('.')}." if reason else f"{text}.")
    if run.split is None:
        found.append("No split with labels was predicted, so there are no figures of errors.")
    elif run.split[:4] != "test":
        reason = str(run.metrics.get("test_reason") or "it has no labels").rstrip(".")
        shown = f"The page shows the {run.split} split instead."
        found.append(f"The test split has no score: {reason}. {shown}")
    return [*found, *_warnings(run)]


def _warnings(run: RunRecord) -> list[str]:
    """The warnings of the run and of its data, each once: a small test split is in both."""
    listed, summary = run.metrics.get("warnings"), run.summary.get("warnings")
    found = list(map(str, listed)) if isinstance(listed, list) else []
    known = any(_FEW in text for text in found)
    more = list(map(str, summary)) if isinstance(summary, list) else []
    found += [text for text in more if not (known and _FEW in text)]
    return list(map(sentence, dict.fromkeys(found)))


def _facts(run: RunRecord) -> dict[str, str]:
    best = "" if run.best_epoch is None else f", best {run.best_epoch:g}"

    def format_number(name: str, form: Callable[[float], str]) -> str:
        return "" if (value := run.number(name)) is None else form(value)

    facts = {
        "data": run.data.get("name") or run.settings.get("data"),
        "model": run.settings.get("preset"),
        "parameters": format_number("parameters", "{:,.0f}".format),
        "device": run.metrics.get("device"),
        "epochs": format_number("epochs", lambda x: f"{x:g}{best}"),
        "training": format_number("train_seconds", duration),
        "throughput": format_number(f"{run.noun}_per_second", lambda x: f"{x:,.0f} {run.noun}/s"),
    }
    if len(run.targets) == 1 or run.kind != "regression":  # their errors have no common scale
        facts[f"valid {run.metric}"] = format_number("valid", lambda x: number(x, run.unit))
    return {name: str(text) for name, text in facts.items() if text}


def _scores(run: RunRecord) -> list[Part]:
    """The table of all splits and targets."""
    if parts := _or_problem(run, "metrics.json has splits", score_parts, run.scores, run.noun):
        return parts
    if not run.predictions:
        return [{"text": "No predictions were written."}]
    found = [(split, target) for split, targets in run.predictions.items() for target in targets]
    names = list(dict.fromkeys(name for _, target in found for name in target.scores))
    several = any(len(targets) > 1 for targets in run.predictions.values())
    rows = [
        [split, *([table.target] if several else []), len(table), *map(table.scores.get, names)]
        for split, table in found
    ]
    head = ["split", *(["target"] if several else []), run.noun, *names]
    table: Part = {"head": head, "rows": rows, "names": 1 + several}
    if len(rows) > MOST_ROWS:
        table["folded"] = f"{len(rows)} scores"
    if len(run.targets) > MOST_TARGETS:
        table["after"] = f"Figures follow for the first {MOST_TARGETS} targets."
    return [table]


def _targets(run: RunRecord) -> list[tuple[str, list[Part]]]:
    """A section for each of the first targets: omitted rows, figures, some molecules."""
    sections = []
    for place, table in enumerate(run.targets[:MOST_TARGETS], start=1):
        slug = re.sub(r"[^a-z0-9]+", "-", table.target.lower())[:40].strip("-")
        prefix = f"{place}-{slug}-" if len(run.targets) > 1 else ""
        notes = [table.problem] if table.problem else []
        if table.unlabelled:
            notes.append(f"Left out: {counted(table.unlabelled, table.noun)} without a label.")
        if table.unusable:
            bad = counted(table.unusable, "predictions")
            notes.append(f"Left out: {bad} that cannot be compared, not finite.")
        parts: list[Part] = [{"text": text} for text in notes]
        parts += [{"plots": plots.target_plots(table, prefix)}, *_extreme_molecules(run, table)]
        sections.append((f"{table.target}, {run.split} split", parts))
    return sections


def _extreme_molecules(run: RunRecord, table: TargetPredictions) -> list[Part]:
    """The molecules with the largest errors, and with the smallest, with coloured atoms."""
    if table.problem or not table.smiles:
        return []
    order = np.argsort(-np.abs(table.error), kind="stable")
    worst = order[:MOST_MOLECULES]
    best = order[max(MOST_MOLECULES, len(order) - MOST_MOLECULES) :][::-1]
    known = run.contributions if run.split == "test" and table.rows else {}
    found = [known.get((table.target, table.rows[i]), ("", [])) for i in (*worst, *best) if known]
    limit = max((abs(value) for _, values in found for value in values), default=0.0)
    parts = []
    for places, what in ((worst[table.error[worst] != 0], "largest"), (best, "smallest")):
        title = f"{len(places)} molecules with the {what} errors"
        title = f"molecule with the {what} error" if len(places) == 1 else title
        cards = [_card(table, place, known, limit) for place in places.tolist()]
        if cards:
            title = in_unit(f"The {title}", table.unit)
            parts.append({"molecules": cards, "title": title})
    if limit and parts:
        what = "prediction" if table.kind == "regression" else "log-odds of class 1"
        what = "log-odds of the predicted class" if table.kind == "multiclass" else what
        parts[0]["text"] = (
            f"Orange atoms raise the {what}, blue atoms lower it; the deepest colour is "
            f"{number(limit)}. The contributions of the atoms of a molecule add up to its "
            "difference from the mean training label; contributions.csv has the numbers."
        )
    return parts


def _card(table: TargetPredictions, place: int, known: Contributions, limit: float) -> Part:
    true, predicted, error = table.true[place], table.predicted[place], table.error[place]
    if table.kind == "regression":
        sign = "+" if error > 0 else "\N{MINUS SIGN}"
        values = {"true": number(true), "predicted": number(predicted)}
        values["error"] = sign + number(abs(error))
    else:
        values = {"true class": table.class_name(int(true)), "predicted": number(predicted)}
    if table.kind == "multiclass":
        values["predicted"] = table.class_name(int(predicted))
    row = table.rows[place] if table.rows else ""
    smiles, contributions = known.get((table.target, row), (table.smiles[place], None))
    try:
        drawn = draw_molecule(smiles, contributions, limit=limit, size=CARD)
    except ValueError:  # contributions of another molecule: the file is damaged
        drawn = draw_molecule(table.smiles[place], size=CARD)
    drawing = None if drawn is None else Markup(as_html(drawn))
    return {"smiles": table.smiles[place], "drawing": drawing, "pairs": values, "row": row}


def _bad_batch(run: RunRecord) -> list[Part]:
    """The samples whose loss was not finite."""
    listed = run.bad_batch.get(run.noun)
    samples = [x for x in listed if isinstance(x, dict)] if isinstance(listed, list) else []
    if not samples:
        return []
    names = [*(("row", "smiles") if run.noun == "molecules" else ("index", "length")), "labels"]
    rows = [[spelled(entry.get(name)) for name in names] for entry in samples[:MOST_SAMPLES]]
    text = f"The loss of a batch of {counted(len(samples), run.noun)} was not a finite number."
    if len(samples) > len(rows):
        text += f" The first {len(rows)} are listed; bad_batch.json has all of them."
    return [{"text": text}, {"head": names, "rows": rows, "names": len(names)}]


def _source(run: RunRecord) -> list[Part]:
    facts = dict(run.data)
    card, splits, *_ = (facts.pop(name, "") for name in ("card", "splits", "noun", "summary"))
    if isinstance(splits, dict):
        facts |= {f"{split} {run.noun}": cell(size) for split, size in splits.items()}
    parts: list[Part] = [{"pairs": facts}] if facts else []
    return [*parts, {"code": str(card), "folded": "Data card"}] if card else parts
