"""Runs of tasks by name: sequences and images through the engine of the molecules."""

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.stripes import write_stripes
from support.tiny_run import MODEL

import slicegraph
from slicegraph.cli import main
from slicegraph.report.read import confusion_matrix
from slicegraph.tasks.domain import load_set
from slicegraph.train import TrainConfig, train

ROOT = Path(__file__).parents[2]


def stripes(folder, **settings) -> TrainConfig:
    """Six batches of eight an epoch, three epochs."""
    defaults = {
        "task": "images",
        "data": str(folder / "stripes"),
        "root": str(folder / "dataset"),
        "out": str(folder / "run"),
        "model": {**MODEL, "image_size": 8, "patch_size": 4},
        "batch_size": 8,
        "epochs": 3,
        "lr": 1e-2,
        "dropout": 0.1,
        "accelerator": "cpu",
        "threads": 1,
    }
    if not (folder / "stripes").exists():
        write_stripes(folder / "stripes")
    return TrainConfig(**(defaults | settings))


def expressions(folder, **model) -> TrainConfig:
    """ListOps, cut after 64 tokens: sequences for a moment's run."""
    settings = {"task": "listops", "data": None, "examples": 40, "epochs": 1}
    return stripes(folder, **settings, model={**MODEL, "max_length": 64, **model})


def table(path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(stripes(tmp_path_factory.mktemp("stripes")), progress=False)


def test_the_score_is_the_share_of_right_rows_of_the_table(finished):
    rows = table(finished.folder / "predictions" / "test.csv")
    right = [row["class_true"] == row["class_pred"] for row in rows]
    assert finished.metric == "accuracy"
    assert finished.test == pytest.approx(np.mean(right))
    assert len({row["index"] for row in rows}) == len(rows) == 6
    assert "images_per_second" in table(finished.folder / "log.csv")[0]
    card = json.loads((finished.folder / "data.json").read_text())
    assert card["class_names"] == ["lying", "upright"]
    assert card["splits"] == {"train": 48, "valid": 6, "test": 6}


def test_load_and_evaluate_give_the_table_of_the_run(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = table(finished.folder / "predictions" / "test.csv")
    pixels, _ = load_set(TrainConfig.read(finished.folder / "config.yaml")).arrays("test")
    for place in (finished.folder, finished.model, finished.folder / "checkpoints/best.ckpt"):
        found = slicegraph.load(place).predict(pixels)
        assert found.argmax(-1).tolist() == [int(row["class_pred"]) for row in rows]
    arguments = ["evaluate", str(finished.folder), "--split", "test", "--out", "found.csv"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"test accuracy {finished.test:.4g}\n6 images in")
    for column in ("class_true", "class_pred"):
        assert [row[column] for row in table("found.csv")] == [row[column] for row in rows]
    assert not (tmp_path / "dataset").exists()  # that of the run is used
    assert main(["predict", str(finished.folder), "CCO"]) == 2
    said = capsys.readouterr().err
    assert "is a model of images, not of molecules; in Python, slicegraph.load(" in said


def test_the_page_has_a_confusion_matrix_with_the_names_of_the_classes(finished):
    from slicegraph.report import write_report
    from slicegraph.report.read import read_run

    page = write_report(finished.folder).read_text()
    assert "Confusion matrix" in page
    assert "molecules" not in page.split("<h2>Repeat it")[0].split("<body")[-1]
    (target,) = read_run(finished.folder).predictions["test"]
    rows = table(finished.folder / "predictions" / "test.csv")
    counts = confusion_matrix(target.true, target.predicted, 2)
    for true, found in np.ndindex(2, 2):
        pairs = [(int(row["class_true"]), int(row["class_pred"])) for row in rows]
        assert counts[true, found] == pairs.count((true, found))
    assert target.class_name(1) == "upright"
    assert (finished.folder / "figures" / "confusion.png").is_file()


def test_data_with_other_classes_are_refused_with_the_names_of_both(finished, tmp_path, capsys):
    write_stripes(tmp_path / "other", 10)
    (tmp_path / "other" / "lying").rename(tmp_path / "other" / "flat")
    arguments = ["evaluate", str(finished.folder), "--root", str(tmp_path)]
    assert main([*arguments, "--data", str(tmp_path / "other")]) == 2
    said = capsys.readouterr().err
    assert "it has 2 classes (lying, upright), the data have 2 (flat, upright)" in said


@pytest.mark.parametrize("name", ["images", "mini"])
def test_a_folder_that_is_called_like_the_task_or_the_default_is_used(
    finished, tmp_path, monkeypatch, capsys, name
):
    write_stripes(tmp_path / name, 10)
    monkeypatch.chdir(tmp_path)
    result = train(stripes(tmp_path, data=name, epochs=1), progress=False)
    card = json.loads((result.folder / "data.json").read_text())
    assert card["splits"] == {"train": 16, "valid": 2, "test": 2}
    for run, own in ((finished.folder, ["--data", name]), (result.folder, [])):
        arguments = ["evaluate", str(run), "--split", "all", "--root", str(tmp_path), *own]
        assert main([*arguments, "--out", "table.csv", "--force"]) == 0
        assert "\n20 images in" in capsys.readouterr().out


def test_the_task_has_its_own_data_beside_a_folder_of_its_name_that_nobody_named(
    tmp_path, monkeypatch
):
    for split in ("train", "val", "test"):
        path = tmp_path / "listops" / f"basic_{split}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("Source\tTarget\n( ( [MAX 1 ) 0 ) ]\t1\n")
    (tmp_path / "mini").mkdir()
    monkeypatch.chdir(tmp_path)
    sizes = {}
    for data, examples in ((None, 20), ("listops", None)):
        config = TrainConfig(task="listops", data=data, root="root", examples=examples).resolved()
        (tmp_path / "config.yaml").write_text(config.to_yaml())
        for settings in (config, TrainConfig.read("config.yaml").resolved()):
            sizes.setdefault(data, set()).add(len(load_set(settings).store))
    assert sizes == {None: {20}, "listops": {3}}


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(finished, tmp_path):
    from slicegraph.train.callbacks import StepLimit

    class Enough(Exception):
        pass

    def stop(self, trainer, pl_module, *arguments):
        if trainer.global_step == 9:
            raise Enough

    config = stripes(finished.folder.parent, out=str(tmp_path / "run"), checkpoint_steps=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepLimit, "on_train_batch_end", stop)
        with pytest.raises(Enough):
            train(config, progress=False)
    resumed = train(resume=tmp_path / "run", progress=False)
    files = [run / "checkpoints" / "last.ckpt" for run in (finished.folder, resumed.folder)]
    expected, found = (torch.load(file, weights_only=True)["state_dict"] for file in files)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert resumed.test == finished.test


def test_settings_reach_the_model_and_sequences_are_cut_at_its_length(tmp_path, capsys):
    result = train(expressions(tmp_path, order="interleave"))
    said = capsys.readouterr().out
    assert re.search(r"note +[\d,]+ of [\d,]+ sequences, the longest of [\d,]+, .*= 64 and", said)
    assert "multiclass of class (10: 0, 1, 2" in said
    assert int(table(result.folder / "predictions/test.csv")[0]["length"]) > 64
    model = slicegraph.load(result.folder)
    assert (model.config.order, model.config.num_classes) == ("interleave", 10)
    long = [11, *[3] * 70, 15]
    with pytest.warns(
        UserWarning, match="1 of 2 sequences, the longest of 72, .* = 64 and are cut"
    ):
        found = model.predict([[1], long])
    np.testing.assert_allclose(found[1:], model.predict([long[:64]]), atol=1e-6)


def test_a_run_starts_from_the_weights_of_another_with_images_of_its_size(finished, tmp_path):
    settings = {"init": str(finished.folder), "model": {}, "lr": 1e-9, "end_lr": 1e-9}
    config = stripes(finished.folder.parent, out=str(tmp_path / "b"), **settings)
    tuned = slicegraph.load(train(config, progress=False).folder)
    torch.testing.assert_close(
        tuned.state_dict(), slicegraph.load(finished.folder).state_dict(), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model": {"image_size": 32}},
            r"does not fit the settings \(image_size: 8 in it, 32 here\); leave out the settings",
        ),
        (
            {"task": "digits", "data": None, "model": {}},
            r"run does not fit the task \(image_channels: 3 in it, 1 here\); start from a model of",
        ),
    ],
)
def test_a_run_that_starts_from_another_model_says_what_differs(
    finished, tmp_path, settings, message
):
    pytest.importorskip("sklearn")
    with pytest.raises(ValueError, match=message):
        train(stripes(tmp_path, init=str(finished.folder), **settings), progress=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "listop"}, "there is no task 'listop'; there are listops, text, "),
        ({"task": "digits", "smiles": "x"}, "smiles is for molecules, not for task 'digits'"),
        ({"task": "digits", "flag_steps": 1}, "flag_steps is for molecules"),
        ({"task": "digits", "data": "csv:x.csv"}, "csv:x.csv is for molecules"),
        ({"examples": 9}, "examples is for a task by name"),
        ({"task": "digits", "preset": "sliceformer-base"}, "there is no preset 'sliceformer-base'"),
        ({"task": "retrieval"}, "task 'retrieval' has no data of its own"),
        ({"task": "digits", "preset": "mini"}, "no preset 'mini' for a task; there are text-"),
        ({"task": "digits", "data": "mini"}, "has its own data; leave out --data mini"),
        ({"task": "listops", "data": "mini"}, "there is no mini; --data is the folder lra_release"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        train({"out": str(tmp_path / "run"), "root": str(tmp_path), **settings}, progress=False)
    assert not (tmp_path / "run").exists()


def test_a_preset_of_sequences_is_refused_for_images(tmp_path):
    with pytest.raises(ValueError, match=r"takes sequences, and task 'images' has images; .*vit-"):
        train(stripes(tmp_path, preset="lra-text", model={}), progress=False)


def test_a_task_by_name_chooses_data_preset_and_recipe(tmp_path):
    config = TrainConfig(task="digits").resolved()
    assert (config.data, config.preset, config.lr) == (None, "mini-digits", 2e-3)
    assert config.resolved() == config
    assert TrainConfig(task="text", preset="lra-text").resolved().preset == "lra-text"
    for settings in (config, replace(config, data="digits")):  # the name of the task is its data
        (tmp_path / "config.yaml").write_text(settings.to_yaml())
        assert TrainConfig.read(tmp_path / "config.yaml").resolved() == config


@pytest.mark.slow
def test_two_ranks_predict_what_one_process_does_and_every_sample_once(finished, tmp_path):
    settings = {"dropout": 0.0, "epochs": 1, "out": str(tmp_path / "one")}
    config = stripes(finished.folder.parent, **settings)
    train(config, progress=False)
    config = replace(config, out=str(tmp_path / "two"), devices="2")
    (tmp_path / "two.yaml").write_text(config.to_yaml())
    command = [sys.executable, "-m", "slicegraph", "train", "--config", str(tmp_path / "two.yaml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\ntest accuracy") == 1
    one, two = (table(tmp_path / name / "predictions" / "valid.csv") for name in ("one", "two"))
    for alone, shared in zip(one, two, strict=True):
        for name in ("class_p0", "class_p1"):  # two ranks add up gradients in another order
            assert float(alone.pop(name)) == pytest.approx(float(shared.pop(name)), abs=1e-5)
        assert alone == shared
    assert len({row["index"] for row in two}) == len(two) == 6


def test_series_of_numbers_are_trained_on(tmp_path, monkeypatch):
    def load_acsf1(split):
        rng = np.random.default_rng(len(split))
        labels = np.array(["a", "b"] * 10)
        return rng.normal(size=(20, 1, 30)) + (labels == "b")[:, None, None], labels

    datasets = SimpleNamespace(load_acsf1=load_acsf1)
    monkeypatch.setitem(sys.modules, "aeon", SimpleNamespace(datasets=datasets))
    result = train(stripes(tmp_path, task="acsf1", data=None, model=MODEL), progress=False)
    series, _ = load_acsf1("test")
    rows = table(result.folder / "predictions" / "test.csv")
    found = slicegraph.load(result.folder).predict(series[:, 0])
    assert found.argmax(-1).tolist() == [int(row["class_pred"]) for row in rows]
