"""How sure a prediction is: conformal intervals and sets, calibrated probabilities, neighbours.

Everything here is computed from predictions for held-out molecules: those of the folds that a
molecule was not trained in, or the valid part of a single split. They are saved next to the model
in `calibration.npz`, without pickle, together with the fingerprints of the training molecules.
"""

import io
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rdkit import DataStructs

from slicegraph.data.molecules import fingerprints, nearest
from slicegraph.files import write_atomically

CALIBRATION_FILE = "calibration.npz"
FAR = 0.05  # share of the held-out molecules that are farther from the training molecules
MOST_TRAINING = 500_000  # molecules whose fingerprints are saved
_BYTES = 256  # of a fingerprint of 2,048 bits
_ROWS = 256  # molecules whose candidates for the ends of an interval are in memory
_LEAST_PAIRS = 50  # molecules that two groups have held out, to compare them
_LEAST = 1e-7  # probability, before its logarithm
_RIDGE = 1e-3  # pulls the scaling of few labels towards none


def interval_rank(count: int, level: float, draws: int = 1) -> int:
    """Return which of `count` sorted held-out errors covers a new one with this probability.

    The rank, from 1, is ``ceil(level (n + 1))`` of ``n`` errors: for exchangeable errors the next
    one is at most that error with probability ``level`` or more, and with at most ``1 / (n + 1)``
    more if no two are equal. If every molecule was held out ``draws`` times, the ranks of the
    draws are averaged: ``ceil(level (n + draws))``. A rank above `count` means that there are too
    few errors.
    """
    return math.ceil(level * (count + draws) - 1e-9)


def check_level(level: float) -> float:
    """Return the level of an interval; raise if it is not a probability between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"interval = {level:g}, expected more than 0 and less than 1, such as 0.9")
    return level


class Neighbours(NamedTuple):
    """The training molecule that is most similar to each molecule, ``[N]`` each."""

    similarity: np.ndarray  # Tanimoto similarity of Morgan fingerprints; NaN without a molecule
    molecules: list[str]
    outside: np.ndarray  # whether it is less similar than 95 % of the held-out molecules


class Groups(NamedTuple):
    """What the models of each group predict: ``[groups, N, targets]``, or with classes."""

    mean: np.ndarray
    std: np.ndarray | None  # None if there is one model in each group


@dataclass(frozen=True)
class Calibration:
    """Predictions for held-out molecules, and what follows from them for new molecules.

    A group are the models of one split. A molecule that is held out in a group was not trained on
    by any of its models. A single model, and an ensemble on one split, have one group.

    Args:
        kind: the kind of the task, ``[1]``, such as "regression".
        labels: ``[n, targets]``, NaN for a gap.
        values: predictions of the group, ``[n, targets]``: values or probabilities of class 1;
            ``[n, targets, classes]`` for several classes.
        std: the deviation of the models of the group, ``[n, targets]``, or that which a kernel head
            predicts; empty for one network.
        group: the number of the group in which each molecule is held out, ``[n]``.
        member_groups: the group of each model, ``[models]``.
        draws: how many times each molecule is held out, ``[1]``.
        shrink: the factor of the errors of several groups, ``[targets]``, see `shrinkage`; may be
            empty or NaN, if that is not known.
        similarity: to the nearest training molecule of its group, ``[n]``; may be empty.
        index: the position of each molecule in the store, ``[n]``; may be empty.
        predicted: whether `std` is predicted by each model itself, ``[1]``.
        bits: the fingerprints of the training molecules, ``[m, 256]`` uint8 (those of rows of
            several molecules are joined); may be empty.
        texts: their SMILES as UTF-8, one a line.
    """

    kind: np.ndarray
    labels: np.ndarray
    values: np.ndarray
    std: np.ndarray
    group: np.ndarray
    member_groups: np.ndarray
    draws: np.ndarray = field(default_factory=lambda: np.ones(1, np.int64))
    shrink: np.ndarray = field(default_factory=lambda: np.empty(0))
    similarity: np.ndarray = field(default_factory=lambda: np.empty(0))
    index: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    predicted: np.ndarray = field(default_factory=lambda: np.zeros(1, bool))
    bits: np.ndarray = field(default_factory=lambda: np.empty((0, _BYTES), np.uint8))
    texts: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))

    @classmethod
    def read(cls, folder: Path) -> "Calibration | None":
        """Read the file of a model; None if there is none."""
        path = folder / CALIBRATION_FILE
        if not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                known = [each.name for each in fields(cls) if each.name in file]
                return cls(**{name: file[name] for name in known})
        except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is damaged ({error}); copy it again, or delete it") from None

    def write(self, folder: Path) -> None:
        """Write the file of a model."""
        content = io.BytesIO()
        arrays: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        np.savez_compressed(content, **arrays)
        write_atomically(folder / CALIBRATION_FILE, [content.getbuffer()])

    @property
    def is_regression(self) -> bool:
        return str(self.kind[0]) == "regression"

    @property
    def classes(self) -> int:
        """The number of classes of a multiclass model, else 0."""
        return self.values.shape[2] if self.values.ndim == 3 else 0

    def _rows(self, target: int) -> np.ndarray:
        """The held-out molecules with a label of this target."""
        return np.flatnonzero(~np.isnan(self.labels[:, target]))

    def _by_group(self, members: np.ndarray, std: np.ndarray | None = None) -> "Groups":
        """The mean and the deviation of the models of each group, of ``[N, models, ...]``."""
        places = [self.member_groups == n for n in range(int(self.member_groups.max()) + 1)]
        spread = None
        if self.normalised:
            own = [None if std is None or not self.predicted[0] else std[:, at] for at in places]
            parts = zip(places, own, strict=True)
            spread = np.stack([deviation(members[:, at], one) for at, one in parts])
        return Groups(np.stack([members[:, at].mean(1) for at in places]), spread)

    @property
    def normalised(self) -> bool:
        """Whether errors are divided by the deviation of the models."""
        return bool(self.std.size)

    def _widths(self, std: np.ndarray, target: int) -> np.ndarray:
        """What errors are divided by: a deviation that has the noise of the labels in it; or that
        of several models plus a typical one, so that none is near 0."""
        if self.predicted[0]:
            return np.where(std > 0, std, 1.0)
        typical = float(np.median(self.std[self._rows(target), target]))
        return std + (typical or 1.0)

    def intervals(
        self, members: np.ndarray, level: float, std: np.ndarray | None = None
    ) -> np.ndarray:
        r"""Return the conformal intervals of a regression: ``[N, targets, 2]``.

        With one group this is split conformal prediction, :math:`\mu(x) \pm q s(x)` with the
        quantile q of the held-out errors :math:`R_i = |y_i - \mu(x_i)| / s(x_i)`. s is 1, the
        deviation that a kernel head predicts or, for several models in each group, their deviation
        plus its median. See `interval_rank` for the
        quantile. With folds, :math:`\mu(x)` is the mean of all groups, and q is multiplied by the
        factor of `shrinkage`. If that is not known, it is CV+ (Barber et al. 2021), which covers
        more: the quantiles of :math:`\mu_{g(i)}(x) \pm R_i s_{g(i)}(x)`, where the models of group
        g(i) were not trained on molecule i.

        Args:
            members: the predictions of each model, ``[N, models, targets]``.
            level: the probability that an interval has the true value.
            std: the deviation that each model predicts, ``[N, models, targets]``, for kernel heads.
        """
        return self._intervals(self._by_group(members, std), level)

    def _intervals(self, groups: "Groups", level: float) -> np.ndarray:
        check_level(level)
        count, targets = groups.mean.shape[1:]
        found = np.full((count, targets, 2), np.nan)
        for target in range(targets):
            rows = self._rows(target)
            rank = interval_rank(len(rows), level, int(self.draws[0]))
            if rank > len(rows):
                most = len(rows) / (len(rows) + int(self.draws[0]))
                raise ValueError(
                    f"interval = {level:g}: {len(rows)} held-out labels of target {target} allow "
                    f"at most {math.floor(1000 * most) / 1000:g}; ask for less"
                )
            errors = np.abs(self.labels[rows, target] - self.values[rows, target])
            centre = groups.mean[:, :, target].astype(np.float64)
            width = np.ones(centre.shape)
            if groups.std is not None:
                errors = errors / self._widths(self.std[rows, target], target)
                width = self._widths(groups.std[:, :, target], target)
            own, factor = self.group[rows], self.shrink[target] if len(self.shrink) else math.nan
            if len(centre) == 1 or not math.isnan(factor):
                factor = 1.0 if len(centre) == 1 else float(factor)
                half = factor * np.partition(errors, rank - 1)[rank - 1] * width.mean(0)
                middle = centre.mean(0)
                found[:, target] = np.stack([middle - half, middle + half], -1)
                continue
            for start in range(0, count, _ROWS):
                part = slice(start, start + _ROWS)
                middle, reach = centre[own, part], errors[:, None] * width[own, part]
                top = np.partition(middle + reach, rank - 1, axis=0)[rank - 1]
                low = np.partition(middle - reach, len(rows) - rank, axis=0)[len(rows) - rank]
                found[part, target] = np.stack([low, top], -1)
        return found

    def p_values(self, members: np.ndarray) -> np.ndarray:
        """Return the conformal p-value of each class: ``[N, targets, classes]``.

        Each class is compared with the held-out molecules of that class alone (Mondrian), so that
        a rare class is covered as often as a frequent one. The score is 1 - probability; with
        folds a molecule is compared with those of each fold by the models of that fold
        (cross-conformal prediction, Vovk 2015).
        """
        return self._p_values(self._by_group(members))

    def _p_values(self, groups: "Groups") -> np.ndarray:
        centres = _chances(groups.mean, self.classes)
        values, draws = _chances(self.values, self.classes), int(self.draws[0])
        found = np.ones(centres.shape[1:])
        for target, number in np.ndindex(found.shape[1:]):
            rows = np.flatnonzero(self.labels[:, target] == number)
            at_least = np.zeros(len(found))
            for group, centre in enumerate(centres):
                own = np.sort(1 - values[rows[self.group[rows] == group], target, number])
                new = 1 - centre[:, target, number]
                at_least += len(own) - np.searchsorted(own, new, side="left")
            found[:, target, number] = (at_least + draws) / (len(rows) + draws)
        return found

    def sets(self, members: np.ndarray, level: float) -> np.ndarray:
        """Return the conformal sets of classes, ``[N, targets, classes]`` bool: each class whose
        `p_values` is above ``1 - level``. The true class is among them with that probability, for
        each class; a set may be empty, or have all classes."""
        return self.p_values(members) > 1 - check_level(level) + 1e-12

    @cached_property
    def _scalings(self) -> list[tuple[float, np.ndarray]]:
        values = _chances(self.values, self.classes)
        each = range(self.labels.shape[1])
        return [fit_scaling(values[self._rows(t), t], self.labels[self._rows(t), t]) for t in each]

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """Return calibrated probabilities, in the shape of the given ones.

        ``[N, targets]`` of class 1, or ``[N, targets, classes]``; see `fit_scaling`.
        """
        given = _chances(values, self.classes)
        found = np.stack([scaled(given[:, t], *own) for t, own in enumerate(self._scalings)], 1)
        return found if self.classes else found[..., 1]

    @cached_property
    def smiles(self) -> list[str]:
        """The training molecules."""
        return self.texts.tobytes().decode().split("\n") if len(self.bits) else []

    @cached_property
    def vectors(self) -> list[Any]:
        """The fingerprints of the training molecules, for RDKit."""
        return [DataStructs.CreateFromBinaryText(row.tobytes()) for row in self.bits]

    @cached_property
    def farthest(self) -> float:
        """The similarity that 95 % of the held-out molecules reach; NaN if that is not known."""
        known = self.similarity[~np.isnan(self.similarity)]
        return float(np.quantile(known, FAR)) if len(known) else math.nan

    def neighbours(self, texts: Sequence[str]) -> Neighbours:
        """Return the nearest training molecule of each SMILES; none for a text without molecule."""
        found = nearest(fingerprints(texts), self.vectors)
        molecules = [self.smiles[place] if place >= 0 else "" for _, place in found]
        similarity = np.array([best for best, _ in found], dtype=np.float64)
        return Neighbours(similarity, molecules, similarity < self.farthest)


LEVELS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)  # at which coverage is assessed
_BINS = 10  # of the probabilities of a reliability curve
_MOST_ASSESSED = 5_000  # molecules


def assess(
    calibration: Calibration,
    labels: np.ndarray,
    members: np.ndarray,
    std: np.ndarray | None = None,
) -> list[Any]:
    """Assess intervals and probabilities on molecules that were not used for anything else.

    Args:
        calibration: what is fitted, on other molecules.
        labels: ``[N, targets]``, NaN for a gap.
        members: the predictions of each model, ``[N, models, targets(, classes)]``.
        std: the deviation that each model predicts, ``[N, models, targets]``, if it does.

    Returns:
        a dict for each target, as of `_assessment`; None if there are too few held-out labels.
    """
    labels, members = labels[:_MOST_ASSESSED], members[:_MOST_ASSESSED]
    own = None if std is None else std[:_MOST_ASSESSED]
    groups = calibration._by_group(members, own)
    spread = None
    if members.shape[1] > 1 or own is not None:
        spread = members.std(1, ddof=1) if own is None else deviation(members, own)
    parts = (calibration, calibration, groups, labels, members.mean(1), spread)
    return _assessments([parts])


def assess_folds(calibration: Calibration) -> list[Any]:
    """Assess each half of the held-out molecules by what is fitted to the other half.

    The values are those of the models of a fold, not of all models; sets of classes compare a
    molecule with those of its own fold. See `assess`.
    """
    parts: list[_Test] = []
    index = np.unique(calibration.index)
    first = np.isin(calibration.index, np.random.default_rng(0).permutation(index)[::2])
    for half in (first, ~first):
        others = _rows_of(calibration, ~half)
        for group in np.unique(calibration.group):
            own = half & (calibration.group == group)
            fitted = others
            if not calibration.is_regression:
                fitted = _rows_of(calibration, ~half & (calibration.group == group))
            std = calibration.std[own] if calibration.normalised else None
            values = calibration.values[own]
            groups = Groups(values[None], None if std is None else std[None])
            parts.append((fitted, others, groups, calibration.labels[own], values, std))
    return _assessments(parts)


def _rows_of(calibration: Calibration, rows: np.ndarray) -> Calibration:
    """The same with some of the held-out molecules, as one group."""
    return replace(
        calibration,
        labels=calibration.labels[rows],
        values=calibration.values[rows],
        std=calibration.std[rows] if calibration.normalised else calibration.std,
        group=np.zeros(int(rows.sum()), np.int64),
        member_groups=np.zeros(1, np.int64),
    )


# What sets and what probabilities are fitted to; predictions, labels, values and deviations.
_Test = tuple[Calibration, Calibration, Groups, np.ndarray, np.ndarray, np.ndarray | None]


def _assessments(parts: list[_Test]) -> list[Any]:
    found: list[Any] = []
    for target in range(parts[0][3].shape[1]):
        tests = [_tested(*part, target) for part in parts]
        tests = [own for own in tests if own["true"].size]
        joined = (
            {key: np.concatenate([own[key] for own in tests], -1) for key in tests[0]}
            if tests
            else {}
        )
        found.append(_assessment(joined) if joined else None)
    return found


def _tested(
    calibration: Calibration,
    scaling: Calibration,
    groups: Groups,
    labels: np.ndarray,
    values: np.ndarray,
    std: np.ndarray | None,
    target: int,
) -> dict[str, np.ndarray]:
    """Test the intervals or sets of each level on the known labels of a target.

    Each array has the molecules as its last axis. NaN is a level with too few held-out labels.
    """
    known, one = ~np.isnan(labels[:, target]), [target]
    own = replace(
        calibration,
        labels=calibration.labels[:, one],
        values=calibration.values[:, one],
        std=calibration.std[:, one] if calibration.normalised else calibration.std,
    )
    spread = None if groups.std is None else groups.std[:, known][:, :, one]
    chosen = Groups(groups.mean[:, known][:, :, one], spread)
    true, value = labels[known, target], values[known, target]
    found = {"true": true}
    if std is not None and std.ndim == 2:
        found["std"] = std[known, target]
    if own.is_regression:
        found["error"] = np.abs(true - value)
        ends = [own._intervals(chosen, level)[:, 0] for level in _possible(own)]
        ends += [np.full((len(true), 2), np.nan)] * (len(LEVELS) - len(ends))
        low, high = np.moveaxis(np.stack(ends), -1, 0)
        missing = np.isnan(low)
        found["inside"] = np.where(missing, np.nan, (low <= true) & (true <= high))
        found["size"] = high - low
        return found
    scaling = replace(scaling, labels=scaling.labels[:, one], values=scaling.values[:, one])
    chances = own._p_values(chosen)[:, 0]
    sets = np.stack([chances > 1 - level + 1e-12 for level in LEVELS])
    classes = true.astype(int)
    found["inside"] = sets[:, np.arange(len(true)), classes].astype(float)
    found["size"] = sets.sum(-1).astype(float)
    found["chances"] = _chances(value[:, None], own.classes)[:, 0].T
    found["calibrated"] = _chances(scaling.probabilities(value[:, None]), own.classes)[:, 0].T
    return found


def _possible(calibration: Calibration) -> list[float]:
    """The levels of `LEVELS` for which there are enough held-out labels."""
    count, draws = len(calibration._rows(0)), int(calibration.draws[0])
    return [level for level in LEVELS if interval_rank(count, level, draws) <= count]


def _assessment(tested: dict[str, np.ndarray]) -> dict[str, Any]:
    """Summarise `_tested` as values for JSON.

    Returns:
        ``n``; for each of ``levels`` the ``coverage`` and the mean ``size`` of an interval or of a
        set, None for a level with too few held-out labels; ``calibration_error``, the mean distance
        of coverage and level. For several models of a regression ``spearman`` of deviation and
        absolute error, and ``bins`` of equal numbers of molecules with mean deviation and root mean
        squared error. For classes ``coverage_of_classes`` and, before and after calibration,
        ``ece`` (the expected calibration error) and ``reliability``, bins of mean probability,
        share of true labels and number.
    """
    true, inside = tested["true"], tested["inside"]
    coverage, size = (_or_none(tested[name].mean(1)) for name in ("inside", "size"))
    pairs = zip(coverage, LEVELS, strict=True)
    gaps = [abs(own - level) for own, level in pairs if own is not None]
    found: dict[str, Any] = {"n": len(true), "levels": list(LEVELS), "coverage": coverage}
    found |= {"size": size, "calibration_error": float(np.mean(gaps)) if gaps else None}
    if "chances" in tested:
        classes = range(len(tested["chances"]))
        found["coverage_of_classes"] = [
            _or_none(inside[:, true == number].mean(1)) if (true == number).any() else None
            for number in classes
        ]
        chances = (tested["chances"], tested["calibrated"])
        both = [reliability(own, true) for own in chances]
        found["reliability"] = both
        found["ece"] = [
            sum(n * abs(p - share) for p, share, n in own) / sum(n for *_, n in own) for own in both
        ]
    elif "std" in tested and len(true) > 2 * _BINS:
        from scipy.stats import spearmanr

        std, error = tested["std"], tested["error"]
        found["spearman"] = float(spearmanr(std, error).statistic) if np.ptp(std) else None
        parts = np.array_split(np.argsort(std, kind="stable"), _BINS)
        found["bins"] = [
            [float(std[own].mean()), float((error[own] ** 2).mean() ** 0.5), len(own)]
            for own in parts
        ]
    return found


def reliability(chances: np.ndarray, labels: np.ndarray) -> list[list[float]]:
    """Return bins of probabilities with equal numbers: mean probability, share of labels, number.

    Args:
        chances: ``[classes, n]``; of two classes the second is looked at, of more all of them.
        labels: ``[n]`` classes.
    """
    numbers = [1] if len(chances) == 2 else range(len(chances))
    predicted = np.concatenate([chances[number] for number in numbers])
    true = np.concatenate([labels == number for number in numbers])
    parts = np.array_split(np.argsort(predicted, kind="stable"), _BINS)
    return [
        [float(predicted[own].mean()), float(true[own].mean()), len(own)]
        for own in parts
        if len(own)
    ]


def deviation(members: np.ndarray, std: np.ndarray | None = None) -> np.ndarray:
    r"""Compute the standard deviation of the models, ``[n, targets]``, of ``[n, models, targets]``.

    For several classes it is that of the probability of the predicted class. One model has none.
    If each model predicts a deviation of its own, `std`, it is that of all their distributions
    together: :math:`\sqrt{\frac{1}{K} \sum_k s_k^2 + \operatorname{var}_k \mu_k}`.
    """
    if std is not None:
        own = np.square(std, dtype=np.float64).mean(1)
        return np.sqrt(own + (members.var(1, ddof=1) if members.shape[1] > 1 else 0))
    if members.shape[1] == 1:
        return np.full((len(members), members.shape[2]), np.nan)
    if members.ndim == 4:
        chosen = np.nan_to_num(members.mean(1)).argmax(-1)[:, None, :, None]
        members = np.take_along_axis(members, chosen, 3)[..., 0]
    return members.std(1, ddof=1)


def in_logarithms(values: np.ndarray, std: np.ndarray | None) -> tuple[Any, Any]:
    """Return values and deviations as those of the decimal logarithms; see
    :meth:`slicegraph.models.GraphSliceformer.with_deviation`."""
    values = values.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(values), None if std is None else std / (values * math.log(10))


def _or_none(values: np.ndarray) -> list[float | None]:
    return [None if value != value else float(value) for value in values.tolist()]


def _chances(values: np.ndarray, classes: int) -> np.ndarray:
    """The probabilities of all classes; those of class 0 and 1 if only class 1 is given."""
    return values if classes else np.stack([1 - values, values], -1)


def shrinkage(errors: np.ndarray, differences: np.ndarray, groups: int) -> float:
    r"""Return the factor of held-out errors of one group for intervals around the mean of all.

    The mean of K groups is closer to the truth than each of them, so that the errors of the groups
    give intervals that cover too often. If the models of a group add a variance v to an error of
    variance :math:`\sigma^2`, the mean has :math:`\sigma^2 - v (1 - 1/K)`, and the factor is c with
    :math:`c^2 = 1 - (1 - 1/K) v / \sigma^2`. The difference of two groups has the variance 2 v.
    Sizes are compared by their mean, which a few large errors do not decide.

    Args:
        errors: ``[n]``, of a group that was not trained on the molecule.
        differences: ``[n]``, between the predictions of two such groups.
        groups: K.

    Returns:
        the factor, NaN with fewer than 50 molecules.
    """
    if len(errors) < _LEAST_PAIRS or not np.abs(errors).mean():
        return math.nan
    ratio = np.abs(differences).mean() ** 2 / 2 / np.abs(errors).mean() ** 2
    return float(np.sqrt(max(1 / groups, 1 - ratio * (1 - 1 / groups))))


def fit_scaling(chances: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Fit temperature and class offsets to held-out labels, by the likelihood.

    The calibrated probabilities are ``softmax(scale * log p + offset)``; for two classes this is
    Platt's scaling. With few labels both stay near the uncalibrated 1 and 0.

    Args:
        chances: ``[n, classes]`` probabilities.
        labels: ``[n]`` classes.
    """
    from scipy.optimize import minimize

    count, classes = chances.shape
    logits, wanted = np.log(np.maximum(chances, _LEAST)), np.eye(classes)[labels.astype(int)]

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        scale, offset = np.exp(point[0]), point[1:]
        scores = scale * logits + offset
        top = scores.max(1, keepdims=True)
        logs = scores - top - np.log(np.exp(scores - top).sum(1, keepdims=True))
        slope = np.exp(logs) - wanted
        value = -(wanted * logs).sum() / count + _RIDGE * (point @ point)
        first = scale * (slope * logits).sum() / count
        return value, np.concatenate([[first], slope.sum(0) / count]) + 2 * _RIDGE * point

    if len(np.unique(labels)) < 2:
        return 1.0, np.zeros(classes)
    found = minimize(loss, np.zeros(1 + classes), jac=True, method="L-BFGS-B").x
    return float(np.exp(found[0])), found[1:] - found[1]


def scaled(chances: np.ndarray, scale: float, offset: np.ndarray) -> np.ndarray:
    """Return the probabilities ``[n, classes]`` after the scaling of `fit_scaling`."""
    scores = scale * np.log(np.maximum(chances, _LEAST)) + offset
    found = np.exp(scores - scores.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def packed(vectors: Sequence[Any]) -> np.ndarray:
    """Return fingerprints as bytes, ``[n, 256]`` uint8; zeros for None. Those of rows of M
    molecules have M times as many."""
    size = max((one.GetNumBits() // 8 for one in vectors if one is not None), default=_BYTES)
    rows = [bytes(size) if one is None else DataStructs.BitVectToBinaryText(one) for one in vectors]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, size)
