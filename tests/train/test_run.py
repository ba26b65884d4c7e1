"""Whole runs of seconds: what they leave, what they refuse, how they stop."""

import csv
import json
import types

import numpy as np
import pytest
import torch
from models.huggingface_folder import formula_folder
from support.tiny_run import MODEL, tiny_config, tiny_run, weights, write_table

import slicegraph
from slicegraph.models import load
from slicegraph.train import train
from slicegraph.train.callbacks import RunCheckpoint, WeightAverage
from slicegraph.train.data import MoleculeRunData
from slicegraph.train.module import TrainingError, TrainingModule
from slicegraph.train.run_folder import RunFolder


def table(path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return tiny_run(folder)


def test_a_run_leaves_everything_that_was_promised(finished):
    names = ["config.yaml", "status.json", "command.txt", "log.csv", "metrics.json", "data.json"]
    names += ["checkpoints/best.ckpt", "checkpoints/last.ckpt", "model/config.json"]
    names += ["model/model.safetensors", "predictions/valid.csv", "predictions/test.csv"]
    assert [name for name in names if not (finished.folder / name).is_file()] == []
    assert json.loads((finished.folder / "status.json").read_text())["state"] == "finished"
    assert json.loads((finished.folder / "metrics.json").read_text()) == finished.metrics
    rows = table(finished.folder / "log.csv")
    assert [(row["epoch"], row["step"]) for row in rows] == [("0", "4"), ("1", "8"), ("2", "12")]
    assert {"train_loss", "valid_loss", "valid_mae", "lr", "molecules_per_second"} <= set(rows[0])


def test_the_predictions_are_those_of_the_saved_model_and_give_the_score(finished):
    rows = table(finished.folder / "predictions" / "test.csv")
    expected = np.array([float(row["gap_pred"]) for row in rows])
    errors = np.abs(expected - [float(row["gap_true"]) for row in rows])
    assert finished.test == pytest.approx(errors.mean(), abs=1e-6)
    assert len({row["index"] for row in rows}) == len(rows) == 4
    found = slicegraph.load(finished.folder).predict([row["smiles"] for row in rows])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_standardisation_is_saved_with_the_model(finished):
    data = MoleculeRunData(RunFolder(finished.folder).config)
    data.setup()
    labels, config = data.split("train").labels.astype(np.float64), load(finished.model).config
    assert config.target_mean == pytest.approx((labels.mean(),))
    assert config.target_std == pytest.approx((labels.std(),))
    assert config.target_names == ("gap",)


def test_checkpoints_are_plain_values_and_load_as_a_model(finished):
    best = finished.folder / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(best, weights_only=True)
    assert checkpoint["hyper_parameters"]["model"]["channels"] == 16
    assert set(checkpoint["callbacks"]) == {"LogTable", "RandomState", "RunCheckpoint"}
    text = ["CCO", "CN"]
    expected = slicegraph.load(finished.folder).predict(text)
    np.testing.assert_allclose(slicegraph.load(best).predict(text), expected, rtol=1e-6)


def test_an_existing_folder_is_refused_by_name_and_stays(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"run exists and is not empty; .*--resume"):
        tiny_run(tmp_path)
    assert [path.name for path in run.iterdir()] == ["mine.txt"]


def test_without_a_name_a_new_dated_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = []
    for _ in range(2):
        folder = RunFolder()
        folders.append(folder.claim(tiny_config(tmp_path, out=None).resolved()))
    assert all(folder.parent.name == "runs" for folder in folders)
    assert folders[0] != folders[1]


def test_a_metric_that_is_not_defined_is_found_before_training(tmp_path):
    lines = ["smiles,active", *(f"{'C' * n},{int(n == 1)}" for n in range(1, 31))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="no split can help"):
        tiny_run(tmp_path, targets=("active",))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "moon", "targets": None, "fractions": None}, "no data set 'moon'"),
        ({"accumulate": 3}, "batch_size = 8 cannot be shared"),
        ({"init": "nowhere"}, "no model in nowhere"),
        ({"model": {"num_targets": 2}}, "model.num_targets is decided by the data"),
        ({"model": {"task_level": "node"}}, "model.task_level is decided by the data"),
    ],
)
def test_settings_that_do_not_fit_leave_no_folder(tmp_path, settings, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        tiny_run(tmp_path, **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("columns", "settings", "metric"),
    [
        ("active", {}, "ROC-AUC"),
        ("gap,size", {"ema": 0.9, "model": {**MODEL, "mixer": "sort"}}, "MAE"),
        ("gaps", {"metric": "rmse", "flag_steps": 1}, "RMSE"),
        ("class", {"task": "multiclass"}, "accuracy"),
    ],
)
def test_a_table_of_ones_own(tmp_path, columns, settings, metric):
    write_table(tmp_path / "table.csv", 60, columns)
    targets = tuple(columns.split(","))
    options = {"targets": targets, "epochs": 1, "fractions": (0.4, 0.3, 0.3)}
    result = tiny_run(tmp_path, **options, **settings)
    assert result.metric == metric
    assert np.isfinite(result.test)
    rows = table(result.folder / "predictions" / "test.csv")
    assert all(np.isfinite(float(row[f"{name}_pred"])) for row in rows for name in targets)
    assert ("model" in settings) == (load(result.model).config.mixer == "sort")
    if columns == "active":
        assert all(0 <= float(row["active_pred"]) <= 1 for row in rows)


def test_the_preset_rings_is_trained_explained_and_predicts_as_it_was_loaded(tmp_path):
    cyclic = ["C1CC1", "c1ccccc1", "C1CCNC1", "c1ccc2ccccc2c1", "C", "[Na+].[Cl-]", "OC1CCC1"]
    texts = [f"{head}{ring}" for ring in cyclic for head in ("", "CC.", "O.", "CN.", "CCC.")]
    lines = [f"{text},{text.count('c') + 0.1 * n}" for n, text in enumerate(texts)]
    (tmp_path / "table.csv").write_text("\n".join(["smiles,gap", *lines]) + "\n")
    result = tiny_run(tmp_path, preset="rings", targets=("gap",), workers=1)
    assert load(result.model).config.rings == 8
    rows = table(result.folder / "predictions" / "test.csv")
    model = slicegraph.load(result.folder)
    found = model.predict([row["smiles"] for row in rows])
    np.testing.assert_allclose(found, [float(row["gap_pred"]) for row in rows], atol=1e-5)
    np.testing.assert_allclose(model.predict("c1ccccc1"), model.predict("C1C=CC=CC=1"), atol=1e-5)
    (explained,) = model.explain("OC1CCC1")
    assert sum(explained.contributions) == pytest.approx(
        explained.prediction - explained.baseline, abs=1e-4
    )


def test_accumulated_parts_make_the_update_of_the_whole_batch(tmp_path):
    # 37 to train on, in batches of 8, 8, 8, 7 and 6, whose quarters are of unequal size.
    write_table(tmp_path / "table.csv", 47, "gap,gaps")
    options = {"targets": ("gap", "gaps"), "dropout": 0.0, "epochs": 2, "lr": 1e-3}
    found, expected = (
        tiny_run(tmp_path, out=str(tmp_path / f"{parts}"), accumulate=parts, **options)
        for parts in (4, 1)
    )
    assert found.metrics["steps"] == expected.metrics["steps"] == 10
    for name, weight in weights(expected.folder).items():
        torch.testing.assert_close(weights(found.folder)[name], weight, rtol=0, atol=1e-6, msg=name)


def test_the_average_of_the_weights_follows_its_formula():
    weight = torch.nn.Linear(1, 1, bias=False)
    module = types.SimpleNamespace(model=weight, device="cpu")
    trainer = types.SimpleNamespace(global_step=0)
    average, expected = WeightAverage(0.3), 1.0
    weight.weight.data.fill_(1.0)
    average.on_fit_start(trainer, module)
    average.on_train_start(trainer, module)
    for number, value in ((1, 2.0), (2, 4.0)):
        weight.weight.data.fill_(value)
        trainer.global_step = number
        average.on_train_batch_end(trainer, module)
        average.on_train_batch_end(trainer, module)  # a batch without an update
        decay = min(0.3, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * value
    average.on_validation_start(trainer, module)
    assert weight.weight.item() == pytest.approx(expected)
    average.on_validation_end(trainer, module)
    assert weight.weight.item() == 4.0
    assert average.average["weight"].item() == pytest.approx(expected)


def test_the_model_is_the_mean_of_the_weights_of_the_best_epochs(tmp_path):
    result = tiny_run(tmp_path, epochs=4, top_k=2, lr=3e-3)
    scores = [float(row["valid_mae"]) for row in table(result.folder / "log.csv")]
    best = sorted(sorted(range(4), key=scores.__getitem__)[:2])
    paths = sorted(result.folder.glob("checkpoints/epoch-*.ckpt"))
    assert [path.stem for path in paths] == [f"epoch-{epoch + 1}" for epoch in best]
    states = [torch.load(path, weights_only=True) for path in paths]
    assert "optimizer_states" not in states[0]
    for name, weight in load(result.model).state_dict().items():
        both = [state["state_dict"][f"model.{name}"] for state in states]
        torch.testing.assert_close(weight, (both[0] + both[1]) / 2, msg=name)
    assert f"epochs {best[0] + 1}, {best[1] + 1}" in result.metrics["chosen_by"]
    assert np.isfinite(slicegraph.load(paths[0]).predict("CCO")).all()


def test_valid_can_be_trained_on_and_then_has_no_score(tmp_path, capsys):
    config = tiny_config(tmp_path, train_splits=("train", "valid"), epochs=2, lr=1e-9)
    result = slicegraph.train(config)
    assert "note    valid is trained on" in capsys.readouterr().out
    splits = json.loads((result.folder / "data.json").read_text())["splits"]
    assert splits == {"train": 36, "valid": 4, "test": 4}
    assert result.valid is None
    assert result.metrics["best_epoch"] == 1
    assert result.metrics["chosen_by"] == "the end of the training"
    assert not (result.folder / "predictions" / "valid.csv").exists()
    assert np.isfinite(result.test)
    assert train(resume=result.folder, progress=False).test == result.test


def test_a_split_that_is_not_there_is_not_trained_on(tmp_path):
    with pytest.raises(ValueError, match=r"train_splits = 'train,test'.*: train, valid$"):
        tiny_run(tmp_path, train_splits=("train", "test"))


def test_checkpoints_are_made_by_time(tmp_path, monkeypatch):
    saved = []
    save = RunCheckpoint._save_last
    monkeypatch.setattr(
        RunCheckpoint, "_save_last", lambda self, t: saved.append(t.global_step) or save(self, t)
    )
    tiny_run(tmp_path, epochs=1, checkpoint_minutes=1e-9)
    assert saved == [1, 2, 3, 4]
    saved.clear()
    tiny_run(tmp_path, epochs=1, out=str(tmp_path / "other"))
    assert saved == [4]


def test_the_batch_of_a_device_becomes_the_batch_of_the_run(tmp_path):
    result = tiny_run(tmp_path, batch_size=None, device_batch_size=16, epochs=1)
    assert result.metrics["steps"] == 2
    settings = RunFolder(result.folder).config
    assert (settings.batch_size, settings.device_batch_size) == (16, None)


def test_early_stopping_ends_the_run_and_a_resumed_one_stays_ended(tmp_path):
    first = tiny_run(tmp_path, epochs=50, patience=2, lr=1e-9)
    assert first.metrics["epochs"] == first.metrics["best_epoch"] + 3 < 50
    moved = first.folder.rename(tmp_path / "moved")
    again = train(resume=moved, progress=False)
    assert again.metrics["epochs"] == first.metrics["epochs"]
    assert again.metrics["best_epoch"] == first.metrics["best_epoch"]


def test_max_steps_ends_in_the_middle_of_an_epoch(tmp_path):
    result = tiny_run(tmp_path, epochs=None, max_steps=6)
    assert result.metrics["steps"] == 6
    assert train(resume=result.folder, progress=False).metrics["steps"] == 6


# In the middle of an epoch, at its end, and at the end of the run: 4 updates an epoch, 12 in all.
@pytest.mark.parametrize("bad_step", [5, 7, 11])
def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_batch(
    tmp_path, monkeypatch, bad_step
):
    step, seen = TrainingModule.training_step, []

    def poisoned(self, batch, batch_idx):
        seen.append((self.trainer.global_step, batch.index.tolist()))
        if self.trainer.global_step == bad_step:
            self.model.head.weight.data.fill_(float("inf"))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(TrainingModule, "training_step", poisoned)
    with pytest.raises(TrainingError, match=rf"after {bad_step} updates; .*bad_batch\.json"):
        tiny_run(tmp_path, checkpoint_steps=1)
    assert seen[-1][0] <= bad_step + 1
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == bad_step
    bad = json.loads((tmp_path / "run" / "bad_batch.json").read_text())
    texts = [line.split(",")[0] for line in (tmp_path / "table.csv").read_text().split()[1:]]
    assert [molecule["row"] for molecule in bad["molecules"]] == dict(seen)[bad_step]
    for molecule in bad["molecules"]:
        assert texts[molecule["row"]] == molecule["smiles"]
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), RuntimeError("out of memory")])
def test_too_little_memory_names_the_batch_and_what_to_change(tmp_path, monkeypatch, error):
    def full(self, batch, batch_idx):
        self.batch = batch
        raise error

    monkeypatch.setattr(TrainingModule, "training_step", full)
    with pytest.raises(TrainingError, match=r"batch of 8 molecules .*accumulate = 2.*batch_size"):
        tiny_run(tmp_path)


def test_fine_tuning_starts_from_the_weights_and_draws_a_head_of_another_size(
    finished, tmp_path, capsys
):
    write_table(tmp_path / "table.csv", columns="gap,size")
    best = tmp_path / "old" / "checkpoints" / "best.ckpt"  # of a run that was interrupted
    best.parent.mkdir(parents=True)
    best.write_bytes((finished.folder / "checkpoints" / "best.ckpt").read_bytes())
    old = load(finished.model)
    for init, targets in ((finished.folder, ("gap", "size")), (tmp_path / "old", ("gap",))):
        out = str(tmp_path / f"{len(targets)}")
        options = {"init": str(init), "model": {}, "lr": 1e-12, "epochs": 1, "out": out}
        tuned = load(tiny_run(tmp_path, targets=targets, **options).model)
        torch.testing.assert_close(tuned.embedding.nodes.weight, old.embedding.nodes.weight)
        drawn = "; random: head.weight, head.bias, as the head" in capsys.readouterr().out
        assert drawn == (tuned.config.num_targets == 2)
    torch.testing.assert_close(tuned.head.weight, old.head.weight)


def test_fine_tuning_refuses_settings_that_do_not_fit(finished, tmp_path):
    message = r"the settings \(channels: 16 in it, 32 here\); leave out the settings of the model"
    with pytest.raises(ValueError, match=message):
        tiny_run(tmp_path, init=str(finished.folder), model={"channels": 32})


def test_a_run_starts_from_a_graphormer_of_transformers(tmp_path):
    folder = formula_folder(tmp_path / "graphormer")
    tuned = load(tiny_run(tmp_path, init=str(folder), model={}, lr=1e-12, epochs=1).model)
    assert (tuned.config.mixer, tuned.config.channels) == ("qkv", 16)
    expected = type(tuned).from_huggingface(folder).embedding.nodes.weight
    torch.testing.assert_close(tuned.embedding.nodes.weight, expected)
