"""A run that was killed goes on and ends with the same weights, to the bit."""

import signal
from pathlib import Path

import pytest
from support.dying_run import assert_stopped, run_and_die, same_weights
from support.tiny_run import tiny_config

from slicegraph.train import train


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    return train(tiny_config(folder, checkpoint_steps=3, ema=0.9), progress=False)


def losses(run: Path) -> list[list[str]]:
    return [line.split(",")[:6] for line in (run / "log.csv").read_text().split()]


# Four updates an epoch, a checkpoint after 3 and after each epoch: killed before the first, in the
# middle of an epoch, and at the first update of the last.
@pytest.mark.parametrize("step", [2, 7, 9])
def test_a_killed_run_that_is_resumed_ends_with_the_same_weights(reference, tmp_path, step):
    died = run_and_die(tmp_path, step, "SIGKILL")
    assert died.returncode == -signal.SIGKILL, died.stderr
    result = train(resume=tmp_path / "run", progress=False)
    assert same_weights(result.folder, reference.folder)
    assert losses(result.folder) == losses(reference.folder)
    assert result.test == reference.test


def test_sigterm_saves_and_the_run_goes_on_from_there(reference, tmp_path):
    run = tmp_path / "run"
    assert_stopped(run_and_die(tmp_path, 6, "SIGTERM"), run, steps=(6, 7))
    result = train(resume=run, progress=False)
    assert same_weights(result.folder, reference.folder)


def test_what_is_no_run_is_not_resumed(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no run to resume"):
        train(resume=tmp_path)


def test_a_run_is_resumed_with_its_own_settings(tmp_path):
    with pytest.raises(ValueError, match="leave out config"):
        train(tiny_config(tmp_path), resume=tmp_path)
