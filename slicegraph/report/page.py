"""The page of a run: the order of its parts."""

import re

from slicegraph.report.document import document
from slicegraph.report.header import header, title
from slicegraph.report.learning_plots import learning_plots
from slicegraph.report.markup import gallery, paragraph, section
from slicegraph.report.plot import Picture, Plot
from slicegraph.report.predictions import Predictions
from slicegraph.report.record import record
from slicegraph.report.run_folder import RunFolder
from slicegraph.report.summary import Summary
from slicegraph.report.target_section import MOST_TARGETS, plots_of, scores_table, target_section


def plots(run: RunFolder, summary: Summary) -> list[list[Plot]]:
    """The figures of the page: first the learning curves, then a list for each target shown."""
    shown = summary.targets[:MOST_TARGETS]
    learning = learning_plots(run.log, summary.metric, summary.unit, summary.best_epoch)
    return [
        list(learning),
        *(
            plots_of(target, summary.kind, summary.unit, _prefix(place, target, summary))
            for place, target in enumerate(shown, start=1)
        ),
    ]


def _prefix(place: int, target: Predictions, summary: Summary) -> str:
    """Begins the file names of a target's figures, if there are several."""
    slug = re.sub(r"[^a-z0-9]+", "-", target.target.lower())[:40].strip("-")
    return f"{place}-{slug}-" if len(summary.targets) > 1 else ""


def page(run: RunFolder, summary: Summary, figures: list[list[Picture]]) -> str:
    """The whole page as HTML."""
    body = [
        header(run, summary),
        _learning(figures[0]),
        _scores(run, summary),
        *_targets(summary, figures[1:]),
        *record(run),
    ]
    return document(title(run, summary), body)


def _learning(figures: list[Picture]) -> str:
    if not figures:
        return section("Learning", paragraph("The log has no epoch with a loss or a metric."))
    return section("Learning", gallery(figures))


def _scores(run: RunFolder, summary: Summary) -> str:
    if not run.predictions:
        return section("Predictions", paragraph("No predictions were written."))
    more = len(summary.targets) - MOST_TARGETS
    told = f"Figures follow for the first {MOST_TARGETS} targets." if more > 0 else ""
    return section(
        "Predictions",
        scores_table(run.predictions, summary.kind),
        paragraph(told, "after") if told else "",
    )


def _targets(summary: Summary, figures: list[list[Picture]]) -> list[str]:
    return [
        target_section(
            f"{target.target}, {summary.split} split",
            target,
            summary.kind,
            summary.unit,
            pictures,
        )
        for target, pictures in zip(summary.targets, figures, strict=False)
    ]
