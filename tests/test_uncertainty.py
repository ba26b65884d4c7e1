"""Intervals, sets and calibrated probabilities: what they promise holds for exchangeable data."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from slicegraph.data.molecules import fingerprints
from slicegraph.predict.uncertainty import (
    Calibration,
    assess,
    assess_folds,
    deviation,
    fit_scaling,
    interval_rank,
    packed,
    reliability,
    scaled,
    shrinkage,
)


def held_out(labels, values, *, kind="regression", std=None, group=None, members=None, **more):
    """A calibration of one target, from ``[n]`` labels and values, or ``[n, classes]`` chances."""
    count = len(labels)
    arrays = {
        "labels": np.asarray(labels, float)[:, None],
        "values": np.asarray(values, float)[:, None],
        "std": np.empty((0, 1)) if std is None else np.asarray(std, float)[:, None],
        "group": np.zeros(count, int) if group is None else np.asarray(group),
        "member_groups": np.zeros(1, int) if members is None else np.asarray(members),
        "index": np.arange(count),
    }
    return Calibration(kind=np.array([kind]), **arrays | more)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("count", [1, 4, 9, 10, 19])
def test_the_rank_covers_the_next_of_equally_likely_orders(count, level):
    # All places of a new error among n + 1 are equally likely, so the coverage is rank / (n + 1).
    rank = interval_rank(count, level)
    covered = rank / (count + 1)
    assert covered >= level - 1e-12
    assert covered < level + 1 / (count + 1)


def test_a_split_conformal_interval_is_the_quantile_of_the_formula():
    random = np.random.default_rng(0)
    true, predicted = random.normal(size=(2, 19))
    found = held_out(true, predicted).intervals(np.array([[[1.0]], [[-3.0]]]), 0.9)
    half = np.sort(np.abs(true - predicted))[math.ceil(0.9 * 20) - 1]
    np.testing.assert_allclose(found[:, 0], [[1 - half, 1 + half], [-3 - half, -3 + half]])


def test_intervals_of_folds_are_the_quantiles_of_every_held_out_error_at_its_own_models():
    random = np.random.default_rng(1)
    true, predicted = random.normal(size=(2, 30))
    fold, new = np.arange(30) % 3, random.normal(size=(4, 3))
    calibration = held_out(true, predicted, group=fold, members=[0, 1, 2])
    found = calibration.intervals(new[:, :, None], 0.8)[:, 0]
    errors, rank = np.abs(true - predicted), math.ceil(0.8 * 31)
    for row in range(4):
        low = np.sort(new[row, fold] - errors)[30 - rank]
        high = np.sort(new[row, fold] + errors)[rank - 1]
        np.testing.assert_allclose(found[row], [low, high])


def test_a_large_deviation_of_the_models_widens_an_interval():
    random = np.random.default_rng(2)
    true, std = random.normal(size=200), random.uniform(0.1, 2, 200)
    calibration = held_out(true, true + std * random.normal(size=200), std=std, members=[0, 0])
    members = np.array([[[-0.1], [0.1]], [[-2.0], [2.0]]])
    sizes = np.ptp(calibration.intervals(members, 0.9)[:, 0], axis=-1)
    typical = np.median(std)
    expected = members.std(1, ddof=1)[:, 0] + typical
    assert sizes[1] / sizes[0] == pytest.approx(expected[1] / expected[0])


def test_an_interval_is_as_wide_as_the_deviation_that_the_model_predicts():
    random = np.random.default_rng(20)
    true, std = random.normal(size=39), random.uniform(0.1, 2, 39)
    calibration = held_out(true, np.zeros(39), std=std, predicted=np.ones(1, bool))
    new = np.array([[[0.5]], [[3.0]]])
    found = calibration.intervals(np.ones((2, 1, 1)), 0.9, new)[:, 0]
    half = np.sort(np.abs(true) / std)[math.ceil(0.9 * 40) - 1] * new[:, 0, 0]
    np.testing.assert_allclose(found, np.stack([1 - half, 1 + half], 1))


def test_an_interval_of_folds_has_the_mean_deviation_of_their_models():
    random = np.random.default_rng(21)
    true, std, fold = random.normal(size=60), random.uniform(0.1, 2, 60), np.arange(60) % 3
    more = {"predicted": np.ones(1, bool), "shrink": np.array([0.9])}
    calibration = held_out(true, np.zeros(60), std=std, group=fold, members=[0, 1, 2], **more)
    members, new = random.normal(size=(4, 3, 1)), random.uniform(0.1, 2, (4, 3, 1))
    low, high = calibration.intervals(members, 0.8, new)[:, 0].T
    quantile = np.sort(np.abs(true) / std)[math.ceil(0.8 * 61) - 1]
    np.testing.assert_allclose((high - low) / 2, 0.9 * quantile * new.mean((1, 2)))
    np.testing.assert_allclose((high + low) / 2, members.mean((1, 2)))


def test_a_predicted_deviation_of_0_of_all_molecules_gives_intervals_of_one_width():
    true = np.random.default_rng(22).normal(size=39)
    more = {"std": np.zeros(39), "predicted": np.ones(1, bool)}
    found = held_out(true, np.zeros(39), **more).intervals(
        np.ones((2, 1, 1)), 0.9, np.zeros((2, 1, 1))
    )
    np.testing.assert_allclose(
        found, held_out(true, np.zeros(39)).intervals(np.ones((2, 1, 1)), 0.9)
    )


def test_the_deviation_of_several_models_is_that_of_a_draw_from_one_of_them():
    random = np.random.default_rng(23)
    means, stds = random.normal(size=(5, 1)), random.uniform(0.5, 2, (5, 1))
    models = random.integers(5, size=400_000)
    drawn = means[models, 0] + stds[models, 0] * random.normal(size=len(models))
    # `deviation` takes the unbiased variance of the means; with a draw it is that of the sample.
    expected = np.sqrt(drawn.var() - means.var() + means.var(ddof=1))
    assert deviation(means[None], stds[None])[0, 0] == pytest.approx(expected, rel=0.01)
    np.testing.assert_allclose(deviation(means[None, :1], stds[None, :1])[0], stds[0])


@pytest.mark.parametrize("level", [0.8, 0.9])
@pytest.mark.parametrize("normalised", [False, True])
def test_split_intervals_cover_a_new_molecule_as_often_as_asked(level, normalised):
    # Errors with heavy tails, whose size the deviation of two models tells in part.
    random, covered, draws, count = np.random.default_rng(3), 0, 4000, 39
    scale = random.uniform(0.2, 3, (draws, count + 1))
    errors = scale * random.standard_t(3, (draws, count + 1))
    for own, size in zip(errors, scale, strict=True):
        std = size[:-1] if normalised else None
        members = [0, 0] if normalised else [0]
        calibration = held_out(own[:-1], np.zeros(count), std=std, members=members)
        half = size[-1] / math.sqrt(2)
        new = np.array([[[-half], [half]]]) if normalised else np.zeros((1, 1, 1))
        low, high = calibration.intervals(new, level)[0, 0]
        covered += low <= own[-1] <= high
    expected = interval_rank(count, level) / (count + 1)
    error = math.sqrt(expected * (1 - expected) / draws)
    assert covered / draws == pytest.approx(expected, abs=4 * error)


@pytest.mark.parametrize("folds", [5, 20])
def test_fold_intervals_cover_a_new_molecule_of_a_stable_model_as_often_as_asked(folds):
    # The model is the mean of the training labels, so that all steps of the folds are exact.
    random, covered, draws, count, level = np.random.default_rng(4), 0, 1500, 60, 0.9
    fold = np.arange(count) % folds
    for _ in range(draws):
        labels = random.normal(size=count + 1)
        means = np.array([labels[:-1][fold != own].mean() for own in range(folds)])
        calibration = held_out(labels[:-1], means[fold], group=fold, members=range(folds))
        low, high = calibration.intervals(means[None, :, None], level)[0, 0]
        covered += low <= labels[-1] <= high
    error = math.sqrt(level * (1 - level) / draws)
    assert level - 4 * error < covered / draws < level + 1 / (count + 1) + 0.02 + 4 * error


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_fold_intervals_of_unstable_models_cover_as_often_as_asked_and_not_much_more(level):
    # The models of five folds add half of the variance: CV+ alone covers about 5 points more.
    random, count, groups = np.random.default_rng(9), 4000, 5
    fold = np.arange(count) % groups
    noise, models = random.normal(size=count), random.normal(size=(count, groups))
    values = models[np.arange(count), fold]
    other = models[np.arange(count), (fold + 1) % groups]
    factor = shrinkage(values - noise, values - other, groups)
    assert factor == pytest.approx(math.sqrt(1 - 0.8 / 2), abs=0.03)
    truth, new = random.normal(size=4000), random.normal(size=(4000, groups, 1))
    coverage = []
    for shrink in (factor, math.nan):
        calibration = held_out(
            noise, values, group=fold, members=range(groups), shrink=np.array([shrink])
        )
        low, high = calibration.intervals(new, level)[:, 0].T
        coverage.append(((low <= truth) & (truth <= high)).mean())
    assert coverage[0] == pytest.approx(level, abs=0.02)
    assert coverage[1] > level + 0.03


def test_the_factor_is_not_known_of_few_pairs_1_for_equal_models_and_at_least_that_of_noise():
    assert math.isnan(shrinkage(np.ones(49), np.ones(49), 5))
    assert shrinkage(np.ones(50), np.zeros(50), 5) == 1.0
    assert shrinkage(np.ones(50), 9 * np.ones(50), 4) == 0.5


def test_repeated_folds_have_the_rank_of_one_draw():
    assert interval_rank(20, 0.9) == 19
    assert interval_rank(3 * 20, 0.9, draws=3) == math.ceil(0.9 * 3 * 21)


@pytest.mark.parametrize("classes", [2, 3])
def test_each_class_is_in_its_sets_as_often_as_asked(classes):
    # A poor model of a rare class: without a threshold for each class it would be covered rarely.
    random, level, draws = np.random.default_rng(5), 0.8, 3000
    share = [0.9, 0.1] if classes == 2 else [0.7, 0.2, 0.1]
    covered, seen = np.zeros(classes), np.zeros(classes)
    for _ in range(draws):
        labels = random.permutation(np.repeat(np.arange(classes), [round(30 * x) for x in share]))
        labels = np.append(labels, random.integers(classes))
        logits = random.normal(size=(len(labels), classes)) + np.eye(classes)[labels]
        chances = softmax(logits + np.log(share), -1)
        values = chances[:, 1] if classes == 2 else chances
        kind = "binary" if classes == 2 else "multiclass"
        calibration = held_out(labels[:-1], values[:-1], kind=kind)
        inside = calibration.sets(values[-1:, None, None], level)
        covered[labels[-1]] += inside[0, 0, labels[-1]]
        seen[labels[-1]] += 1
    for number, rows in enumerate(round(30 * x) for x in share):
        expected = 1 - math.floor((1 - level) * (rows + 1) + 1e-9) / (rows + 1)
        error = math.sqrt(expected * (1 - expected) / seen[number])
        assert covered[number] / seen[number] == pytest.approx(expected, abs=4 * error + 1e-9)


def test_p_values_of_folds_compare_a_molecule_with_each_fold_by_its_own_models():
    labels, chances = np.array([1, 1, 1, 0]), np.array([0.9, 0.4, 0.6, 0.2])
    calibration = held_out(labels, chances, kind="binary", group=[0, 0, 1, 1], members=[0, 1])
    found = calibration.p_values(np.array([[[0.5], [0.7]]]))[0, 0]
    # Class 1: 0.4 is as strange as 0.5 in fold 0, 0.6 as 0.7 in fold 1. Class 0: 0.2 is not.
    np.testing.assert_allclose(found, [(0 + 1) / (1 + 1), (2 + 1) / (3 + 1)])


def test_too_few_held_out_labels_are_an_error_that_names_the_most():
    calibration = held_out(np.zeros(9), np.ones(9))
    calibration.intervals(np.zeros((1, 1, 1)), 0.9)
    with pytest.raises(ValueError, match=r"interval = 0\.95: 9 held-out labels .* at most 0\.9;"):
        calibration.intervals(np.zeros((1, 1, 1)), 0.95)


@pytest.mark.parametrize("level", [0, 1, -0.1, 90, math.nan])
def test_a_level_that_is_no_probability_is_refused(level):
    with pytest.raises(ValueError, match=r"expected more than 0 and less than 1"):
        held_out(np.zeros(9), np.ones(9)).intervals(np.zeros((1, 1, 1)), level)


def test_gaps_are_left_out():
    labels = np.array([0.0, np.nan, 2.0, 1.0, np.nan])
    values = np.array([0.5, 9.0, 1.0, 1.1, -9.0])
    known = ~np.isnan(labels)
    new = np.zeros((1, 1, 1))
    found = held_out(labels, values).intervals(new, 0.7)
    np.testing.assert_array_equal(found, held_out(labels[known], values[known]).intervals(new, 0.7))


def test_the_scaling_of_two_classes_is_that_of_logistic_regression():
    random = np.random.default_rng(6)
    logits = 3 * random.normal(size=4000)
    labels = (random.random(4000) < 1 / (1 + np.exp(-(0.4 * logits - 1)))).astype(int)
    chances = 1 / (1 + np.exp(-logits))
    scale, offset = fit_scaling(np.stack([1 - chances, chances], 1), labels)
    model = LogisticRegression(C=1e6).fit(logits[:, None], labels)
    assert scale == pytest.approx(model.coef_[0, 0], abs=0.03)
    assert offset[1] - offset[0] == pytest.approx(model.intercept_[0], abs=0.05)


@pytest.mark.parametrize("classes", [2, 3])
def test_overconfident_probabilities_are_calibrated_on_new_molecules(classes):
    random = np.random.default_rng(7)
    logits = random.normal(size=(6000, classes))
    labels = np.array([random.choice(classes, p=p) for p in softmax(logits, -1)])
    chances, half = softmax(4 * logits, -1), 3000
    values = chances[:, 1] if classes == 2 else chances
    kind = "binary" if classes == 2 else "multiclass"
    calibration = held_out(labels[:half], values[:half], kind=kind)
    (found,) = assess(calibration, labels[half:, None].astype(float), values[half:, None, None])
    before, after = found["ece"]
    assert before > 0.1
    assert after < 0.03
    calibrated = calibration.probabilities(values[half:, None])
    np.testing.assert_allclose(scaled(chances[half:], *calibration._scalings[0]).sum(-1), 1)
    assert calibrated.shape == values[half:, None].shape


def test_one_class_alone_is_not_scaled():
    chances = np.array([[0.2, 0.8], [0.4, 0.6]])
    np.testing.assert_allclose(scaled(chances, *fit_scaling(chances, np.ones(2))), chances)


def test_the_assessment_counts_what_is_inside():
    calibration = held_out(np.arange(99) / 99, np.zeros(99))
    labels = np.linspace(-0.999, 0.999, 400)[:, None]
    (found,) = assess(calibration, labels, np.zeros((400, 1, 1)))
    for level, coverage, size in zip(
        found["levels"], found["coverage"], found["size"], strict=True
    ):
        half = (math.ceil(level * 100) - 1) / 99
        assert coverage == pytest.approx((np.abs(labels) <= half).mean())
        assert size == pytest.approx(2 * half)


def test_a_useful_deviation_has_a_rank_correlation_with_the_error():
    random = np.random.default_rng(8)
    spread = random.uniform(0.1, 3, 500)
    middle = spread * random.normal(size=500)
    members = (middle + spread * np.array([[-1.0], [1.0]])).T[:, :, None]
    std = members.std(1, ddof=1)[:, 0]
    calibration = held_out(np.zeros(500), middle, std=std, members=[0, 0])
    (found,) = assess(calibration, np.zeros((500, 1)), members)
    assert 0.3 < found["spearman"] < 0.8
    deviations, errors, counts = zip(*found["bins"], strict=True)
    assert sum(counts) == 500
    assert list(deviations) == sorted(deviations)
    assert errors[-1] > 3 * errors[0]


def test_folds_are_assessed_by_the_other_half_of_the_held_out_molecules():
    random = np.random.default_rng(10)
    errors, fold = random.normal(size=2000), np.arange(2000) % 4
    calibration = held_out(errors, np.zeros(2000), group=fold, members=range(4))
    (found,) = assess_folds(calibration)
    assert found["n"] == 2000
    for level, coverage in zip(found["levels"], found["coverage"], strict=True):
        spread = math.sqrt(2 * level * (1 - level) / 2000)  # of the halves, and of what is fitted
        assert coverage == pytest.approx(level, abs=4 * spread)


def test_sets_of_folds_whose_models_differ_in_scale_are_assessed_as_asked():
    random, count = np.random.default_rng(11), 2000
    labels, fold = np.arange(count) % 2, np.arange(count) // 2 % 2
    logits = random.normal(size=count) + 2 * labels - 1
    chances = 1 / (1 + np.exp(-np.where(fold == 0, logits, 0.1 * logits + 3)))
    calibration = held_out(labels, chances, kind="binary", group=fold, members=[0, 1])
    (found,) = assess_folds(calibration)
    at = dict(zip(found["levels"], found["coverage"], strict=True))
    assert at[0.8] == pytest.approx(0.8, abs=0.05)
    assert at[0.95] == pytest.approx(0.95, abs=0.03)


def test_reliability_has_the_shares_of_the_labels():
    chances = np.array([0.1, 0.1, 0.9, 0.9])
    bins = reliability(np.stack([1 - chances, chances]), np.array([0, 0, 1, 0]))
    assert sum(count for *_, count in bins) == 4
    assert np.average([share for _, share, _ in bins], weights=[n for *_, n in bins]) == 0.25


def test_a_calibration_comes_back_from_its_file_without_pickle(tmp_path):
    texts = ["CCO", "c1ccccc1"]
    text = np.frombuffer("\n".join(texts).encode(), np.uint8)
    bits = packed(fingerprints(texts))
    written = held_out([0, 1], [0.5, 0.5], similarity=np.array([0.3, 1.0]), bits=bits, texts=text)
    written.write(tmp_path)
    with np.load(tmp_path / "calibration.npz", allow_pickle=False) as file:
        assert all(array.dtype != object for array in file.values())
    found = Calibration.read(tmp_path)
    assert found.smiles == texts
    for name in ("kind", "labels", "values", "group", "bits"):
        np.testing.assert_array_equal(getattr(found, name), getattr(written, name))
    (tmp_path / "calibration.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match=r"calibration\.npz is damaged"):
        Calibration.read(tmp_path)
    assert Calibration.read(tmp_path / "nowhere") is None


def test_the_nearest_training_molecule_has_the_largest_tanimoto_similarity():
    training = ["CCO", "CCCCCCO", "c1ccccc1C(=O)O"]
    text = np.frombuffer("\n".join(training).encode(), np.uint8)
    similar = np.r_[0.2, np.ones(19)]
    calibration = held_out(
        np.zeros(20),
        np.zeros(20),
        similarity=similar,
        bits=packed(fingerprints(training)),
        texts=text,
    )
    found = calibration.neighbours(["CCCCCO", "OC(=O)c1ccccc1", "[Xe]", "no molecule"])
    assert found.molecules == ["CCCCCCO", "c1ccccc1C(=O)O", "CCO", ""]
    own, other = (set(one.GetOnBits()) for one in fingerprints(["CCCCCO", "CCCCCCO"]))
    assert found.similarity[0] == pytest.approx(len(own & other) / len(own | other))
    assert found.similarity[1:3].tolist() == [1.0, 0.0]
    assert np.isnan(found.similarity[3])
    assert found.outside.tolist() == [True, False, True, False]


def test_every_order_of_the_held_out_molecules_gives_the_same_interval():
    true = np.array([0.3, -1.0, 2.0, 0.1])
    new = np.zeros((1, 1, 1))
    expected = held_out(true, np.zeros(4)).intervals(new, 0.6)
    for order in itertools.permutations(range(4)):
        found = held_out(true[list(order)], np.zeros(4)).intervals(new, 0.6)
        np.testing.assert_array_equal(found, expected)
