"""Estimators that take molecules, and what scikit-learn does with an estimator."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from support.tiny_run import MODEL, smiles

import slicegraph
from slicegraph import MoleculeClassifier, MoleculeRegressor
from slicegraph.estimators import card_html

X = smiles(40)
Y = np.array([text.count("N") + 0.5 * text.count("O") for text in X])
WORDS = np.array(["many" if value > 1 else "few" for value in Y])
QUICK = {"epochs": 1, "batch_size": 8, "settings": {"model": MODEL, "accelerator": "cpu"}}
ESTIMATORS = [MoleculeRegressor, MoleculeClassifier]


@pytest.fixture(scope="module")
def regressor() -> MoleculeRegressor:
    return MoleculeRegressor(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def classifier() -> MoleculeClassifier:
    return MoleculeClassifier(**QUICK).fit(X, WORDS)


def test_a_regressor_predicts_numbers_intervals_vectors_and_contributions(regressor):
    values, ends = regressor.predict(X[:3]), regressor.predict_interval(X[:3], 0.8)
    assert values.shape == (3,)
    assert (ends[:, 0] <= values).all()
    assert (values <= ends[:, 1]).all()
    vectors = regressor.transform(X[:3])
    assert vectors.shape == (3, len(regressor.get_feature_names_out()))
    one = regressor.explain(X[:1])[0]
    assert one.baseline + one.contributions.sum() == pytest.approx(values[0], abs=1e-4)
    known = ((Y - regressor.predict(X)) ** 2).sum() / ((Y - Y.mean()) ** 2).sum()
    assert regressor.score(X, Y) == pytest.approx(1 - known, abs=1e-6)


def test_a_classifier_predicts_classes_probabilities_and_sets(classifier):
    chances = classifier.predict_proba(X)
    assert classifier.classes_.tolist() == ["few", "many"]
    np.testing.assert_allclose(chances.sum(1), 1)
    np.testing.assert_allclose(chances[:, 1], classifier.model_.predict(X))
    assert classifier.predict(X).tolist() == classifier.classes_[chances.argmax(1)].tolist()
    assert classifier.predict_set(X[:2], 0.9).shape == (2, 2)
    assert classifier.model_.config.class_names == ("few", "many")
    assert classifier.score(X, WORDS) == (classifier.predict(X) == WORDS).mean()


def test_three_classes_of_numbers_keep_their_values():
    y = np.array([text.count("O") % 3 for text in X]) * 10
    found = MoleculeClassifier(**QUICK).fit(X, y)
    assert found.classes_.tolist() == [0, 10, 20]
    assert found.predict_proba(X[:4]).shape == (4, 3)
    assert set(found.predict(X)) <= {0, 10, 20}


def test_molecules_come_as_lists_arrays_series_tables_and_rdkit_molecules(regressor):
    expected = regressor.predict(X[:3])
    mols = [Chem.MolFromSmiles(text) for text in X[:3]]
    frame = pd.DataFrame({"smiles": X[:3]}, index=[7, 8, 9])
    for given in (tuple(X[:3]), np.array(X[:3]), frame["smiles"], frame, frame.to_numpy(), mols):
        np.testing.assert_allclose(regressor.predict(given), expected, atol=1e-5)


@pytest.mark.parametrize(
    "bad",
    ["CCO", Chem.MolFromSmiles("CCO"), 3, np.zeros((3, 2))],
    ids=["text", "molecule", "number", "table"],
)
def test_what_is_no_list_of_molecules_is_refused(regressor, bad):
    with pytest.raises(ValueError, match=r"expected a list, an array|expected \[N\] molecules"):
        regressor.predict(bad)


def test_a_bad_molecule_is_named_or_left_out():
    texts, y = [*X, "C1CC"], [*Y, 1.0]
    with pytest.raises(ValueError, match=r"X\[40\] = 'C1CC': unclosed ring"):
        MoleculeRegressor(**QUICK).fit(texts, y)
    with pytest.warns(UserWarning, match="1 of 41 rows are left out of the training, the first is"):
        found = MoleculeRegressor(on_error="nan", **QUICK).fit(texts, y)
    assert np.isnan(found.predict(["CCO", "C1CC"])).tolist() == [False, True]
    with pytest.raises(ValueError, match="C1CC"):
        found.set_params(on_error="raise").predict(["C1CC"])


def test_bad_molecules_have_no_class():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = MoleculeClassifier(on_error="nan", **QUICK).fit(X, WORDS)
    assert found.predict(["C1CC", "CCO"])[0] is None
    assert found.predict(["C1CC", "CCO"])[1] in WORDS


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.nan, *Y[2:]], r"y\[1\] = nan, expected a number"),
        ([np.inf, *Y[1:]], r"y\[0\] = inf, expected a number"),
        (Y[:-1], "inconsistent numbers of samples"),
    ],
    ids=["nan", "inf", "length"],
)
def test_a_bad_label_is_named(y, message):
    with pytest.raises(ValueError, match=message):
        MoleculeRegressor(**QUICK).fit(X, y)


def test_one_class_or_a_missing_class_is_an_error():
    with pytest.raises(ValueError, match="only one class, 'a', expected two"):
        MoleculeClassifier(**QUICK).fit(X, ["a"] * 40)
    with pytest.raises(ValueError, match=r"y\[2\] = None, expected a class"):
        MoleculeClassifier(**QUICK).fit(X, ["a", "b", None, *["a"] * 37])


def test_several_targets_have_names_and_may_have_gaps():
    y = pd.DataFrame({"first": Y, "second": [np.nan, *(2 * Y[1:])]})
    found = MoleculeRegressor(**QUICK).fit(X, y)
    assert found.predict(X[:3]).shape == (3, 2)
    assert found.predict_interval(X[:3], 0.5).shape == (3, 2, 2)
    assert found.model_.config.target_names == ("first", "second")
    column = MoleculeRegressor(**QUICK).fit(X, Y[:, None])
    assert column.predict(X[:3]).shape == (3, 1)


def test_the_same_random_state_gives_the_same_model(regressor):
    again = clone(regressor).fit(X, Y)
    other = clone(regressor).set_params(random_state=1).fit(X, Y)
    assert (again.predict(X) == regressor.predict(X)).all()
    assert (other.predict(X) != regressor.predict(X)).any()


def test_weights_change_the_model(regressor):
    weights = np.where(Y.mean() < Y, 10.0, 0.1)
    weighted = MoleculeRegressor(**QUICK).fit(X, Y, sample_weight=weights)
    assert weighted.predict(X).mean() > regressor.predict(X).mean()


def test_all_molecules_can_be_trained_on():
    found = MoleculeRegressor(validation_fraction=0, **QUICK).fit(X, Y)
    assert found.predict(X[:2]).shape == (2,)
    with pytest.raises(ValueError, match="0 held-out labels"):
        found.predict_interval(X[:2])


@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_a_fitted_estimator_can_be_pickled(name, request):
    fitted = request.getfixturevalue(name)
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict(X) == fitted.predict(X)).all()
    assert pickle.loads(pickle.dumps(clone(fitted))).get_params() == fitted.get_params()


def test_a_run_is_kept_and_loaded(tmp_path, classifier):
    fitted = MoleculeRegressor(run=str(tmp_path / "run"), **QUICK).fit(X, Y)
    for found in (
        MoleculeRegressor.load(tmp_path / "run"),
        slicegraph.load(tmp_path / "run"),
    ):
        np.testing.assert_array_equal(found.predict(X), fitted.predict(X))
    assert MoleculeRegressor.load(tmp_path / "run").epochs == 1
    assert (tmp_path / "run/molecules.csv").is_file()
    classifier.save(tmp_path / "saved")
    again = MoleculeClassifier.load(tmp_path / "saved")
    assert (again.predict(X) == classifier.predict(X)).all()
    assert again.card_ == classifier.card_
    with pytest.raises(ValueError, match="is a binary model; load it with MoleculeClassifier"):
        MoleculeRegressor.load(tmp_path / "saved")
    with pytest.raises(ValueError, match="1 regression targets, expected one target of classes"):
        MoleculeClassifier.load(tmp_path / "run")


def test_vectors_are_a_step_of_a_pipeline(regressor):
    pipeline = make_pipeline(MoleculeRegressor(**QUICK), Ridge())
    assert pipeline.fit(X, Y).predict(X[:3]).shape == (3,)


def test_folds_are_scored():
    scores = cross_val_score(
        MoleculeRegressor(**QUICK), X, Y, cv=2, scoring="neg_mean_absolute_error"
    )
    assert np.isfinite(scores).all()


@pytest.mark.slow
def test_a_grid_is_searched_in_processes():
    grid = {"lr": [1e-2, 1e-12]}
    options = QUICK | {"epochs": 8}
    search = GridSearchCV(MoleculeClassifier(**options), grid, cv=2, n_jobs=2, error_score="raise")
    search.fit(X, WORDS)
    assert search.best_estimator_.predict(X[:2]).shape == (2,)
    assert len(search.cv_results_["mean_test_score"]) == 2


def test_the_models_of_an_ensemble_have_a_deviation():
    settings = QUICK["settings"] | {"jobs": 1}
    found = MoleculeRegressor(ensemble=2, **(QUICK | {"settings": settings})).fit(X, Y)
    values, deviations = found.predict(X, return_std=True)
    members = np.stack([one.first().predict(X) for one in found.model_.members])
    np.testing.assert_allclose(values, members.mean(0), rtol=1e-5)
    np.testing.assert_allclose(deviations, members.std(0, ddof=1), rtol=1e-4, atol=1e-6)


def test_one_network_has_no_deviation(regressor):
    with pytest.raises(ValueError, match="one network has no deviation; fit with ensemble=5"):
        regressor.predict(X, return_std=True)


def test_nothing_is_printed_unless_asked_for(capfd):
    MoleculeRegressor(**QUICK).fit(X, Y)
    assert capfd.readouterr().out == ""
    MoleculeRegressor(verbose=1, **QUICK).fit(X, Y)
    assert "epoch 1/1" in capfd.readouterr().out


def test_a_notebook_shows_the_parameters_and_the_card(regressor):
    page = regressor._repr_mimebundle_()["text/html"]
    assert "Model card" in page
    assert "train 36, valid 4" in page
    assert "Model card" not in MoleculeRegressor()._repr_html_()


def test_the_card_is_escaped():
    page = card_html("# <b>\n\n| a | b |\n|---|---|\n| <i> | x |\n\n```\n<u>|\n```\n")
    assert "<td style='padding:2px 8px'>&lt;i&gt;</td>" in page
    assert "<pre>&lt;u&gt;|\n</pre>" in page
    assert "<b>&lt;b&gt;</b>" in page


def test_an_estimator_that_is_not_fitted_says_so():
    for kind in ESTIMATORS:
        with pytest.raises(NotFittedError):
            kind().predict(["CCO"])
        with pytest.raises(NotFittedError):
            kind().transform(["CCO"])


# The other checks of `check_estimator` fit tables of numbers, which are no molecules.
CHECKS = [
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
]


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_an_estimator_has_a_kernel_head_by_default_and_is_loaded_with_it(kind, tmp_path):
    labels = Y if kind is MoleculeRegressor else WORDS
    found = kind(run=str(tmp_path / "run"), settings={"accelerator": "cpu"}).fit(X, labels)
    assert found.model_.config.kernel_rows == 36
    assert found.score(X, labels) > 0.8
    again = kind.load(tmp_path / "run")
    assert (again.preset, again.settings) == (None, {"head": "kernel"})
    np.testing.assert_array_equal(again.predict(X[:3]), found.predict(X[:3]))
    assert again.fit(X, labels).model_.config.kernel_rows == 36


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_checks_of_scikit_learn_that_need_no_table(kind, check):
    if not hasattr(estimator_checks, check):
        pytest.skip(f"this scikit-learn has no {check}")
    getattr(estimator_checks, check)(kind.__name__, kind())


def test_scikit_learn_knows_that_tables_of_numbers_are_not_taken():
    with pytest.warns(match="Can't test estimator MoleculeRegressor"):
        estimator_checks.check_estimator(MoleculeRegressor())


def test_a_table_in_memory_is_trained_on(tmp_path):
    mols = [Chem.MolFromSmiles(text) for text in X]
    options = {"epochs": 1, "batch_size": 8, "model": MODEL, "accelerator": "cpu"}
    found = [
        slicegraph.train(data=data, target="logS", out=tmp_path / str(k), progress=False, **options)
        for k, data in enumerate(
            (pd.DataFrame({"smiles": X, "logS": Y}), {"smiles": mols, "logS": list(Y)})
        )
    ]
    assert found[0].test == pytest.approx(found[1].test)
    rows = pd.read_csv(tmp_path / "0/predictions/test.csv")
    np.testing.assert_allclose(rows["logS_true"], Y[rows["row"]])


def test_a_path_a_config_and_keywords_are_joined(tmp_path):
    table = tmp_path / "my.csv"
    pd.DataFrame({"smiles": X, "logS": Y, "other": Y}).to_csv(table, index=False)
    base = {"epochs": 3, "batch_size": 8, "model": MODEL, "accelerator": "cpu"}
    result = slicegraph.train(
        base, data=table, target=["logS", "other"], epochs=1, out=tmp_path / "r", progress=False
    )
    assert result.metrics["epochs"] == 1
    assert set(result.metrics["targets"]) == {"logS", "other"}
    with pytest.raises(TypeError, match="data is a list, expected a name, a path, a DataFrame"):
        slicegraph.train(data=["CCO"])
    with pytest.raises(ValueError, match="no setting 'epoch'"):
        slicegraph.train(data=table, target="logS", epoch=1)
