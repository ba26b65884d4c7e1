"""Weights of rows and classes, and targets on a logarithmic scale, from table to prediction."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.tiny_run import smiles, tiny_config, tiny_run

import slicegraph
from slicegraph.data import load
from slicegraph.models import GraphSliceformer
from slicegraph.train.module import LabelWeights, loss_of

NAN = float("nan")


def write(path: Path, header: str, rows: list[list]) -> str:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return f"csv:{path}"


def data_of(labels, weights=None, kind="binary", classes=2) -> SimpleNamespace:
    """A data set in memory whose rows are all in train."""
    labels = np.array(labels, float)
    task = SimpleNamespace(kind=kind, num_classes=classes, target_names=("a", "b"))
    store = SimpleNamespace(weights=None if weights is None else np.array(weights))
    splits = {"train": np.arange(len(labels))}
    return SimpleNamespace(store=store, splits=splits, task=task, labels=lambda rows: labels[rows])


def batch_of(labels, weights=None) -> SimpleNamespace:
    weights = None if weights is None else torch.tensor(weights)
    return SimpleNamespace(y=torch.tensor(labels), weight=weights)


def test_row_weights_have_the_mean_one():
    found = LabelWeights(data_of([[0.0]] * 3, [1.0, 2.0, 6.0]), balance=False)
    weights = found.of(batch_of([[0.0]] * 3, [1.0, 2.0, 6.0]))
    torch.testing.assert_close(weights, torch.tensor([[1 / 3], [2 / 3], [2.0]]))


def test_without_weights_there_are_none():
    assert LabelWeights(data_of([[0.0]]), balance=False).of(SimpleNamespace(y=None)) is None


@pytest.mark.parametrize("weights", [None, [1.0, 3.0, 1.0, 1.0, 2.0, 2.0]])
def test_balanced_classes_have_the_same_sum_for_each_target(weights):
    labels = [[0.0, 1.0], [0.0, NAN], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [NAN, 0.0]]
    found = LabelWeights(data_of(labels, weights), balance=True).of(batch_of(labels, weights))
    for own, each in zip(torch.tensor(labels).T, found.T, strict=True):
        sums = [each[own == k].sum().item() for k in (0, 1)]
        assert sums == pytest.approx([(~own.isnan()).sum().item() / 2] * 2)
    if weights is None:  # scikit-learn's "balanced": n / (classes * n of the class)
        torch.testing.assert_close(found[:, 0][:5], torch.tensor([0.625] * 3 + [2.5] + [0.625]))


def test_a_class_that_is_never_trained_on_changes_nothing():
    labels = [[0.0], [2.0], [2.0]]
    found = LabelWeights(data_of(labels, kind="multiclass", classes=4), balance=True)
    torch.testing.assert_close(found.of(batch_of(labels)), torch.tensor([[1.5], [0.75], [0.75]]))


@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_a_weight_of_two_counts_as_two_rows(kind):
    net = GraphSliceformer.from_preset("mini", num_layers=1, channels=8, heads=2)
    task = SimpleNamespace(kind=kind, metric="mae")
    scores = torch.randn((3, 2, 3) if kind == "multiclass" else (3, 2))
    labels = torch.tensor([[0.0, 1.0], [1.0, NAN], [1.0, 0.0]])
    twice, count = loss_of(task, net, scores, labels, weights=torch.tensor([[1.0], [2.0], [1.0]]))
    rows = [0, 1, 1, 2]
    torch.testing.assert_close(twice, loss_of(task, net, scores[rows], labels[rows])[0])
    assert count == 5


def test_log_target_compares_logarithms_and_predicts_the_target():
    net = GraphSliceformer.from_preset(
        "mini",
        num_layers=1,
        channels=8,
        heads=2,
        log_target=True,
        target_mean=(1.0,),
        target_std=(2.0,),
    )
    targets = torch.tensor([[10.0], [1e5], [0.1]])
    scores = torch.tensor([[0.0], [2.0], [-1.0]])  # (log10 - 1) / 2
    torch.testing.assert_close(net.standardise(targets), scores)
    torch.testing.assert_close(net.rescale(scores), targets)
    task = SimpleNamespace(kind="regression", metric="rmse")
    assert loss_of(task, net, scores + 3, targets)[0].item() == pytest.approx(27)


def test_log_target_is_for_a_regression():
    with pytest.raises(
        ValueError, match="task = 'binary', expected 'regression', which log_target"
    ):
        GraphSliceformer.from_preset("mini", task="binary", log_target=True)


@pytest.fixture(scope="module")
def decades(tmp_path_factory):
    """A run on values over five decades."""
    folder = tmp_path_factory.mktemp("decades")
    rows = [[text, 10.0 ** (text.count("N") - text.count("O"))] for text in smiles(60)]
    data = write(folder / "table.csv", "smiles,Kd", rows)
    return tiny_run(folder, data=data, targets=("Kd",), log_target=True, epochs=5)


def test_a_run_on_logarithms_scores_in_the_unit_of_the_target(decades):
    with open(decades.folder / "predictions/test.csv") as file:
        rows = list(csv.DictReader(file))
    true, predicted = (np.array([float(row[f"Kd_{x}"]) for row in rows]) for x in ("true", "pred"))
    assert (predicted > 0).all()
    assert np.abs(true - predicted).mean() == pytest.approx(decades.test, rel=1e-4)
    model = slicegraph.load(decades.model)
    texts = [row["smiles"] for row in rows]
    np.testing.assert_allclose(model.predict(texts), predicted, rtol=1e-3)
    labels = load(f"csv:{decades.folder.parent / 'table.csv'}", targets="Kd")
    train = labels.store.labels[labels.splits["train"]]
    assert model.config.target_mean == pytest.approx([np.log10(train).mean()], rel=1e-5)


def test_the_card_of_a_run_on_logarithms_has_the_option(decades):
    record = json.loads((decades.model / "config.json").read_text())["training"]
    assert record["options"]["log_target"] is True
    assert "log_target True" in (decades.model / "README.md").read_text()


def test_log_target_names_a_value_without_a_logarithm(tmp_path):
    rows = [[text, 0 if number in (4, 9) else number] for number, text in enumerate(smiles(40), 1)]
    data = write(tmp_path / "t.csv", "smiles,Kd", rows)
    with pytest.raises(ValueError, match=r"2 of 'Kd' are not \(first 0 in data row 3\); mend"):
        tiny_run(tmp_path, data=data, targets=("Kd",), log_target=True)


def test_log_target_and_class_balance_name_the_task_they_are_not_for(tmp_path):
    with pytest.raises(ValueError, match="class_balance is for classes, gap is a regression"):
        tiny_run(tmp_path, class_balance=True)
    data = write(tmp_path / "c.csv", "smiles,x", [[t, t.count("N") > 1] for t in smiles(40)])
    with pytest.raises(ValueError, match="log_target is for numbers, x is a binary task"):
        tiny_run(tmp_path, data=data, targets=("x",), log_target=True)


def test_a_row_of_weight_zero_is_not_learned_from(tmp_path):
    """Wrong labels with the weight 0 give the model that is trained without their influence."""
    runs = []
    for wrong in (0.0, 1e3):
        folder = tmp_path / str(wrong)
        folder.mkdir()
        rows = [
            [t, t.count("N") + (wrong if n < 6 else 0), 0 if n < 6 else 1 + n % 2]
            for n, t in enumerate(smiles(48))
        ]
        data = write(folder / "t.csv", "smiles,gap,weight", rows)
        options = {"weight_column": "weight", "epochs": 2, "patience": 0}
        runs.append(tiny_run(folder, data=data, **options))
    first, second = (
        torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True) for run in runs
    )
    for name, value in first["state_dict"].items():
        torch.testing.assert_close(value, second["state_dict"][name])


def test_bad_weights_are_rejected_with_their_reasons(tmp_path):
    weights = ["1"] * 37 + ["-2", "", ">3"]
    rows = [
        [text, text.count("N"), weight] for text, weight in zip(smiles(40), weights, strict=True)
    ]
    data = write(tmp_path / "t.csv", "smiles,gap,weight", rows)
    with pytest.raises(ValueError, match="3 of 40 rows cannot be used") as error:
        load(data, targets="gap", weight_column="weight")
    for text in ("weight = -2 is below 0", "weight has no value", "weight = '>3' is a limit"):
        assert text in str(error.value)
    found = load(data, targets="gap", weight_column="weight", allow_rejected=0.1)
    assert sum(map(len, found.splits.values())) == 37
    assert sum(entry["count"] for entry in found.summary["rejected"]) == 3
    assert "weights of the rows from 'weight'" in " ".join(found.summary["notes"])


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("wieght", "did you mean 'weight'"),
        ("words", "it holds"),
        ("smiles", "it holds the molecules"),
    ],
)
def test_a_column_that_has_no_weights_is_named(tmp_path, column, problem):
    rows = [[text, text.count("N"), 1, f"text {text}"] for text in smiles(40)]
    data = write(tmp_path / "t.csv", "smiles,gap,weight,words", rows)
    with pytest.raises(ValueError, match=problem):
        load(data, targets="gap", weight_column=column)


def test_merged_replicates_have_the_mean_of_their_weights(tmp_path):
    rows = [[text, text.count("N") + n, 1 + 2 * n] for text in smiles(40) for n in (0, 1)]
    data = write(tmp_path / "t.csv", "smiles,gap,weight", rows)
    options = {"targets": "gap", "weight_column": "weight", "replicates": "mean"}
    found = load(data, **options)
    positions = np.concatenate(list(found.splits.values()))
    assert found.store[positions].weights.tolist() == [2.0] * 40


def test_a_resumed_run_has_the_same_weights(tmp_path):
    config = tiny_config(tmp_path, class_balance=True, weight_column="w")
    assert type(config).read is not None
    text = config.to_yaml()
    (tmp_path / "c.yaml").write_text(text)
    again = type(config).read(tmp_path / "c.yaml")
    assert (again.class_balance, again.weight_column, again.log_target) == (True, "w", False)


def test_intervals_of_logarithms_are_positive_and_symmetric_on_their_scale(decades):
    model = slicegraph.load(decades.folder)
    texts = smiles(20)
    low, high = model.predict_interval(texts, 0.5).T
    assert (low > 0).all()
    np.testing.assert_allclose(np.sqrt(low * high), model.predict(texts), rtol=1e-4)
    found = decades.metrics["uncertainty"]["Kd"]
    assert found is not None


def test_folds_of_logarithms_have_intervals_of_logarithms(tmp_path):
    rows = [[text, 10.0 ** (text.count("N") - text.count("O"))] for text in smiles(60)]
    data = write(tmp_path / "t.csv", "smiles,Kd", rows)
    settings = {"targets": ("Kd",), "log_target": True, "folds": 3, "epochs": 1}
    run = tiny_run(tmp_path, data=data, fractions=None, patience=0, **settings)
    model = slicegraph.load(run.folder)
    low, high = model.predict_interval(smiles(20), 0.8).T
    assert (low > 0).all()
    each = np.stack([one.predict(smiles(20)) for one in model.members])
    middle = np.exp(np.log(each).mean(0))
    assert (low < middle).all()
    assert (middle < high).all()
