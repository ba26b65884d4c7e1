"""A run that was interrupted goes on and ends with the same weights, to the bit; also two ranks."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.tiny_run import distance, tiny_config, tiny_run, weights, write_table

from slicegraph.train import train

HERE = Path(__file__).parent
MOLECULES = 43
"""26 to train on, in batches of 12, 7 and 7; 11 to validate, which two ranks share unevenly."""


def in_process(*arguments: object) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=HERE.parents[1],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )


def losses(run: Path) -> list[list[str]]:
    return [line.split(",")[:6] for line in (run / "log.csv").read_text().split()]


def assert_stopped(status: int, stderr: str, run: Path, steps: tuple[int, ...]) -> dict:
    """It ended as SIGTERM asks for, after one of these updates; gives the checkpoint."""
    assert status == 128 + signal.SIGTERM, stderr
    assert stderr.count("stopped by SIGTERM") == 1
    assert json.loads((run / "status.json").read_text())["state"] == "stopped"
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] in steps
    return saved


# Four updates an epoch, a checkpoint after 3 and after each epoch: killed before the first, in the
# middle of an epoch, and at the first update of the last.
CASES = {"before": (2, "SIGKILL"), "middle": (7, "SIGKILL"), "last": (9, "SIGKILL")}
CASES["stopped"] = (6, "SIGTERM")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> Path:
    """A folder with an uninterrupted run and those of `CASES`."""
    folder, words = tmp_path_factory.mktemp("interrupted"), []
    for name, (step, kind) in CASES.items():
        (folder / name).mkdir()
        words += [folder / name, step, kind]
    done = in_process(HERE / "die_at_step.py", 1, *words)
    assert done.returncode == 0, done.stderr
    tiny_run(folder, checkpoint_steps=3, ema=0.9)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_run_that_is_resumed_ends_with_the_same_weights(interrupted, name):
    run, whole = interrupted / name / "run", interrupted / "run"
    status = int((interrupted / name / "status.txt").read_text())
    if name == "stopped":
        assert_stopped(status, (interrupted / name / "stderr.txt").read_text(), run, (6, 7))
    else:
        assert status == -signal.SIGKILL
    result = train(resume=run, progress=False)
    assert distance(run, whole) == 0
    assert losses(run) == losses(whole)
    assert result.test == json.loads((whole / "metrics.json").read_text())["test"]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> tuple[Path, str]:
    """The runs of two_ranks.py, and what they have printed; `stopped` by a signal to one rank."""
    folder = tmp_path_factory.mktemp("two_ranks")
    (folder / "stopped").mkdir()
    died = in_process(HERE / "die_at_step.py", 2, folder / "stopped", 6, "SIGTERM")
    # Several ranks exchange signals once a second, and when an epoch begins.
    saved = assert_stopped(died.returncode, died.stderr, folder / "stopped" / "run", (6, 7, 8))
    assert len(saved["callbacks"]["RandomState"]["ranks"]) == 2
    write_table(folder / "table43.csv", MOLECULES)
    (folder / "shared.yaml").write_text(shared(folder, "shared").to_yaml())
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = in_process(*torchrun, HERE / "two_ranks.py", folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def shared(folder: Path, name: str):
    return tiny_config(
        folder,
        data=f"csv:{folder / 'table43.csv'}",
        out=str(folder / name),
        fractions=(0.6, 0.25, 0.15),
        batch_size=12,
        lr=1e-3,
        dropout=0.0,
    )


@pytest.mark.slow
def test_two_ranks_with_half_the_batch_are_one_process_with_all_of_it(two_ranks):
    folder, printed = two_ranks
    assert printed.count("test MAE") == 2  # each rank prints the result that it was given
    assert printed.count("on 2 x cpu") == 1
    assert printed.count("WARNING each of 2 devices has 6 molecules at a time") == 1
    train(shared(folder, "alone"), progress=False)
    tables = [folder / name / "predictions" / "valid.csv" for name in ("shared", "alone")]
    found, expected = (list(csv.DictReader(path.open(newline=""))) for path in tables)
    assert [row["index"] for row in found] == [row["index"] for row in expected]
    assert len({row["index"] for row in found}) == len(found) == 11
    for one, both in zip(expected, found, strict=True):
        assert float(both["gap_pred"]) == pytest.approx(float(one["gap_pred"]), abs=1e-5)


@pytest.mark.slow
def test_two_ranks_that_accumulate_are_one_process_with_all_of_it(two_ranks):
    folder, _ = two_ranks
    train(shared(folder, "one"), progress=False)
    assert distance(folder / "parts", folder / "one") < 1e-5


@pytest.mark.slow
def test_two_ranks_train_a_compiled_model_in_bfloat16(two_ranks):
    folder, _ = two_ranks
    assert json.loads((folder / "compiled" / "status.json").read_text())["state"] == "finished"
    found, exact = (weights(folder / name) for name in ("compiled", "plain"))
    assert all(found[name].isfinite().all() for name in exact)
    assert 0 < distance(folder / "compiled", folder / "plain") < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", ["died", "stopped/run"])
def test_two_ranks_that_are_resumed_end_with_the_same_weights(two_ranks, name):
    folder, _ = two_ranks
    assert json.loads((folder / name / "status.json").read_text())["state"] == "finished"
    assert distance(folder / name, folder / "whole") == 0


def test_what_is_not_a_run_is_not_resumed(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run to resume"):
        train(resume=tmp_path)
    with pytest.raises(ValueError, match="leave out config"):
        train(tiny_config(tmp_path), resume=tmp_path)


def test_a_damaged_checkpoint_is_named(tmp_path):
    run = tiny_run(tmp_path, epochs=1).folder
    last = run / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged.*remove it to begin"):
        train(resume=run, progress=False)
    last.unlink()
    train(resume=run, progress=False)
    assert weights(run)
