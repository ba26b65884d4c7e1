"""Rows of several molecules: one encoder, vectors joined, from the table to the prediction."""

import csv
import dataclasses
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit.Chem import MolFromSmiles, MolToSmiles
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from support.tiny_run import MODEL, distance, smiles, tiny_config, tiny_run

import slicegraph
from slicegraph import MoleculeRegressor
from slicegraph.cli import main
from slicegraph.cli.serve import BadRequest, Service
from slicegraph.data import load
from slicegraph.data.batch import collate
from slicegraph.data.descriptors import FEATURES, molecule_features, named_features
from slicegraph.data.molecules import fingerprints, molecule_keys, nearest
from slicegraph.data.prepare import prepare
from slicegraph.data.store import MoleculeStore
from slicegraph.models import GraphSliceformer
from slicegraph.predict import BatchPredictor
from slicegraph.predict.explain import Substructures
from slicegraph.predict.predictor import encoding_of
from slicegraph.train import TrainConfig, train

COLUMNS = ("solute", "solvent")
PAIRS = [("CCO", "CN"), ("CN", "CCO"), ("CNN", "CNN"), ("OCC", "NC")]


def rows(count: int = 120, seed: int = 0) -> list[tuple[str, str, float]]:
    """Random pairs, with the nitrogen atoms of the first minus those of the second as label."""
    texts, random = smiles(count), np.random.default_rng(seed)
    others = random.choice(texts, count)
    return [(a, b, a.count("N") - b.count("N")) for a, b in zip(texts, others, strict=True)]


def write(path, found, header=(*COLUMNS, "y")) -> str:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *found])
    return f"csv:{path}"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    data = write(folder / "pairs.csv", rows())
    settings = {"smiles": COLUMNS, "targets": ("y",), "epochs": 40, "dropout": 0.0}
    return tiny_run(folder, data=data, **settings)


@pytest.fixture(scope="module")
def model(run):
    return slicegraph.load(run.model)


def test_a_label_of_both_molecules_is_learned(run):
    """A model of the solute alone cannot be better than the spread of the solvent's part."""
    part = np.array([solvent.count("N") for _, solvent, _ in rows()])
    assert run.test < 0.4 * np.abs(part - np.median(part)).mean()


def test_the_columns_are_in_the_run_and_in_the_model(run, model):
    assert TrainConfig.read(run.folder / "config.yaml").smiles == "solute,solvent"
    assert model.config.molecule_columns == COLUMNS
    card = (run.model / "README.md").read_text()
    assert "| From | solute, solvent |" in card
    assert 'model.predict([("CCO", "CCO")])' in card


def test_the_order_of_the_columns_matters_and_the_spelling_does_not(model):
    found = model.predict(PAIRS)
    assert abs(found[0] - found[1]) > 0.5
    assert found[3] == pytest.approx(found[0], abs=1e-5)
    for one in ("CCO>>CN", ("CCO", "CN")):
        assert model.predict(one) == pytest.approx(found[:1], abs=1e-5)
    assert model.predict(np.array(PAIRS, object)).tolist() == found.tolist()
    frame = pd.DataFrame(PAIRS, columns=COLUMNS)
    for table in (frame[[*COLUMNS[::-1]]], frame.set_axis(["a", "b"], axis=1)):  # names, or order
        assert model.predict(table).tolist() == found.tolist()


def test_a_vector_is_that_of_each_molecule_one_after_the_other(model):
    found = model.embed([("CCO", "CN"), ("CNC", "CCO")])
    size = model.embedding_channels // 2
    np.testing.assert_allclose(found[0, :size], found[1, size:], atol=1e-5)
    assert np.abs(found[0, :size] - found[0, size:]).max() > 1e-2


def test_a_prediction_does_not_depend_on_the_rest_of_the_batch(model):
    texts = [(a, b) for a, b, _ in rows(60)]
    alone = [model.predict([pair])[0] for pair in texts[:5]]
    np.testing.assert_allclose(model.predict(texts)[:5], alone, atol=1e-4)


def test_swapped_columns_of_the_table_learn_the_same(tmp_path):
    """The label is antisymmetric: the other order of the columns is as good."""
    data = write(tmp_path / "pairs.csv", rows())
    settings = {"targets": ("y",), "epochs": 40, "dropout": 0.0, "smiles": COLUMNS[::-1]}
    swapped = tiny_run(tmp_path, data=data, **settings)
    assert swapped.test < 0.5
    found = slicegraph.load(swapped.model)
    assert found.predict([("CN", "CCO")])[0] == pytest.approx(-1, abs=0.7)  # of solvent, solute


def test_a_constant_second_molecule_costs_no_accuracy(tmp_path):
    found = [(text, "CO", text.count("N")) for text in smiles(120)]
    settings = {"targets": ("y",), "epochs": 40, "dropout": 0.0}
    data = write(tmp_path / "one.csv", found)
    errors = [
        tiny_run(tmp_path, data=data, smiles=names, out=str(tmp_path / str(n)), **settings).test
        for n, names in enumerate((COLUMNS[:1], COLUMNS))
    ]
    spread = np.std([label for *_, label in found])
    assert abs(errors[0] - errors[1]) < 0.15 * spread


def test_a_model_of_the_wrong_number_of_graphs_names_the_columns():
    torch.manual_seed(0)
    model = GraphSliceformer.from_preset("mini", **MODEL, molecule_columns=COLUMNS)
    batch = slicegraph.data.batch.collate_graphs([slicegraph.data.smiles.read_smiles("CCO")])
    with pytest.raises(ValueError, match=r"1 graphs, expected 2 for each row \(solute, solvent\)"):
        model(batch)
    with pytest.raises(ValueError, match="molecule_columns are for"):
        GraphSliceformer.from_preset("mini", task_level="node", molecule_columns=COLUMNS)


# Tables.


UGLY = [
    ("CCO", "", 1.0),
    ("C1CC", "CO", 2.0),
    (" CCN ", '"', 3.0),
    ("[Na+].[Cl-]", "InChI=1S/CH4O/c1-2/h2H,1H3", 4.0),
    ("CC\tname", "[2H]CO", 5.0),
    ("C>>O", "CO", 6.0),
    ("CCO", "CO", ""),
]


def test_only_rows_with_an_unreadable_molecule_are_lost_and_the_reason_names_the_column(tmp_path):
    data = write(tmp_path / "t.csv", [*rows(40), *UGLY])
    found = load(data, targets="y", smiles=COLUMNS, allow_rejected=0.2)
    reasons = {
        example["text"]: entry["reason"]
        for entry in found.summary["rejected"]
        for example in entry["examples"]
    }
    assert found.summary["rows"] == 47
    assert len(found.store) == 42
    assert reasons["CCO>>"] == "solvent = '': no SMILES"
    assert reasons["C1CC>>CO"].startswith("solute = 'C1CC': unclosed ring")
    assert "solvent = '\"'" in reasons['CCN>>"']
    assert "solute = 'C>>O'" in reasons["C>>O>>CO"]
    texts = [found.store.smiles(i) for i in (40, 41)]
    assert texts == ["[Na+].[Cl-]>>CO", "CC\tname>>[2H]CO"]


def test_a_store_of_pairs_has_the_graphs_of_both(tmp_path):
    write(tmp_path / "t.csv", rows(40))
    folder = tmp_path / "store"
    done = prepare(tmp_path / "t.csv", folder, smiles=COLUMNS, labels=["y"], workers=1)
    store = MoleculeStore(folder)
    assert done.molecules == 40
    assert store.molecule_columns == COLUMNS
    batch = collate(store, [3, 0], encode=None)
    sizes = [MolFromSmiles(text).GetNumAtoms() for n in (3, 0) for text in rows(40)[n][:2]]
    assert batch.ptr.diff().tolist() == sizes
    assert batch.y.flatten().tolist() == [rows(40)[n][2] for n in (3, 0)]
    assert batch.batch.bincount().tolist() == sizes
    sent = pickle.loads(pickle.dumps(batch))  # as from a process that loads
    assert sent.ptr.tolist() == batch.ptr.tolist()
    assert [sent[n].num_nodes for n in (0, 1)] == [sum(sizes[:2]), sum(sizes[2:])]
    assert sent[1].y.tolist() == [[rows(40)[0][2]]]
    again = pickle.loads(pickle.dumps(store[5:8]))
    assert again.smiles(0) == store.smiles(5)
    assert prepare(tmp_path / "t.csv", folder, smiles=COLUMNS, labels=["y"]).was_complete


@pytest.mark.parametrize("name", ["mini", "rings", "sliceformer-slim"])
def test_the_vector_of_a_row_has_those_of_its_molecules(tmp_path, name):
    write(tmp_path / "t.csv", rows(12))
    prepare(tmp_path / "t.csv", tmp_path / "store", smiles=COLUMNS, labels=["y"], workers=1)
    store = MoleculeStore(tmp_path / "store")
    torch.manual_seed(0)
    pair = GraphSliceformer.from_preset(name, molecule_columns=COLUMNS).eval()
    single = GraphSliceformer(dataclasses.replace(pair.config, molecule_columns=())).eval()
    weights = {key: value for key, value in pair.state_dict().items() if "head" not in key}
    single.load_state_dict(weights, strict=False)
    numbers = [7, 2, 5]
    with torch.inference_mode():
        found = pair.embed(collate(store, numbers, encoding_of(pair.config)))
        assert pair(store[7]).shape == (1, 1)
        texts = [rows(12)[n][:2] for n in numbers]
        alone = [[single.embed(graph(text)) for text in texts_of_row] for texts_of_row in texts]
    expected = torch.cat([torch.cat(own, 1) for own in alone])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def graph(text: str):
    return slicegraph.data.batch.collate_graphs([slicegraph.data.smiles.read_smiles(text)])


def test_the_order_of_a_row_is_part_of_its_key():
    keys = molecule_keys(["CCO>>CN", "CN>>CCO", "OCC.Cl>>NC"])
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]


def test_no_first_molecule_is_on_two_sides_and_a_group_can_be_the_second(tmp_path):
    texts = smiles(24)
    pairs = [(a, b, a.count("N") - b.count("N")) for a in texts for b in texts[:8]]
    data = write(tmp_path / "t.csv", pairs)
    for place, split in enumerate(("random", "group:solvent")):
        found = load(data, targets="y", smiles=COLUMNS, split=split, fractions=(0.5, 0.25, 0.25))
        parts = [
            {found.store.smiles(int(i)).split(">>")[place] for i in part}
            for part in found.splits.values()
        ]
        assert sum(map(len, parts)) == len(set.union(*parts))
        assert sum(map(len, found.splits.values())) == len(pairs)


def test_rows_of_one_ordered_pair_are_replicates(tmp_path):
    pairs = [("CCO", "CN", 1.0), ("OCC", "NC", 3.0), ("CN", "CCO", 7.0)]
    data = write(tmp_path / "t.csv", [*rows(40), *pairs])
    found = load(data, targets="y", smiles=COLUMNS, replicates="mean")
    labels = dict(zip(map(found.store.smiles, range(43)), found.store.labels[:, 0], strict=True))
    assert labels["CCO>>CN"] == 2.0
    assert labels["CN>>CCO"] == 7.0


def test_each_molecule_of_a_row_is_standardised_as_in_training(tmp_path):
    pairs = [(f"{a}.Cl", f"[Na+].[O-]C{b}", label) for a, b, label in rows(40)]
    data = write(tmp_path / "t.csv", pairs)
    steps = ("fragment", "charge")
    found = load(data, targets="y", smiles=COLUMNS, standardize=steps)
    a, b = found.store.smiles(3).split(">>")
    expected = [rows(40)[3][0], "OC" + rows(40)[3][1]]
    assert [*map(canonical, (a, b))] == [*map(canonical, expected)]
    settings = {"smiles": COLUMNS, "targets": ("y",), "standardize": steps, "epochs": 1}
    model = slicegraph.load(tiny_run(tmp_path, data=data, **settings).model)
    values = model.predict([("CCN.Cl", "[Na+].[O-]CC"), ("NCC", "CCO")])
    assert values[0] == pytest.approx(values[1], abs=1e-5)


def canonical(text: str) -> str:
    return MolToSmiles(MolFromSmiles(text))


def test_limits_weights_conditions_and_gaps_are_of_the_rows(tmp_path):
    pairs = [
        (a, b, f">{y}" if n % 5 == 0 else y, n + 1, n / 7) for n, (a, b, y) in enumerate(rows(40))
    ]
    pairs.append(("C1CC", "CO", 1, 1, 1))
    data = write(tmp_path / "t.csv", pairs, (*COLUMNS, "y", "w", "pH"))
    options = {"targets": "y", "smiles": COLUMNS, "weight_column": "w", "features": ["pH"]}
    found = load(data, **options, censored="loss")
    assert found.store.bounds[:, 0].tolist() == [int(n % 5 == 0) for n in range(40)]
    assert found.store.weights.tolist() == list(range(1, 41))
    np.testing.assert_allclose(found.store.features[:, 0], np.arange(40) / 7, rtol=1e-6)
    assert found.store.labels[:, 0].tolist() == [y for *_, y in rows(40)]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ("solute,solute", "has column 'solute' twice"),
        ("solute,water", "no column 'water'; its columns are solute, solvent, y"),
        (("solute", "y"), "'y' is in --smiles"),
    ],
)
def test_wrong_columns_are_named(tmp_path, names, reason):
    data = write(tmp_path / "t.csv", rows(40))
    with pytest.raises(ValueError, match=reason):
        load(data, targets="y", smiles=names)


def test_a_column_with_a_comma_in_its_name_is_one_column(tmp_path):
    found = [(text, text.count("N")) for text in smiles(40)]
    data = write(tmp_path / "t.csv", found, ("SMILES, can.", "y"))
    assert load(data, smiles="SMILES, can.", targets="y").store.molecule_columns == ()
    pairs = write(tmp_path / "u.csv", rows(40), ("a, b", "c", "y"))
    assert load(pairs, smiles='"a, b",c', targets="y").store.molecule_columns == ("a, b", "c")
    config = TrainConfig(data=pairs, smiles=["a, b", "c"])
    assert load(pairs, smiles=config.smiles, targets="y").store.molecule_columns == ("a, b", "c")


def test_check_prints_the_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", rows(40))
    assert main(["check", "t.csv", "--smiles", "solute,solvent", "--target", "y"]) == 0
    said = capsys.readouterr().out
    assert "2 molecules in a row: 'solute', 'solvent'" in said
    assert "rows with the same 'solute' stay on one side" in said
    assert "--smiles solute,solvent" in said.splitlines()[-1]


# Files.


def test_a_file_is_predicted_by_the_columns_of_the_training(run, model, tmp_path):
    found = [(n, solvent, solute) for n, (solute, solvent) in enumerate(PAIRS)]
    write(tmp_path / "in.csv", [*found, (4, "C1CC", "CCO"), (5, "", "CCO")], ("n", *COLUMNS[::-1]))
    out = tmp_path / "out.csv"
    with pytest.raises(SystemExit) as stopped:
        main(["predict", str(run.folder), str(tmp_path / "in.csv"), "--out", str(out), "--nearest"])
    assert stopped.value.code == 3
    table = pd.read_csv(out, keep_default_na=False)
    assert table["solvent"].tolist() == ["CN", "CCO", "CNN", "NC", "C1CC", ""]
    assert [float(x) for x in table["y_pred"][:4]] == pytest.approx(model.predict(PAIRS).tolist())
    assert table["error"].tolist()[4:] == [
        "solvent = 'C1CC': unclosed ring",
        "solvent = '': no SMILES",
    ]
    assert ">>" in table["nearest_train_molecule"][0]
    renamed = write(tmp_path / "b.csv", PAIRS, ("first", "second")).removeprefix("csv:")
    words = ["predict", str(run.folder), renamed, "--out", str(tmp_path / "b-out.csv")]
    assert main(words) == 2
    assert main([*words, "--smiles", "first,second"]) == 0
    again = pd.read_csv(tmp_path / "b-out.csv")["y_pred"]
    np.testing.assert_allclose(again, model.predict(PAIRS), rtol=1e-5)
    assert main([*words, "--smiles", "first", "--force"]) == 2


def test_parquet_files_and_batches_are_predicted(run, model, tmp_path):
    frame = pd.DataFrame(PAIRS, columns=COLUMNS)
    expected = model.predict(PAIRS)
    np.testing.assert_allclose(BatchPredictor(model)(frame)["y_pred"], expected, rtol=1e-5)
    with pytest.raises(ValueError, match="no column 'solvent'"):
        BatchPredictor(model)(frame[["solute"]])
    with pytest.raises(ValueError, match="the model takes solute, solvent"):
        BatchPredictor(model, smiles="solvent")
    pytest.importorskip("pyarrow")
    (tmp_path / "in").mkdir()
    frame.to_parquet(tmp_path / "in" / "part.parquet")
    assert (
        main(["predict", str(run.folder), str(tmp_path / "in"), "--out", str(tmp_path / "o")]) == 0
    )
    found = pd.read_parquet(tmp_path / "o" / "part.parquet")["y_pred"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_saving_and_loading_keeps_the_predictions(model, tmp_path):
    model.save(tmp_path / "saved")
    again = slicegraph.load(tmp_path / "saved")
    assert again.predict(PAIRS).tolist() == model.predict(PAIRS).tolist()
    found = [each.predict_interval(PAIRS, 0.5).tolist() for each in (again, model)]
    assert found[0] == found[1]


def test_evaluate_scores_the_test_pairs_and_another_table(run, tmp_path, capsys):
    assert main(["evaluate", str(run.folder), "--out", str(tmp_path / "e.csv")]) == 0
    assert f"test MAE {run.test:.4g}"[:13] in capsys.readouterr().out
    other = write(tmp_path / "other.csv", rows(30, seed=5))
    assert main(["evaluate", str(run.folder), "--data", other]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(run.folder), "--data", other, "--smiles", "solute"]) == 2
    assert "a row has 1 molecules, expected solute, solvent" in capsys.readouterr().err


def test_embed_writes_the_joined_vectors(run, model, tmp_path):
    write(tmp_path / "in.csv", PAIRS, COLUMNS)
    out = tmp_path / "out.npz"
    assert main(["embed", str(run.folder), str(tmp_path / "in.csv"), "--out", str(out)]) == 0
    with np.load(out) as found:
        np.testing.assert_allclose(found["vectors"], model.embed(PAIRS), atol=1e-5)
        assert found["smiles"][0] == "CCO>>CN"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("CCO", "found 1, expected 2 molecules: solute>>solvent"),
        (("CCO", "C1CC"), "solvent = 'C1CC': unclosed ring"),
        (("CCO", None), "solvent = '': no SMILES"),
        (("CCO", "CN", "C"), "found 3, expected 2 molecules: solute>>solvent"),
    ],
)
def test_a_bad_row_has_a_reason(model, given, reason):
    assert reason in model.predict_rows([given, ("CCO", "CN")]).errors[0]
    assert np.isnan(model.predict([given, ("CCO", "CN")], on_error="nan")).tolist() == [True, False]


def test_a_model_of_one_molecule_takes_no_pairs(tmp_path):
    model = slicegraph.load(tiny_run(tmp_path, epochs=1).model)
    with pytest.raises(ValueError, match=r"\('CCO', 'CN'\) is not text"):
        model.predict([("CCO", "CN")])


# What stands on predictions.


def test_every_atom_of_both_molecules_has_a_contribution(model):
    one = model.explain([("CNO", "CCN")])[0]
    assert one.symbols == tuple("CNOCCN")
    assert one.smiles == "CNO>>CCN"
    assert one.contributions.sum() + one.baseline == pytest.approx(one.prediction, abs=1e-5)
    assert one.prediction == pytest.approx(model.predict([("CNO", "CCN")])[0], abs=1e-4)
    assert one.contributions[1] > 0.3 > -0.3 > one.contributions[5]  # the nitrogen of each
    assert one.draw().startswith("<?xml")
    parts = Substructures()
    parts.add([one])
    names = {row[3] for row in parts.rows(least=1)}
    assert {"CNO", "CCN"} <= names


def test_the_run_has_contributions_and_a_report(run):
    table = pd.read_csv(run.folder / "contributions.csv")
    assert table["smiles"].str.contains(">>").all()
    from slicegraph.report import write_report

    assert "<svg" in write_report(run.folder).read_text("utf-8")


def test_explain_writes_the_rows_of_a_file(run, tmp_path):
    write(tmp_path / "in.csv", [*PAIRS, ("CCO", "")], COLUMNS)
    out = tmp_path / "atoms.csv"
    with pytest.raises(SystemExit):
        main(["explain", str(run.folder), str(tmp_path / "in.csv"), "--out", str(out)])
    table = pd.read_csv(out, keep_default_na=False)
    assert (table["row"] == 0).sum() == 5
    assert table["problem"].iloc[-1] == "solvent = '': no SMILES"


def test_folds_and_ensembles_have_intervals_of_pairs(tmp_path):
    data = write(tmp_path / "t.csv", rows(60))
    settings = {"smiles": COLUMNS, "targets": ("y",), "folds": 2, "ensemble": 2, "epochs": 1}
    run = tiny_run(tmp_path, data=data, fractions=None, patience=0, jobs=1, **settings)
    model = slicegraph.load(run.folder)
    assert len(model.members) == 4
    low, high = model.predict_interval(PAIRS, 0.8).T
    assert (low < high).all()
    assert (model.predict_rows(PAIRS).more["y_std"] > 0).all()
    found = pd.read_csv(run.folder / "predictions" / "test.csv")
    assert len(found) == 60
    by_solute = found.groupby(found["smiles"].str.split(">>").str[0])["split"].nunique()
    assert (by_solute == 1).all()


def test_a_resumed_run_ends_with_the_same_weights(tmp_path):
    data = write(tmp_path / "t.csv", rows(60))
    settings = {"data": data, "smiles": COLUMNS, "targets": ("y",), "epochs": 4}
    whole = tiny_run(tmp_path, **settings, out=str(tmp_path / "whole"))

    def stop(value: float, done: float) -> None:
        if done >= 0.5:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        train(tiny_config(tmp_path, **settings), progress=False, watch=stop)
    again = train(resume=tmp_path / "run", progress=False)
    assert distance(again.folder, whole.folder) == 0


def test_computed_features_are_those_of_each_molecule(tmp_path):
    kinds = {"rdkit": FEATURES["rdkit"], "morgan": FEATURES["morgan"]}
    own = [molecule_features(text, [*kinds]) for text in ("CCO", "CN")]
    names = (*slicegraph.data.descriptors.DESCRIPTORS, *slicegraph.data.descriptors.FRAGMENTS)
    found = named_features("CCO>>CN", 2 * names, 2 * kinds["morgan"])
    size = kinds["rdkit"]
    expected = [*(one[:size] for one in own), *(one[size:] for one in own)]
    np.testing.assert_array_equal(found, np.concatenate(expected))
    data = write(tmp_path / "t.csv", rows(40))
    settings = {"smiles": COLUMNS, "targets": ("y",), "features": ("rdkit", "morgan"), "epochs": 1}
    model = slicegraph.load(tiny_run(tmp_path, data=data, **settings).model)
    assert model.config.num_features == len(found)
    assert np.isfinite(model.predict(PAIRS)).all()


def test_a_kernel_head_reads_both_molecules(tmp_path):
    data = write(tmp_path / "t.csv", rows())
    settings = {"smiles": "solute,solvent", "targets": "y", "head": "kernel", "threads": 1}
    run = slicegraph.train(data=data, out=str(tmp_path / "run"), progress=False, **settings)
    model = slicegraph.load(run.model)
    assert run.test < 0.3
    assert model.predict([("CN", "CCO")])[0] == pytest.approx(1, abs=0.5)
    one = model.explain([("CN", "CCO")])[0]
    assert one.contributions.sum() + one.baseline == pytest.approx(one.prediction, abs=1e-4)


def test_similarity_counts_the_bits_of_both(model):
    one, other, same = fingerprints(["CCO>>CN", "CCO>>CCN", "CCO>>CN"])
    parts = [fingerprints([text])[0] for text in ("CCO", "CN", "CCN")]
    bits = [set(part.GetOnBits()) for part in parts]
    shared = len(bits[0]) + len(bits[1] & bits[2])
    union = len(bits[0]) + len(bits[1] | bits[2])
    assert nearest([one], [other])[0][0] == pytest.approx(shared / union)
    assert nearest([one], [same])[0][0] == 1.0
    solute, solvent, _ = rows()[0]
    assert model.nearest([("C", "C")]).molecules[0].count(">>") == 1
    assert np.isnan(model.nearest(["CCO"]).similarity[0])
    assert model.nearest([(solute, solvent)]).similarity[0] <= 1


def test_an_encoder_of_single_molecules_is_a_start(tmp_path):
    first = tiny_run(tmp_path, epochs=1, out=str(tmp_path / "first"))
    data = write(tmp_path / "t.csv", rows(40))
    settings = {"smiles": COLUMNS, "targets": ("y",), "epochs": 1, "model": {}}
    run = tiny_run(tmp_path, data=data, init=str(first.folder), **settings)
    assert slicegraph.load(run.model).config.channels == MODEL["channels"]


def test_a_table_in_memory_is_trained_on(tmp_path):
    frame = pd.DataFrame(rows(40), columns=[*COLUMNS, "y"])
    config = tiny_config(tmp_path, epochs=1)
    settings = {"model": config.model, "out": str(tmp_path / "frame"), "epochs": 1, "threads": 1}
    found = slicegraph.train(
        data=frame, smiles=["solute", "solvent"], target="y", progress=False, **settings
    )
    assert slicegraph.load(found.model).predict([("CCO", "CN")]).shape == (1,)


def estimator(**options) -> MoleculeRegressor:
    settings = {"model": MODEL, "accelerator": "cpu", "threads": 1}
    return MoleculeRegressor(epochs=2, settings=settings, **options)


def test_estimators_take_rows_of_two_columns():
    pairs = [(a, b) for a, b, _ in rows(60)]
    labels = [label for *_, label in rows(60)]
    frame = pd.DataFrame(pairs, columns=COLUMNS)
    mols = [tuple(map(MolFromSmiles, pair)) for pair in pairs]
    found = [
        estimator().fit(X, labels).predict(X[:3])
        for X in (pairs, frame, np.array(pairs, object), mols)
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-5)
    fitted = estimator().fit(frame, labels)
    assert fitted.model_.config.molecule_columns == COLUMNS
    assert fitted.transform(frame[:2]).shape[0] == 2
    swapped = fitted.predict(frame[[*COLUMNS[::-1]]])
    np.testing.assert_allclose(swapped, fitted.predict(frame), atol=1e-5)
    assert len(cross_val_predict(clone(fitted), frame, labels, cv=2)) == 60
    with pytest.raises(ValueError, match=r"solvent = 'C1CC': unclosed ring"):
        estimator().fit(frame.assign(solvent="C1CC"), labels)
    with pytest.raises(ValueError, match=r"found 1, expected 2 molecules"):
        fitted.predict(["CCO"])


def test_the_page_and_the_interface_take_lists(model):
    service = Service(model, "pairs", 0.5, 8, 16)
    assert service.facts()["molecules"] == list(COLUMNS)
    texts = list(map(service.row, [["CCO", "CN"], "CCO>>CN"]))
    first, second = service.predict(texts)
    assert first == second
    assert first["y_pred"] == pytest.approx(float(model.predict(PAIRS)[0]), abs=1e-5)
    found = service.explain(service.row(["CCO", "CN"]), None)
    assert [atom["symbol"] for atom in found["atoms"]] == list("CCOCN")
    with pytest.raises(BadRequest, match="a row of 1 SMILES, expected solute, solvent"):
        service.row(["CCO"])
    table = service.table(b"solute,solvent\nCCO,CN\n", ".csv").decode()
    assert float(table.splitlines()[1].split(",")[2]) == pytest.approx(first["y_pred"], abs=1e-4)
    assert json.dumps(first)
