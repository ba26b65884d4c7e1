"""Writes the page of a run and its figures."""

from itertools import chain
from pathlib import Path

from slicegraph.report.document import write_document
from slicegraph.report.page import page, plots
from slicegraph.report.plot import picture
from slicegraph.report.run_folder import read_run
from slicegraph.report.summary import summarise


def write_report(run: str | Path) -> Path:
    """Makes ``report.html`` and ``figures/*.png`` of a run folder from its other files.

    The page is one file that needs no other one and no network. What the folder lacks, the page
    says; the same files give the same page, to the byte.

    Args:
        run: the folder that `slicegraph train` wrote; the run may have failed.

    Returns:
        The path of the page; an older one is replaced.

    Raises:
        ValueError: if it is not the folder of a run.

    Example:
        >>> write_report("runs/mini")
        PosixPath('runs/mini/report.html')
    """
    contents = read_run(run)
    summary = summarise(contents)
    figures = [[picture(plot) for plot in part] for part in plots(contents, summary)]
    text = page(contents, summary, figures)
    place = Path(run) / "report.html"
    write_document(place, text, chain.from_iterable(figures))
    return place
