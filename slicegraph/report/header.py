"""The top of the page: the result in large letters, what went wrong, the facts of the run."""

from collections.abc import Callable
from html import escape

import numpy as np

from slicegraph.report.markup import pairs, paragraph
from slicegraph.report.numbers import duration, number, with_unit
from slicegraph.report.run_folder import RunFolder
from slicegraph.report.summary import Summary, as_number

_STATES = {
    "running": "This run had not ended when the page was made",
    "stopped": "This run has not ended, slicegraph train --resume goes on with it",
    "failed": "This run failed",
}


def header(run: RunFolder, summary: Summary) -> str:
    """Name, result, state and facts."""
    parts = [f"<h1>{escape(run.name)}</h1>", _result(summary), _comparison(summary)]
    parts += [paragraph(text, "banner") for text in _banners(run, summary)]
    return "<header>\n" + "\n".join([*parts, pairs(_facts(run, summary), "facts")]) + "\n</header>"


def title(run: RunFolder, summary: Summary) -> str:
    """What the browser's tab says."""
    if summary.result is None:
        return f"{run.name}: no result"
    value = with_unit(summary.result, summary.unit)
    return f"{run.name}: {summary.result_split} {summary.metric} {value}"


def _result(summary: Summary) -> str:
    if summary.result is None:
        return '<p class="headline"><span class="value">No result</span></p>'
    return (
        f'<p class="headline"><span class="what">{escape(summary.result_split)} '
        f'{escape(summary.metric)}</span> <span class="value">{number(summary.result)}</span> '
        f'<span class="unit">{escape(summary.unit)}</span></p>'
    )


def _comparison(summary: Summary) -> str:
    """What a model that knows nothing would reach."""
    if summary.kind != "regression" or len(summary.targets) != 1 or not len(summary.targets[0]):
        return ""
    labels = summary.targets[0].true
    deviation = np.abs(labels - labels.mean()).mean()
    spelled = with_unit(float(deviation), summary.unit)
    return paragraph(
        f"Predicting the mean of the {summary.split} labels for every molecule has MAE {spelled}.",
        "muted",
    )


def _banners(run: RunFolder, summary: Summary) -> list[str]:
    found = []
    state = str(run.status.get("state", ""))
    if state != "finished":
        reason = str(run.status.get("reason") or "")
        told = _STATES.get(state, "How this run ended is not known")
        found.append(f"{told}: {reason.rstrip('.')}." if reason else f"{told}.")
    if summary.split is None:
        found.append("No split with labels was predicted, so there are no figures of errors.")
    elif summary.split[:4] != "test":
        reason = str(run.metrics.get("test_reason") or "it has no labels").rstrip(".")
        found.append(f"The test split has no score: {reason}. Shown is the {summary.split} split.")
    return found


def _facts(run: RunFolder, summary: Summary) -> dict[str, str]:
    epochs = as_number(run.metrics.get("epochs"))
    noun = str(run.data.get("noun") or "molecules")
    facts = {
        "data": str(run.data.get("name") or run.settings.get("data") or ""),
        "model": str(run.settings.get("preset") or ""),
        "parameters": _spelled(run, "parameters", lambda value: f"{value:,.0f}"),
        "device": str(run.metrics.get("device") or ""),
        "epochs": "" if epochs is None else f"{epochs:g}",
        "training": _spelled(run, "train_seconds", duration),
        "throughput": _spelled(run, f"{noun}_per_second", lambda v: f"{v:,.0f} {noun}/s"),
        f"valid {summary.metric}": _spelled(
            run, "valid", lambda value: with_unit(value, summary.unit)
        ),
    }
    if epochs is not None and summary.best_epoch is not None:
        facts["epochs"] += f", best {summary.best_epoch:g}"
    return {name: text for name, text in facts.items() if text}


def _spelled(run: RunFolder, name: str, spell: Callable[[float], str]) -> str:
    value = as_number(run.metrics.get(name))
    return "" if value is None else spell(value)
