"""`slicegraph embed` and `model.embed`: a vector for each molecule, in its place."""

import numpy as np
import pandas as pd
import pytest
import torch
from support.molecule_tables import write_csv
from support.small_models import save_model

from slicegraph.cli import main
from slicegraph.data.batch import collate_graphs
from slicegraph.data.smiles import read_smiles
from slicegraph.predict.predictor import load_predictor

TEXTS = ["CCO", "C1CC", "c1ccccc1", "", "OCC"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_model(tmp_path_factory.mktemp("saved") / "model"))


def test_the_vectors_are_what_the_head_reads(model):
    loaded = load_predictor(model)
    vectors = loaded.embed(["CCO", "c1ccccc1"])
    with torch.no_grad():
        score = loaded.score(collate_graphs([read_smiles("CCO"), read_smiles("c1ccccc1")]))
        found = loaded.head(torch.from_numpy(vectors))
    torch.testing.assert_close(found, score)
    assert loaded.embed("OCC")[0] == pytest.approx(vectors[0], abs=1e-5)  # another spelling


def test_a_bad_text_is_an_error_or_nan(model):
    loaded = load_predictor(model)
    with pytest.raises(ValueError, match=r"embed: smiles\[1\] = 'C1CC'"):
        loaded.embed(TEXTS)
    found = loaded.embed(TEXTS, on_error="nan", batch_size=1)
    assert np.isnan(found).all(1).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_every_row_keeps_its_place_with_a_vector_or_a_reason(model, tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    table = write_csv(tmp_path / "in.csv", [[text, str(n)] for n, text in enumerate(TEXTS)])
    out = tmp_path / f"out.{ending}"
    with pytest.raises(SystemExit) as exit:
        main(["embed", model, str(table), "--out", str(out)])
    assert exit.value.code == 3
    if ending == "npz":
        with np.load(out) as file:
            vectors, errors, texts = (file[name] for name in ("vectors", "error", "smiles"))
    else:
        found = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
        vectors = found.filter(regex=r"^e\d+$").to_numpy()
        errors, texts = found["error"].fillna(""), found["smiles"].fillna("")
        assert found.columns[1] not in ("e0", "error")  # other columns are kept
    assert list(texts) == TEXTS
    assert [bool(error) for error in errors] == [False, True, False, True, False]
    expected = load_predictor(model).embed(TEXTS, on_error="nan")
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_file_is_not_replaced_without_force(model, tmp_path, capsys):
    table = write_csv(tmp_path / "in.csv", [["CCO", "1"]])
    (tmp_path / "out.npz").write_text("mine")
    assert main(["embed", model, str(table), "--out", str(tmp_path / "out.npz")]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["embed", model, str(table), "--out", str(tmp_path / "out.xyz")]) == 2
    assert "expected .parquet, .npz, .csv" in capsys.readouterr().err
