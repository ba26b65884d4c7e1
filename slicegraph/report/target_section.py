"""What the page says of the predictions: scores of all splits, then each target by itself."""

from collections.abc import Sequence

import numpy as np

from slicegraph.report.class_plots import binary_plots, class_plots
from slicegraph.report.markup import folded, gallery, paragraph, section, table
from slicegraph.report.plot import Picture, Plot
from slicegraph.report.predictions import Predictions
from slicegraph.report.regression_plots import regression_plots
from slicegraph.report.scores import binary_scores, class_scores, regression_scores
from slicegraph.report.worst import worst_molecules

MOST_TARGETS = 3
"""So many targets have a section of their own; all of them are in the table."""
MOST_ROWS = 24
"""A longer table of scores is folded."""


def scores_of(predictions: Predictions, kind: str) -> dict[str, float]:
    """The scores of one target; empty if it has no labels."""
    if problem(predictions, kind):
        return {}
    score = {"binary": binary_scores, "multiclass": class_scores}.get(kind, regression_scores)
    return score(predictions.true, predictions.predicted)


def problem(predictions: Predictions, kind: str) -> str | None:
    """Why a table has no figures, or None if it has."""
    if not len(predictions):
        return (
            f"None of the {predictions.noun} has both a label and a prediction: there is nothing "
            "to compare."
        )
    if kind == "binary" and not np.isin(predictions.true, (0, 1)).all():
        return "The task is binary, but there are labels other than 0 and 1: no figures."
    classes = np.concatenate([predictions.true, predictions.predicted])
    if kind == "multiclass" and not np.isin(classes, np.arange(10_000)).all():
        return "The task is multiclass, but there are values that are no class number: no figures."
    return None


def scores_table(splits: dict[str, list[Predictions]], kind: str) -> str:
    """A row for each split and target."""
    found = [(split, target) for split, targets in splits.items() for target in targets]
    scores = [scores_of(target, kind) for _, target in found]
    names = list(dict.fromkeys(name for entry in scores for name in entry))
    several = any(len(targets) > 1 for targets in splits.values())
    rows = [
        [split, *([target.target] if several else []), len(target), *map(entry.get, names)]
        for (split, target), entry in zip(found, scores, strict=True)
    ]
    noun = found[0][1].noun if found else "molecules"
    head = ["split", *(["target"] if several else []), noun, *names]
    scores_of_all = table(head, rows, names=1 + several)
    return scores_of_all if len(rows) <= MOST_ROWS else folded(f"{len(rows)} scores", scores_of_all)


def plots_of(predictions: Predictions, kind: str, unit: str, prefix: str = "") -> list[Plot]:
    """The figures of one target."""
    if problem(predictions, kind):
        return []
    if kind == "binary":
        return list(binary_plots(predictions, prefix))
    if kind == "multiclass":
        return list(class_plots(predictions, prefix))
    return list(regression_plots(predictions, unit, prefix))


def target_section(
    title: str, predictions: Predictions, kind: str, unit: str, pictures: Sequence[Picture]
) -> str:
    """The section of one target: what is left out, the figures, the worst molecules."""
    notes = [problem(predictions, kind) or ""]
    if predictions.unlabelled:
        notes.append(
            f"{predictions.unlabelled:,} {predictions.noun} have no label and do not count."
        )
    if predictions.unusable:
        notes.append(f"{predictions.unusable:,} predictions are not finite and are left out.")
    molecules = "" if notes[0] else worst_molecules(predictions, kind, unit)
    return section(
        title,
        *(paragraph(text) for text in notes if text),
        gallery(pictures),
        molecules,
    )
