"""A report that is written again leaves no figures of the one before."""

import hashlib
from dataclasses import replace

import numpy as np
from report.sample_run import write_predictions, write_run

from slicegraph.report import write_report
from slicegraph.report.predictions import read_predictions
from slicegraph.report.worst import worst_molecules


def rewrite(run, targets) -> None:
    values = {name: (np.arange(9.0), np.arange(9.0) + 0.5) for name in targets}
    for split in ("valid", "test"):
        write_predictions(run / "predictions" / f"{split}.csv", values)
    write_report(run)


def figures(run) -> set[str]:
    return {path.name for path in (run / "figures").glob("*.png")}


def test_figures_that_no_longer_apply_are_removed(tmp_path):
    run, fresh = write_run(tmp_path / "run"), write_run(tmp_path / "fresh")
    rewrite(run, ["gap", "size"])
    assert any(name.startswith("2-size-") for name in figures(run))
    rewrite(run, ["gap"])
    rewrite(fresh, ["gap"])
    assert figures(run) == figures(fresh)


def test_pictures_of_the_user_stay(tmp_path):
    run = write_run(tmp_path / "run")
    rewrite(run, ["gap", "size"])
    (run / "figures" / "mine.png").write_bytes(b"mine")
    changed = next((run / "figures").glob("2-size-*.png"))
    changed.write_bytes(b"drawn over")
    rewrite(run, ["gap"])
    assert (run / "figures" / "mine.png").read_bytes() == b"mine"
    assert changed.read_bytes() == b"drawn over"


def test_a_page_that_lists_other_files_removes_nothing_else(tmp_path):
    run = write_run(tmp_path / "run")
    page, settings = write_report(run), run / "config.yaml"
    checksum = hashlib.sha256(settings.read_bytes()).hexdigest()
    page.write_text(f"<html>\n<!-- figures: {checksum}/../config.yaml nonsense -->\n")
    write_report(run)
    assert settings.is_file()


def test_the_worst_molecules_have_the_names_of_their_classes(tmp_path):
    run = write_run(tmp_path / "run", "multiclass")
    (table,) = read_predictions(run / "predictions" / "test.csv")
    text = worst_molecules(
        replace(table, class_names=("acid", "base", "<salt>", "none")), "multiclass"
    )
    assert "<dd>acid</dd>" in text
    assert "<dd>&lt;salt&gt;</dd>" in text
    assert "<dd>1</dd>" not in text
