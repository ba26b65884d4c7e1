"""The molecules with the largest errors."""

import re

import numpy as np
import pytest
from report.sample_run import MOLECULES, read_columns, write_predictions, write_run

from slicegraph.report import write_report
from slicegraph.report.molecule_drawing import draw_molecule
from slicegraph.report.worst import worst


def cards(run) -> list[str]:
    return re.findall(r"<li title.*?</li>", write_report(run).read_text("utf-8"), re.DOTALL)


def test_worst_are_the_largest_errors_of_either_sign_in_order():
    errors = np.array([0.1, -3.0, 0.0, 2.0, -0.2])
    assert worst(errors, 3).tolist() == [1, 3, 4]


def test_molecules_that_are_right_are_not_among_the_worst():
    assert worst(np.array([0.0, 0.5, 0.0])).tolist() == [1]


def test_page_shows_the_ten_molecules_with_the_largest_errors(tmp_path):
    run = write_run(tmp_path / "run")
    columns = read_columns(run / "predictions" / "test.csv")
    pairs = zip(columns["gap_true"], columns["gap_pred"], columns["smiles"], strict=True)
    errors = sorted(((abs(float(p) - float(t)), s) for t, p, s in pairs), reverse=True)
    found = cards(run)
    assert [re.search(r"<code>(.*?)</code>", card)[1] for card in found] == [
        smiles for _, smiles in errors[:10]
    ]
    shown = [float(re.search(r"error</dt><dd>.(.*?)<", card)[1]) for card in found]
    assert shown == pytest.approx([error for error, _ in errors[:10]], abs=6e-4)


def test_card_has_true_predicted_error_and_a_drawing(tmp_path):
    run = write_run(tmp_path / "run")
    values = {"gap": (np.array([7.25]), np.array([6.0]))}
    write_predictions(run / "predictions" / "test.csv", values, ["CCO"])
    (card,) = cards(run)
    assert "<svg" in card
    for name, value in (
        ("true", "7.250"),
        ("predicted", "6.000"),
        ("error", "\N{MINUS SIGN}1.250"),
    ):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in card


def test_wrong_classes_are_shown_for_a_multiclass_task(tmp_path):
    run = write_run(tmp_path / "run", "multiclass")
    values = {"gap": (np.array([0.0, 1, 2]), np.array([0.0, 2, 2]))}
    write_predictions(run / "predictions" / "test.csv", values, ["C", "CC", "CCC"])
    (card,) = cards(run)
    assert "<code>CC</code>" in card
    assert "<dt>true class</dt><dd>1</dd>" in card


@pytest.mark.parametrize("smiles", MOLECULES)
def test_drawing_of_a_molecule_has_bonds_or_letters_and_no_address(smiles):
    svg = draw_molecule(smiles)
    assert svg.startswith("<svg")
    assert "<path" in svg
    assert "http" not in svg


@pytest.mark.parametrize("smiles", ["", "C1CC", "no molecule", "</svg><script>"])
def test_what_rdkit_cannot_read_is_not_drawn(smiles):
    assert draw_molecule(smiles) is None


def test_table_without_smiles_has_no_cards(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "predictions" / "test.csv").write_text("index,gap_true,gap_pred\n0,1,2\n1,2,4\n")
    assert cards(run) == []
