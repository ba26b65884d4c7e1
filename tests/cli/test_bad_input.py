"""What a new user may type by mistake: one line that names it and says what to do, and status 2."""

import shutil
from pathlib import Path

import pytest
from support.small_models import save_model
from support.tiny_run import write_table

from slicegraph.cli import main
from slicegraph.train import TrainConfig

TRAIN = ["train", "--accelerator", "cpu", "--epochs", "1"]
OWN = [*TRAIN, "--data", "csv:table.csv", "--target", "gap"]
BYTES = bytes(range(256))


@pytest.fixture(scope="module")
def clutter(tmp_path_factory) -> Path:
    """A folder with a good table, a good model, and everything that can be wrong with either."""
    folder = tmp_path_factory.mktemp("clutter")
    write_table(folder / "table.csv")
    (folder / "empty.csv").touch()
    (folder / "bytes.csv").write_bytes(BYTES * 20)
    (folder / "numbers.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "folder.csv").mkdir()
    model = save_model(folder / "model")
    for name in ("truncated", "list", "bytes"):
        shutil.copytree(model, folder / name)
    weights = folder / "truncated" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    (folder / "list" / "config.json").write_text("[1]")
    (folder / "bytes" / "config.json").write_bytes(BYTES)
    (folder / "begun").mkdir()
    (folder / "begun" / "config.yaml").write_text(TrainConfig(data="csv:table.csv").to_yaml())
    shutil.copytree(folder / "begun", folder / "torn")
    (folder / "torn" / "checkpoints").mkdir()
    for name in ("best", "last"):
        (folder / "torn" / "checkpoints" / f"{name}.ckpt").write_bytes(b"PK\x03\x04 and no more")
    return folder


@pytest.fixture
def failure(clutter, tmp_path, monkeypatch, capsys):
    """The error line of a command, in a copy of the folder that nothing is added to."""
    place = tmp_path / "here"
    shutil.copytree(clutter, place)
    monkeypatch.chdir(place)

    def run(words: list[str]) -> str:
        before = {path.name for path in place.iterdir()} | {"dataset"}
        assert main(words) == 2
        assert {path.name for path in place.iterdir()} <= before
        lines = capsys.readouterr().err.splitlines()
        assert sum(line.startswith("slicegraph: error: ") for line in lines) == 1
        assert "Errno" not in lines[-1]
        return lines[-1]

    return run


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("missing.csv", "'missing.csv'"),
        ("folder.csv", "'folder.csv' is a folder, expected"),
        ("empty.csv", "'empty.csv' is empty"),
        ("bytes.csv", "'bytes.csv' has no column"),
        ("numbers.csv", "'numbers.csv' has no column"),
    ],
)
@pytest.mark.parametrize("command", ["prepare", "train", "evaluate", "predict"])
def test_a_file_that_is_no_table_of_molecules(failure, command, file, message):
    words = {
        "prepare": ["prepare", file, "--out", "store"],
        "train": [*TRAIN, "--data", f"csv:{file}"],
        "evaluate": ["evaluate", "model", "--data", f"csv:{file}"],
        "predict": ["predict", "model", file, "--out", "out.csv"],
    }
    assert message in failure(words[command])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("missing", "there is no model in missing"),
        ("table.csv", "table.csv is no checkpoint of a run, or damaged; name"),
        ("truncated", "truncated/model.safetensors is damaged"),
        ("list", "list/config.json is damaged"),
        ("bytes", "bytes/config.json is damaged"),
        ("torn", "torn/checkpoints/best.ckpt is no checkpoint of a run, or damaged"),
    ],
)
@pytest.mark.parametrize("command", ["train", "evaluate", "predict", "submit"])
def test_a_model_that_is_none_or_damaged(failure, command, model, message):
    words = {
        "train": [*OWN, "--init", model, "--out", "run"],
        "evaluate": ["evaluate", model, "--data", "csv:table.csv"],
        "predict": ["predict", model, "CCO"],
        "submit": ["submit", model, "--out", "submission"],
    }
    assert message in failure(words[command])


@pytest.mark.parametrize(
    "words",
    [["evaluate", "begun", "--data", "mini"], ["predict", "begun", "C"], ["submit", "begun"]],
    ids=lambda words: words[0],
)
def test_a_run_that_has_no_model_yet_can_go_on(failure, words):
    out = ["--out", "submission"] if words[0] == "submit" else []
    assert "no model yet; go on with it by slicegraph train --resume begun" in failure(words + out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prepare", "table.csv", "--out", "table.csv"], "'table.csv': is a file, expected"),
        (["prepare", "table.csv", "--out", "table.csv/x"], "'table.csv/x': Not a directory"),
        ([*OWN, "--out", "table.csv"], "table.csv exists and is not empty; "),
        ([*OWN, "--out", "table.csv/x"], "table.csv/x cannot be made, "),
        ([*OWN, "--root", "table.csv"], "Not a directory; choose another"),
        (["evaluate", "model", "--data", "mini", "--out", "x/y.csv"], "there is no folder x"),
        (["predict", "model", "table.csv", "--out", "folder.csv"], "is not a regular file"),
        (["predict", "model", "table.csv", "--out", "table.csv/x.csv"], "no folder table.csv"),
        (["submit", "model", "--out", "table.csv"], "table.csv is a file, expected a folder"),
        (["datasets", "--root", "table.csv"], "table.csv is a file, expected a folder"),
    ],
)
def test_a_place_that_cannot_be_written_to(failure, words, message):
    assert message in failure(words)


def test_a_folder_that_may_not_be_written_to(failure, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "may not be written to; choose another --out" in failure([*OWN, "--out", "run"])
    words = ["predict", "model", "table.csv", "--out", "out.csv"]
    assert "may not be written to" in failure(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prepare", "moon", "--out", "store"], "no data set 'moon'; there are mini, "),
        ([*TRAIN, "--data", "moon"], "no data set 'moon'; there are mini, "),
        (
            [*TRAIN, "--data", "digits"],
            "'digits' is a task, not a data set of molecules; slicegraph ",
        ),
        ([*TRAIN, "--data", "table.csv"], "'table.csv' is a file; use csv:table.csv"),
        ([*TRAIN, "--data", "csv:table.csv", "--target", "mass"], "no column 'mass'; its columns"),
        ([*OWN, "--split", "odd"], "split = 'odd', expected random, stratified, scaffold"),
        ([*OWN, "--fractions", "0,1,0"], "'gap' has no label in the training split"),
        ([*OWN, "--accelerator", "tpu"], "accelerator = 'tpu' with devices"),
        ([*OWN, "--model.channels", "wide"], "channels = 'wide', expected a whole number"),
        ([*OWN, "--model.dropout", "no"], "dropout = False, expected a number"),
        ([*OWN, "--model.channels", "[1"], "model.channels = '[1', expected a number"),
        (["train", "--config", "missing.yaml"], "'missing.yaml': No such file"),
        (["train", "--config", "folder.csv"], "'folder.csv': Is a directory"),
        (["train", "--config", "bytes.csv"], "bytes.csv is not a YAML file"),
        (["train", "--resume", "missing"], "missing is not a run to resume"),
        (["train", "--resume", "model"], "model is not a run to resume"),
        (["train", "--resume", "torn"], "last.ckpt is damaged, and the run cannot go on from it"),
        (["evaluate", "model", "--data", "moon"], "no data set 'moon'"),
        (["predict", "model", "model"], "'model' is a folder, expected SMILES or .csv"),
        (["report", "missing"], "'missing' is not a run, it is not a folder"),
        (["report", "model"], "'model' is not a run"),
    ],
)
def test_a_word_that_means_nothing(failure, words, message):
    assert message in failure(words)


def test_a_split_that_there_is_not(failure):
    words = ["evaluate", "model", "--data", "csv:table.csv", "--target", "gap", "--split", "odd"]
    assert "split 'odd' of csv:table.csv is not known; --split all scores every row" in failure(
        words
    )


@pytest.mark.parametrize("words", [["info", "x"], ["moon"], [*TRAIN, "--compile", "maybe"]])
def test_a_usage_error_ends_with_status_2(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert words[-1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--compile"], True),
        (["--compile", "true"], True),
        (["--compile", "false"], False),
        (["--no-compile"], False),
    ],
)
def test_a_switch_may_be_said_as_in_yaml(words, value):
    import argparse

    from slicegraph.cli.train import add_arguments, settings

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert settings(parser.parse_args(words)) == {"compile": value}
