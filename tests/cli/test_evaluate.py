"""`slicegraph evaluate`: OGB's score, and the table that it was made of."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from ogb.graphproppred import Evaluator as GraphEvaluator
from support.molecule_tables import random_smiles, write_csv
from support.ogb_folders import LSC_SPLITS, MOLECULES, gap, write_lsc, write_mol
from support.small_models import save_model, small_model, write_checkpoint
from support.tiny_run import tiny_run, write_table

from slicegraph.cli import main
from slicegraph.data.datasets import load_dataset as load_data
from slicegraph.predict.predictor import load_predictor
from slicegraph.train.config import TrainConfig


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_model(tmp_path_factory.mktemp("saved") / "model"))


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def score_line(printed: str) -> tuple[str, float, str]:
    first = printed.splitlines()[0].split()
    return " ".join(first[:2]), float(first[2]), " ".join(first[3:])


def test_the_score_of_a_split_is_the_mean_absolute_error(model, tmp_path, capsys):
    write_lsc(tmp_path, "pcqm4m-v2")
    words = ["--data", "pcqm4m-v2", "--root", str(tmp_path), "--split", "valid"]
    assert main(["evaluate", model, *words]) == 0
    rows = LSC_SPLITS["pcqm4m-v2"]["valid"]
    errors = load_predictor(model).predict([MOLECULES[row] for row in rows]) - [
        gap(row) for row in rows
    ]
    what, score, unit = score_line(capsys.readouterr().out)
    assert (what, unit) == ("valid MAE", "eV")
    assert score == pytest.approx(np.abs(errors).mean(), rel=1e-3)


def test_the_table_has_a_row_for_each_molecule_in_the_order_of_the_split(model, tmp_path):
    write_lsc(tmp_path, "pcqm4m-v2")
    words = ["--data", "pcqm4m-v2", "--root", str(tmp_path), "--split", "train"]
    assert main(["evaluate", model, *words, "--out", str(tmp_path / "table.csv")]) == 0
    found, rows = read(tmp_path / "table.csv"), LSC_SPLITS["pcqm4m-v2"]["train"]
    assert list(found[0]) == [
        *("index", "row", "smiles", "num_atoms"),
        *("homolumogap_true", "homolumogap_pred"),
    ]
    assert [int(row["row"]) for row in found] == rows
    assert [int(row["index"]) for row in found] == rows
    assert [row["smiles"] for row in found] == [MOLECULES[row] for row in rows]
    assert [int(row["num_atoms"]) for row in found] == [1 + 1, 3, 5, 2]
    assert [float(row["homolumogap_true"]) for row in found] == [gap(row) for row in rows]
    predicted = [float(row["homolumogap_pred"]) for row in found]
    expected = load_predictor(model).predict([MOLECULES[row] for row in rows])
    np.testing.assert_allclose(predicted, expected, atol=1e-5)


def test_a_classifier_is_scored_by_the_metric_of_the_data_set(tmp_path, capsys):
    write_mol(tmp_path, "ogbg-moltox21", 12)
    folder = save_model(tmp_path / "model", task="binary", num_targets=12, target_names=())
    words = ["--data", "ogbg-moltox21", "--root", str(tmp_path), "--split", "train"]
    assert main(["evaluate", str(folder), *words, "--out", str(tmp_path / "t.csv")]) == 0
    what, score, unit = score_line(capsys.readouterr().out)
    assert (what, unit) == ("train ROC-AUC", "")
    data = load_data("ogbg-moltox21", tmp_path, progress=False)
    store = data.store[data.splits["train"]]
    y_pred = load_predictor(folder).predict([store.smiles(i) for i in range(len(store))])
    judge = GraphEvaluator("ogbg-moltox21")
    assert score == pytest.approx(
        judge.eval({"y_true": store.labels, "y_pred": y_pred})["rocauc"], rel=1e-3
    )
    assert any(value == "" for row in read(tmp_path / "t.csv") for value in row.values())


@pytest.fixture
def own(tmp_path):
    rows = [[text, i % 7, i % 3, i % 2] for i, text in enumerate(random_smiles(60))]
    return write_csv(tmp_path / "own.csv", rows, ["smiles", "number", "kind", "active"])


@pytest.mark.parametrize(
    ("settings", "labels", "line"),
    [
        ({"target_names": ("number",), "unit": "mol"}, [i % 7 for i in range(60)], "all MAE"),
        (
            {"target_names": ("kind",), "task": "multiclass", "num_classes": 4},
            [i % 3 for i in range(60)],
            "all accuracy",
        ),
    ],
)
def test_a_file_is_scored_on_the_columns_of_the_model(
    tmp_path, own, capsys, settings, labels, line
):
    folder = save_model(tmp_path / "model", **settings)
    words = ["--data", f"csv:{own}", "--root", str(tmp_path), "--split", "all"]
    assert main(["evaluate", str(folder), *words]) == 0
    what, score, _ = score_line(capsys.readouterr().out)
    assert what == line
    values = load_predictor(folder).predict(random_smiles(60))
    if "num_classes" in settings:
        expected = (values.argmax(-1) == labels).mean()
    else:
        expected = np.abs(values - labels).mean()
    assert score == pytest.approx(expected, rel=1e-3)


def test_limits_are_not_counted_as_scored(tmp_path, capsys):
    rows = [[text, f"{'>' * (i % 4 == 0)}{i % 7}.5"] for i, text in enumerate(random_smiles(60))]
    table = write_csv(tmp_path / "own.csv", rows, ["smiles", "number"])
    folder = save_model(tmp_path / "model", target_names=("number",))
    words = ["--data", f"csv:{table}", "--root", str(tmp_path), "--split", "all"]
    assert main(["evaluate", str(folder), *words, "--censored", "loss"]) == 0
    expected = "45 of 60 rows of csv:own.csv are scored, 15 have no label to score against"
    assert expected in capsys.readouterr().err.replace(str(table), "own.csv")


def test_the_options_of_a_file_are_those_of_the_data_set(tmp_path, own, capsys):
    folder = save_model(tmp_path / "model", target_names=())
    words = ["--data", f"csv:{own}", "--root", str(tmp_path)]
    words += ["--smiles", "smiles", "--target", "number", "--metric", "rmse"]
    out = tmp_path / "table.csv"
    assert main(["evaluate", str(folder), *words, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert score_line(printed.out)[0] == "all RMSE"
    assert "does not say which molecules it was trained on" in printed.err
    assert len(read(out)) == 60


@pytest.mark.parametrize("asked", ["run", "run/model", "run/checkpoints/best.ckpt"])
def test_the_file_of_the_run_is_split_as_it_was_there(tmp_path, own, asked):
    settings = TrainConfig(data=f"csv:{own}", split_seed=3, fractions=(0.4, 0.3, 0.3))
    model = small_model(target_names=("number",))
    model.save(tmp_path / "run/model")
    write_checkpoint(tmp_path / "run/checkpoints/best.ckpt", model)
    (tmp_path / "run/config.yaml").write_text(settings.to_yaml())
    options = {"targets": "number", "seed": 3, "fractions": (0.4, 0.3, 0.3)}
    data = load_data(f"csv:{own}", tmp_path, progress=False, **options)
    keys = {name: data.keys[part] for name, part in data.splits.items()}
    np.savez(tmp_path / "run/molecules.npz", **keys)
    out = tmp_path / "table.csv"
    words = ["--root", str(tmp_path), "--out", str(out)]
    assert main(["evaluate", str(tmp_path / asked), *words]) == 0
    assert [int(row["index"]) for row in read(out)] == data.splits["test"].tolist()


@pytest.mark.parametrize(
    ("settings", "words", "message"),
    [
        ({}, ["--split", "test"], "has no split 'test', expected train, valid, test-dev"),
        ({}, ["--split", "test-dev"], "'test-dev' of pcqm4m-v2 has no labels .*slicegraph submit"),
        (
            {"num_targets": 2, "target_names": ("a", "b")},
            [],
            r"does not fit pcqm4m-v2: number of targets 2 of the model, 1 of the data \(homolum",
        ),
        ({"task": "binary"}, [], "does not fit pcqm4m-v2: kind of task 'binary' of the model"),
        (
            {"node_vocabulary": (28,), "edge_vocabulary": (4,)},
            [],
            "the model reads atom features with 28 categories",
        ),
        ({}, ["--target", "y"], "pcqm4m-v2 takes no targets: these are for csv:PATH"),
        ({}, ["--out", "no/such/table.csv"], "there is no folder no/such"),
        ({}, ["--data", "mimi"], "there is no data set 'mimi'"),
    ],
)
def test_what_cannot_be_scored_is_refused(tmp_path, capsys, settings, words, message):
    write_lsc(tmp_path, "pcqm4m-v2")
    folder = save_model(tmp_path / "model", **settings)
    start = ["evaluate", str(folder), "--data", "pcqm4m-v2", "--root", str(tmp_path)]
    assert main([*start, *words]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("slicegraph: error: ")
    assert re.search(message, error)


def test_a_file_without_the_columns_of_the_model_is_refused(model, tmp_path, own, capsys):
    words = ["--data", f"csv:{own}", "--root", str(tmp_path), "--split", "all"]
    assert main(["evaluate", model, *words]) == 2
    assert "'own.csv' has no column 'homolumogap'" in capsys.readouterr().err


def test_more_classes_than_the_model_knows_are_refused(tmp_path, own, capsys):
    folder = save_model(
        tmp_path / "model", task="multiclass", num_classes=2, target_names=("kind",)
    )
    words = ["--data", f"csv:{own}", "--root", str(tmp_path), "--split", "all"]
    assert main(["evaluate", str(folder), *words]) == 2
    assert "it has 2 classes, the data have 3" in capsys.readouterr().err


def test_a_table_is_not_replaced_unasked(model, tmp_path, capsys):
    write_lsc(tmp_path, "pcqm4m-v2")
    (tmp_path / "table.csv").write_text("precious")
    words = ["evaluate", model, "--data", "pcqm4m-v2", "--root", str(tmp_path)]
    words += ["--out", str(tmp_path / "table.csv")]
    assert main(words) == 2
    assert (tmp_path / "table.csv").read_text() == "precious"
    assert main([*words, "--force"]) == 0
    assert len(read(tmp_path / "table.csv")) == 2


def test_two_classes_are_scored_by_accuracy_as_in_their_run(tmp_path, capsys):
    write_table(tmp_path / "table.csv", 60, "active")
    options = {"targets": ("active",), "metric": "acc", "fractions": (0.4, 0.3, 0.3)}
    run = tiny_run(tmp_path, epochs=1, **options)
    assert 0 < run.test < 1
    assert main(["evaluate", str(run.folder)]) == 0
    assert capsys.readouterr().out.startswith(f"test accuracy {run.test:.3f}")
