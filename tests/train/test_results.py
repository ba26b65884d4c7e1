"""What a run says and leaves at its end: headline, warnings, scores, molecules, model card."""

import csv
import json
import os
import stat
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn import metrics as peer
from support.tiny_run import tiny_config, tiny_run, write_table

import slicegraph
from slicegraph.data.splits import Task
from slicegraph.metrics import all_metrics
from slicegraph.report import write_report
from slicegraph.train import TrainConfig, data, train
from slicegraph.train.callbacks import RunCheckpoint, changed_settings
from slicegraph.train.results import baselines_of, headline, number, warnings_of
from slicegraph.train.run_folder import molecules_of_run

NAN = float("nan")
WIDE = {"fractions": (0.4, 0.3, 0.3)}


def scored(value, low=0.2, high=0.6, n=100) -> dict:
    return {"n": n, "value": value, "low": low, "high": high}


def metrics(targets: dict, test=0.4, unit="", **others) -> dict:
    return {
        **{"metric": "MAE", "unit": unit, "noun": "molecules", "test": test, "valid": 0.3},
        **{"targets": targets, **others},
    }


MISSING = {"n": 0, "value": None, "reason": "there are no labels"}
HEADLINES = [
    (metrics({"gap": scored(0.4)}, unit="eV"), "test MAE 0.400 eV"),
    (
        metrics({"gap": scored(0.41, 0.22, 0.63, 12)}, unit="eV"),
        "test MAE 0.410 eV (95 % interval 0.220 to 0.630; only 12 molecules)",
    ),
    (
        metrics({"gap": scored(5.364, None, None, 1)}),
        "test MAE 5.364 (1 molecule: no interval)",
    ),
    (metrics({"logD": scored(0.4), "Papp": scored(58465.0)}), "test MAE logD 0.400, Papp 58,465"),
    (
        metrics({"logD": scored(0.4), "Papp": MISSING}, test=None, test_reason="no label"),
        "test MAE logD 0.400, Papp not available (there are no labels)",
    ),
    (
        metrics({"gap": MISSING}, test=None, test_reason="it has no labels"),
        "test MAE not available: it has no labels\nvalid MAE 0.300",
    ),
    (
        metrics({}, test=None, test_reason="the data set has no split 'test'"),
        "test MAE not available: the data set has no split 'test'\nvalid MAE 0.300",
    ),
    (
        metrics({f"t{k}": scored(0.1) for k in range(12)}, test=0.1),
        "test MAE 0.100 (mean of 12 targets)",
    ),
]


@pytest.mark.parametrize(("found", "text"), HEADLINES)
def test_the_headline_is_of_the_test_split_and_names_each_target(found, text):
    assert headline(found) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (0.25, "0.250"),
        (0.0123456, "0.0123"),
        (-1.5, "-1.500"),
        (1234567, "1,234,567"),
    ],
)
def test_numbers_have_the_digits_that_matter(value, text):
    assert number(value) == text


def warned(kind: str, train, true, predicted, trained=True) -> list[str]:
    """The warnings of one target with these labels of train and test and these predictions."""
    labels = np.array(train, float)[:, None]
    dataset = SimpleNamespace(
        noun="molecules",
        task=Task(kind, ("gap",), "mae"),
        splits={"train": np.arange(len(labels))},
        labels=lambda positions: labels[positions],
    )
    true, predicted = np.array(true, float), np.array(predicted, float)
    values = predicted.argmax(1) if predicted.ndim == 2 else predicted
    test = SimpleNamespace(labels=true[:, None], values=values[:, None])
    return warnings_of(dataset, {"gap": all_metrics(kind, true, predicted)}, test, trained)


SIXTY = np.arange(60)


@pytest.mark.parametrize(("train", "true"), [([NAN] * 3, SIXTY % 2), ([0, 1, 1], [NAN] * 60)])
@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_a_target_without_labels_in_train_or_test_ends_no_run(kind, train, true):
    predicted = np.eye(2)[1 - SIXTY % 2] if kind == "multiclass" else 1 - SIXTY % 2
    assert all("most frequent" not in text for text in warned(kind, train, true, predicted))


def test_a_target_without_test_labels_among_others_is_no_warning():
    labels = np.column_stack([SIXTY % 2, [NAN] * 60])
    dataset = SimpleNamespace(
        noun="molecules",
        task=Task("multiclass", ("a", "b"), "acc"),
        splits={"train": SIXTY},
        labels=lambda positions: labels[positions],
    )
    chances = np.eye(2)[SIXTY % 2]
    scores = {name: all_metrics("multiclass", labels[:, t], chances) for t, name in enumerate("ab")}
    test = SimpleNamespace(labels=labels, values=labels)
    assert warnings_of(dataset, scores, test) == []


def test_a_score_without_an_interval_says_why():
    found = scored(1.0, None, None, 2) | {"reason": "no resample"}
    assert headline(metrics({"y": found})) == ("test MAE 1.000 (2 molecules: no interval)")


@pytest.mark.parametrize(
    ("kind", "train", "true", "predicted", "expected"),
    [
        ("regression", SIXTY, SIXTY, 59 - SIXTY, "(test MAE 30.000, the training mean has 15.000)"),
        ("regression", SIXTY, SIXTY, [29.5] * 60, "no better than the mean of the training labels"),
        ("regression", SIXTY + 1000, SIXTY, SIXTY + 90, None),  # R2 < 0, but better than 1029.5
        ("regression", SIXTY, SIXTY, SIXTY + 1, None),
        ("regression", SIXTY, [5.0] * 60, [4.0] * 60, None),  # R2 is not defined
        ("binary", SIXTY % 2, SIXTY % 2, 1 - SIXTY % 2, "no better than guessing: gap (test ROC"),
        ("binary", SIXTY % 2, SIXTY % 2, SIXTY / 60, "perhaps no better than guessing: gap ("),
        ("binary", SIXTY % 2, SIXTY % 2, SIXTY % 2, None),
        ("multiclass", [0, 1, 1], SIXTY % 2, [[1, 0]] * 60, "most frequent class of the training"),
        ("multiclass", [0, 1, 1], SIXTY % 2, np.eye(2)[SIXTY % 2], None),
    ],
)
def test_a_model_that_has_learnt_nothing_is_a_warning(kind, train, true, predicted, expected):
    found = warned(kind, train, true, predicted)
    assert len(found) == (expected is not None)
    assert all(expected in text and "train longer" in text for text in found)
    solved = warned(kind, train, true, predicted, trained=False)
    assert solved == [text.replace("train longer (more epochs), or ", "") for text in found]


@pytest.mark.parametrize(
    ("kind", "metric", "expected"),
    [
        ("regression", "mae", np.abs(SIXTY - 70).mean()),
        ("regression", "rmse", np.sqrt(np.square(SIXTY - 70).mean())),
        ("multiclass", "acc", 1 / 60),
        ("binary", "rocauc", None),
    ],
)
def test_the_baseline_is_of_the_training_labels(kind, metric, expected):
    train = np.array([50.0, NAN, 50.0, 110.0])[:, None]
    task = Task(kind, ("gap",), metric)
    dataset = SimpleNamespace(task=task, splits={"train": np.arange(4)}, labels=lambda i: train[i])
    labels = np.append(SIXTY, NAN)[:, None]
    found = baselines_of(dataset, SimpleNamespace(labels=labels))
    assert found == ({} if expected is None else {"gap": pytest.approx(expected)})
    assert baselines_of(dataset, None) == {}


def test_a_tiny_test_split_is_a_warning():
    (text,) = warned("regression", [1.0, 2.0], [1.0, 2.0, NAN], [1.1, 2.0, 3.0])
    assert text.endswith("only 2 molecules with a label: its scores are uncertain")
    (text,) = warned("regression", [1.0, 5.0], [1.0], [1.1])
    assert "only 1 molecule with a label" in text


def test_only_changed_settings_are_printed(tmp_path):
    config = TrainConfig(epochs=5, lr=1e-3, out="runs/one", model={"heads": 2}).resolved()
    assert changed_settings(config) == "epochs 5, lr 0.001, model.heads 2"
    assert changed_settings(TrainConfig().resolved()) == "all default"
    assert changed_settings(TrainConfig(task="digits", seed=3).resolved()) == "seed 3"


def read(path) -> dict:
    return json.loads(path.read_text("utf-8"))


def columns(path) -> dict[str, np.ndarray]:
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name != "smiles"]
    return {name: np.array([float(row[name] or NAN) for row in rows]) for name in names}


def epoch_end(checkpoint, epoch: int, score: float, loss: float, task: Task) -> None:
    valid = SimpleNamespace(score=score, loss=loss)
    run = SimpleNamespace(dataset=SimpleNamespace(task=task, evaluator=task.evaluator()), epochs=9)
    module = SimpleNamespace(evaluations={"valid": valid}, data=run)
    trainer = SimpleNamespace(current_epoch=epoch, global_step=epoch, lightning_module=module)
    trainer.save_checkpoint = lambda path: None
    if checkpoint.best is None:
        checkpoint.on_train_start(trainer, module)
    checkpoint.on_train_epoch_end(trainer, module)


@pytest.mark.parametrize(
    ("task", "best"),
    [
        (Task("regression", ("logD", "Papp"), "mae"), 1),
        (Task("regression", ("logD",), "mae"), 2),
        (Task("binary", ("a", "b"), "rocauc"), 0),
    ],
)
def test_several_values_are_chosen_by_the_loss_and_others_by_the_score(
    tmp_path, monkeypatch, task, best
):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    checkpoint = RunCheckpoint(SimpleNamespace(path=tmp_path), TrainConfig())
    for epoch, (score, loss) in enumerate([(900.0, 0.8), (800.0, 0.5), (700.0, 0.7)]):
        epoch_end(checkpoint, epoch, score, loss, task)
    assert checkpoint.best_epoch == best


def test_an_older_run_goes_on_with_the_score(tmp_path):
    checkpoint = RunCheckpoint(SimpleNamespace(path=tmp_path), TrainConfig())
    checkpoint.load_state_dict({"best": 5.0, "best_epoch": 0})
    epoch_end(checkpoint, 1, 4.0, 9.0, Task("regression", ("logD", "Papp"), "mae"))
    assert (checkpoint.best, checkpoint.best_epoch) == (4.0, 1)


def test_targets_of_different_scale_count_alike(tmp_path):
    write_table(tmp_path / "table.csv", 60, "gap,size")
    lines = [line.split(",") for line in (tmp_path / "table.csv").read_text().split()]
    rows = [",".join([*line[:2], str(1e4 * float(line[2]))]) for line in lines[1:]]
    (tmp_path / "table.csv").write_text("\n".join(["smiles,gap,size", *rows]))
    result = tiny_run(tmp_path, targets=("gap", "size"), **WIDE)
    losses = columns(result.folder / "log.csv")["valid_loss"]
    assert result.metrics["best_epoch"] == losses.argmin()
    assert result.metrics["chosen_by"] == "valid loss of the standardised targets"
    found, config = columns(result.folder / "predictions/valid.csv"), slicegraph.load(result.model)
    parts = zip(("gap", "size"), config.config.target_std, strict=True)
    each = [np.abs(found[f"{t}_pred"] - found[f"{t}_true"]).mean() / std for t, std in parts]
    assert np.mean(each) == pytest.approx(losses.min(), rel=1e-4)
    assert str(result).startswith("test MAE gap ")
    assert ", size " in str(result)


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    write_table(folder / "table.csv", 90, "class")
    return tiny_run(folder, targets=("class",), task="multiclass", epochs=1, **WIDE)


def test_every_split_has_every_metric(classes):
    found = read(classes.folder / "metrics.json")["splits"]
    assert list(found) == ["train", "valid", "test"]
    assert [found[split]["class"]["n"] for split in found] == [36, 27, 27]
    assert set(found["test"]["class"]) == {"n", "accuracy", "rocauc", "mcc"}
    predicted = columns(classes.folder / "predictions/test.csv")
    expected = peer.accuracy_score(predicted["class_true"], predicted["class_pred"])
    assert found["test"]["class"]["accuracy"]["value"] == pytest.approx(expected)
    assert classes.metrics["targets"]["class"]["value"] == pytest.approx(classes.test)
    chances = np.stack([predicted[f"class_p{k}"] for k in range(3)], axis=1)
    np.testing.assert_allclose(chances.sum(1), 1, atol=1e-6)
    np.testing.assert_array_equal(chances.argmax(1), predicted["class_pred"])
    assert not (classes.folder / "predictions/train.csv").exists()


def test_the_model_has_a_card(classes):
    card = (classes.model / "README.md").read_text()
    record = read(classes.model / "config.json")["training"]
    assert record["data"]["name"] == "table.csv"
    assert len(record["data"]["sha256"]) == 64
    assert record["scores"]["test"] == classes.metrics["splits"]["test"]
    value = record["scores"]["test"]["class"]["accuracy"]["value"]
    texts = ["table.csv", record["data"]["sha256"], record["date"], slicegraph.__version__]
    texts += [f"torch {torch.__version__}", "PyG "]
    texts += [f"| class | accuracy | {value:.3f} |", "train 36, valid 27, test 27", "## Limits"]
    assert [text for text in texts if text not in card] == []
    assert str(classes.folder.parent) not in card


def test_accuracy_of_two_classes_is_that_at_one_half(tmp_path):
    write_table(tmp_path / "table.csv", 60, "active")
    result = tiny_run(tmp_path, targets=("active",), metric="acc", epochs=1, **WIDE)
    assert result.test == result.metrics["splits"]["test"]["active"]["accuracy"]["value"]


def test_a_table_without_a_test_split_says_so(tmp_path):
    result = tiny_run(tmp_path, epochs=1, fractions=(0.8, 0.2, 0.0))
    assert result.test is None
    assert str(result).splitlines()[0] == "test MAE not available: the split is empty"
    assert str(result).splitlines()[1].startswith("valid MAE ")


def test_early_stop_is_said_everywhere(tmp_path, capsys):
    result = train(tiny_config(tmp_path, epochs=50, patience=2, lr=1e-9))
    best = result.metrics["best_epoch"] + 1
    text = f"stopped: no gain for 2 epochs; epoch {best} kept"
    assert text in capsys.readouterr().out
    assert result.metrics["stopped"] == text
    assert read(result.folder / "status.json") == {"state": "finished", "reason": text}
    train(resume=result.folder)
    assert text in capsys.readouterr().out


def test_the_console_has_changed_settings_and_warnings(tmp_path, capsys):
    train(tiny_config(tmp_path, epochs=2, lr=1e-9))
    out = capsys.readouterr().out
    (settings,) = (line for line in out.splitlines() if line.startswith("settings  "))
    assert "epochs 2, lr 1e-09" in settings
    assert "checkpoint_steps" not in out
    assert "WARNING the test split has only 4 molecules" in out
    metrics = read(tmp_path / "run" / "metrics.json")
    assert metrics["stopped"] == ""
    assert all(f"WARNING {text}" in out for text in metrics["warnings"])


def test_every_file_and_folder_has_the_mode_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        result = tiny_run(tmp_path, epochs=1, root=str(tmp_path / "data"))
        write_report(result.folder)
    finally:
        os.umask(before)
    for path in (*tmp_path.glob("data/**/*"), *result.folder.rglob("*")):
        expected = 0o750 if path.is_dir() else 0o640
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def change_dataset(monkeypatch, change) -> None:
    """Let a run train on another data set than the one it has loaded."""
    load = data.load_dataset
    monkeypatch.setattr(
        data, "load_dataset", lambda *args, **options: change(load(*args, **options))
    )


def test_a_run_remembers_its_molecules_and_the_summary(tmp_path, monkeypatch, capsys):
    def change(dataset):
        keys = np.arange(len(dataset.store), dtype=np.uint64) + np.uint64(2**63)
        object.__setattr__(dataset, "keys", keys)
        object.__setattr__(dataset, "summary", {"file": "table.csv", "rows": 40})
        object.__setattr__(dataset, "standardize", ("fragment",))
        return dataset

    change_dataset(monkeypatch, change)
    lines = SimpleNamespace(summary_lines=lambda summary: [f"rows    {summary['rows']}"])
    monkeypatch.setitem(sys.modules, "slicegraph.data.summary", lines)
    result = train(tiny_config(tmp_path, epochs=1))
    assert "\nrows    40\n" in capsys.readouterr().out
    assert read(result.folder / "data.json")["summary"] == {"file": "table.csv", "rows": 40}
    assert slicegraph.load(result.model).config.standardize == ("fragment",)
    for model in (result.folder, result.model, result.folder / "checkpoints" / "best.ckpt"):
        found = molecules_of_run(model)
        assert [len(found[name]) for name in ("train", "valid", "test")] == [32, 4, 4]
        assert len(np.unique(np.concatenate(list(found.values())))) == 40
        assert all(part.dtype == np.uint64 for part in found.values())
    (result.folder / "molecules.npz").write_bytes(b"PK damaged")
    with pytest.raises(ValueError, match=r"molecules\.npz is damaged"):
        molecules_of_run(result.folder)


def test_a_saved_model_alone_remembers_no_molecules(tmp_path):
    assert molecules_of_run(tmp_path) is None


def test_limits_train_and_do_not_score(tmp_path, monkeypatch):
    write_table(tmp_path / "table.csv", 60)

    def change(dataset):
        bounds = (np.arange(60) % 3 - 1).astype(np.int8)[:, None]
        return replace(dataset, store=dataset.store.with_labels(dataset.store.labels, bounds))

    change_dataset(monkeypatch, change)
    result = tiny_run(tmp_path, epochs=2, **WIDE)
    found = columns(result.folder / "predictions/test.csv")
    exact = found["index"] % 3 == 1
    errors = np.abs(found["gap_pred"] - found["gap_true"])[exact]
    assert result.metrics["splits"]["test"]["gap"]["n"] == exact.sum() < len(exact)
    assert result.test == pytest.approx(errors.mean(), abs=1e-6)
