"""The efficiency table: cells in their processes, the file they are kept in, what is printed."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.attention import batches_of, measure, parse
from benchmarks.attentions import process
from benchmarks.attentions.cell import PHASES, Cell, answer, seconds_of
from benchmarks.attentions.figure import draw
from benchmarks.attentions.methods import METHODS, Method
from benchmarks.attentions.results import Results
from benchmarks.attentions.table import best, figures, tables

DOCS = Path(__file__).parents[2] / "docs"
CELL = Cell("slice_sort", "training", 1024, batch=1, repeats=1, threads=1)
FIGURES = {"training": 2.0, "inference": 8.0, "memory": 3_000_000}
OUTCOMES = {
    ("slice_sort", 1024): FIGURES,
    ("attention", 1024): {"training": 1.0, "inference": 9.0, "memory": 4_000_000},
    ("slice_sort", 2048): {"training": 0.5, "inference": 2.0, "memory": 6_000_000},
    ("attention", 2048): {
        "training": "out of memory",
        "memory": "out of memory",
        "inference": 0.25,
    },
}


def python(code):
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("run", "phase", "keeps"),
    [(process.run, "training", False), (answer, "inference", True)],
    ids=["training in a process", "inference"],
)
def test_a_cell_answers_with_the_figures_of_its_phase(run, phase, keeps):
    outcome = run(replace(CELL, phase=phase, keeps=keeps))
    assert set(outcome) == set(PHASES[phase])
    assert min(outcome.values()) > 0


@pytest.mark.parametrize(
    ("taken", "calls", "seconds"),
    [
        ([5.0, 1.0, 3.0, 2.0], 4, 2.0),  # three after the warm-up
        ([9.0, 6.0, 5.0, 1.0], 3, 5.5),  # two of them are enough
        ([20.0, 12.0, 1.0, 1.0], 2, 12.0),  # one of them is
        ([40.0, 1.0, 1.0, 1.0], 1, 40.0),  # the first alone is long
    ],
)
def test_long_steps_are_timed_less_often(taken, calls, seconds):
    now, left = [0.0], list(taken)

    def run():
        now[0] += left.pop(0)

    assert seconds_of(run, repeats=3, clock=lambda: now[0]) == seconds
    assert len(left) == len(taken) - calls


def test_memory_is_kept_but_for_training_with_a_batch(monkeypatch, tmp_path):
    kept = {}

    def run(cell):
        kept[cell.phase, cell.batch] = cell.keeps
        return dict.fromkeys(PHASES[cell.phase], 1.0)

    monkeypatch.setattr("benchmarks.attention.run", run)
    for batch in ("1", "2"):
        words = ["--methods", "linear", "--lengths", "1024", "--batch", batch]
        measure(parse([*words, "--out", str(tmp_path / "out.jsonl")]))
    assert kept == {
        ("training", 1): True,
        ("inference", 1): True,
        ("training", 2): False,
        ("inference", 2): True,
    }


def test_a_cell_that_needs_more_than_its_memory_says_so():
    # Already the embedding of so many tokens does not fit.
    cell = replace(CELL, method="sinkformer", phase="inference", batch=8192, gigabytes=2.0)
    assert process.run(cell) == {"outcome": "out of memory"}


def test_a_process_that_takes_too_long_is_too_slow():
    cell = replace(CELL, seconds=0.5)
    assert process.run(cell, python("import time; time.sleep(60)")) == {"outcome": "too slow"}


def test_a_killed_process_is_out_of_memory():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert process.run(CELL, python(code)) == {"outcome": "out of memory"}


def test_a_failed_process_gives_its_last_line():
    outcome = process.run(CELL, python("raise ValueError('no such thing')"))
    assert outcome == {"outcome": "failed", "why": "ValueError: no such thing"}


def test_an_absent_package_is_not_installed(monkeypatch):
    absent = Method("Absent", "absent-package", lambda length, layer: None, "absent_package")
    monkeypatch.setitem(METHODS, "absent", absent)
    outcome = process.run(replace(CELL, method="absent"))
    assert outcome == {"outcome": "not installed"}
    text = tables({("absent", 1024): figures("training", outcome)}, {1024: 1})
    assert "absent-package" in text
    assert "pip install -c constraints.txt '.[peers]'" in text


def test_a_finished_cell_is_found_in_the_file_again(tmp_path):
    file = tmp_path / "deep" / "out.jsonl"
    Results(file).add(CELL, FIGURES)
    assert Results(file).find(CELL) == asdict(CELL) | FIGURES
    assert Results(file).find(replace(CELL, batch=2)) is None


@pytest.mark.parametrize(
    ("outcome", "limit"), [("out of memory", "gigabytes"), ("too slow", "seconds")]
)
def test_a_stopped_cell_runs_again_with_a_higher_limit_only(tmp_path, outcome, limit):
    results = Results(tmp_path / "out.jsonl")
    results.add(CELL, {"outcome": outcome})
    room = getattr(CELL, limit)
    assert results.find(replace(CELL, **{limit: room / 2})) is not None
    assert results.find(replace(CELL, **{limit: room * 2})) is None


def test_a_broken_line_is_named(tmp_path):
    file = tmp_path / "out.jsonl"
    file.write_text(json.dumps(asdict(CELL)) + "\n{half")
    with pytest.raises(ValueError, match=r"line 2 of .*out\.jsonl"):
        Results(file)


def test_finished_cells_are_skipped(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr("benchmarks.attention.run", lambda cell: ran.append(cell) or FIGURES)
    both = [(method, phase) for method in ("slice_sort", "linear") for phase in PHASES]
    words = ["--quick", "--methods", "slice_sort", "linear", "--out", str(tmp_path / "out.jsonl")]
    first = measure(parse(words))
    assert [(cell.method, cell.phase) for cell in ran] == both
    again = measure(parse(words))
    assert len(ran) == len(both)
    assert again == first == dict.fromkeys([("slice_sort", 1024), ("linear", 1024)], FIGURES)


def test_failures_are_not_kept(tmp_path, monkeypatch):
    outcome = {"outcome": "failed", "why": "ValueError"}
    monkeypatch.setattr("benchmarks.attention.run", lambda cell: outcome)
    file = tmp_path / "out.jsonl"
    measure(parse(["--quick", "--methods", "linear", "--out", str(file)]))
    assert not file.exists()


def test_a_batch_is_32_while_it_fits_unless_it_is_given():
    lengths = ["1024", "4096", "8192", "16384"]
    expected = {1024: 32, 4096: 32, 8192: 1, 16384: 1}
    assert batches_of(parse(["--lengths", *lengths])) == expected
    assert batches_of(parse(["--lengths", "4096", "--batch", "32"])) == {4096: 32}


def test_a_length_that_blocks_do_not_divide_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse(["--lengths", "1000"])
    assert "length 1000 is not a multiple of 1024" in capsys.readouterr().err


def test_the_best_has_the_most_steps_and_the_least_memory():
    assert best("training", OUTCOMES, 1024) == "slice_sort"
    assert best("inference", OUTCOMES, 1024) == "attention"
    assert best("memory", OUTCOMES, 1024) == "slice_sort"
    assert best("memory", {}, 1024) is None


def test_the_table_has_figures_reasons_and_who_is_first():
    text = tables(OUTCOMES, {1024: 8, 2048: 4})
    assert "| Method | Code | 1K, batch 8 | 2K, batch 4 |" in text
    assert "| SliceSort | slicegraph | **2** | **0.5** |" in text
    assert "| Attention (SDPA) | torch | 1 | out of memory |" in text
    assert "| Attention (SDPA) | torch | **9** | 0.25 |" in text
    assert "SliceSort is first at 1 of 2 lengths; elsewhere: Attention (SDPA) at 1K." in text


def test_a_failure_is_explained_below_the_tables():
    outcome = {"outcome": "failed", "why": "ValueError: no such thing"}
    text = tables({("linear", 1024): figures("inference", outcome)}, {1024: 1})
    assert "| Linear attention (elu + 1) | here | failed |" in text
    assert "- Linear attention (elu + 1) at 1K failed: ValueError: no such thing" in text


def test_the_page_has_what_the_lines_say(monkeypatch):
    monkeypatch.setattr("benchmarks.attention.run", None)  # a cell that is not there would fail
    arguments = parse(["--out", str(DOCS / "attention.jsonl")])
    text = tables(measure(arguments), batches_of(arguments))
    assert text in (DOCS / "attention.md").read_text("utf-8")


def test_the_figure_is_a_png(tmp_path):
    file = tmp_path / "attention.png"
    draw(OUTCOMES, {1024: 8, 2048: 4}, file)
    assert file.read_bytes().startswith(b"\x89PNG")
