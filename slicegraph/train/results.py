"""The results of a run: scores of all splits and targets, warnings, headline and model card."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from slicegraph import __version__
from slicegraph.data.molecules import fingerprints, morgan_counts, nearest
from slicegraph.metrics import TITLES, all_metrics, counted, most_probable, number
from slicegraph.models.base import card_text, versions
from slicegraph.predict.explain import atom_rows, explain_rows
from slicegraph.predict.uncertainty import (
    MOST_TRAINING,
    Calibration,
    assess,
    in_logarithms,
    packed,
)

FEW = 50  # labels of the test split, below which the headline has an interval
_MOST_NAMED = 10  # targets in the headline and in a warning
MOST_EXPLAINED = 10  # molecules with the largest errors, and as many with the smallest
_EXPLAINED_TARGETS, _EXPLAIN_SAMPLES, _EXPLAIN_SECONDS = 3, 16, 30.0
_KEYS = {"ap": "prauc", "acc": "accuracy"}  # metrics whose names differ in `all_metrics`
_LONGER, _CHECK = "train longer (more epochs), or ", "check the labels and the split"


class Scored(NamedTuple):
    """The labels ``[n, targets]`` and the predictions of a split."""

    labels: np.ndarray
    values: np.ndarray  # [n, targets], or of several classes their probabilities
    std: np.ndarray | None = None  # [n, targets], that a kernel head predicts

    def in_logarithms(self) -> "Scored":
        """Return the same of decimal logarithms, from which their intervals are made."""
        return Scored(np.log10(self.labels), *in_logarithms(self.values, self.std))


def score_splits(
    dataset: Any, evaluations: dict[str, Any], resamples: int = 1000
) -> dict[str, dict[str, Any]]:
    """Return :func:`slicegraph.metrics.all_metrics` of each split and target."""
    names = dataset.task.target_names
    resamples = min(resamples, max(100, 4000 // len(names)))
    found: dict[str, dict[str, Any]] = {}
    for split, one in evaluations.items():
        columns = ((one.labels[:, t], one.values[:, t]) for t in range(len(names)))
        each = (all_metrics(dataset.task.kind, *pair, resamples=resamples) for pair in columns)
        found[split] = dict(zip(names, each, strict=True))
    return found


def score(dataset: Any, labels: np.ndarray, values: np.ndarray, evaluator: Any = None) -> float:
    """Return the metric of a data set for `Scored` values, by its evaluator or another."""
    values = most_probable(values)
    if dataset.task.kind == "binary" and dataset.task.metric == "acc":
        values = values >= 0.5
    evaluator = dataset.evaluator if evaluator is None else evaluator
    evaluator.reset()
    evaluator.update(y_true=labels, y_pred=values)
    return evaluator.compute()


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


def warnings_of(dataset: Any, scores: dict[str, Any], test: Any, trained: bool = True) -> list[str]:
    """Return what makes the test scores of `score_splits`, by target, useless or uncertain.

    A head that was solved cannot be trained longer.
    """
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
    remedy = _LONGER * trained + _CHECK
    return warnings + [f"{text}: {listed(names)}; {remedy}" for text, names in groups.items()]


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


_FOREST_TREES, _FOREST_AT_ONCE, _FOREST_SECONDS = 100, 10, 20.0
_FOREST_ROWS, _FOREST_TARGETS = 5_000, 12  # training rows and targets


def forest_of(dataset: Any, test: Any) -> dict[str, Any]:
    """Train a random forest on Morgan counts, and score it on the test split: a cheap baseline.

    It has the training and test rows of the model, at most 5,000 of the former, and a budget of
    seconds. Whatever prevents it is the "reason", and does not fail the run.

    Returns:
        "test", the metric over all targets, "targets", "trees", "rows" and "seconds"; or "reason".
    """
    try:
        return _forest(dataset, test)
    except Exception as error:  # a comparison must never cost the run that it is for
        return {"reason": " ".join(str(error).split()) or type(error).__name__}


def _forest(dataset: Any, test: Any) -> dict[str, Any]:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    task, store, began = dataset.task, dataset.store, time.perf_counter()
    if test is None or np.isnan(test.labels).all():
        return {"reason": "the test split has no labels"}
    if task.num_targets > _FOREST_TARGETS:
        return {"reason": f"{task.num_targets} targets, at most {_FOREST_TARGETS} are compared"}
    train, positions = dataset.splits["train"], dataset.splits["test"]
    if len(positions) > _MOST_COMPARED:
        return {"reason": f"{len(positions):,} test rows, at most {_MOST_COMPARED:,} are compared"}
    if len(train) > _FOREST_ROWS:
        train = np.sort(np.random.default_rng(0).choice(train, _FOREST_ROWS, replace=False))
    if not store.smiles(int(train[0])):
        return {"reason": "the data set has no SMILES"}
    inputs = [morgan_counts(store.smiles(int(i)) for i in own) for own in (train, positions)]
    if store.numbers("columns") is not None:
        numbers = [store[own].numbers("columns") for own in (train, positions)]
        inputs = [np.concatenate(pair, axis=1) for pair in zip(inputs, numbers, strict=True)]
    labels = dataset.labels(train)
    kind = RandomForestRegressor if task.kind == "regression" else RandomForestClassifier
    share = 0.1 if task.kind == "regression" else "sqrt"
    classes = task.num_classes if task.kind == "multiclass" else 0
    values = np.zeros((len(positions), task.num_targets, max(1, classes)))
    trees = _FOREST_TREES
    for target in range(task.num_targets):
        known = ~np.isnan(labels[:, target])
        forest = kind(n_estimators=0, max_features=share, random_state=0, warm_start=True)
        until = began + _FOREST_SECONDS * (target + 1) / task.num_targets
        while forest.n_estimators < trees and (
            not forest.n_estimators or time.perf_counter() < until
        ):
            forest.n_estimators += _FOREST_AT_ONCE
            forest.fit(inputs[0][known], labels[known, target])
        trees = min(trees, forest.n_estimators)
        if task.kind == "regression":
            values[:, target, 0] = forest.predict(inputs[1])
            continue
        chances = forest.predict_proba(inputs[1])
        for place, known_class in enumerate(forest.classes_.astype(int).tolist()):
            if classes:
                values[:, target, known_class] = chances[:, place]
            elif known_class == 1:
                values[:, target, 0] = chances[:, place]
    values = values if classes else values[..., 0]
    found = score_splits(dataset, {"test": Scored(test.labels, values)}, resamples=1)["test"]
    each = target_scores(task.metric, found)
    return {
        "test": score(dataset, test.labels, values),
        "targets": {name: own["value"] for name, own in each.items()},
        "trees": trees,
        "rows": len(train),
        "seconds": round(time.perf_counter() - began, 1),
    }


def forest_line(metrics: dict[str, Any]) -> str:
    """Return the sentence of the console about the forest."""
    forest, title = metrics.get("forest") or {}, metrics["metric"]
    if forest.get("test") is None:
        reason = forest.get("reason")
        return f"forest  not trained: {reason}" if reason else ""
    std = forest.get("test_std")
    spread = "" if std is None else f" ± {number(std)}"
    value = f"{number(forest['test'])}{spread} {metrics['unit']}".rstrip()
    text = f"forest  test {title} {value}: a random forest on Morgan counts, on the same rows"
    if metrics["test"] is None:
        return text
    sign = 1 if metrics["higher_is_better"] else -1
    if sign * (metrics["test"] - forest["test"]) > 0:
        return text
    return f"{text}; it is at least as good as the model"


_MOST_PAIRS = 5_000_000  # of held-out and training molecules that are compared
_MOST_COMPARED = 20_000  # test rows of a forest


def calibration_of(dataset: Any, valid: Any) -> Calibration | None:
    """Return what intervals of a single model need: the valid predictions, the training molecules.

    None if the data set has no SMILES. Without valid labels there are only the training molecules.
    """
    store, train = dataset.store, dataset.splits["train"]
    if not len(train) or not store.smiles(int(train[0])):
        return None
    smiles, bits = list[str](), np.empty((0, 0), np.uint8)
    if len(train) <= MOST_TRAINING:
        smiles = [store.smiles(int(i)) for i in train]
        bits = packed(fingerprints(smiles))
    arrays: dict[str, Any] = {}
    if valid is not None:
        positions = dataset.splits["valid"]
        arrays |= {"labels": valid.labels, "values": valid.values, "index": positions}
        arrays["group"] = np.zeros(len(positions), np.int64)
        if valid.std is not None:
            arrays |= {"std": valid.std, "predicted": np.ones(1, bool)}
    targets = dataset.task.num_targets
    found = calibration(dataset.task.kind, arrays, np.zeros(1, np.int64), smiles, bits, targets)
    if valid is None:
        return found
    texts = [store.smiles(int(i)) for i in positions]
    return replace(found, similarity=similarities(found, texts))


def calibration(
    kind: str,
    arrays: dict[str, np.ndarray],
    member_groups: np.ndarray,
    smiles: list[str],
    bits: np.ndarray,
    targets: int,
) -> Calibration:
    """Make a `Calibration` of what is known; `arrays` are its fields of held-out molecules."""
    index = arrays.get("index", np.empty(0, np.int64))
    draws = round(len(index) / len(np.unique(index))) if len(index) else 1
    known: dict[str, Any] = {
        "labels": np.empty((0, targets)),
        "values": np.empty((0, targets)),
        "std": np.empty((0, targets)),
        "group": np.empty(0, np.int64),
        "draws": np.array([draws]),
        "index": index,
    }
    text = np.frombuffer("\n".join(smiles).encode(), np.uint8)
    if len(bits):
        known |= {"bits": bits, "texts": text}
    chosen = {"kind": np.array([kind]), "member_groups": member_groups}
    return Calibration(**known | arrays | chosen)


def joined_training(calibrations: list[Calibration]) -> tuple[list[str], np.ndarray]:
    """Return the SMILES and fingerprints of all training molecules, each once."""
    found: dict[str, np.ndarray] = {}
    for one in calibrations:
        found |= dict(zip(one.smiles, one.bits, strict=True))
    return list(found), np.stack(list(found.values())) if found else np.empty((0, 0), np.uint8)


def similarities(training: Calibration | None, texts: list[str]) -> np.ndarray:
    """Return the similarity of each molecule to the nearest training molecule; NaN if not known.

    Only as many molecules, drawn at random, as can be compared in seconds.
    """
    found = np.full(len(texts), np.nan)
    if training is None or not len(training.bits):
        return found
    count = min(len(texts), max(1, _MOST_PAIRS // len(training.bits)))
    chosen = np.random.default_rng(0).choice(len(texts), count, replace=False)
    vectors = fingerprints([texts[i] for i in chosen])
    found[chosen] = [best for best, _ in nearest(vectors, training.vectors)]
    return found


def uncertainty_of(dataset: Any, found: Calibration | None, test: Any) -> dict[str, Any]:
    """Assess the intervals of a single model on its test split, by target."""
    if found is None or test is None or not len(found.labels):
        return {}
    std = None if test.std is None else test.std[:, None]
    each = assess(found, test.labels, test.values[:, None], std)
    names = dataset.task.target_names
    return {name: own for name, own in zip(names, each, strict=True) if own is not None}


def headline(metrics: dict[str, Any], split: str = "test") -> str:
    """Return the test score of each target; never the score of another split in its place.

    For several splits, such as folds, it is the mean and the standard deviation of their scores.
    """
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

    if metrics.get("test_std") is not None:
        several = [(name, targets[name]) for name in known] if len(targets) <= _MOST_NAMED else []
        each = [(f"{n} ", own["value"], own.get("std")) for n, own in several if len(targets) > 1]
        each = each or [("", test, metrics["test_std"])]
        scores = [f"{n}{number(x)} ± {number(std or 0.0, unit)}" for n, x, std in each]
        return f"{split} {title} {listed(scores)} ({metrics['design']})"

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
        "head",
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
        "molecules": list(getattr(dataset.store, "molecule_columns", ())),
        "preset": config.preset,
        "parameters": metrics["parameters"],
        "epoch": None if metrics["best_epoch"] is None else metrics["best_epoch"] + 1,
        "chosen_by": metrics["chosen_by"],
        "warnings": metrics["warnings"],
        "scores": {split: metrics["splits"].get(split, {}) for split in ("valid", "test")},
    }


def extremes(test: Scored, targets: int) -> np.ndarray:
    """Return the places of the molecules with the largest and the smallest errors of each of the
    first targets, the largest first."""
    errors = np.abs(most_probable(test.values) - test.labels).astype(np.float64)
    if test.values.ndim == 3:
        errors = np.where(np.isnan(errors), np.nan, errors != 0)
    found: dict[int, None] = {}
    for column in errors[:, :targets].T:
        known = np.flatnonzero(~np.isnan(column))
        order = known[np.argsort(-column[known], kind="stable")].tolist()
        last = max(MOST_EXPLAINED, len(order) - MOST_EXPLAINED)
        found |= dict.fromkeys([*order[:MOST_EXPLAINED], *order[last:]])
    return np.array(list(found), dtype=np.int64)


def contributions(
    models: Sequence[Any],
    dataset: Any,
    positions: np.ndarray,
    test: Scored,
    seconds: float = _EXPLAIN_SECONDS,
) -> list[list[Any]]:
    """Return the rows of contributions.csv, of the molecules whose errors are largest or smallest.

    Explaining takes hundreds of predictions a molecule; after so many seconds the rest is left out.

    Args:
        models: the model of each tested molecule, one that was not trained on it.
        dataset: the data set.
        positions: of the tested molecules in the store; of a repeated one the first is explained.
        test: their labels and predictions.
        seconds: the budget.
    """
    names = list(dataset.task.target_names[:_EXPLAINED_TARGETS])
    places: dict[int, int] = {}  # by position: with repeats a molecule is tested more than once
    for place in extremes(test, _EXPLAINED_TARGETS).tolist():
        places.setdefault(int(positions[place]), place)
    row, smiles = map(dataset.columns.index, ("row", "smiles"))
    began, rows = time.perf_counter(), list[list[Any]]()
    for position, place in places.items():
        (one,) = dataset.rows(np.array([position]))
        numbers = None
        if models[place].config.num_features:
            numbers = [dataset.store[[position]].features[0]]
        options: Any = {"samples": _EXPLAIN_SAMPLES, "numbers": numbers}
        (found,) = explain_rows(models[place], [one[smiles]], names, **options)
        if not isinstance(found, str):
            rows += [line for target in found for line in atom_rows(one[row], target)]
        if time.perf_counter() - began > seconds:
            break
    return rows


def class_names(dataset: Any) -> list[str]:
    """Return the names of the classes, if they have any."""
    names = getattr(dataset, "class_names", ()) or getattr(dataset.task, "class_names", ())
    return list(map(str, names))


def model_card(record: dict[str, Any], noun: str) -> str:
    """Return the model card, model/README.md, of a `training_record`."""
    data, options, targets = record["data"], record["options"], ", ".join(record["targets"])
    own = ", ".join(f"{name} {_plain(value)}" for name, value in options.items())
    several = record.get("molecules", ())  # the columns of the molecules of a row
    facts = {
        "Predicts": f"{targets} ({record['task']})",
        "From": ", ".join(several),
        "Unit": record["unit"] or "none given",
        "Classes": ", ".join(record["class_names"]),
        "Data": f"{data['name']}, SHA-256 {data.get('sha256', 'not known')}",
        "Samples": ", ".join(f"{name} {count:,}" for name, count in record["samples"].items()),
        "Split": record["split"] or "that of the data set",
        "Options": own,
        "Standardisation": ", ".join(record["standardize"]) or "none",
        "Model": f"{record['preset']}, {record['parameters']:,} parameters",
        "Epoch": f"{record['epoch'] or 'that of each model'}, chosen by {record['chosen_by']}",
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
    row = ", ".join(['"CCO"'] * len(several))
    rows = f"[({row})]" if several else '["CCO", "c1ccccc1"]'
    use += [f"model.predict({rows})" if noun == "molecules" else "model.predict"]
    limits = [
        f"- The scores are those of the test split of this table. {noun.capitalize()} that are "
        "unlike those it was trained on may be predicted much worse.",
        *(f"- Warning: {text}." for text in record["warnings"]),
    ]
    if record["standardize"]:
        limits.insert(0, "- `predict` changes molecules by the same steps as in training.")
    if options.get("head") == "kernel":
        limits.append(
            "- The head has fingerprint counts, descriptors and vectors of its training molecules: "
            "whether a molecule is one of them can be told from this model."
        )
    sections = {"Test scores": scores, "Use": ["```python", *use, "```"], "Limits": limits}
    return card_text(f"{targets} from {data['name']}", facts, sections)


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
