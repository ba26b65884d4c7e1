"""The scores of the page, against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from slicegraph.report.scores import (
    binary_scores,
    class_scores,
    confusion_matrix,
    regression_scores,
    roc_curve,
)


@pytest.fixture
def random():
    return np.random.default_rng(5)


def test_regression_scores_are_those_of_scikit_learn(random):
    true = random.normal(size=200)
    predicted = true + random.normal(size=200)
    scores = regression_scores(true, predicted)
    assert scores["MAE"] == pytest.approx(metrics.mean_absolute_error(true, predicted))
    assert scores["RMSE"] == pytest.approx(metrics.root_mean_squared_error(true, predicted))
    assert scores["R²"] == pytest.approx(metrics.r2_score(true, predicted))


def test_equal_labels_have_no_share_of_variance():
    assert set(regression_scores(np.ones(3), np.zeros(3))) == {"MAE", "RMSE"}


@pytest.mark.parametrize("decimals", [1, 6])
def test_binary_scores_are_those_of_scikit_learn_with_and_without_ties(random, decimals):
    true = (random.random(300) < 0.3).astype(float)
    score = np.round(np.clip(0.3 * true + random.random(300) * 0.7, 0, 1), decimals)
    scores = binary_scores(true, score)
    assert scores["ROC-AUC"] == pytest.approx(metrics.roc_auc_score(true, score))
    assert scores["AP"] == pytest.approx(metrics.average_precision_score(true, score))
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(true, score >= 0.5))


def test_one_class_has_no_area_under_the_curve():
    assert binary_scores(np.zeros(4), np.linspace(0, 0.6, 4)) == {"accuracy": 0.75}


def test_roc_curve_goes_through_the_points_of_scikit_learn(random):
    true = (random.random(100) < 0.5).astype(float)
    score = np.round(random.random(100), 2)
    false_rate, true_rate, _ = metrics.roc_curve(true, score, drop_intermediate=False)
    np.testing.assert_allclose(roc_curve(true, score), (false_rate, true_rate))


def test_confusion_matrix_is_that_of_scikit_learn(random):
    true, predicted = random.integers(0, 5, (2, 300)).astype(float)
    expected = metrics.confusion_matrix(true, predicted)
    np.testing.assert_array_equal(confusion_matrix(true, predicted), expected)
    assert class_scores(true, predicted)["accuracy"] == pytest.approx(
        metrics.accuracy_score(true, predicted)
    )
