"""Numbers that the head reads besides the molecule: columns of a table, descriptors, counts."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit.Chem import Descriptors, MolFromSmiles
from support.tiny_run import MODEL, smiles, tiny_run

import slicegraph
from slicegraph.cli import main
from slicegraph.data import load
from slicegraph.data.batch import collate, collate_graphs
from slicegraph.data.descriptors import DESCRIPTORS, FRAGMENTS, named_features
from slicegraph.data.smiles import read_smiles
from slicegraph.models import GraphSliceformer
from slicegraph.predict import BatchPredictor
from slicegraph.train import TrainConfig

MEAN, DEVIATION = (7.0, 300.0), (2.0, 0.0)


def write(path: Path, header: str, rows: list[list]) -> str:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return f"csv:{path}"


def conditions(count: int = 40) -> list[list]:
    """Each molecule at two values of pH, which decides the sign of its label."""
    pairs = [(text, ph) for text in smiles(count) for ph in (4.0, 9.0)]
    return [
        [text, ph, 290 + n % 7, (ph - 7) * text.count("N")] for n, (text, ph) in enumerate(pairs)
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    data = write(folder / "table.csv", "smiles,pH,T,y", conditions())
    features = ("pH", "T", "rdkit", "morgan")
    return tiny_run(folder, data=data, targets=("y",), features=features, epochs=8)


@pytest.fixture(scope="module")
def model(run):
    return slicegraph.load(run.model)


def small(**fields) -> GraphSliceformer:
    torch.manual_seed(0)
    return GraphSliceformer.from_preset("mini", **MODEL, **fields)


def test_columns_are_standardised_and_descriptors_compressed():
    names = {"feature_columns": ("pH", "T"), "descriptors": ("Ipc",), "fingerprint": 1}
    net = small(**names, feature_mean=(*MEAN, 10.0), feature_std=(*DEVIATION, 4.0))
    batch = collate_graphs([read_smiles("CC")] * 3)
    nan, huge = float("nan"), 3e38
    batch.features = torch.tensor([[9.0, 1, 18, 2], [nan, 2, nan, 0], [1e4, 3, huge, 1]])
    found = net._features(batch, torch.zeros(3, 1))
    expected = [[1, 0, np.arcsinh(2), np.arcsinh(2)], [0, 0, 0, 0], [10, 0, 10, np.arcsinh(1)]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32))


def test_a_model_without_its_features_names_their_shape():
    net = small(feature_columns=("pH",), feature_mean=(7.0,), feature_std=(1.0,))
    batch = collate_graphs([read_smiles("CC")])
    with pytest.raises(ValueError, match=r"features is missing, expected \[1, 1\]"):
        net(batch)
    with pytest.raises(ValueError, match="feature_mean has 0 values for 1 columns"):
        small(feature_columns=("pH",))
    with pytest.raises(ValueError, match="task_level = 'node', expected 'graph'"):
        small(fingerprint=8, task_level="node")


def test_features_are_part_of_a_compiled_graph():
    net = small(fingerprint=4, head_layers=2).eval()
    batch = collate_graphs([read_smiles("CCO"), read_smiles("CC")])
    inputs = {name: batch[name] for name in ("edge_index", "edge_attr", "ptr", "max_nodes")}
    inputs |= {"batch": torch.tensor([0, 0, 0, 1, 1]), "features": torch.rand(2, 4)}
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(batch.x, **inputs), net(batch.x, **inputs))
    program = torch.export.export(net, (batch.x,), inputs)
    torch.testing.assert_close(program.module()(batch.x, **inputs), net(batch.x, **inputs))


def test_the_model_is_saved_with_its_features(run, model):
    config = json.loads((run.model / "config.json").read_text())
    assert config["feature_columns"] == ["pH", "T"]
    assert config["descriptors"] == [*DESCRIPTORS, *FRAGMENTS]
    assert (config["fingerprint"], config["head_layers"]) == (2048, 2)
    assert config["training"]["options"]["features"] == ["pH", "T", "rdkit", "morgan"]
    assert "features pH,T,rdkit,morgan" in (run.model / "README.md").read_text()
    # The first two are those of the columns in train, by numpy.
    table = pd.read_csv(run.folder.parent / "table.csv")
    data = load(f"csv:{run.folder.parent / 'table.csv'}", targets="y", features=["pH", "T"])
    train = table.iloc[data.store[data.splits["train"]].rows]
    assert config["feature_mean"][:2] == pytest.approx([train.pH.mean(), train["T"].mean()])
    assert config["feature_std"][:2] == pytest.approx(
        [train.pH.std(ddof=0), train["T"].std(ddof=0)]
    )
    place = 2 + config["descriptors"].index("MolWt")
    weights = [Descriptors.MolWt(MolFromSmiles(text)) for text in train.smiles]
    assert config["feature_mean"][place] == pytest.approx(np.median(weights), rel=1e-5)
    quartiles = np.quantile(weights, (0.25, 0.75))
    assert config["feature_std"][place] == pytest.approx(np.diff(quartiles)[0] / 1.349, rel=1e-5)


def test_the_run_and_the_model_predict_the_same(run, model):
    found = pd.read_csv(run.folder / "predictions/test.csv")
    table = pd.read_csv(run.folder.parent / "table.csv").iloc[found.row]
    again = model.predict(table.smiles, features=table)
    np.testing.assert_allclose(again, found.y_pred, rtol=1e-4, atol=1e-5)
    assert np.abs(found.y_true - found.y_pred).mean() == pytest.approx(run.test, rel=1e-4)


def test_numbers_of_predict_are_a_mapping_a_table_or_an_array(model):
    texts, numbers = ["CCN", "CNN"], {"pH": [4.0, 9.0], "T": 295}
    expected = model.predict(texts, features=numbers)
    assert abs(expected[0] - model.predict("CCN", features={"pH": 9, "T": 295})[0]) > 1e-6
    array = [[4.0, 295.0], [9.0, 295.0]]
    for given in (array, pd.DataFrame(array, columns=["pH", "T"]), np.array(array)):
        np.testing.assert_array_equal(model.predict(texts, features=given), expected)


@pytest.mark.parametrize(
    ("features", "problem"),
    [
        (None, "the model needs features, the numbers of 'pH', 'T'"),
        ({"pH": 7}, "features have no 'T', only 'pH'"),
        ([[7.0]], r"features have shape \[1, 1\], expected \[1, 2\] for 'pH', 'T'"),
        ({"pH": float("nan"), "T": 1}, r"smiles\[0\] = 'CC': pH has no value"),
    ],
)
def test_missing_numbers_are_named(model, features, problem):
    with pytest.raises(ValueError, match=problem):
        model.predict("CC", features=features)


def test_a_model_without_features_refuses_them(tmp_path):
    slicegraph.models.GraphSliceformer(small().config).save(tmp_path)
    with pytest.raises(ValueError, match="trained without any"):
        slicegraph.load(tmp_path).predict("CC", features={"pH": 7})


def test_a_gap_costs_its_row_alone(model):
    numbers = {"pH": [7, 7, np.nan], "T": 300}
    values, errors, *_ = model.predict_rows(["CC", "C1C", "CN"], features=numbers)
    assert np.isfinite(values[0])
    assert np.isnan(values[1:]).all()
    assert errors == [None, "unclosed ring", "pH has no value"]


def test_a_file_is_predicted_by_its_columns(run, model, tmp_path, capsys):
    rows = [["CCN", "7,5", 300], ["CCN", "", 300], ["C1C", "7,5", 300], ["NNC", "acid", 300]]
    write(tmp_path / "new.csv", "smiles,pH,T", [*rows, *[["CO", "4,5", 300]] * 2])
    out = tmp_path / "out.csv"
    with pytest.raises(SystemExit, match="3"):
        main(["predict", str(run.folder), str(tmp_path / "new.csv"), "--out", str(out)])
    found = pd.read_csv(out, keep_default_na=False)
    texts = ["", "pH has no value", "unclosed ring", "pH = 'acid' is not a number", "", ""]
    assert list(found.error) == texts
    expected = model.predict(["CCN", "CO"], features={"pH": [7.5, 4.5], "T": 300})
    assert [float(found.y_pred[0]), float(found.y_pred[4])] == pytest.approx(expected.tolist())


def test_a_file_without_a_column_names_it(run, tmp_path, capsys):
    write(tmp_path / "new.csv", "smiles,pH", [["CCN", 7]] * 3)
    command = ["predict", str(run.folder), str(tmp_path / "new.csv"), "--out", "-"]
    assert main(command) == 2
    assert "no column 'T', which the model needs" in capsys.readouterr().err
    assert main([*command, "--features", "T=300"]) == 0
    assert main([*command, "--features", "T=300,pH=7"]) == 2
    assert "has a column 'pH'; leave out its number" in capsys.readouterr().err
    assert main([*command, "--features", "Temp=300"]) == 2
    assert "the model has no feature 'Temp': 'pH', 'T'" in capsys.readouterr().err


def test_smiles_of_the_command_line_have_numbers(run, model, capsys):
    command = ["predict", str(run.folder), "CCN"]
    assert main([*command, "--features", "pH=9,T=300"]) == 0
    expected = model.predict("CCN", features={"pH": 9, "T": 300})[0]
    assert f"{expected:.6g}" in capsys.readouterr().out
    assert main([*command, "--features", "pH=9"]) == 2
    assert "--features T=X" in capsys.readouterr().err
    assert main([*command, "--features", "pH=low,T=300"]) == 2
    assert "'pH=low', expected NAME=NUMBER" in capsys.readouterr().err


def test_batches_have_the_columns(run, model):
    frame = pd.DataFrame({"smiles": ["CCN", "CO", "CC"], "pH": [4, "x", 9], "T": 300})
    found = BatchPredictor(str(run.folder))(frame)
    assert list(found.error) == ["", "pH has no value", ""]
    expected = model.predict(["CCN", "CC"], features={"pH": [4, 9], "T": 300})
    np.testing.assert_array_equal(found.y_pred[[0, 2]], expected)
    with pytest.raises(ValueError, match="no column 'T', which the model needs"):
        BatchPredictor(model)(frame.drop(columns="T"))
    given = BatchPredictor(model, features={"T": 300})(frame.drop(columns="T").to_dict("list"))
    np.testing.assert_array_equal(given["y_pred"], found.y_pred)


def test_parts_have_the_columns(run, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "in").mkdir()
    frame = pd.DataFrame({"smiles": ["CCN", "CO"], "pH": [4, 9], "T": [300, 300]})
    frame.to_parquet(tmp_path / "in" / "a.parquet")
    out = tmp_path / "out"
    assert main(["predict", str(run.folder), str(tmp_path / "in"), "--out", str(out)]) == 0
    expected = slicegraph.load(run.folder).predict(["CCN", "CO"], features=frame)
    np.testing.assert_allclose(pd.read_parquet(out / "a.parquet").y_pred, expected)


def test_evaluate_scores_the_test_split_of_the_run(run, capsys):
    assert main(["evaluate", str(run.folder)]) == 0
    assert f"test MAE {run.test:.4g}"[:12] in capsys.readouterr().out


def test_embed_needs_no_numbers(run, model, tmp_path):
    write(tmp_path / "new.csv", "smiles", [["CCN"], ["CO"]])
    out = tmp_path / "e.csv"
    assert main(["embed", str(run.folder), str(tmp_path / "new.csv"), "--out", str(out)]) == 0
    found = pd.read_csv(out).filter(regex=r"e\d+").to_numpy()
    np.testing.assert_allclose(found, model.embed(["CCN", "CO"]), rtol=1e-4, atol=1e-6)


def test_a_run_starts_from_one_without_features(run, tmp_path):
    first = tiny_run(tmp_path, epochs=1)
    data = write(tmp_path / "t.csv", "smiles,pH,T,y", conditions())
    settings = {"targets": ("y",), "features": ("pH",), "init": str(first.folder), "model": {}}
    found = tiny_run(tmp_path, data=data, out=str(tmp_path / "two"), epochs=1, **settings)
    assert slicegraph.load(found.model).config.feature_columns == ("pH",)


def test_computed_numbers_are_kept_and_are_those_of_predict(run, tmp_path):
    """Salts, isotopes, InChI and unusual spellings: the store and `predict` compute the same."""
    texts = ["[Na+].[O-]C(=O)CN", "[2H]C([2H])O", "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3", "OCC", "N#N"]
    rows = [[text, n] for n, text in enumerate([*texts, *smiles(20)])]
    data = write(tmp_path / "t.csv", "smiles,y", rows)
    steps = ("hydrogens", "fragment", "charge")
    options = {"targets": ("y",), "features": ("rdkit",), "standardize": steps, "epochs": 1}
    found = tiny_run(tmp_path, data=data, fractions=(0.4, 0.3, 0.3), patience=0, **options)
    model = slicegraph.load(found.model)
    store = load(data, tmp_path / "dataset", targets="y", standardize=steps, split="all").store
    in_store = model.predict_store(store)[:, 0]
    np.testing.assert_allclose(model.predict([row[0] for row in rows]), in_store, rtol=1e-4)
    kept = list((tmp_path / "dataset/csv").glob("*/*-descriptors-*.npy"))
    assert [np.load(path).shape for path in kept] == [(25, len(DESCRIPTORS) + len(FRAGMENTS))]
    assert not list((tmp_path / "dataset/csv").glob("*/*-descriptors-*.part"))


def test_an_unknown_descriptor_names_the_remedy():
    found = named_features("CCO", ("MolWt", "fr_Al_OH"), 0)
    assert found.tolist() == pytest.approx([46.069, 1])
    assert np.isnan(named_features("C1C", ("MolWt",), 0)).all()
    with pytest.raises(ValueError, match=r"'NewOne', which RDKit .* install the RDKit of its"):
        named_features("CCO", ("MolWt", "NewOne"), 0)


def test_rows_without_a_number_are_rejected_with_the_reason(tmp_path):
    rows = conditions(40)
    for row, value in ((3, ""), (5, "warm"), (7, ">9")):
        rows[row][1] = value
    data = write(tmp_path / "t.csv", "smiles,pH,T,y", rows)
    found = load(data, targets="y", features=["pH", "T"])
    reasons = " ".join(entry["reason"] for entry in found.summary["rejected"])
    for text in ("pH has no value", "pH = 'warm' is not a number", "pH = '>9' is a limit"):
        assert text in reasons
    assert sum(map(len, found.splits.values())) == 77
    batch = collate(found.store, [0, 1])
    assert batch.features.tolist() == [[4.0, 290.0], [9.0, 291.0]]
    assert [each.features.tolist() for each in batch.to_data_list()] == [[[4, 290]], [[9, 291]]]


def test_a_molecule_under_other_conditions_is_no_replicate(tmp_path):
    rows = [*conditions(30), [smiles(30)[0], 4.0, 290, 8.0]]
    data = write(tmp_path / "t.csv", "smiles,pH,T,y", rows)
    found = load(data, targets="y", features=["pH", "T"], replicates="mean")
    assert found.summary["conflicts"] == 1
    assert sum(map(len, found.splits.values())) == 60
    sides = [set(found.keys[part]) for part in found.splits.values()]
    assert len(set.union(*sides)) == sum(map(len, sides))


def test_a_constant_feature_is_named(tmp_path):
    data = write(tmp_path / "t.csv", "smiles,pH,y", [[t, 7, t.count("N")] for t in smiles(40)])
    warnings = load(data, targets="y", features=["pH"]).summary["warnings"]
    assert "feature 'pH' is 7 in every training row: it is not used" in warnings


@pytest.mark.parametrize(
    ("features", "problem"),
    [
        (["ph"], "did you mean 'pH'"),
        (["y"], "'y' is a target and a feature"),
        (["solvent"], "it holds words; write numbers"),
    ],
)
def test_a_column_that_is_no_feature_is_named(tmp_path, features, problem):
    rows = [[t, 7, (n % 2 and "water") or "oil", n] for n, t in enumerate(smiles(40))]
    data = write(tmp_path / "t.csv", "smiles,pH,solvent,y", rows)
    with pytest.raises(ValueError, match=problem):
        load(data, targets="y", features=features)


def test_columns_are_for_a_table_and_computed_numbers_for_any_data():
    assert TrainConfig(data="mini", features="rdkit,morgan").features == ("rdkit", "morgan")
    with pytest.raises(ValueError, match="features is for a file of your own"):
        TrainConfig(data="mini", features="rdkit,pH")


def test_contributions_keep_the_numbers_of_the_row(run, model, tmp_path, capsys):
    found = [model.explain("CCN", features={"pH": ph, "T": 295})[0] for ph in (4, 9)]
    for one, ph in zip(found, (4, 9), strict=True):
        expected = model.predict("CCN", features={"pH": ph, "T": 295})[0]
        assert one.contributions.sum() + one.baseline == pytest.approx(expected, rel=1e-4)
    assert abs(found[0].prediction - found[1].prediction) > 1e-6
    with pytest.raises(ValueError, match="the model needs features"):
        model.explain("CCN")
    write(tmp_path / "new.csv", "smiles,pH", [["CCN", 4], ["CCN", ""]])
    command = ["explain", str(run.folder), str(tmp_path / "new.csv"), "--features", "T=295"]
    with pytest.raises(SystemExit, match="3"):
        main([*command, "--out", str(tmp_path / "atoms.csv")])
    table = pd.read_csv(tmp_path / "atoms.csv")
    np.testing.assert_allclose(table.contribution[:3], found[0].contributions, atol=1e-5)
    assert table.problem[3] == "pH has no value"


def test_the_forest_beside_the_run_reads_the_columns(run):
    assert run.metrics["forest"]["test"] < 4  # without them both values of pH have one prediction


def test_a_run_of_folds_has_features(tmp_path):
    data = write(tmp_path / "t.csv", "smiles,pH,T,y", conditions())
    settings = {"targets": ("y",), "features": ("pH",), "folds": 2, "epochs": 1}
    run = tiny_run(tmp_path, data=data, fractions=None, patience=0, **settings)
    model = slicegraph.load(run.folder)
    assert len(model.members) == 2
    found = model.predict_interval(["CCN", "CCO"], 0.8, features={"pH": 7})
    assert np.isfinite(found).all()


def test_a_column_with_the_name_of_computed_features_is_refused(tmp_path):
    table = [[text, n / 7, "x", text.count("N")] for n, text in enumerate(smiles(40))]
    data = write(tmp_path / "t.csv", "smiles,rdkit,morgan,y", table)
    with pytest.raises(ValueError, match="'rdkit' of numbers, and features = 'rdkit' are those"):
        tiny_run(tmp_path, data=data, targets=("y",), features=("rdkit",), epochs=1)
    tiny_run(tmp_path, data=data, targets=("y",), features=("morgan",), epochs=1)  # text: no doubt
