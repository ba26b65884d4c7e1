"""Two ranks that were ended in the middle go on, and end with the weights of two that were not."""

import json
import signal
from pathlib import Path

import pytest
from support.dying_run import assert_stopped, in_process, run_and_die, same_weights

RANKS, NEVER = 2, 10**6


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    done = run_and_die(folder, NEVER, "SIGKILL", RANKS)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def resume(run: Path) -> None:
    done = in_process(["-m", "slicegraph", "train", "--resume", str(run)])
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "status.json").read_text())["state"] == "finished"


def test_two_killed_ranks_that_are_resumed_end_with_the_same_weights(reference, tmp_path):
    died = run_and_die(tmp_path, 7, "SIGKILL", RANKS)
    assert died.returncode == -signal.SIGKILL, died.stderr
    resume(tmp_path / "run")
    assert same_weights(tmp_path / "run", reference)


def test_sigterm_of_one_rank_saves_and_stops_both_and_they_go_on(reference, tmp_path):
    run = tmp_path / "run"
    saved = assert_stopped(run_and_die(tmp_path, 6, "SIGTERM", RANKS), run, steps=(6, 7))
    assert len(saved["callbacks"]["RandomState"]["ranks"]) == RANKS
    resume(run)
    assert same_weights(run, reference)
