"""Whole runs of seconds: what they leave, what they refuse, how they stop."""

import csv
import json

import numpy as np
import pytest
import torch
from support.tiny_run import MODEL, tiny_config, write_table

import slicegraph
from slicegraph.models import load
from slicegraph.train import TrainConfig, train
from slicegraph.train.bad_batch import TrainingError
from slicegraph.train.module import TrainingModule
from slicegraph.train.run_folder import RunFolder


def table(path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return train(tiny_config(folder), progress=False)


def test_a_run_leaves_everything_that_was_promised(finished):
    names = ["config.yaml", "status.json", "command.txt", "log.csv", "metrics.json", "data.json"]
    names += ["checkpoints/best.ckpt", "checkpoints/last.ckpt", "model/config.json"]
    names += ["model/model.safetensors", "predictions/valid.csv", "predictions/test.csv"]
    assert [name for name in names if not (finished.folder / name).is_file()] == []
    assert json.loads((finished.folder / "status.json").read_text())["state"] == "finished"
    assert json.loads((finished.folder / "metrics.json").read_text()) == finished.metrics


def test_the_log_has_a_row_for_each_epoch(finished):
    rows = table(finished.folder / "log.csv")
    assert [(row["epoch"], row["step"]) for row in rows] == [("0", "4"), ("1", "8"), ("2", "12")]
    assert {"train_loss", "valid_loss", "valid_mae", "lr", "molecules_per_second"} <= set(rows[0])


def test_the_score_is_that_of_the_table_of_predictions(finished):
    rows = table(finished.folder / "predictions" / "test.csv")
    errors = [abs(float(row["gap_true"]) - float(row["gap_pred"])) for row in rows]
    assert finished.test == pytest.approx(np.mean(errors), abs=1e-6)
    assert len({row["index"] for row in rows}) == len(rows) == 4


def test_the_saved_model_predicts_the_table_in_the_unit_of_the_targets(finished):
    model, rows = slicegraph.load(finished.folder), table(finished.folder / "predictions/test.csv")
    found = model.predict([row["smiles"] for row in rows])
    expected = np.array([float(row["gap_pred"]) for row in rows])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_standardisation_is_saved_with_the_model(finished):
    data = train_labels(finished)
    config = load(finished.model).config
    assert config.target_mean == pytest.approx((data.mean(),))
    assert config.target_std == pytest.approx((data.std(),))
    assert config.target_names == ("gap",)


def train_labels(result) -> np.ndarray:
    from slicegraph.train.data import MoleculeData

    data = MoleculeData(RunFolder(result.folder).config)
    data.setup()
    return data.split("train").labels.astype(np.float64)


def test_checkpoints_are_plain_values_and_load_as_a_model(finished):
    best = finished.folder / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(best, weights_only=True)
    assert checkpoint["hyper_parameters"]["model"]["channels"] == 16
    text = ["CCO", "CN"]
    expected = slicegraph.load(finished.folder).predict(text)
    np.testing.assert_allclose(slicegraph.load(best).predict(text), expected, rtol=1e-6)


def test_the_module_is_the_function():
    assert callable(slicegraph.train)
    assert slicegraph.train.train is train
    with pytest.raises(ValueError, match="no setting 'nonsense'"):
        slicegraph.train({"nonsense": 1})


def test_an_existing_folder_is_refused_by_name_and_stays(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"run exists and is not empty; .*--resume"):
        train(tiny_config(tmp_path), progress=False)
    assert [path.name for path in run.iterdir()] == ["mine.txt"]


def test_without_a_name_a_new_dated_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = [train(tiny_config(tmp_path, out=None, epochs=1), progress=False) for _ in range(2)]
    assert all(result.folder.parent.name == "runs" for result in results)
    assert results[0].folder != results[1].folder


def test_unknown_data_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="no data set 'moon'"):
        train(TrainConfig(data="moon", root=str(tmp_path), out=str(tmp_path / "r")))
    assert not (tmp_path / "r").exists()


def test_a_batch_that_cannot_be_cut_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="batch_size = 8 cannot be shared"):
        train(tiny_config(tmp_path, accumulate=3), progress=False)


def test_a_metric_that_is_not_defined_is_found_before_training(tmp_path):
    lines = ["smiles,active", *(f"{'C' * n},{int(n == 1)}" for n in range(1, 31))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"split 'valid' of .* cannot be scored"):
        train(tiny_config(tmp_path, targets=("active",)), progress=False)


@pytest.mark.parametrize(
    ("columns", "settings", "metric"),
    [
        ("active", {}, "ROC-AUC"),
        ("gap,size", {}, "MAE"),
        ("gaps", {"metric": "rmse"}, "RMSE"),
        ("class", {"task": "multiclass"}, "accuracy"),
    ],
)
def test_a_table_of_ones_own(tmp_path, columns, settings, metric):
    write_table(tmp_path / "table.csv", 60, columns)
    targets = tuple(columns.split(","))
    config = tiny_config(tmp_path, targets=targets, epochs=1, fractions=(0.4, 0.3, 0.3), **settings)
    result = train(config, progress=False)
    assert result.metric == metric
    assert np.isfinite(result.test)
    rows = table(result.folder / "predictions" / "test.csv")
    assert all(np.isfinite(float(row[f"{name}_pred"])) for row in rows for name in targets)
    if columns == "active":
        assert all(0 <= float(row["active_pred"]) <= 1 for row in rows)


def test_early_stopping_ends_the_run_and_a_resumed_one_stays_ended(tmp_path):
    config = tiny_config(tmp_path, epochs=50, patience=2, lr=1e-9)
    first = train(config, progress=False)
    assert first.metrics["epochs"] == first.metrics["best_epoch"] + 3 < 50
    again = train(resume=first.folder, progress=False)
    assert again.metrics["epochs"] == first.metrics["epochs"]


def test_max_steps_ends_in_the_middle_of_an_epoch(tmp_path):
    result = train(tiny_config(tmp_path, epochs=None, max_steps=6), progress=False)
    assert result.metrics["steps"] == 6


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_batch(tmp_path, monkeypatch):
    step = TrainingModule.training_step

    def poisoned(self, batch, batch_idx):
        if self.trainer.global_step == 5:
            with torch.no_grad():
                self.model.head.weight.fill_(float("inf"))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(TrainingModule, "training_step", poisoned)
    with pytest.raises(TrainingError, match=r"after 5 updates; .*bad_batch\.json"):
        train(tiny_config(tmp_path), progress=False)
    bad = json.loads((tmp_path / "run" / "bad_batch.json").read_text())
    assert len(bad["molecules"]) == 8
    texts = [line.split(",")[0] for line in (tmp_path / "table.csv").read_text().split()[1:]]
    for molecule in bad["molecules"]:
        assert texts[molecule["row"]] == molecule["smiles"]
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "failed"


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")]
)
def test_too_little_memory_names_the_batch_and_what_to_change(tmp_path, monkeypatch, error):
    def full(self, batch, batch_idx):
        self.batch = batch
        raise error

    monkeypatch.setattr(TrainingModule, "training_step", full)
    with pytest.raises(TrainingError, match=r"batch of 8 molecules .*accumulate = 2.*batch_size"):
        train(tiny_config(tmp_path), progress=False)


def test_fine_tuning_starts_from_the_weights_and_draws_a_head_of_another_size(
    finished, tmp_path, capsys
):
    write_table(tmp_path / "table.csv", columns="gap,size")
    config = tiny_config(
        tmp_path, targets=("gap", "size"), init=str(finished.folder), model={}, lr=1e-12, epochs=1
    )
    tuned = load(train(config, progress=False).model)
    assert "drawn anew" in capsys.readouterr().out
    old = load(finished.model)
    assert tuned.config.num_targets == 2
    torch.testing.assert_close(tuned.embedding.nodes.weight, old.embedding.nodes.weight)


def test_fine_tuning_refuses_settings_that_do_not_fit(finished, tmp_path):
    config = tiny_config(tmp_path, init=str(finished.folder), model={"channels": 32})
    message = r"the settings \(channels: 16 in it, 32 here\); leave out the settings of the model"
    with pytest.raises(ValueError, match=message):
        train(config, progress=False)


def test_fine_tuning_from_nothing_is_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model in .*nowhere"):
        train(tiny_config(tmp_path, init=str(tmp_path / "nowhere")), progress=False)


@pytest.mark.parametrize("settings", [{"ema": 0.9}, {"accumulate": 2}, {"flag_steps": 1}])
def test_options_of_training_run(tmp_path, settings):
    config = tiny_config(tmp_path, epochs=1, **settings)
    assert np.isfinite(train(config, progress=False).test)


def test_a_setting_of_the_model_reaches_it(tmp_path):
    config = tiny_config(tmp_path, epochs=1, model={**MODEL, "mixer": "sort"})
    assert load(train(config, progress=False).model).config.mixer == "sort"
