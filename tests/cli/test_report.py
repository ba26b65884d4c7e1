"""`slicegraph report`: the page of a run, made again."""

from report.sample_run import write_run

from slicegraph.cli import main


def test_page_is_made_and_its_place_printed(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"report {run / 'report.html'}\n"
    assert (run / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_page_that_is_there_is_replaced(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "report.html").write_text("old")
    assert main(["report", str(run)]) == 0
    assert "old" not in (run / "report.html").read_text("utf-8")[:100]


def test_folder_that_is_not_a_run_is_refused_by_name(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert f"{str(tmp_path)!r} is not a run" in capsys.readouterr().err


def test_folder_that_does_not_exist_is_refused_by_name(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "nowhere' is not a run, it is no folder" in capsys.readouterr().err
