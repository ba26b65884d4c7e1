"""Heads that are solved on the vectors of an encoder, and runs that start from the weights."""

import hashlib
import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, RidgeCV
from support.tiny_run import tiny_config, tiny_run, write_table

import slicegraph
from slicegraph.models import load
from slicegraph.models.base import SHIPPED
from slicegraph.train import TrainConfig
from slicegraph.train.head import STRENGTHS, logistic, ridge


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 12))
    y = x @ random.normal(size=12) + 2 + random.normal(size=60)
    return x, y, random.uniform(0.5, 2, 60)


def test_the_ridge_is_that_of_scikit_learn(vectors):
    x, y, _ = vectors
    x = x - x.mean(0)
    tensors = map(torch.from_numpy, (x, y, np.ones(60)))
    solution, bias, strength = ridge(*tensors)
    expected = RidgeCV(STRENGTHS).fit(x, y)
    assert strength == pytest.approx(expected.alpha_)
    np.testing.assert_allclose(solution[0], expected.coef_, rtol=1e-6)
    assert float(bias) == pytest.approx(expected.intercept_)


def test_the_ridge_minimises_the_weighted_error(vectors):
    x, y, weight = map(torch.from_numpy, vectors)
    weight = weight / weight.mean()
    solution, bias, strength = ridge(x, y, weight)
    solution, bias = solution.requires_grad_(), bias.requires_grad_()
    error = (weight * (x @ solution[0] + bias - y).square()).sum()
    (error + strength * solution.square().sum()).backward()
    assert solution.grad.abs().max() < 1e-8
    assert bias.grad.abs().max() < 1e-8


@pytest.mark.parametrize("classes", [2, 3])
def test_the_logistic_regression_is_that_of_scikit_learn(vectors, classes):
    x, y, _ = vectors
    labels = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)).astype(float)
    tensors = map(torch.from_numpy, (x, labels, np.ones(60)))
    solution, _, strength = logistic(*tensors, classes=1 if classes == 2 else 3, seed=0)
    expected = LogisticRegression(C=1 / (60 * strength), tol=1e-8, max_iter=1000).fit(x, labels)
    np.testing.assert_allclose(solution, expected.coef_, atol=2e-3)


@pytest.mark.parametrize("target", ["gap", "active", "class", "gap,gaps"])
def test_a_ridge_head_is_trained_in_one_step_and_predicts_like_any_model(tmp_path, target):
    write_table(tmp_path / "table.csv", count=60, columns=target)
    chosen = {"targets": tuple(target.split(",")), "head": "ridge", "epochs": None, "model": {}}
    run = tiny_run(tmp_path, **chosen, dropout=None, init="slicegraph-chem")
    model, encoder = slicegraph.load(run.model), load("slicegraph-chem").state_dict()
    for name, value in model.state_dict().items():
        assert name.startswith("head.") or torch.equal(value, encoder[name])
    both = model.predict(["OCC", "C(O)C", "NCCN"])
    np.testing.assert_allclose(both[0], both[1], rtol=1e-5)
    assert run.metrics["steps"] == 1


def test_a_run_prints_the_weights_that_it_starts_from(tmp_path, capsys):
    slicegraph.train(tiny_config(tmp_path, model={}, init="slicegraph-chem", epochs=1))
    assert "weights are those of slicegraph-chem" in capsys.readouterr().out
    out = str(tmp_path / "none")
    run = slicegraph.train(tiny_config(tmp_path, out=out, model={}, init="none", epochs=1))
    assert "init    random weights" in capsys.readouterr().out
    assert run.metrics["parameters"] != sum(p.numel() for p in load("slicegraph-chem").parameters())


def test_a_table_that_starts_from_weights_has_a_recipe_of_its_own():
    config = TrainConfig(data="csv:my.csv", init="slicegraph-chem").resolved()
    assert (config.preset, config.keep, config.patience, config.ema) == ("chem", "last", 0, 0.99)
    assert config.resolved() == config
    given = TrainConfig(data="csv:my.csv", init="runs/one", patience=5, ema=0).resolved()
    assert (given.preset, given.keep, given.patience, given.ema) == ("mini", "best", 5, 0)
    plain = TrainConfig(data="csv:my.csv").resolved()
    assert (plain.preset, plain.init, plain.keep, plain.ema) == ("mini", "none", "best", 0)
    assert TrainConfig(data="csv:my.csv", head="ridge").resolved().init == "slicegraph-chem"


def test_a_ridge_head_is_not_trained_for_epochs():
    with pytest.raises(ValueError, match="head = 'ridge' is solved, not trained; leave out epochs"):
        TrainConfig(data="csv:my.csv", head="ridge", epochs=3)


def test_the_last_epoch_is_kept_whatever_its_score(tmp_path):
    run = tiny_run(tmp_path, keep="last", epochs=3, patience=0)
    assert run.metrics["best_epoch"] == 2
    assert run.metrics["chosen_by"] == "the end of the training"


@pytest.fixture(scope="module")
def shipped():
    return slicegraph.load("slicegraph-chem")


def test_the_shipped_weights_are_those_of_the_card():
    folder = SHIPPED["slicegraph-chem"]
    content = (folder / "model.safetensors").read_bytes()
    assert len(content) <= 6_000_000
    checksum = hashlib.sha256(content).hexdigest()
    record = json.loads((folder / "config.json").read_text())["training"]
    card = (folder / "README.md").read_text()
    assert record["weights_sha256"] == checksum
    assert checksum in card
    assert record["command"].startswith("slicegraph pretrain ")
    assert record["command"] in card
    for source in ("molsets", "qm9", "hiv"):
        assert source in card


def test_every_spelling_has_the_same_vector(shipped):
    spellings = ["OC(=O)c1ccccc1N", "Nc1ccccc1C(O)=O", "c1(N)c(C(=O)O)cccc1"]
    vectors = shipped.embed(spellings)
    assert vectors.shape == (3, shipped.head.in_features)
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_array_equal(vectors[0], vectors[2])


def test_odd_molecules_have_a_vector(shipped):
    odd = ["[Na+].[O-]C(=O)c1ccccc1", "C[Fe]C", "[He]", "C" * 150, "[2H]C([2H])O", "*CC"]
    assert np.isfinite(shipped.embed(odd)).all()


def test_the_weights_know_descriptors(shipped):
    """The head predicts normal scores: those of heavier molecules are larger."""
    column = shipped.config.target_names.index("MolWt")
    chains = shipped.predict(["CCO", "CCCCCCCCO", "c1ccc2c(c1)cccc2C(=O)NCCc1ccccc1"])[:, column]
    assert (np.diff(chains) > 0).all()
