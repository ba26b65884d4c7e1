"""The table of sequences and images: its runs, the file they are kept in, what is printed."""

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import slicegraph
from benchmarks.json_lines import JsonLines
from benchmarks.markdown import BEGIN, END, write_between_marks
from benchmarks.sequence_runs import speed, training
from benchmarks.sequence_runs.budgets import BUDGETS, MIXERS, runs_of, settings_of, with_mixer
from benchmarks.sequence_runs.speed import SpeedTest, middle
from benchmarks.sequence_runs.table import accuracy, task_table
from benchmarks.sequences import parse, tables
from slicegraph.tasks import TaskError, load_task
from slicegraph.train import TrainConfig

DOCS = Path(__file__).parents[2] / "docs"
OUTCOME = {
    "test": 0.9,
    "valid": 0.8,
    "examples_per_second": 1234.4,
    "parameters": 102_858,
    "steps": 675,
    "data": {
        "noun": "images",
        "splits": {"train": 1438, "valid": 179, "test": 180},
        "classes": 10,
        "most_frequent": 0.111,
    },
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """With a toy of ListOps in it."""
    folder = tmp_path_factory.mktemp("dataset")
    load_task("listops", folder, examples=40)
    return folder


@pytest.fixture
def ran(monkeypatch):
    """The runs that were asked for, none of which trains anything."""
    done = []
    monkeypatch.setattr(training, "train", lambda run, root: done.append(run) or OUTCOME)
    rates = {"examples_per_second": {"ascending": 300.0, "qkv": 100.0}}
    monkeypatch.setattr(speed, "measure", lambda test, root: rates)
    return done


def words(folder, *others):
    return parse(["--out", str(folder / "out.jsonl"), "--tasks", "digits", *others])


@pytest.mark.parametrize("task", BUDGETS)
def test_all_mixers_of_a_task_have_the_same_settings(task):
    settings = settings_of(task, threads=1)
    seen = []
    for mixer in MIXERS:
        config = asdict(TrainConfig(**with_mixer(settings, mixer)).resolved())
        assert config["model"].pop("mixer") == ("qkv" if mixer == "qkv" else "sort")
        assert config["model"].pop("order", "qkv") == mixer
        seen.append(config)
    assert all(config == seen[0] for config in seen)


def test_tasks_of_minutes_have_three_seeds_unless_told_otherwise():
    def seeds(task, *arguments):
        return [run.seed for run in runs_of(task, ["qkv"], *arguments)]

    assert seeds("digits", None, 1) == seeds("text", None, 1) == [0, 1, 2]
    assert seeds("listops", None, 1) == [0]
    assert seeds("listops", 2, 1) == [0, 1]
    assert seeds("digits", None, 1, True) == [0]


def test_the_runs_of_a_seed_follow_each_other():
    order = [(run.seed, run.mixer) for run in runs_of("digits", ["ascending", "qkv"], 2, 1)]
    assert order == [(0, "ascending"), (0, "qkv"), (1, "ascending"), (1, "qkv")]


def test_a_run_gives_what_the_engine_gives(root, tmp_path):
    (run,) = runs_of("listops", ["max_exchange"], None, threads=1, quick=True)
    outcome = training.train(run, root)
    settings = with_mixer(run.settings, "max_exchange") | {"root": str(root), "seed": run.seed}
    result = slicegraph.train(settings | {"out": str(tmp_path / "run")}, progress=False)
    assert (outcome["test"], outcome["valid"]) == (result.test, result.valid)
    assert outcome["steps"] == 2
    assert outcome["parameters"] == result.metrics["parameters"]
    assert outcome["examples_per_second"] > 0


def test_every_mixer_has_a_speed_of_its_own(root):
    test = SpeedTest("listops", settings_of("listops", 1, quick=True), list(MIXERS), repeats=1)
    rates = speed.measure(test, root)["examples_per_second"]
    assert list(rates) == list(MIXERS)
    assert min(rates.values()) > 0


def test_the_timed_batch_is_of_middle_length(root):
    listops = load_task("listops", root, examples=40)
    train = listops.store.lengths[listops.splits["train"]]
    chosen = listops.store.lengths[middle(listops, 8)]
    assert sorted(chosen) == sorted(train)[12:20]


def test_the_most_frequent_class_of_train_is_scored_on_test():
    labels = np.array([2, 2, 1, 0, 2, 1, 1])
    dataset = SimpleNamespace(
        noun="rows",
        class_names=("a", "b", "c"),
        splits={"train": np.array([0, 1, 2]), "test": np.array([3, 4, 5, 6])},
        labels=lambda positions: labels[positions][:, None],
    )
    about = training.about(dataset)
    assert about["most_frequent"] == 0.25
    assert about["splits"] == {"train": 3, "test": 4}


def test_finished_runs_are_skipped(tmp_path, ran):
    first = tables(words(tmp_path, "--mixers", "ascending", "qkv", "--seeds", "2"))
    assert len(ran) == 4
    assert tables(words(tmp_path, "--mixers", "ascending", "qkv", "--seeds", "2")) == first
    assert len(ran) == 4
    tables(words(tmp_path, "--mixers", "ascending", "qkv", "interleave", "--seeds", "2"))
    assert [run.mixer for run in ran[4:]] == ["interleave", "interleave"]


def test_runs_with_another_budget_are_made_again(tmp_path, ran, monkeypatch):
    arguments = words(tmp_path, "--mixers", "qkv", "--seeds", "1")
    tables(arguments)
    monkeypatch.setitem(BUDGETS, "digits", BUDGETS["digits"] | {"epochs": 1})
    tables(arguments)
    assert [run.settings["epochs"] for run in ran][1:] == [1]


def test_printing_runs_nothing(tmp_path, ran):
    assert tables(words(tmp_path, "--print")) == ""
    tables(words(tmp_path, "--mixers", "qkv", "--seeds", "1"))
    text = tables(words(tmp_path, "--print", "--mixers", "ascending", "qkv"))
    assert len(ran) == 1
    assert "| qkv | 102,858 | 90.0 | 1 |" in text
    assert "ascending" not in text


def test_a_task_without_its_package_is_left_out_and_the_others_go_on(tmp_path, ran, capsys):
    def refuse(test, root):
        if test.task == "digits":
            raise TaskError("pip install it")
        return {"examples_per_second": {}}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "measure", refuse)
        tables(words(tmp_path, "listops", "--mixers", "qkv"))
    assert [run.task for run in ran] == ["listops"]
    assert "digits is left out: pip install it" in capsys.readouterr().err


def test_the_last_line_with_all_values_counts(tmp_path):
    lines = JsonLines(tmp_path / "deep" / "out.jsonl")
    for test in (1, 2):
        lines.append({"task": "digits", "seed": 0, "test": test})
    lines.append({"task": "digits"})
    again = JsonLines(lines.file)
    assert again.last({"task": "digits", "seed": 0})["test"] == 2
    assert again.last({"task": "digits", "seed": 1}) is None


def test_accuracy_is_the_mean_and_the_deviation_of_a_sample():
    assert accuracy([0.90, 0.92, 0.94]) == "92.0 ± 2.0"
    assert accuracy([0.905]) == "90.5"


def test_the_table_has_budget_spread_speed_and_ratio():
    runs = [
        asdict(run) | OUTCOME | {"test": 0.9 + 0.02 * run.seed}
        for run in runs_of("digits", ["ascending", "qkv"], 3, 1)
    ]
    speeds = {"examples_per_second": {"ascending": 3000.0, "qkv": 1200.0}}
    text = task_table("digits", runs, speeds)
    assert "1,438 / 179 / 180 images" in text
    assert f"{BUDGETS['digits']['epochs']} epochs, 675 updates of 32" in text
    assert "scores 11.1 %" in text
    assert "| sort, ascending | 102,858 | 92.0 ± 2.0 | 3 | 3,000 | 2.5x |" in text
    assert "| qkv | 102,858 | 92.0 ± 2.0 | 3 | 1,200 | 1.0x |" in text


def test_the_page_has_what_the_lines_say():
    text = tables(parse(["--print", "--out", str(DOCS / "sequences.jsonl")]))
    assert f"{BEGIN}\n{text}\n{END}" in (DOCS / "sequences.md").read_text()


def test_the_table_is_written_between_the_marks_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    for _ in range(2):
        write_between_marks(page, "new")
        assert page.read_text() == f"# Title\n\n{BEGIN}\nnew\n{END}\n\nThe end.\n"
    write_between_marks(tmp_path / "other.md", "new")
    assert (tmp_path / "other.md").read_text() == f"{BEGIN}\nnew\n{END}\n"


def test_a_page_without_marks_is_left_as_it_is(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n")
    with pytest.raises(ValueError, match="has no lines <!-- table -->"):
        write_between_marks(page, "new")
    assert page.read_text() == "# Title\n"
