"""The page of a run that ended well."""

import json
import re

import numpy as np
import pytest
from report.sample_run import read_columns, write_predictions, write_run
from sklearn.metrics import accuracy_score, roc_auc_score
from support.html_page import Page

from slicegraph.report import write_report

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&"


def page_of(run) -> Page:
    return Page(write_report(run).read_text("utf-8"))


def labels_and_predictions(run, target="gap"):
    columns = read_columns(run / "predictions" / "test.csv")
    return (np.array(columns[f"{target}_{what}"], dtype=float) for what in ("true", "pred"))


@pytest.fixture(scope="module")
def sample_text(tmp_path_factory):
    return page_of(write_run(tmp_path_factory.mktemp("sample") / "run")).text


def test_page_is_in_the_run_folder(tmp_path):
    assert write_report(write_run(tmp_path / "run")) == tmp_path / "run" / "report.html"


def test_same_files_give_the_same_page_to_the_byte(tmp_path):
    run = write_run(tmp_path / "run")
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_page_needs_no_other_file_and_no_network(tmp_path, kind):
    run = write_run(tmp_path / "run", kind)
    data = json.loads((run / "data.json").read_text())
    data["card"] += "See https://example.org and [this](https://example.org/x).\n"
    (run / "data.json").write_text(json.dumps(data))
    page = page_of(run)
    page.assert_self_contained()
    style = write_report(run).read_text("utf-8").split("<style>")[1].split("</style>")[0]
    assert not re.search(r"url\(|@import|http", style)


def test_every_figure_is_embedded_for_light_and_dark_screens_and_described(tmp_path):
    page = page_of(write_run(tmp_path / "run"))
    assert page.tags.count("img") == page.tags.count("source") == 5
    assert all(value for name, value in page.attributes if name == "alt")


def test_headline_is_the_result_with_metric_and_unit(tmp_path):
    run = write_run(tmp_path / "run")
    true, predicted = labels_and_predictions(run)
    assert f"test MAE {np.abs(true - predicted).mean():.3f} eV" in page_of(run).text


def test_page_has_the_scores_of_the_predictions(tmp_path):
    run = write_run(tmp_path / "run")
    true, predicted = labels_and_predictions(run)
    rmse = np.sqrt(((true - predicted) ** 2).mean())
    r2 = np.corrcoef(true, true)[0, 0] - ((true - predicted) ** 2).mean() / true.var()
    text = page_of(run).text
    assert f"400 molecules: MAE {np.abs(true - predicted).mean():.3f} eV" in text
    assert f"RMSE {rmse:.3f} eV, R² {r2:.3f}." in text
    assert f"has MAE {np.abs(true - true.mean()).mean():.3f} eV" in text


def test_page_of_a_binary_task_has_the_area_under_the_curve(tmp_path):
    run = write_run(tmp_path / "run", "binary")
    area = f"{roc_auc_score(*labels_and_predictions(run)):.3f}"
    text = page_of(run).text
    assert f"test ROC-AUC {area}" in text
    assert f"ROC-AUC {area}; {sum(next(labels_and_predictions(run))):.0f} molecules" in text


def test_page_of_a_multiclass_task_has_accuracy_and_confusion_matrix(tmp_path):
    run = write_run(tmp_path / "run", "multiclass")
    text = page_of(run).text
    assert f"Accuracy {accuracy_score(*labels_and_predictions(run)):.3f}." in text
    assert "Confusion matrix" in text


def test_first_targets_have_sections_and_all_have_a_row(tmp_path):
    targets = ("mu", "alpha", "homo", "lumo", "zpve")
    run = write_run(tmp_path / "run", targets=targets)
    text = page_of(run).text
    assert [f"{name}, test split" in text for name in targets] == [True] * 3 + [False] * 2
    for name in targets:
        true, predicted = labels_and_predictions(run, name)
        assert f"test {name} 400 {np.abs(true - predicted).mean():.3f}" in text


def test_best_epoch_is_named_with_its_value_and_counted_from_one(tmp_path):
    run = write_run(tmp_path / "run")
    value = float(read_columns(run / "log.csv")["valid_mae"][22])
    assert f"The model of epoch 23 is kept: {value:.3f} eV." in page_of(run).text


@pytest.mark.parametrize(
    "words",
    [
        "slicegraph train --data sample --seed 7",
        "model.hidden_channels 96",
        "parameters 432,101",
        "throughput 5,890 molecules/s",
        "training 51 s",
        "torch 2.13.0",
        "train molecules 4,000",
        "Small molecules.",
    ],
)
def test_page_has_command_settings_speed_versions_and_data(sample_text, words):
    assert words in sample_text


def test_hostile_text_of_any_file_stays_text(tmp_path):
    run = write_run(tmp_path / "run")
    values = {HOSTILE: (np.arange(3.0), np.zeros(3))}
    write_predictions(run / "predictions" / "test.csv", values, [HOSTILE, "C", HOSTILE])
    words = {
        "name": HOSTILE,
        "card": f"# {HOSTILE}\n| {HOSTILE} |\n- `{HOSTILE}`",
        HOSTILE: HOSTILE,
    }
    (run / "data.json").write_text(json.dumps(words | {"splits": {HOSTILE: HOSTILE}}))
    (run / "status.json").write_text(json.dumps({"state": "failed", "reason": HOSTILE}))
    metrics = json.loads((run / "metrics.json").read_text())
    metrics |= {
        "metric": HOSTILE,
        "unit": HOSTILE,
        "device": HOSTILE,
        "versions": {HOSTILE: HOSTILE},
    }
    (run / "metrics.json").write_text(json.dumps(metrics))
    (run / "config.yaml").write_text(json.dumps({HOSTILE: HOSTILE}))
    (run / "command.txt").write_text(HOSTILE)
    (run / "bad_batch.json").write_text(json.dumps({"molecules": [{"smiles": HOSTILE}]}))
    page = page_of(run)
    assert page.tags.count("script") == 0
    assert page.tags.count("img") == 5
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("alert(1)") > 15
