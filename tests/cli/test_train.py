"""`slicegraph train`, as typed."""

import json
import signal
import sys

import pytest
import yaml
from support.tiny_run import MODEL, write_table

from slicegraph.cli import main
from slicegraph.cli.train import settings
from slicegraph.train.callbacks import Stopped


def flags(folder, **settings) -> list[str]:
    table = folder / "table.csv"
    if not table.exists():
        write_table(table)
    values = {
        "data": f"csv:{table}",
        "root": folder / "dataset",
        "target": "gap",
        "out": folder / "run",
        "batch-size": 8,
        "epochs": 1,
        "accelerator": "cpu",
        **{f"model.{name}": value for name, value in MODEL.items()},
        **{name.replace("_", "-"): value for name, value in settings.items()},
    }
    return [
        "train",
        *(text for name, value in values.items() for text in (f"--{name}", str(value))),
    ]


def test_train_prints_the_result_and_where_things_are(tmp_path, capsys, monkeypatch):
    arguments = flags(tmp_path, unit="eV")
    monkeypatch.setattr(sys, "argv", ["slicegraph", *arguments])
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    result, forest, model, report = printed.splitlines()[-4:]
    run = tmp_path / "run"
    test = json.loads((run / "metrics.json").read_text())["test"]
    assert result.startswith(f"test MAE {test:.3f} eV (95 % interval ")
    assert result.endswith("; only 4 molecules)")
    assert forest.startswith("forest  test MAE ")
    assert model.split()[-1] == str(run / "model")
    assert report.split()[-1] == str(run / "report.html")
    assert (run / "report.html").is_file()
    assert "regression of gap in eV, scored by MAE" in printed
    assert printed.splitlines()[0].startswith("settings  ")
    assert (run / "config.yaml").read_text() not in printed
    assert (run / "command.txt").read_text().startswith("slicegraph train --data csv:")


def test_settings_of_a_file_and_of_flags(tmp_path):
    first = tmp_path / "settings.yaml"
    first.write_text("batch_size: 16\nlr: 1e-3\nmodel: {mixer: attn}\n")
    assert main([*flags(tmp_path, batch_size=8, seed=3), "--config", str(first)]) == 0
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (saved["batch_size"], saved["lr"], saved["seed"]) == (8, 1e-3, 3)
    assert saved["model"] == {"mixer": "attn", **MODEL}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "moon", "target": "x"}, "targets is for a file"),
        ({"lr": "fast"}, "lr = 'fast'"),
        ({"preset": "huge"}, "unknown preset 'huge'"),
        ({"target": "mass"}, "mass"),
        ({"model.mixer": "shaker"}, "shaker"),
        ({"model.num-targets": 3}, None),
        ({"data": "csv:nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_mistakes_are_named_and_end_with_status_2(tmp_path, capsys, change, message):
    arguments = flags(tmp_path, **change)
    if message is None:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        return
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_an_unknown_flag_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--learning-rate", "1"])
    assert "--learning-rate" in capsys.readouterr().err


def test_resume_of_the_newest_unfinished_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume"]) == 2
    assert "no unfinished run" in capsys.readouterr().err
    assert main(flags(tmp_path, out="runs/one")) == 0
    (tmp_path / "runs" / "one" / "status.json").write_text('{"state": "running"}')
    capsys.readouterr()
    assert main(["train", "--resume"]) == 0
    assert "runs/one/model" in capsys.readouterr().out


def test_resume_takes_no_other_settings(tmp_path, capsys):
    assert main(["train", "--resume", str(tmp_path), "--lr", "1"]) == 2
    assert "leave out 'lr'" in capsys.readouterr().err


def test_a_field_may_be_written_with_either_stroke():
    import argparse

    from slicegraph.cli.train import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for flag in ("--batch-size", "--batch_size"):
        assert settings(parser.parse_args([flag, "8"])) == {"batch_size": "8"}


def test_a_stopped_run_prints_the_command_that_resumes_it(tmp_path, monkeypatch, capsys):
    def stop(*_, **options):
        raise Stopped(signal.SIGINT, tmp_path / "my run")

    monkeypatch.setattr("slicegraph.train.run.train", stop)
    with pytest.raises(SystemExit) as exit:
        main(["train"])
    assert exit.value.code == 130
    expected = f"resume with: slicegraph train --resume '{tmp_path / 'my run'}'\n"
    assert capsys.readouterr().err.endswith(expected)


def test_ctrl_c_during_imports_is_one_line(monkeypatch, capsys):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("slicegraph.cli.import_module", interrupt)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "slicegraph: stopped\n"
