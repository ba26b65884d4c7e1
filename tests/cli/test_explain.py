"""`slicegraph explain`: contributions on the console, as a table, as pictures; resumable."""

import json

import numpy as np
import pandas as pd
import pytest
from support.molecule_tables import write_csv
from support.small_models import save_model

from slicegraph.cli import main
from slicegraph.predict.predictor import load_predictor

TEXTS = ["CCO", "C1CC", "Cc1ccccc1", "", "OCc1ccccc1"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("saved") / "model"
    return str(save_model(folder, target_mean=(4.0,), target_std=(1.0,)))


@pytest.fixture
def table(tmp_path) -> str:
    return str(write_csv(tmp_path / "in.csv", [[text, str(n)] for n, text in enumerate(TEXTS)]))


def explain(*arguments: str) -> int:
    try:
        return main(["explain", *arguments])
    except SystemExit as exit:
        return int(exit.code or 0)


def test_smiles_are_printed_atom_by_atom(model, capsys, tmp_path):
    assert explain(model, "CCO", "C1CC", "--pictures", str(tmp_path / "drawn")) == 3
    printed = capsys.readouterr().out
    assert "homolumogap in eV" in printed
    assert "= baseline 4 " in printed
    assert printed.count("standard error") == 1
    assert "problem: unclosed ring" in printed
    assert [path.name for path in (tmp_path / "drawn").iterdir()] == ["0.svg"]


def test_a_file_has_a_row_for_each_atom_which_add_up(model, table, tmp_path, capsys):
    out, parts = tmp_path / "atoms.csv", tmp_path / "parts.csv"
    files = ["--out", str(out), "--substructures", str(parts), "--pictures", str(tmp_path / "p")]
    assert explain(model, table, *files, "--png", "--samples", "8") == 3
    found = pd.read_csv(out)
    assert list(found) == [
        *("row", "smiles", "target", "class", "prediction", "baseline", "atom", "symbol"),
        *("contribution", "standard_error", "problem"),
    ]
    assert found["problem"].notna().groupby(found["row"]).all().tolist() == [0, 1, 0, 1, 0]
    good = found[found["problem"].isna()]
    assert good.groupby("row").size().to_dict() == {0: 3, 2: 7, 4: 8}
    for row, atoms in good.groupby("row"):
        predicted = load_predictor(model).predict(TEXTS[row])[0]
        total = atoms["contribution"].sum() + atoms["baseline"].iloc[0]
        assert total == pytest.approx(predicted, abs=1e-4)
    rings = pd.read_csv(parts).query("kind == 'ring'")
    assert rings[["substructure", "molecules"]].to_numpy().tolist() == [["c1ccccc1", 2]]
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["0.png", "2.png", "4.png"]
    assert "c1ccccc1" in capsys.readouterr().out


def test_an_interrupted_command_goes_on(model, table, tmp_path, monkeypatch):
    from slicegraph.predict import explain as module

    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    explain(model, table, "--out", str(whole))
    rows, asked = module.explain_rows, []

    def dying(predictor, texts, *arguments, **options):
        asked.extend(texts)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return rows(predictor, texts, *arguments, **options)

    monkeypatch.setattr(module, "explain_rows", dying)
    assert explain(model, table, "--out", str(out)) == 130
    assert not out.exists()
    with open(f"{out}.draft", "a") as draft:
        draft.write('[2, [{"smi')  # a line that was cut off
    asked.clear()
    assert explain(model, table, "--out", str(out)) == 130  # dies at the third again
    assert asked == TEXTS[2:]
    monkeypatch.setattr(module, "explain_rows", rows)
    assert explain(model, table, "--out", str(out)) == 3
    assert out.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "out.csv.draft").exists()


def test_a_draft_of_another_command_is_not_used(model, table, tmp_path):
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    explain(model, table, "--out", str(whole))
    line = json.dumps([0, "wrong"])
    (tmp_path / "out.csv.draft").write_text('{"model": "other"}\n' + line + "\n")
    assert explain(model, table, "--out", str(out)) == 3
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["TABLE"], "--out is missing"),
        (["TABLE", "--out", "OUT.txt"], "expected .csv"),
        (["TABLE", "--out", "TABLE"], "exists already"),
        (["nothing.csv", "--out", "OUT.csv"], "there is no file 'nothing.csv'"),
        (["CCO", "--targets", "logP"], "no target 'logP', the model has homolumogap"),
        (["CCO", "--limit", "0"], "--limit 0.0, expected more than 0"),
        (["CCO", "--samples", "5"], "samples = 5, expected an even number"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_named(model, table, tmp_path, capsys, arguments, message):
    places = {
        "TABLE": table,
        "OUT.txt": str(tmp_path / "a.txt"),
        "OUT.csv": str(tmp_path / "a.csv"),
    }
    assert explain(model, *(places.get(word, word) for word in arguments)) == 2
    assert message in capsys.readouterr().err


def test_contributions_do_not_depend_on_the_other_rows(model, table, tmp_path):
    out, alone = tmp_path / "out.csv", tmp_path / "alone.csv"
    explain(model, table, "--out", str(out))
    explain(model, TEXTS[4], "--out", str(alone))
    found, expected = pd.read_csv(out), pd.read_csv(alone)
    values = found[found["row"] == 4]["contribution"]
    np.testing.assert_allclose(values, expected["contribution"], atol=1e-4)
