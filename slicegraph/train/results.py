"""The results of a run: scores of all splits and targets, warnings, headline and model card."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from slicegraph import __version__
from slicegraph.metrics import TITLES, all_metrics, counted, number
from slicegraph.models.base import card_text, versions

FEW = 50  # labels of the test split, below which the headline has an interval
_MOST_NAMED = 10  # targets in the headline and in a warning
_KEYS = {"ap": "prauc", "acc": "accuracy"}  # metrics whose names differ in `all_metrics`
_LONGER = "train longer (more epochs), or check the labels and the split"


class Scored(NamedTuple):
    """The labels and the predictions of a split, and the probabilities of several classes."""

    labels: np.ndarray
    values: np.ndarray
    chances: np.ndarray | None = None


def score_splits(dataset: Any, evaluations: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return :func:`slicegraph.metrics.all_metrics` of each split and target."""
    names = dataset.task.target_names
    resamples = min(1000, max(100, 4000 // len(names)))
    found: dict[str, dict[str, Any]] = {}
    for split, one in evaluations.items():
        predicted = one.values if one.chances is None else one.chances
        columns = ((one.labels[:, t], predicted[:, t]) for t in range(len(names)))
        each = (all_metrics(dataset.task.kind, *pair, resamples=resamples) for pair in columns)
        found[split] = dict(zip(names, each, strict=True))
    return found


def target_scores(
    metric: str, scores: dict[str, Any], baselines: dict[str, float] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the metric of the task on each target of a split, and the number of its labels.

    A target of `baselines` also has that number as "baseline".
    """
    unknown = {"value": None, "reason": f"{metric} has no interval for this task"}
    key = _KEYS.get(metric, metric)
    found = {name: {"n": each["n"], **each.get(key, unknown)} for name, each in scores.items()}
    for name, value in (baselines or {}).items():
        found[name]["baseline"] = value
    return found


def baselines_of(dataset: Any, test: Any) -> dict[str, float]:
    """Return the test score of one value for all: what a model must beat, by target.

    The value is the mean of the training labels, scored by the metric of the task, or their most
    frequent class, scored by accuracy. Binary targets have none: ROC-AUC of one value is 0.5.
    """
    found: dict[str, float] = {}
    if test is None or dataset.task.kind == "binary":
        return found
    train = dataset.labels(dataset.splits["train"])
    for t, name in enumerate(dataset.task.target_names):
        known, true = (column[~np.isnan(column)] for column in (train[:, t], test.labels[:, t]))
        if not len(known) or not len(true):
            continue
        if dataset.task.kind == "multiclass":
            classes, counts = np.unique(known, return_counts=True)
            found[name] = float((true == classes[counts.argmax()]).mean())
        else:
            power = 2 if dataset.task.metric == "rmse" else 1
            error = np.abs(true.astype(np.float64) - known.mean(dtype=np.float64)) ** power
            found[name] = float(error.mean() ** (1 / power))
    return found


def warnings_of(dataset: Any, scores: dict[str, Any], test: Any) -> list[str]:
    """Return what makes the test scores of `score_splits`, by target, useless or uncertain."""
    counts = {name: each["n"] for name, each in scores.items() if each["n"]}
    if not counts:
        return []
    warnings, name = [], min(counts, key=counts.__getitem__)
    if (fewest := counts[name]) < FEW:
        whose = f" of {name}" if len(set(counts.values())) > 1 else ""
        warnings.append(
            f"the test split has only {counted(fewest, dataset.noun)} with a label{whose}: its "
            f"scores are uncertain{', see their intervals' if fewest > 2 else ''}"
        )
    baselines, groups = baselines_of(dataset, test), dict[str, list[str]]()
    for name in dataset.task.target_names:
        weakness = _WEAKNESS[dataset.task.kind]
        for problem, detail in weakness(scores[name], dataset.task.metric, baselines.get(name)):
            groups.setdefault(problem, []).append(f"{name} ({detail})")
    return warnings + [f"{text}: {listed(names)}; {_LONGER}" for text, names in groups.items()]


Weakness = Callable[[dict[str, Any], str, float | None], Iterator[tuple[str, str]]]


def _weak_values(
    scores: dict[str, Any], metric: str, baseline: float | None
) -> Iterator[tuple[str, str]]:
    error = scores[metric]["value"]
    # A model of nothing but the mean differs from it by rounding errors.
    if error is not None and baseline is not None and error >= baseline * (1 - 1e-6):
        detail = f"test {TITLES[metric]} {number(error)}, the training mean has {number(baseline)}"
        yield "no better than the mean of the training labels", detail


def _weak_chances(scores: dict[str, Any], *_: Any) -> Iterator[tuple[str, str]]:
    found = scores["rocauc"]
    if found["value"] is None or (found["low"] or 0) > 0.5:
        return
    detail = f"test ROC-AUC {found['value']:.3f}"
    if found["value"] <= 0.5:
        yield "no better than guessing", detail
    else:
        yield "perhaps no better than guessing", f"{detail}, {interval(found)}"


def _weak_classes(
    scores: dict[str, Any], _: str, baseline: float | None
) -> Iterator[tuple[str, str]]:
    accuracy = scores["accuracy"]["value"]
    if accuracy is not None and baseline is not None and accuracy <= baseline:
        text = "no better than the most frequent class of the training labels"
        yield text, f"test accuracy {accuracy:.3f}, that class {baseline:.3f}"


_WEAKNESS: dict[str, Weakness] = {
    "regression": _weak_values,
    "binary": _weak_chances,
    "multiclass": _weak_classes,
}


def headline(metrics: dict[str, Any], split: str = "test") -> str:
    """Return the test score of each target; never the score of another split in its place."""
    title, unit, noun = metrics["metric"], metrics["unit"], metrics.get("noun", "molecules")
    test, targets = metrics["test"], metrics.get("targets", {})
    known = [name for name, found in targets.items() if found["value"] is not None]
    if test is None and not known:
        lines = [f"test {title} not available: {metrics.get('test_reason', 'it has no labels')}"]
        if metrics["valid"] is not None:
            lines.append(f"valid {title} {number(metrics['valid'], unit)}")
        return "\n".join(lines)
    if test is not None and (not known or len(targets) > _MOST_NAMED):
        mean = f" (mean of {len(targets)} targets)" if len(targets) > 1 else ""
        return f"{split} {title} {number(test, unit)}{mean}"

    def text(name: str) -> str:
        found, label = targets[name], f"{name} " if len(targets) > 1 else ""
        if found["value"] is None:
            return f"{label}not available ({found['reason']})"
        few, count = "", counted(found["n"], noun)
        if found["n"] < FEW:
            known = found["low"] is not None
            few = f" ({interval(found)}; only {count})" if known else f" ({count}: no interval)"
        return f"{label}{number(found['value'], unit)}{few}"

    return f"{split} {title} {listed(list(map(text, targets)))}"


def listed(texts: list[str]) -> str:
    """Join texts with commas, with the number of those left out if there are many."""
    more = len(texts) - _MOST_NAMED
    return ", ".join(texts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def interval(found: dict[str, Any]) -> str:
    """Write the interval of a score, or why it has none."""
    if found["low"] is None:
        return str(found["reason"])
    return f"95 % interval {number(found['low'])} to {number(found['high'])}"


def training_record(dataset: Any, config: Any, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return what model/config.json has of the training: how, with what data, and the scores."""
    task, source = dataset.task, dataset.source
    data = {"name": Path(dataset.name).name}
    data |= {key: source[key] for key in ("name", "sha256", "bytes") if key in source}
    options = (
        "fractions",
        "replicates",
        "censored",
        "features",
        "weight_column",
        "class_balance",
        "log_target",
    )
    chosen = {option: getattr(config, option, None) or None for option in options}
    return {
        "slicegraph": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "data": data,
        "split": getattr(dataset, "split", ""),
        "options": {option: value for option, value in chosen.items() if value is not None},
        "samples": {split: len(part) for split, part in dataset.splits.items()},
        "task": task.kind,
        "targets": list(task.target_names),
        "unit": metrics["unit"],
        "class_names": class_names(dataset),
        "standardize": list(getattr(dataset, "standardize", ())),
        "preset": config.preset,
        "parameters": metrics["parameters"],
        "epoch": metrics["best_epoch"] + 1,
        "chosen_by": metrics["chosen_by"],
        "warnings": metrics["warnings"],
        "scores": {split: metrics["splits"].get(split, {}) for split in ("valid", "test")},
    }


def class_names(dataset: Any) -> list[str]:
    """Return the names of the classes, if they have any."""
    names = getattr(dataset, "class_names", ()) or getattr(dataset.task, "class_names", ())
    return list(map(str, names))


def model_card(record: dict[str, Any], noun: str) -> str:
    """Return the model card, model/README.md, of a `training_record`."""
    data, options, targets = record["data"], record["options"], ", ".join(record["targets"])
    own = ", ".join(f"{name} {_plain(value)}" for name, value in options.items())
    facts = {
        "Predicts": f"{targets} ({record['task']})",
        "Unit": record["unit"] or "none given",
        "Classes": ", ".join(record["class_names"]),
        "Data": f"{data['name']}, SHA-256 {data.get('sha256', 'not known')}",
        "Samples": ", ".join(f"{name} {count:,}" for name, count in record["samples"].items()),
        "Split": record["split"] or "that of the data set",
        "Options": own,
        "Standardisation": ", ".join(record["standardize"]) or "none",
        "Model": f"{record['preset']}, {record['parameters']:,} parameters",
        "Epoch": f"{record['epoch']}, chosen by {record['chosen_by']}",
        "Made": f"{record['date']} with {versions()}",
    }
    scores = ["| target | score | value | interval |", "|---|---|---|---|"]
    for target, found in record["scores"]["test"].items():
        for name in (name for name in found if name in TITLES):
            value = found[name]
            text = f"not defined | {value.get('reason')}"
            if value["value"] is not None:
                text = f"{number(value['value'])} | {interval(value)}"
            title = " ".join(target.replace("|", "\\|").split())
            scores.append(f"| {title} | {TITLES[name]} | {text} |")
    use = ['import slicegraph\nmodel = slicegraph.load("model")  # this folder']
    use += ['model.predict(["CCO", "c1ccccc1"])'] if noun == "molecules" else ["model.predict"]
    limits = [
        f"- The scores are those of the test split of this table. {noun.capitalize()} that are "
        "unlike those it was trained on may be predicted much worse.",
        *(f"- Warning: {text}." for text in record["warnings"]),
    ]
    if record["standardize"]:
        limits.insert(0, "- `predict` changes molecules by the same steps as in training.")
    sections = {"Test scores": scores, "Use": ["```python", *use, "```"], "Limits": limits}
    return card_text(f"{targets} from {data['name']}", facts, sections)


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
