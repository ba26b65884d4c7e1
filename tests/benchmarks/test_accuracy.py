"""The accuracy study: its rows, the file they are kept in, what is printed and drawn."""

import stat
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.tiny_run import write_table

from benchmarks.accuracy import asked_runs, finish, main, parse
from benchmarks.accuracy_runs import chemprop, command, training
from benchmarks.accuracy_runs.child import ChildError, run_child
from benchmarks.accuracy_runs.data import dataset_of
from benchmarks.accuracy_runs.figure import Point, places_of_names, write_figure
from benchmarks.accuracy_runs.pyg_models import PyGStack
from benchmarks.accuracy_runs.rows import BUDGETS, CHEMPROP, COMMAND, OURS, OUTSIDE, run_of
from benchmarks.accuracy_runs.table import table
from benchmarks.accuracy_runs.turns import retimed, time_in_turns
from benchmarks.json_lines import JsonLines
from slicegraph.models import GraphSliceformer, preset

OUTCOME = {"test": 0.2, "cpu_seconds": 50.0, "parameters": 1234}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("dataset")


def words(folder, *others):
    return parse(["--out", str(folder / "out.jsonl"), "--data", "mini", "--quick", *others])


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def sized(row: str) -> int:
    with torch.device("meta"):
        if row in OURS:
            return parameters(GraphSliceformer(preset("mini", **OURS[row])))
        return parameters(PyGStack(OUTSIDE[row], preset("mini")))


@pytest.mark.parametrize("row", ["quantile_attn + local", *OUTSIDE])
def test_these_rows_have_the_parameters_of_graphormer(row):
    assert sized(row) == pytest.approx(sized("graphormer"), rel=0.04)


def test_the_wider_row_has_the_parameters_of_graphormer_with_the_local_branch():
    wide = sized("quantile_attn + local, 112 wide")
    assert wide == pytest.approx(sized("graphormer + local"), rel=0.05)


def test_the_default_preset_is_a_row():
    fields = asdict(preset("mini"))
    assert all(fields[name] == value for name, value in OURS["quantile_attn + local"].items())


@pytest.mark.parametrize("data", BUDGETS)
def test_all_rows_but_commands_have_the_same_settings(data):
    runs = [run_of(data, row, 0) for row in (*OURS, *OUTSIDE)]
    assert all((run.settings, run.part) == (runs[0].settings, runs[0].part) for run in runs)
    of_chemprop = run_of(data, CHEMPROP, 0)
    assert of_chemprop.settings == {"epochs": BUDGETS[data]["epochs"], "threads": 1}
    assert of_chemprop.part == runs[0].part


def test_the_command_is_for_whole_data_sets(tmp_path):
    words = ["--rows", COMMAND, "--seeds", "0", "--out", str(tmp_path / "out.jsonl")]
    assert not asked_runs("qm9-gap", parse(words))
    assert [run.settings["epochs"] for run in asked_runs("mini", parse(words))] == [14]
    others = [*words, "--epochs", "3"]
    assert [run.settings["epochs"] for run in asked_runs("mini", parse(others))] == [14]


def test_a_quick_chemprop_has_more_epochs_than_its_warm_up():
    assert run_of("mini", CHEMPROP, 0, quick=True).settings["epochs"] == 3


@pytest.mark.parametrize("word", ["0", "-3", "half"])
@pytest.mark.parametrize("option", ["--part", "--epochs"])
def test_a_part_and_epochs_are_at_least_one(option, word, capsys):
    with pytest.raises(SystemExit):
        parse([f"{option}={word}"])
    assert f"{word!r}, expected a number of at least 1" in capsys.readouterr().err


def call(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["accuracy", *map(str, words)])
    main()


def test_a_page_stays_as_it_is_if_nothing_is_finished(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- table -->\nkept\n<!-- end of table -->\n")
    out = tmp_path / "out.jsonl"
    with pytest.raises(SystemExit, match=r"none of these runs is finished in .*out\.jsonl"):
        call(monkeypatch, "--print", "--out", out, "--markdown", page)
    assert "kept" in page.read_text()


@pytest.mark.parametrize("line", ["3", "{half"])
def test_a_line_that_is_no_object_is_named(tmp_path, monkeypatch, line):
    out = tmp_path / "out.jsonl"
    out.write_text(f"{{}}\n{line}\n")
    with pytest.raises(SystemExit, match=r"line 2 of .*out\.jsonl.*delete it"):
        call(monkeypatch, "--print", "--out", out)


def test_a_chemprop_that_is_not_there_is_named(root, tmp_path, monkeypatch):
    words = ["--data", "mini", "--quick", "--rows", CHEMPROP, "--seeds", 0, "--root", root]
    with pytest.raises(SystemExit, match="no/such/chemprop"):
        call(monkeypatch, *words, "--out", tmp_path / "out.jsonl", "--chemprop", "no/such/chemprop")


def test_the_page_has_what_the_lines_say(tmp_path, monkeypatch):
    docs = Path(__file__).parents[2] / "docs"
    page = tmp_path / "accuracy.md"
    page.write_text((docs / "accuracy.md").read_text("utf-8"), "utf-8")
    words = ["--print", "--data", "qm9-gap", "mini", "--out", docs / "accuracy.jsonl"]
    call(monkeypatch, *words, "--markdown", page)
    assert page.read_text("utf-8") == (docs / "accuracy.md").read_text("utf-8")


def test_a_part_is_drawn_from_all_of_train(root):
    whole, part = dataset_of("mini", None, root), dataset_of("mini", 1_000, root)
    train, drawn = whole.splits["train"], part.splits["train"]
    assert len(set(drawn)) == 1_000
    assert set(drawn) <= set(train)
    # A thousand of ten thousand at random: half of them are in either half, give or take 16.
    assert abs(int((drawn < np.median(train)).sum()) - 500) < 80
    assert np.array_equal(part.splits["test"], whole.splits["test"])
    assert np.array_equal(dataset_of("mini", 1_000, root).splits["train"], drawn)


def test_a_part_of_all_is_all(root):
    whole = dataset_of("mini", None, root).splits["train"]
    assert np.array_equal(dataset_of("mini", len(whole), root).splits["train"], whole)


def error_of_the_mean(root) -> float:
    """Of predicting the mean of train for all of test."""
    dataset = dataset_of("mini", None, root)
    mean = dataset.labels(dataset.splits["train"]).mean()
    return float(np.abs(dataset.labels(dataset.splits["test"]) - mean).mean())


@pytest.mark.parametrize("row", ["quantile_attn + local", "sort_attn", *OUTSIDE])
def test_a_run_learns_and_is_tested(root, row):
    found = training.train(run_of("mini", row, 0, part=800, epochs=6), root)
    assert 0 < found["test"] < 0.8 * error_of_the_mean(root)
    assert found["parameters"] == sized(row)
    molecules = found["molecules_per_second"] * found["cpu_seconds"]
    assert molecules == pytest.approx(6 * 800, rel=0.1)
    assert found["seconds"] > 0


def test_a_quick_study_from_its_command_to_its_page(root, tmp_path, monkeypatch, capsys):
    rows = ["quantile_attn + local", "sort"]
    words = ["--quick", "--data", "mini", "--seeds", 0, "--rows", *rows]
    words += ["--root", root, "--out", tmp_path / "out.jsonl"]
    words += ["--markdown", tmp_path / "page.md", "--figure", tmp_path / "figure.png"]
    call(monkeypatch, *words)
    first = capsys.readouterr().out
    monkeypatch.setattr(training, "train", None)  # a second call would fail if it trained
    call(monkeypatch, *words)
    assert capsys.readouterr().out == first
    assert first.strip() in (tmp_path / "page.md").read_text()
    finished = JsonLines(tmp_path / "out.jsonl").lines
    assert [line["row"] for line in finished] == rows
    asked = {"test", "valid", "parameters", "cpu_seconds", "seconds", "molecules_per_second"}
    assert all(asked <= set(line) for line in finished)


def test_other_settings_are_another_run(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "train", lambda run, root: OUTCOME | run.settings)
    for threads in ("1", "2"):
        arguments = words(tmp_path, "--rows", "sort", "--seeds", "0", "--threads", threads)
        for run in asked_runs("mini", arguments):
            finish(run, arguments)
    lines = JsonLines(tmp_path / "out.jsonl").lines
    assert [line["settings"]["threads"] for line in lines] == [1, 2]


def test_rows_that_are_timed_in_turns_have_these_times_in_the_table(root, monkeypatch):
    found = time_in_turns("mini", ["sort", CHEMPROP, COMMAND], 1, root, repeats=1)
    assert [line["timed"] for line in found] == ["sort"]
    assert found[0]["ms"] > 0
    timed = {"timed": "graphormer", "data": "qm9-gap", "model": OURS["graphormer"], "threads": 1}
    others = [{"data": "mini"}, {"model": OURS["sort"]}, {"threads": 2}]
    ms = [timed | {"ms": 9.0}, timed | {"ms": 0.5}, *(timed | one | {"ms": 7.0} for one in others)]
    runs = retimed(list(lines()), ms)
    seconds = {run["row"]: run["cpu_seconds"] for run in runs}
    assert seconds["graphormer"] == pytest.approx(0.5e-3 * 400_000)
    assert seconds["quantile_attn + local"] == 80.0


def test_the_command_is_run_to_its_end_and_its_metrics_are_read(tmp_path):
    table = write_table(tmp_path / "table.csv", 60)
    run = replace(run_of("mini", COMMAND, 0, quick=True), data=f"csv:{table}")
    found = command.train(run, tmp_path)
    assert 0 < found["test"] < 10
    assert found["parameters"] == sized("quantile_attn + local")
    assert found["cpu_seconds"] > 0


def test_a_child_that_fails_says_why():
    with pytest.raises(ChildError, match="no such thing"):
        run_child([sys.executable, "-c", "raise SystemExit('no such thing')"], threads=1)


def test_a_finished_run_is_not_made_again(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(training, "train", lambda run, root: done.append(run) or OUTCOME)
    arguments = words(tmp_path, "--rows", "graphormer", "sort", "--seeds", "0", "1")
    for _ in range(2):
        lines = [finish(run, arguments) for run in asked_runs("mini", arguments)]
    assert [(run.row, run.seed) for run in done] == [
        ("graphormer", 0),
        ("sort", 0),
        ("graphormer", 1),
        ("sort", 1),
    ]
    assert all(line["test"] == 0.2 for line in lines)


def test_only_what_is_finished_is_printed(tmp_path):
    arguments = words(tmp_path, "--print")
    assert not any(finish(run, arguments) for run in asked_runs("mini", arguments))


def test_chemprop_is_left_out_without_a_command(tmp_path):
    arguments = words(tmp_path, "--rows", CHEMPROP, "--seeds", "0")
    assert [finish(run, arguments) for run in asked_runs("mini", arguments)] == [None]


def test_chemprop_gets_our_molecules_and_its_predictions_are_scored(root, tmp_path):
    command = tmp_path / "chemprop"
    command.write_text(
        "#!/usr/bin/env python3\n"
        "import csv, pathlib, sys\n"
        "if '--version' in sys.argv:\n"
        "    sys.exit(print('chemprop 2.3.1'))\n"
        "print('Trainable params: 318 K')\n"
        "value = dict(zip(sys.argv[2::2], sys.argv[3::2]))\n"
        "rows = list(csv.DictReader(open(value['--data-path'])))\n"
        "out = pathlib.Path(value['--output-dir'], 'model_0')\n"
        "out.mkdir(parents=True)\n"
        "with open(out / 'test_predictions.csv', 'w') as file:\n"
        "    table = csv.writer(file)\n"
        "    table.writerow(['smiles', 'target'])\n"
        "    for row in rows:\n"
        "        if row['split'] == 'test':\n"
        "            table.writerow([row['smiles'], float(row['target']) + 0.5])\n"
    )
    command.chmod(command.stat().st_mode | stat.S_IEXEC)
    found = chemprop.train(run_of("mini", CHEMPROP, 0, quick=True), root, str(command))
    assert found["test"] == pytest.approx(0.5, abs=1e-5)
    assert found["parameters"] == 318_000
    assert found["version"] == "chemprop 2.3.1"


def lines():
    scores = {"graphormer": (0.2, 0.22), "quantile_attn + local": (0.15, 0.17), CHEMPROP: (0.3,)}
    for row, tests in scores.items():
        for seed, test in enumerate(tests):
            seconds = 100.0 if row == "graphormer" else 80.0
            speed = 400_000 / seconds
            outcome = {"test": test, "cpu_seconds": seconds, "molecules_per_second": speed}
            if row != CHEMPROP:
                outcome["parameters"] = 1234
            yield asdict(run_of("qm9-gap", row, seed)) | outcome


def test_the_table_has_mean_spread_and_time():
    text = table("qm9-gap", list(lines()))
    assert "### qm9-gap: 20,000 molecules of train, 8 epochs" in text
    assert "| graphormer | 1,234 | 0.2100 ± 0.0141 | 2 | 100 | 1.00x |" in text
    assert "| quantile_attn + local | 1,234 | 0.1600 ± 0.0141 | 2 | 80 | 0.80x |" in text
    assert "| chemprop |  | 0.3000 | 1 | 80 | 0.80x |" in text


def test_a_name_that_would_lie_on_another_takes_another_place():
    long = "a rather long name"
    points = [Point(100.0, 0.2, 0.2, 0.2, long), Point(110.0, 0.201, 0.2, 0.2, long)]
    far = [Point(190.0, 0.2, 0.2, 0.2, "c"), Point(200.0, 0.3, 0.3, 0.3, "d")]
    assert places_of_names([*points, *far]) == [0, 1, 0, 0]


def test_the_figure_is_a_png(tmp_path: Path):
    write_figure(list(lines()), tmp_path / "figures" / "accuracy.png")
    assert (tmp_path / "figures" / "accuracy.png").read_bytes()[:4] == b"\x89PNG"
