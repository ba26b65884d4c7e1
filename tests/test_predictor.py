"""SMILES in, values out: one molecule, one prediction, however it is written and batched."""

import json
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
import torch
from rdkit import Chem
from support.molecule_tables import random_smiles
from support.ogb_folders import Trap
from support.small_models import save_model, small_model, write_checkpoint
from torch_geometric.data import Batch

import slicegraph
from slicegraph.data.batch import collate_graphs
from slicegraph.data.smiles import featurize, read_smiles
from slicegraph.data.table import Row, TableSource
from slicegraph.models import PRESETS, GraphSliceformer
from slicegraph.nn.mixer import MIXERS
from slicegraph.nn.slice_sort import ORDERS
from slicegraph.predict.predictor import MoleculePredictor, load_predictor, read_graph
from slicegraph.predict.table import WholeTable, predicted_rows

MOLECULES = [
    "CCO",
    "C",
    "c1ccc2[nH]ccc2c1",
    "C[C@H](N)C(=O)O",
    "F/C=C/C=C\\Cl",
    "O=C([O-])c1ccccc1.[Na+]",
    "C[C@@H]1CC[C@H](C(C)C)C[C@H]1O",
    "CC(C)(C)c1ccc(cc1)S(=O)(=O)N",
    "[2H]C([2H])O.Cl",
    "C12C3C4C1C5C2C3C45",
    "OC[C@H]1O[C@@H](O)[C@H](O)[C@@H](O)[C@@H]1O",
]


def spellings(smiles: str, count: int = 4) -> list[str]:
    """The molecule with its atoms in random orders, and in Kekulé's form."""
    mol = Chem.MolFromSmiles(smiles)
    drawn = [Chem.MolToRandomSmilesVect(mol, 1, seed)[0] for seed in range(1, count)]
    Chem.Kekulize(mol, clearAromaticFlags=True)
    return [smiles, *drawn, Chem.MolToSmiles(mol, kekuleSmiles=True)]


def assert_same_for_all_spellings(model: MoleculePredictor) -> None:
    groups = [spellings(smiles) for smiles in MOLECULES]
    values = model.predict([text for group in groups for text in group])
    values = values.reshape(len(MOLECULES), -1)
    assert len(np.unique(values[:, 0].round(4))) == len(MOLECULES)
    np.testing.assert_allclose(values, values[:, :1].repeat(values.shape[1], 1), atol=1e-5)


@pytest.mark.parametrize("align", ["rows", "pivot"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mixer", MIXERS)
def test_every_spelling_gives_the_same_prediction_with_every_mixer(mixer, order, align):
    assert_same_for_all_spellings(small_model(mixer=mixer, order=order, align=align))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_spelling_gives_the_same_prediction_with_every_preset(preset):
    assert_same_for_all_spellings(small_model(preset))


@pytest.mark.parametrize("readout", ["mean", "sum", "quantiles"])
def test_every_spelling_gives_the_same_prediction_with_every_readout(readout):
    assert_same_for_all_spellings(small_model(readout=readout))


@pytest.mark.parametrize("fields", [{"mixer": "none", "norm": "batch"}, {}], ids=str)
def test_every_spelling_gives_the_same_prediction_with_rings(fields):
    model = small_model(rings=8, local="gine", readout="sum_quantiles", **fields)
    assert_same_for_all_spellings(model)
    texts = ["C", "[Na+].[Cl-]", "C1CCC1.C1CC1", "C12C3C4C1C5C2C3C45", "c1ccc2ccccc2c1", "CCO"]
    alone = np.concatenate([model.predict(text) for text in texts])
    np.testing.assert_allclose(model.predict(texts), alone, atol=1e-5)
    assert len(np.unique(alone.round(4))) == len(texts)


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_prediction_does_not_depend_on_the_others(mixer):
    model = small_model(mixer=mixer)
    texts = [*random_smiles(40, seed=1), *MOLECULES]
    alone = np.concatenate([model.predict(text) for text in texts])
    for batch_size in (1, 7, 256):
        np.testing.assert_allclose(model.predict(texts, batch_size), alone, atol=1e-5)
    np.testing.assert_allclose(model.predict(texts[::-1])[::-1], alone, atol=1e-5)


@torch.no_grad()
def test_the_values_are_those_of_the_model():
    model = small_model(num_targets=3, target_mean=(1.0, 2.0, 3.0), target_std=(1.0, 2.0, 0.5))
    expected = model(Batch.from_data_list([featurize(text) for text in MOLECULES]))
    found = model.predict(MOLECULES)
    assert found.shape == (len(MOLECULES), 3)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("fields", [{}, {"walk_length": 3}, {"mixer": "sort"}], ids=str)
def test_batches_are_encoded_on_the_cpu_and_values_are_read_once(monkeypatch, fields):
    model, seen, read = small_model(**fields), [], []
    score, cpu = type(model).score, torch.Tensor.cpu
    monkeypatch.setattr(
        type(model), "score", lambda self, batch: seen.append(batch.keys()) or score(self, batch)
    )
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: read.append(len(self)) or cpu(self))
    model.predict(MOLECULES, batch_size=4)
    assert len(seen) == 3
    assert read == [len(MOLECULES)]
    names = set() if "mixer" in fields else {"pair_distance", "pair_path"}
    names |= {"pair_walk"} if "walk_length" in fields else set()
    wanted = {"pair_distance", "pair_path", "pair_walk"}
    assert all(set(keys) & wanted == names for keys in seen)
    assert model.predict([]).shape == (0,)


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({}, (2,)),
        ({"num_targets": 2}, (2, 2)),
        ({"task": "binary"}, (2,)),
        ({"task": "binary", "num_targets": 3}, (2, 3)),
        ({"task": "multiclass", "num_classes": 4}, (2, 4)),
        ({"task": "multiclass", "num_classes": 4, "num_targets": 3}, (2, 3, 4)),
    ],
)
@torch.no_grad()
def test_the_axis_of_a_single_target_is_left_out(settings, shape):
    assert small_model(**settings).predict(["CCO", "C"]).shape == shape


@torch.no_grad()
def test_a_binary_model_gives_probabilities_of_class_1():
    model = small_model(task="binary")
    logit = float(model(featurize("CCO")))
    assert model.predict("CCO")[0] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)


@torch.no_grad()
def test_a_multiclass_model_gives_probabilities_of_the_classes():
    model = small_model(task="multiclass", num_classes=3)
    chances = np.exp(model(featurize("CCO")).numpy()[0, 0])
    np.testing.assert_allclose(model.predict("CCO")[0], chances / chances.sum(), atol=1e-6)


def test_no_molecules_give_no_values():
    assert small_model().predict([]).shape == (0,)
    assert small_model(num_targets=2).predict([]).shape == (0, 2)


def test_a_bad_smiles_is_named():
    with pytest.raises(ValueError, match=r"smiles\[1\] = 'C1CC': "):
        small_model().predict(["CCO", "C1CC", "C"])


@pytest.mark.parametrize("bad", ["C1CC", "", "  ", "ethanol", None, float("nan"), "C(C)(C)(C)(C)C"])
def test_a_bad_smiles_is_nan_on_request_and_the_others_stay(bad):
    model = small_model()
    found = model.predict(["CCO", bad, "C"], on_error="nan")
    assert np.isnan(found[1])
    np.testing.assert_allclose(found[[0, 2]], model.predict(["CCO", "C"]), atol=1e-6)
    errors = model.predict_rows(["CCO", bad, "C"]).errors
    assert errors[0] is None
    assert errors[1]
    assert errors[2] is None


def test_only_bad_rows_are_no_problem():
    assert np.isnan(small_model().predict(["x", "y"], on_error="nan")).all()


def test_a_number_that_is_not_finite_is_an_error():
    model = small_model()
    with torch.no_grad():
        model.head.bias.fill_(float("nan"))
    assert model.predict_rows(["C"]).errors == ["the model gives no finite number"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_error": "ignore"}, "on_error = 'ignore', expected 'raise' or 'nan'"),
        ({"batch_size": 0}, "batch_size = 0"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        small_model().predict("C", **arguments)


@pytest.mark.parametrize(
    "settings",
    [
        {"node_vocabulary": (28,)},
        {"node_vocabulary": (119, 5, 12, 12, 10, 6, 6, 2, 1)},
        {"node_vocabulary": None, "node_dim": 9},
        {"edge_vocabulary": (4,)},
    ],
)
def test_a_model_of_other_features_is_refused(settings):
    with pytest.raises(ValueError, match=r"the model reads (atom|bond) features with"):
        small_model(**settings).predict("CCO")


def test_a_model_that_predicts_for_nodes_is_refused():
    with pytest.raises(ValueError, match="the model predicts for nodes, expected one"):
        small_model(task_level="node").predict("CCO")


def test_larger_tables_and_no_bond_features_are_fine():
    assert np.isfinite(small_model(vocabulary="graphormer").predict("CCO")).all()
    assert np.isfinite(small_model(edge_vocabulary=None).predict("CCO")).all()


def test_dropout_is_off_and_the_mode_is_kept():
    model = small_model(dropout=0.5, attention_dropout=0.5)
    expected = model.predict(MOLECULES)
    model.train()
    np.testing.assert_array_equal(model.predict(MOLECULES), expected)
    assert model.training


def test_large_molecules_come_in_smaller_batches():
    seen = []
    model = small_model()
    model.register_forward_pre_hook(lambda module, args: seen.append(args[0].ptr.numel() - 1))
    texts = ["C" * 300] * 20 + ["CCO"] * 20
    alone = model.predict(["C" * 300, "CCO"])
    seen.clear()
    np.testing.assert_allclose(model.predict(texts), alone.repeat(20), atol=1e-5)
    assert sum(seen) == 40
    assert seen[0] == 2**20 // 301**2


def test_collated_graphs_are_what_pyg_collates():
    ours = collate_graphs([read_smiles(text) for text in MOLECULES])
    theirs = Batch.from_data_list([featurize(text) for text in MOLECULES])
    for name in ("x", "edge_index", "edge_attr", "ptr"):
        assert torch.equal(ours[name].long(), theirs[name])


def test_no_graphs_are_refused():
    with pytest.raises(ValueError, match="there are no graphs"):
        collate_graphs([])


def test_a_text_is_read_as_a_graph_or_a_reason():
    assert len(read_graph("CCO").atoms) == 3
    assert "unclosed ring" in read_graph("C1CC")
    assert read_graph(" ") == "no SMILES"
    assert read_graph(5) == "5 is not text"
    assert len(read_graph("[2H]C([2H])([2H])O", ("hydrogens",)).atoms) == 2


class EndlessTable(TableSource):
    """Molecules without end; `taken` says how many were read."""

    columns, size, unit, taken = ("smiles",), 0, "rows", 0

    @property
    def position(self) -> int:
        return self.taken

    def rows(self) -> Iterator[Row]:
        while True:
            self.taken += 1
            yield Row("CCO")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_table_is_read_only_a_few_chunks_ahead(workers):
    source = EndlessTable()
    table = WholeTable(source, source.columns, 0)
    with closing(predicted_rows(small_model(), table, workers=workers, chunk_rows=10)) as found:
        for number in range(1, 30):
            chunk, (values, errors, *_) = next(found)
            assert (len(chunk.rows), len(values), errors) == (10, 10, [None] * 10)
            assert source.taken <= 10 * (number + 2 * workers + 2)


def test_load_is_at_the_top_of_the_package():
    assert slicegraph.load is load_predictor


@pytest.mark.parametrize("place", ["", "model"])
def test_a_saved_model_and_a_run_are_loaded(tmp_path, place):
    model = small_model()
    model.save(tmp_path / "run" / place)
    loaded = load_predictor(tmp_path / "run")
    assert isinstance(loaded, MoleculePredictor)
    assert not loaded.training
    np.testing.assert_array_equal(loaded.predict(MOLECULES), model.predict(MOLECULES))


@pytest.mark.parametrize("asked", ["run/checkpoints/best.ckpt", "run"])
def test_a_checkpoint_is_loaded_by_its_name_or_from_a_run_without_a_model(tmp_path, asked):
    model = small_model(target_mean=(5.0,), target_std=(2.0,))
    write_checkpoint(tmp_path / "run/checkpoints/best.ckpt", model, epoch=3)
    loaded = load_predictor(tmp_path / asked)
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded.predict(MOLECULES), model.predict(MOLECULES))


def test_a_compiled_checkpoint_is_loaded(tmp_path):
    model = small_model()
    path = write_checkpoint(tmp_path / "last.ckpt", model)
    saved = torch.load(path, weights_only=True)
    saved["state_dict"] = {
        name.replace("model.", "model._orig_mod."): value
        for name, value in saved["state_dict"].items()
    }
    torch.save(saved, path)
    np.testing.assert_array_equal(load_predictor(path).predict(MOLECULES), model.predict(MOLECULES))


def test_a_double_precision_model_stays_one(tmp_path):
    small_model().double().save(tmp_path)
    assert load_predictor(tmp_path).predict("CCO").dtype == np.float64


def test_a_predictor_saves_the_model_that_it_is(tmp_path):
    save_model(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model"] == "GraphSliceformer"
    assert type(slicegraph.models.load(tmp_path)) is GraphSliceformer


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    torch.save({"state_dict": Trap(tmp_path / "sprung")}, tmp_path / "bad.ckpt")
    with pytest.raises(ValueError, match=r"bad\.ckpt is no checkpoint of a run, or damaged"):
        load_predictor(tmp_path / "bad.ckpt")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [{"state_dict": {}}, [1], {"hyper_parameters": {"model": 3}}])
def test_a_checkpoint_of_something_else_is_named(tmp_path, content):
    torch.save(content, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match=r"other\.ckpt is a checkpoint of something else"):
        load_predictor(tmp_path / "other.ckpt")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("keep", [0, 20])
def test_a_damaged_file_is_named(tmp_path, file, keep):
    save_model(tmp_path)
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:keep])
    with pytest.raises(ValueError, match=f"{file} is damaged"):
        load_predictor(tmp_path)


def test_a_model_of_another_kind_is_named(tmp_path, monkeypatch):
    class Other(torch.nn.Linear):
        pass

    monkeypatch.setitem(slicegraph.models.MODELS, "Other", (Other, dict))
    (tmp_path / "config.json").write_text('{"model": "Other"}')
    with pytest.raises(ValueError, match="no predictor for a model of class 'Other'"):
        load_predictor(tmp_path)


def test_missing_weights_are_named(tmp_path):
    save_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no model\.safetensors"):
        load_predictor(tmp_path)


def test_weights_of_another_size_are_refused(tmp_path):
    save_model(tmp_path / "a")
    save_model(tmp_path / "b", channels=24)
    (tmp_path / "b/model.safetensors").replace(tmp_path / "a/model.safetensors")
    with pytest.raises(ValueError, match="does not fit its configuration"):
        load_predictor(tmp_path / "a")


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_place_without_a_model_says_what_is_expected(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=r"there is no model in .*, expected the folder of"):
        load_predictor(tmp_path / name)
