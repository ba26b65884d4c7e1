"""The page of a run that ended well."""

import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest
from report.sample_run import (
    MOLECULES,
    write_json,
    write_predictions,
    write_run,
    write_test_split,
)
from sklearn.metrics import accuracy_score, roc_auc_score
from support.html_page import Page

from slicegraph.drawing import CARD, as_html, draw_molecule
from slicegraph.report import write_report
from slicegraph.report.page import duration

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&"


def page_of(run) -> Page:
    return Page(write_report(run).read_text("utf-8"))


def labels_and_predictions(run, target="gap"):
    table = pd.read_csv(run / "predictions" / "test.csv")
    return table[f"{target}_true"].to_numpy(), table[f"{target}_pred"].to_numpy()


def cards(run) -> list[str]:
    return re.findall(r"<li title.*?</li>", write_report(run).read_text("utf-8"), re.DOTALL)


def test_same_files_give_the_same_page_in_the_run_folder(run):
    path = write_report(run)
    assert path == run / "report.html"
    first = path.read_bytes()
    assert write_report(run).read_bytes() == first


@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_page_needs_no_other_file_and_no_network(tmp_path, kind):
    run = write_run(tmp_path / "run", kind)
    card = "See https://example.org and [this](https://example.org/x).\n"
    write_json(run / "data.json", {"card": card})
    page = page_of(run)
    page.assert_self_contained()
    assert not re.search(r"url\(|@import|http", page.words[page.tags.index("style")])
    assert page.tags.count("img") == page.tags.count("source") == 5
    assert all(value for name, value in page.attributes if name == "alt")


def test_page_has_the_scores_and_the_facts_of_a_regression(run):
    true, predicted = labels_and_predictions(run)
    mae, square = np.abs(true - predicted).mean(), ((true - predicted) ** 2).mean()
    best = pd.read_csv(run / "log.csv")["valid_mae"][22]
    text = page_of(run).text
    for words in (
        f"test MAE {mae:.3f} eV",
        f"400 molecules: MAE {mae:.3f} eV, RMSE {square**0.5:.3f} eV",
        f"R² {1 - square / true.var():.3f}.",
        f"has MAE {np.abs(true - true.mean()).mean():.3f} eV",
        f"The saved model is from epoch 23: {best:.3f} eV.",
        "slicegraph train --data sample --seed 7",
        "model.hidden_channels 96",
        "parameters 432,101",
        "throughput 5,890 molecules/s",
        "training 51 s",
        "torch 2.13.0",
        "train molecules 4,000",
        "Small molecules.",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (
            {"gap": 1.25},
            "predicting the mean training label for all molecules has test MAE 1.250 eV",
        ),
        ({"gap": 1.25, "mu": 30.5}, "has test MAE gap 1.250, mu 30.500."),
        ({"gap": "<b>"}, "predicting the mean test label for all molecules has MAE"),
    ],
)
def test_page_compares_with_the_mean_of_the_training_labels(run, targets, words):
    entries = {name: {"n": 400, "value": 0.2, "baseline": x} for name, x in targets.items()}
    write_json(
        run / "metrics.json", {**json.loads((run / "metrics.json").read_text()), "targets": entries}
    )
    assert words in page_of(run).text


def test_page_of_a_binary_task_has_the_area_under_the_curve(tmp_path):
    run = write_run(tmp_path / "run", "binary")
    area = f"{roc_auc_score(*labels_and_predictions(run)):.3f}"
    text = page_of(run).text
    assert f"test ROC-AUC {area}" in text
    assert f"ROC-AUC {area}; {sum(labels_and_predictions(run)[0]):.0f} molecules" in text


def test_page_of_a_multiclass_task_has_accuracy_and_names_of_classes(tmp_path):
    run = write_run(tmp_path / "run", "multiclass")
    write_json(run / "data.json", {"class_names": ["acid", "base", "<salt>", "none"]})
    text = page_of(run).text
    assert f"Accuracy {accuracy_score(*labels_and_predictions(run)):.3f}." in text
    write_test_split(run, [0, 1, 2], [0, 2, 2], ["C", "CC", "CCC"])
    (card,) = cards(run)  # only one class is wrong
    assert "<code>CC</code>" in card
    assert "<dt>true class</dt><dd>base</dd>" in card
    assert "<dd>&lt;salt&gt;</dd>" in card


def test_first_targets_have_sections_and_figures_and_all_have_a_row(tmp_path):
    targets = ("mu", "../é/b", "homo", "lumo", "zpve")
    run = write_run(tmp_path / "run", targets=targets)
    text = page_of(run).text
    assert [f"{name}, test split" in text for name in targets] == [True] * 3 + [False] * 2
    for name in targets:
        true, predicted = labels_and_predictions(run, name)
        assert f"test {name} 400 {np.abs(true - predicted).mean():.3f}" in text
    found = figures(run)
    assert {"1-mu-predicted.png", "2-b-predicted.png", "3-homo-errors.png"} <= found
    assert len(found) == 2 + 3 * 3


def test_page_shows_the_ten_molecules_with_the_largest_errors(run):
    true, predicted = labels_and_predictions(run)
    smiles = pd.read_csv(run / "predictions" / "test.csv")["smiles"]
    worst = np.argsort(-np.abs(predicted - true), kind="stable")[:10]
    found, best = cards(run)[:10], cards(run)[10:]
    assert [re.search(r"<code>(.*?)</code>", card)[1] for card in found] == [
        smiles[place] for place in worst
    ]
    least = np.sort(np.abs(predicted - true))[:10]
    errors = [float(re.search(r"error</dt><dd>.(.*?)<", card)[1]) for card in best]
    assert errors == pytest.approx(least, abs=6e-4)
    shown = [float(re.search(r"error</dt><dd>.(.*?)<", card)[1]) for card in found]
    assert shown == pytest.approx(np.abs(predicted - true)[worst], abs=6e-4)


def test_card_has_true_predicted_error_and_a_drawing(run):
    write_test_split(run, [7.25, 1.0], [6.0, 1.0], ["CCO", "C"])
    (card,) = cards(run)  # the prediction for C has no error
    assert "<svg" in card
    assert "<dt>true</dt><dd>7.250</dd>" in card
    assert "<dt>predicted</dt><dd>6.000</dd>" in card
    assert "<dt>error</dt><dd>\N{MINUS SIGN}1.250</dd>" in card


def test_atoms_are_coloured_by_their_contributions(run):
    write_test_split(run, [7.25, 1.0], [6.0, 1.5], ["CCO", "C"])
    table = pd.read_csv(run / "predictions" / "test.csv")
    head = "row,smiles,target,contribution\n"
    lines = [f"{table['row'][0]},OCC,gap,{value}\n" for value in (-0.5, 0.25, 1.0)]
    (run / "contributions.csv").write_text(head + "".join(lines))
    coloured, plain = cards(run)
    assert re.findall(r"fill:(#\w{6});fill-opacity:([\d.]+)", coloured) == [
        *[("#005BBF", "0.373"), ("#D65E00", "0.184"), ("#D65E00", "0.749")],
    ]
    assert "fill-opacity" not in plain
    assert "the deepest colour is 1.000" in page_of(run).text


@pytest.mark.parametrize(
    "damage", ["row,smiles\n1,2\n", "row,smiles,target,contribution\n1,C,gap,x"]
)
def test_damaged_contributions_are_named_and_the_molecules_drawn(run, damage):
    (run / "contributions.csv").write_text(damage)
    assert len(cards(run)) == 20
    assert "contributions.csv cannot be read" in page_of(run).text


def test_table_without_smiles_has_no_cards(run):
    (run / "predictions" / "test.csv").write_text("index,gap_true,gap_pred\n0,1,2\n1,2,4\n")
    assert cards(run) == []


def test_drawings_have_bonds_or_letters_and_no_address():
    for smiles in MOLECULES:
        svg = as_html(draw_molecule(smiles, size=CARD))
        assert svg.startswith("<svg")
        assert "<path" in svg
        assert "http" not in svg


@pytest.mark.parametrize("smiles", ["", "C1CC", "no molecule", "</svg><script>"])
def test_text_that_rdkit_cannot_read_is_not_drawn(smiles):
    assert draw_molecule(smiles) is None


def test_hostile_text_in_any_file_stays_text(run):
    values = {HOSTILE: (np.arange(3.0), np.zeros(3))}
    write_predictions(run / "predictions" / "test.csv", values, [HOSTILE, "C", HOSTILE])
    pair = {HOSTILE: HOSTILE}
    write_json(run / "data.json", {"name": HOSTILE, "card": HOSTILE, "splits": pair} | pair)
    write_json(run / "status.json", {"state": "failed", "reason": HOSTILE})
    names = dict.fromkeys(("metric", "unit", "device"), HOSTILE)
    write_json(run / "metrics.json", names | {"versions": pair})
    write_json(run / "bad_batch.json", {"molecules": [{"smiles": HOSTILE}]})
    (run / "config.yaml").write_text(str(pair))
    (run / "command.txt").write_text(HOSTILE)
    page = page_of(run)
    assert page.tags.count("script") == 0
    assert page.tags.count("img") == 5
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("alert(1)") > 15


def figures(run) -> set[str]:
    return {path.name for path in (run / "figures").iterdir()}


def rewrite(run, targets) -> None:
    values = {name: (np.arange(9.0), np.arange(9.0) + 0.5) for name in targets}
    for split in ("valid", "test"):
        write_predictions(run / "predictions" / f"{split}.csv", values)
    write_report(run)


def test_old_figures_are_removed_and_files_of_the_user_stay(run):
    rewrite(run, ["gap", "size"])
    changed = run / "figures" / "2-size-errors.png"
    (run / "figures" / "mine.png").write_bytes(b"mine")
    changed.write_bytes(b"drawn over")
    rewrite(run, ["gap"])
    expected = {"loss.png", "metric.png", "predicted.png", "errors.png", "sizes.png"}
    assert figures(run) == expected | {"mine.png", changed.name}
    assert changed.read_bytes() == b"drawn over"


def test_a_page_that_lists_other_files_removes_nothing_else(run):
    page, settings = write_report(run), run / "config.yaml"
    checksum = hashlib.sha256(settings.read_bytes()).hexdigest()
    page.write_text(f"<html>\n<!-- figures: {checksum}/../config.yaml nonsense -->\n")
    write_report(run)
    assert settings.is_file()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.14, "3.1 s"), (59.6, "1 min 0 s"), (51, "51 s"), (135, "2 min 15 s"), (7300, "2 h 1 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
