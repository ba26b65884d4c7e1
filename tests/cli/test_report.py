"""`slicegraph report`: the page of a run, made again."""

from report.sample_run import write_run
from support.small_figures import make_figures_small

from slicegraph.cli import main


def test_page_is_made_in_place_of_an_older_one_and_its_path_printed(tmp_path, capsys, monkeypatch):
    make_figures_small(monkeypatch)
    run = write_run(tmp_path / "run")
    (run / "report.html").write_text("old")
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"report {run / 'report.html'}\n"
    assert (run / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_folder_that_is_not_a_run_is_refused_by_name(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert f"{str(tmp_path)!r} is not a run" in capsys.readouterr().err
