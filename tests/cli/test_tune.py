"""`slicegraph tune`: one search in which a trial ends early, one fails and one is killed."""

import argparse
import csv
import json
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from support.tiny_run import MODEL, write_table

from slicegraph.cli import main
from slicegraph.cli.train import add_arguments, settings
from slicegraph.train import TrainConfig
from slicegraph.train.module import TrainingError

optuna = pytest.importorskip("optuna", reason='needs optuna: pip install "slicegraph[tune]"')
QUICK = [word for name, value in MODEL.items() for word in (f"--model.{name}", str(value))]
QUICK += ["--epochs", "2", "--accelerator", "cpu", "--threads", "1", "--fractions", "0.6,0.2,0.2"]


class Killed(BaseException):
    """A process that ends without a word."""


def command(folder, trials: int, *more: str) -> list[str]:
    data = ["--data", f"csv:{folder / 'table.csv'}", "--targets", "gap"]
    data += ["--root", str(folder / "dataset"), "--out", str(folder / "tuned")]
    return ["tune", *data, "--trials", str(trials), *QUICK, *more]


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """The folder after four trials, what was printed, and which runs were resumed."""
    folder = tmp_path_factory.mktemp("tune")
    write_table(folder / "table.csv", 60)
    patch, resumed = pytest.MonkeyPatch(), []
    module = import_module("slicegraph.train.run")
    train, report = module.train, optuna.Trial.report
    alive = {"dies": True}

    def train_or_fail(config=None, *, resume=None, **options):
        resumed.append(resume and resume.name)
        if config is not None and config.out.endswith("0002"):
            raise TrainingError("train: out of memory at a batch")
        return train(config, resume=resume, **options)

    def report_or_die(trial, value, step):
        if trial.number == 3 and step == 20 and alive["dies"]:
            raise Killed
        return report(trial, value, step)

    patch.setattr(module, "train", train_or_fail)
    patch.setattr(optuna.Trial, "report", report_or_die)
    patch.setattr(optuna.Trial, "should_prune", lambda trial: trial.number == 1)
    with pytest.raises(Killed):
        main(command(folder, 4))
    alive["dies"] = False
    assert main(command(folder, 4)) == 0
    patch.undo()
    with open(folder / "tuned/trials.csv") as file:
        return folder, list(csv.DictReader(file)), resumed


def test_the_first_trial_has_the_defaults(search):
    _, rows, _ = search
    config = TrainConfig(data="csv:x.csv").resolved()
    assert float(rows[0]["lr"]) == config.lr
    assert float(rows[0]["weight_decay"]) == config.weight_decay
    assert (float(rows[0]["ema"]), int(rows[0]["batch_size"])) == (0, config.batch_size)


def test_a_trial_may_end_early_fail_or_die_and_the_search_goes_on(search):
    folder, rows, resumed = search
    states = ["complete", "pruned", "fail", "fail", "complete"]  # the fourth died, and went on
    assert [row["state"] for row in rows] == states
    assert rows[4]["folder"] == rows[3]["folder"]
    assert [rows[4][name] for name in ("lr", "dropout")] == [
        rows[3][name] for name in ("lr", "dropout")
    ]
    assert "0003" in resumed
    with open(folder / "tuned/trials/0003/log.csv") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1"]
    assert float(rows[1]["value"]) < 10  # that of its first epoch
    status = json.loads((folder / "tuned/trials/0001/status.json").read_text())
    assert status == {"state": "stopped", "reason": "pruned by tune"}


def test_test_is_looked_at_for_the_best_trial_alone(search):
    folder, rows, _ = search
    done = [row for row in rows if row["state"] == "complete"]
    best = min(done, key=lambda row: float(row["value"]))["folder"]
    for row in done:
        metrics = json.loads(Path(row["folder"], "metrics.json").read_text())
        assert (metrics["test"] is not None) == (row["folder"] == best)
        if row["folder"] != best:
            assert metrics["test_reason"] == "it was not looked at"
            assert list(metrics["splits"]) == ["valid"]
        assert metrics["valid"] == pytest.approx(float(row["value"]), rel=1e-5)
    assert (folder / "tuned/trials").joinpath(best[-4:], "report.html").is_file()


def test_more_trials_are_added_and_the_command_of_the_best_is_printed(search, capsys):
    folder, _, _ = search
    assert main(command(folder, 5)) == 0
    printed = capsys.readouterr().out
    assert "4 of 5 trials are done" in printed
    assert printed.count("trial ") == 1
    line = next(line for line in printed.splitlines() if line.startswith("again"))
    words = shlex.split(line.removeprefix("again"))
    assert words[:2] == ["slicegraph", "train"]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    again = TrainConfig.from_dict(settings(parser.parse_args(words[2:])))
    best = TrainConfig.read(folder / "tuned/trials" / _best(printed) / "config.yaml")
    for name in ("data", "targets", "lr", "weight_decay", "ema", "batch_size", "dropout", "model"):
        assert getattr(again, name) == getattr(best, name)


def _best(printed: str) -> str:
    line = next(line for line in printed.splitlines() if line.startswith("model"))
    return line.split("/")[-2]


def test_a_finished_search_trains_nothing(search, capsys):
    folder, _, _ = search
    assert main(command(folder, 2)) == 0
    assert "trial " not in capsys.readouterr().out.replace("trials", "")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--seed", "7"], "was begun with other settings (seed was None, is 7)"),
        (["--folds", "3"], "folds is for a training, not for a search"),
        (["--targets", "nothing"], "no column 'nothing'"),
        (["--preset", "nothing"], "unknown preset 'nothing'"),
    ],
)
def test_a_search_that_cannot_be_is_refused(search, capsys, more, problem):
    folder, _, _ = search
    assert main(command(folder, 4, *more)) == 2
    assert problem in capsys.readouterr().err


def test_a_folder_of_something_else_is_refused(search, tmp_path, capsys):
    folder, _, _ = search
    (tmp_path / "notes.txt").write_text("mine")
    assert main([*command(folder, 4), "--out", str(tmp_path)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert main(command(folder, 0)) == 2
    assert "--trials 0, expected at least 1" in capsys.readouterr().err
