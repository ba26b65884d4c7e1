"""`slicegraph check`: the summary of a table on the console and as a page, without training."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from report.sample_summary import SUMMARY
from support.html_page import Page
from support.molecule_tables import write_csv
from support.small_figures import make_figures_small
from support.tiny_run import smiles, write_table

from slicegraph.cli import main
from slicegraph.cli.check import page_stem
from slicegraph.data.summary import summary_lines


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    make_figures_small(monkeypatch)
    monkeypatch.setenv("SLICEGRAPH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def check(capsys):
    def run(*arguments: str) -> list[str]:
        assert main(["check", *map(str, arguments)]) == 0
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def failure(capsys):
    def run(*arguments: str) -> str:
        assert main(["check", *map(str, arguments)]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    return run


def test_rows_splits_and_warnings_are_printed(check, tmp_path):
    table = write_csv(tmp_path / "own.csv", [[t, i / 8] for i, t in enumerate(smiles(38))])
    with table.open("a") as file:
        file.write("C1CC,1.0\n")
    lines = check(table, "--targets", "gap")
    assert lines[0] == "rows    39 in own.csv: 38 read, 1 rejected (2.6 %)"
    assert "1 rejected: unclosed ring (data row 38 'C1CC'" in lines[1]
    assert "data rows are counted from 0" in lines[2]
    assert any(line.startswith("split   train 30, valid 4, test 4 rows") for line in lines)
    assert any(line.startswith("WARNING the test split has only 4 mol") for line in lines)


def test_page_has_the_data_and_the_command_and_needs_no_other_file(check, tmp_path):
    check(write_table(tmp_path / "own.csv"), "--targets", "gap")
    page = Page(Path("own-check.html").read_text("utf-8"))
    page.assert_self_contained()
    assert "rows that can be used 40 of 40" in page.text
    assert f"slicegraph train --data csv:{tmp_path / 'own.csv'} --targets gap" in page.text
    assert page.tags.count("img") == 2  # labels and similarity
    assert not (tmp_path / "here" / "figures").exists()


def test_last_lines_are_the_page_and_the_command_with_the_same_options(check, tmp_path):
    table = write_table(tmp_path / "my table.csv", columns="active")
    options = ["--targets", "active", "--split-seed", "3", "--task", "binary"]
    *_, page, command = check(f"csv:{table}", *options, "--out", tmp_path / "page.html")
    assert page == f"page    {tmp_path / 'page.html'}"
    assert command == f"next    slicegraph train --data 'csv:{table}' {' '.join(options)}"
    assert (tmp_path / "page.html").is_file()


def test_page_is_replaced_only_by_force_and_the_table_is_not_read_before(check, failure, tmp_path):
    page = tmp_path / "here" / "own-check.html"
    page.write_text("mine")
    assert "own-check.html exists already; --force replaces it" in failure("own.csv")
    assert page.read_text() == "mine"
    check(write_table(tmp_path / "own.csv"), "--targets", "gap", "--force")
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["missing.csv"], "'missing.csv'"),
        (["own.csv", "--split", "nonsense"], "'nonsense'"),
        (["own.csv", "--targets", "other"], "other"),
        (["own.csv", "--task", "digits"], "digits"),
        (["own.csv", "--fractions", "0.5,0.5"], "0.5"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_page(failure, tmp_path, options, words):
    write_table(tmp_path / "here" / "own.csv")
    assert words in failure(*options)
    assert not list((tmp_path / "here").glob("*.html"))


def test_error_that_gives_a_train_command_gives_that_of_the_check(failure, monkeypatch):
    def load(self, progress):
        raise ValueError("choose one: slicegraph train --data csv:own.csv --targets NAME")

    monkeypatch.setattr("slicegraph.train.data.MoleculeRunData._load", load)
    assert failure("own.csv").endswith("choose one: slicegraph check own.csv --targets NAME")


def test_summary_of_the_data_set_is_shown(check, monkeypatch):
    dataset = SimpleNamespace(summary=SUMMARY)
    monkeypatch.setattr("slicegraph.train.data.MoleculeRunData._load", lambda *args: dataset)
    assert check("own.csv")[:-2] == summary_lines(SUMMARY)


@pytest.mark.parametrize(
    ("file", "stem"),
    [("a/my.csv", "my"), ("my.csv.gz", "my"), ("v1.2.xlsx", "v1.2"), ("plain", "plain")],
)
def test_page_is_named_after_the_table(file, stem):
    assert page_stem(file) == stem
