"""Splits into train, valid and test, and the description of what a data set predicts.

Every split keeps the rows of one molecule (one key of `data.molecules`) on one side.
"""

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slicegraph.data.cells import DATES
from slicegraph.data.columns import SPLIT_WORDS, flagged_part, split_word
from slicegraph.data.molecules import clusters, scaffolds
from slicegraph.files import write_atomically
from slicegraph.metrics import Evaluator

SPLIT_NAMES = ("train", "valid", "test")
Splits = dict[str, np.ndarray]  # int64 positions of molecules, ascending unless the split is OGB's
Fractions = Sequence[float]  # of train, valid and test
KINDS = {"regression": "mae", "binary": "rocauc", "multiclass": "acc"}  # with the default metrics

_DRAWS, _HOPELESS = 100, 25  # of a split before it is refused; fewer if one part always lacks it
_REDRAW = 1_000_003  # between the seeds of two draws: more than anyone tries of seeds
_BINS = 10  # of the values of a regression
_MOST_UNKNOWN = 0.1  # of the texts of a column
_SAMPLE = 1000  # texts from which the form of dates is found
_ENGLISH = "jan feb mar apr may jun jul aug sep oct nov dec"
_MONTHS = {start: number for number, start in enumerate(_ENGLISH.split(), start=1)}  # of names
_MONTHS |= {"mär": 3, "mrz": 3, "mai": 5, "okt": 10, "dez": 12}  # German
_MONTHS |= {"fév": 2, "avr": 4, "juin": 6, "juil": 7, "aoû": 8, "déc": 12}  # French
_WORDS = SPLIT_WORDS | {"0": 0, "1": 1, "2": 2}  # of a split column, with the number of the part
_FLAGS = {**dict.fromkeys(("1", "true", "yes"), True), **dict.fromkeys(("0", "false", "no"), False)}


@dataclass(frozen=True)
class Task:
    """The targets of a data set and how they are scored.

    Args:
        kind: "regression", "binary" (labels 0 and 1) or "multiclass" (labels 0, 1, 2, ...).
        target_names: the columns of the labels.
        metric: "mae", "rmse", "rocauc", "ap" or "acc".
        unit: the unit of the labels, if they have one.
        num_classes: the number of classes; 0 for a regression.
        class_names: the names of the classes, if they have any.
    """

    kind: str
    target_names: tuple[str, ...]
    metric: str
    unit: str = ""
    num_classes: int = 0
    class_names: tuple[str, ...] = ()

    @property
    def num_targets(self) -> int:
        """The number of predicted targets of a molecule, whatever their number of classes."""
        return len(self.target_names)

    def evaluator(self) -> Evaluator:
        """Return a new evaluator with the metric of this task."""
        return Evaluator(self.metric, self.num_targets, self.unit)


def task_of_labels(
    labels: np.ndarray, names: tuple[str, ...], kind: str | None = None, metric: str | None = None
) -> Task:
    """Derive the task of ``[N, L]`` labels: binary if every known one is 0 or 1, else regression.

    Whole numbers may be counts or classes; they are a regression unless
    ``kind="multiclass"``. The metric is that of the kind unless it is given.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"task = {kind!r}, expected {', '.join(KINDS)}")
    if not names:
        raise ValueError("there are no labels; name their columns (targets)")
    known = labels[~np.isnan(labels)]
    if not len(known):
        raise ValueError(f"no molecule has a label in {', '.join(names)}")
    kind = kind or ("binary" if np.isin(known, (0, 1)).all() else "regression")
    classes = {"regression": 0, "binary": 2}.get(kind, int(known.max()) + 1)
    for label in known[~np.isin(known, np.arange(classes))] if kind != "regression" else ():
        raise ValueError(f"label {label:g} in a {kind} task, expected 0 to {classes - 1}")
    return Task(kind, names, metric or KINDS[kind], num_classes=classes)


def permutation(count: int, seed: int) -> np.ndarray:
    """Return the numbers 0 to ``count - 1`` in an order that depends on ``seed`` alone."""
    # NumPy promises never to change the raw output of a generator, unlike its shuffling methods.
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def random_split(count: int, fractions: Fractions = (0.8, 0.1, 0.1), seed: int = 0) -> Splits:
    """Split ``count`` molecules at random, with the same parts for a seed on every machine.

    Example:
        >>> {name: part.tolist() for name, part in random_split(6, (0.5, 0.25, 0.25)).items()}
        {'train': [1, 2, 3], 'valid': [0], 'test': [4, 5]}
    """
    parts = np.split(permutation(count, seed), _cuts(count, fractions))
    return {name: np.sort(part) for name, part in zip(SPLIT_NAMES, parts, strict=True)}


@dataclass(frozen=True)
class SplitData:
    """What the splits need to know of ``N`` molecules."""

    keys: np.ndarray  # the `molecule_keys`, [N] uint64
    smiles: Callable[[int], str]  # the text of the molecule at a position
    labels: np.ndarray  # [N, L], NaN for a gap
    kind: str = "regression"  # or "binary", "multiclass"
    values: Sequence[str] | None = None  # the texts of the column that the split names
    cache: Path | None = None  # a folder where scaffolds and clusters may be kept
    names: tuple[str, ...] = ()  # of the targets, for messages
    column: str = ""  # the name of the column of `values`; `make_splits` sets it
    parts: tuple[str, ...] = SPLIT_NAMES  # to draw; `make_folds` sets others

    def at(self, positions: np.ndarray) -> "SplitData":
        """Return the data of some of the molecules."""
        return replace(
            self,
            keys=self.keys[positions],
            smiles=lambda i: self.smiles(int(positions[i])),
            labels=self.labels[positions],
            values=self.values and [self.values[i] for i in positions],
            cache=None,
        )

    def molecules(self) -> tuple[np.ndarray, np.ndarray]:
        """Number the keys by appearance: the first position of each, and the number ``[N]``."""
        number = _numbered(self.keys)
        return np.unique(number, return_index=True)[1], number

    def name(self, target: int) -> str:
        return repr(self.names[target]) if self.names else f"target {target}"

    def lacks(self, lacking: list[tuple[str, int]]) -> list[str]:
        """Return warnings of parts and targets, as of `_lacking`."""
        return [f"{part} lacks {self.needs} of {self.name(own)}" for part, own in lacking[:5]]

    @property
    def needs(self) -> str:
        """What a part needs for a score."""
        return "a label" if self.kind == "regression" else "both classes"


@dataclass(frozen=True)
class SplitResult:
    """Positions of train, valid and test, ascending; each other position is in ``left_out``."""

    parts: Splits
    left_out: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def parse_split(text: str) -> tuple[str, str]:
    """Return the name of a split and the column that it names, if it needs one.

    Example:
        >>> parse_split("time:Date"), parse_split("random")
        (('time', 'Date'), ('random', ''))
    """
    name, colon, column = text.partition(":")
    if name not in SPLITS or bool(colon) != (name in BY_COLUMN) or (colon and not column.strip()):
        listed = ", ".join(f"{key}:NAME" if key in BY_COLUMN else key for key in SPLITS)
        raise ValueError(f"split = {text!r}, expected {listed}")
    return name, column.strip()


def make_splits(
    text: str, data: SplitData, fractions: Fractions = (0.8, 0.1, 0.1), seed: int = 0
) -> SplitResult:
    """Split molecules by the name in ``text``, with the same parts for a seed on every machine.

    No molecule is in two parts, and every position is in exactly one part or in ``left_out``.
    The sizes are approximate if molecules, scaffolds or groups have to stay together. A part with
    the share 0 may stay empty. If no such split is possible, the `ValueError` has the remedy.
    """
    name, column = parse_split(text)
    if column and data.values is None:
        raise ValueError(f"split = {text!r} needs the texts of the column {column!r}")
    _cuts(len(data.keys), fractions)
    found = SPLITS[name](replace(data, column=column), fractions, seed)
    for part, fraction in zip(SPLIT_NAMES, fractions, strict=True):
        if fraction and not len(found.parts[part]):
            problem = f"the {text} split of {len(data.keys):,} molecules leaves {part!r} empty"
            raise ValueError(f"{problem}; choose other fractions than {tuple(fractions)}")
    return found


def make_folds(text: str, data: SplitData, folds: int, seed: int = 0) -> SplitResult:
    """Split molecules into folds of about the same size, each of them the test split once.

    The parts are "fold 1" to "fold K". Molecules, scaffolds or groups stay together, and classes
    are in every fold, as `make_splits` does it. A split that is given by a column has no folds.
    """
    name, column = parse_split(text)
    if name in ("column", "time"):
        drawn = ", ".join(key for key in SPLITS if key not in BY_COLUMN)
        raise ValueError(f"split = {text!r} has no folds, expected {drawn} or group:NAME")
    if folds < 2:
        raise ValueError(f"folds = {folds}, expected at least 2")
    names = tuple(f"fold {number}" for number in range(1, folds + 1))
    found = SPLITS[name](replace(data, column=column, parts=names), [1 / folds] * folds, seed)
    for part in (part for part in names if not len(found.parts[part])):
        problem = f"the {text} split of {len(data.keys):,} molecules leaves {part} of {folds} empty"
        raise ValueError(f"{problem}; choose fewer folds")
    return found


def fold_splits(
    text: str, data: SplitData, folds: int, fold: int, fractions: Fractions, seed: int = 0
) -> SplitResult:
    """Return train, valid and test of one fold, from 1: it is test, and valid is drawn of the rest.

    The share of valid is that of ``fractions`` among train and valid.
    """
    if not 1 <= fold <= folds:
        raise ValueError(f"fold = {fold}, expected 1 to {folds}")
    _cuts(len(data.keys), fractions)
    found = make_folds(text, data, folds, seed)
    test = found.parts[f"fold {fold}"]
    rest = np.setdiff1d(np.arange(len(data.keys)), test)
    share = fractions[1] / ((fractions[0] + fractions[1]) or 1)
    inner = make_splits(text, data.at(rest), (1 - share, share, 0.0), seed)
    parts = {name: rest[inner.parts[name]] for name in ("train", "valid")}
    notes = list(dict.fromkeys([*found.notes, *inner.notes]))
    warnings = list(dict.fromkeys([*found.warnings, *inner.warnings]))
    return SplitResult(parts | {"test": test}, notes=notes, warnings=warnings)


# Splits that are drawn: groups stay together, and a draw without both classes is repeated.


def _random(data: SplitData, fractions: Fractions, seed: int) -> SplitResult:
    return _draw("random", data, data.molecules()[1], fractions, seed)


def _similar(
    name: str,
    find: Callable[[list[str]], Iterable[Any]],
    data: SplitData,
    fractions: Fractions,
    seed: int,
) -> SplitResult:
    """Keep molecules of one scaffold or cluster together; these are kept on disk."""
    first, molecules = data.molecules()
    content = hashlib.blake2b(data.keys[first].tobytes(), digest_size=8).hexdigest()
    path = data.cache / f"{name}s-{content}.npy" if data.cache else None
    texts = (data.smiles(int(i)) for i in first)
    found = kept_array(path, len(first), lambda: _numbered(find(list(texts))))
    return _draw(name, data, _numbered(found[molecules]), fractions, seed)


def _group(data: SplitData, fractions: Fractions, seed: int) -> SplitResult:
    texts = [text.strip() for text in data.values or ()]
    _, molecules = data.molecules()
    # A row without a group is a group of its own, unless its molecule has another.
    named = _numbered([text or i for i, text in enumerate(texts)])
    groups, before = molecules, None
    while before is None or (groups != before).any():  # the least number spreads over the links
        before = groups
        for links in (named, molecules):
            least = np.full(links.max(initial=-1) + 1, len(texts))
            np.minimum.at(least, links, groups)
            groups = least[links]
    found = _draw("group", data, _numbered(groups), fractions, seed)
    if empty := texts.count(""):
        found.notes.append(f"{empty:,} rows without a group are split by their molecule")
    return found


def _stratified(data: SplitData, fractions: Fractions, seed: int) -> SplitResult:
    _, groups = data.molecules()
    labels = data.labels
    if data.kind == "regression" and labels.shape[1]:
        known = labels[~np.isnan(labels[:, 0]), 0]
        bins = max(1, min(_BINS, len(np.unique(groups)) // 10))
        edges = np.quantile(known, np.arange(1, bins) / bins) if len(known) else []
        binned = np.digitize(labels[:, :1], edges).astype(float)
        labels = np.where(np.isnan(labels[:, :1]), np.nan, binned)
    members = [
        np.unique(groups[labels[:, target] == value])
        for target in range(labels.shape[1])
        for value in np.unique(labels[~np.isnan(labels[:, target]), target])
    ]
    return _draw("stratified", data, groups, fractions, seed, partial(_stratify, members))


def _stratify(
    members: list[np.ndarray], sizes: np.ndarray, order: np.ndarray, fractions: Fractions
) -> np.ndarray:
    """Assign groups so that each class, given by its groups, is shared by the fractions.

    This is the iterative stratification of Sechidis et al. (2011): the rarest class is shared
    first. Its last groups go to the parts that have none of it.
    """
    # Lists, because numbers of Python are faster one by one than those of NumPy.
    parts, sizes_of = [-1] * len(sizes), sizes.tolist()
    used = np.flatnonzero(fractions).tolist()
    room = [int(sizes.sum()) * share for share in fractions]
    wanted = [[len(own) * share for share in fractions] for own in members]
    has = [[0] * len(room) for _ in members]
    left = [len(own) for own in members]
    rank = np.argsort(order)
    classes: list[list[int]] = [[] for _ in sizes_of]
    for number, own in enumerate(members):
        for group in own.tolist():
            classes[group].append(number)

    def assign(group: int, options: list[int], first: list[float]) -> None:
        part = max(options, key=lambda p: (first[p], room[p]))
        parts[group] = part
        room[part] -= sizes_of[group]
        for own in classes[group]:
            wanted[own][part] -= 1
            has[own][part] += 1
            left[own] -= 1

    while any(left):
        number = min((n for n, count in enumerate(left) if count), key=left.__getitem__)
        for group in members[number][np.argsort(rank[members[number]])].tolist():
            if parts[group] < 0:
                without = [part for part in used if not has[number][part]]
                few = left[number] <= len(without)
                assign(group, without if few else used, wanted[number])
    for group in order.tolist():
        if parts[group] < 0:
            assign(group, used, [0.0] * len(room))
    return np.array(parts, dtype=np.int64)


def _fill(sizes: np.ndarray, order: np.ndarray, fractions: Fractions) -> np.ndarray:
    """Assign groups in this order, large ones first: to train while one fits, to valid, to test.

    As in chemprop's balanced scaffold split, a group is large if it takes more than half of valid
    or test; the first ones are those that fit in train only. What fits nowhere goes where most is
    free.
    """
    count = int(sizes.sum())
    first, second = _cuts(count, fractions)
    free: list[float] = [first, second - first, count - second]
    parts = np.empty(len(sizes), dtype=np.int64)
    if sizes.max(initial=0) <= 1:
        parts[order] = np.repeat(np.arange(3), np.diff([0, first, second, count]))
        return parts
    rooms = [room for room in free[1:] if room] or [0]
    tier = (sizes > max(1, min(rooms) / 2)).astype(int) + (sizes > max(1, *rooms))
    sizes_of = sizes.tolist()  # numbers of Python are faster one by one
    for group in order[np.argsort(-tier[order], kind="stable")].tolist():
        size = sizes_of[group]
        part = next((p for p in range(3) if size <= free[p]), None)
        if part is None:
            part = max((p for p in range(3) if fractions[p]), key=free.__getitem__)
            rest = sum(free) - free[part]  # the others share what is left
            shrink = max(0, 1 - (size - free[part]) / rest) if rest else 0
            free = [size if p == part else room * shrink for p, room in enumerate(free)]
        parts[group] = part
        free[part] -= size
    return parts


def _spread(sizes: np.ndarray, order: np.ndarray, fractions: Fractions) -> np.ndarray:
    """Assign groups to folds, the largest first, each to the fold with the most room left."""
    room = [int(sizes.sum()) * share for share in fractions]
    parts, sizes_of = np.empty(len(sizes), dtype=np.int64), sizes.tolist()
    for group in order[np.argsort(-sizes[order], kind="stable")].tolist():
        part = max(range(len(room)), key=room.__getitem__)
        parts[group] = part
        room[part] -= sizes_of[group]
    return parts


def _draw(
    name: str,
    data: SplitData,
    groups: np.ndarray,
    fractions: Fractions,
    seed: int,
    assign: Callable[[np.ndarray, np.ndarray, Fractions], np.ndarray] = _fill,
) -> SplitResult:
    """Draw parts of groups with this seed, and again until every target can be scored."""
    sizes = np.bincount(groups)
    if data.parts != SPLIT_NAMES and assign is _fill:
        assign = _spread
    targets, warnings = _scorable(name, data, groups, fractions)
    best, lacking, used, always = groups, None, 0, None
    for number in range(_DRAWS):
        # Each seed has redraws of its own: those of the next seed would be its first draw.
        order = permutation(len(sizes), seed + number * _REDRAW)
        parts = assign(sizes, order, fractions)[groups]
        lacks = _lacking(data, parts, fractions, targets)
        if lacking is None or len(lacks) < len(lacking):
            best, lacking, used = parts, lacks, number
        always = {*lacks} if always is None else always & {*lacks}
        if not lacking or (always and number + 1 == _HOPELESS):
            break
    lacking = lacking or []
    empty = len(np.unique(best)) < np.count_nonzero(fractions)  # `make_splits` refuses it
    if lacking and not empty and data.labels.shape[1] == 1:
        part, target = lacking[0]
        problem = f"{number + 1} draws of the {name} split gave no {part} with {data.needs}"
        remedy = "use --split stratified, or larger fractions"
        raise ValueError(f"{problem} of {data.name(target)}; {remedy}")
    warnings += data.lacks(lacking)
    notes = []
    if used:
        times = "once" if used == 1 else f"{used} times"
        aim = "so that fewer parts lack" if lacking else "so that every part has"
        notes.append(f"drawn again {times} {aim} {data.needs}")
    shares = np.bincount(best, minlength=len(fractions)) / max(1, len(best))
    if len(best) and np.abs(shares - fractions).max() > max(0.05, 1.5 / len(best)):
        found, wanted = (", ".join(f"{x:.0%}" for x in xs) for xs in (shares, fractions))
        why = f"the largest of {len(sizes):,} groups has {sizes.max():,} of {len(best):,} rows"
        *others, last = data.parts
        listed = f"{', '.join(others)} and {last}"
        warnings.append(f"{listed} have {found} of the rows, not {wanted}: {why}")
    return SplitResult(_positions(best, data.parts), notes=notes, warnings=warnings)


def _scorable(
    name: str, data: SplitData, groups: np.ndarray, fractions: Fractions
) -> tuple[list[int], list[str]]:
    """Return the targets that can be scored in all parts, and warnings of the others.

    It raises if there is no such target: then no draw can help.
    """
    needed = [part for part, fraction in zip(data.parts, fractions, strict=True) if fraction]
    _, molecules = data.molecules()
    good, reasons = [], []
    for target in range(data.labels.shape[1]):
        labels = data.labels[:, target]
        values = np.unique(labels[~np.isnan(labels)])
        regression = data.kind == "regression"  # has as many values as rows
        chosen = [~np.isnan(labels)] if regression else [labels == value for value in values]
        enough = [len(np.unique(groups[own])) >= len(needed) for own in chosen]
        if not len(values):
            reasons.append(f"{data.name(target)} has no labels")
        elif not regression and len(values) == 1:
            same = f"every known label of {data.name(target)} is {values[0]:g}"
            reasons.append(f"{same}: there is nothing to tell apart, and no split can help")
        elif sum(enough) < min(2, len(chosen)):
            rare = chosen[enough.index(False)]
            value = f"class {values[enough.index(False)]:g}" if len(chosen) > 1 else "labels"
            count, own = len(np.unique(molecules[rare])), len(np.unique(groups[rare]))
            problem = f"{value} of {data.name(target)}: {count} molecules"
            remedy = "no split can help; add molecules, or leave out a part (--fractions)"
            if data.parts != SPLIT_NAMES:
                remedy = "choose fewer --folds, or add molecules"
            if count >= len(needed):
                problem += f" in {own} groups of the {name} split"
                remedy = f"use --split {'random' if regression else 'stratified'}"
            reasons.append(f"{problem}, but {', '.join(needed)} need one each; {remedy}")
        else:
            good.append(target)
    if reasons and not good:
        raise ValueError(reasons[0])
    return good, reasons


def _lacking(
    data: SplitData, parts: np.ndarray, fractions: Fractions, targets: list[int]
) -> list[tuple[str, int]]:
    """Return each part and target without any label or, for classes, with one class only."""
    found = []
    for part in np.flatnonzero(fractions):
        labels = data.labels[parts == part][:, targets]
        if data.kind == "regression":
            fine = ~np.isnan(labels).all(0)
        else:  # NaN is not different from NaN here: `fmin` and `fmax` pass over it
            least = np.fmin.reduce(labels, axis=0, initial=np.inf)
            fine = least < np.fmax.reduce(labels, axis=0, initial=-np.inf)
        found += [(data.parts[part], targets[i]) for i in np.flatnonzero(~fine)]
    return found


# Splits that a column of the table decides.


def _column(data: SplitData, fractions: Fractions, seed: int) -> SplitResult:
    words = [split_word(text) for text in data.values or ()]
    flagged, notes = flagged_part(data.column), list[str]()
    if flagged is not None and {*words} <= {"", *_FLAGS}:  # is_test: 1 is test, 0 is train
        other = SPLIT_NAMES[0 if flagged else 2]
        words = [word and (SPLIT_NAMES[flagged] if _FLAGS[word] else other) for word in words]
        notes = [f"by the name of {data.column!r}, 1 is {SPLIT_NAMES[flagged]} and 0 is {other}"]
    parts = np.array([_WORDS.get(word, -1) for word in words], dtype=np.int64)
    unknown = Counter(word for word in words if word and word not in _WORDS)
    _check_known(unknown, len(words), f"the words of a split are {', '.join(_WORDS)}")
    counts = np.bincount(parts[parts >= 0], minlength=3)
    if not counts[0] or not counts[2]:
        part = "test" if counts[0] else "train"
        found = ", ".join(map(repr, dict.fromkeys(words))) or "nothing"
        own = ", ".join(word for word, number in _WORDS.items() if SPLIT_NAMES[number] == part)
        raise ValueError(f"the split column has {found}, but no row of {part} ({own}); add some")
    warnings = []
    if missing := len(words) - int(counts.sum()):
        listed = f" ({', '.join(map(repr, unknown))})" if unknown else ""
        without = f"without a known word{listed} in the split column"
        warnings.append(f"{missing:,} rows {without} are left out")
    # The part of a molecule is the last one that it is in: valid and test stay as they are.
    first, molecules = data.molecules()
    last = np.full(len(first), -1)
    np.maximum.at(last, molecules, parts)
    for number in (0, 1):
        if double := int(((parts == number) & (last[molecules] > number)).sum()):
            why = f"because their molecules are also in {' or '.join(SPLIT_NAMES[number + 1 :])}"
            warnings.append(f"{double:,} rows of {SPLIT_NAMES[number]} are left out, {why}")
    parts[parts < last[molecules]] = -1
    if not counts[1] and fractions[1]:
        share = fractions[1] / (fractions[0] + fractions[1])
        train = np.flatnonzero(parts == 0)
        drawn = _random(data.at(train), (1 - share, share, 0.0), seed)
        parts[train[drawn.parts["valid"]]] = 1
        notes.append(f"no row of valid: {share:.0%} of train are drawn for it, seed {seed}")
        notes += drawn.notes
    return _as_given(data, parts, fractions, notes, warnings)


def _time(data: SplitData, fractions: Fractions, seed: int) -> SplitResult:
    texts = [text.strip() for text in data.values or ()]
    times, form = read_times(texts)
    dated = np.flatnonzero(~np.isnan(times))
    warnings = []
    if len(dated) < len(texts):
        count = len(texts) - len(dated)
        warnings.append(f"{count:,} rows without a date ({form}) in the split column are left out")
    first, molecules = data.at(dated).molecules()
    earliest = np.full(len(first), np.inf)
    np.minimum.at(earliest, molecules, times[dated])
    # Molecules of one date are in an order that depends on the seed, not on the file.
    order = np.lexsort((np.argsort(permutation(len(first), seed)), earliest))
    sizes = np.bincount(molecules)[order]
    middles = np.cumsum(sizes) - sizes / 2
    part_of_molecule = np.empty(len(first), dtype=np.int64)
    cuts = _cuts(len(dated), fractions)
    part_of_molecule[order] = np.searchsorted(cuts, middles, side="right")
    parts = np.full(len(texts), -1)
    parts[dated] = part_of_molecule[molecules]
    notes = []
    for number, part in enumerate(SPLIT_NAMES):
        if len(own := earliest[part_of_molecule == number]):
            ends = [texts[np.flatnonzero(times == end)[0]] for end in (own.min(), own.max())]
            notes.append(f"{part} from {ends[0]} to {ends[1]}, by the first date of a molecule")
    return _as_given(data, parts, fractions, notes, warnings)


def read_times(texts: Sequence[str]) -> tuple[np.ndarray, str]:
    """Convert the texts of a column to numbers that grow with time; also return their form.

    All texts are numbers or have one of the forms in `DATES`, with or without a time of day, which
    is not read. NaN stands for an empty text, and for a few that have another form.
    """
    known = list(dict.fromkeys(filter(None, texts)))
    forms = ["number", *DATES]

    def read(texts: list[str], forms: list[str]) -> tuple[dict[str, dict[str, float]], Counter]:
        found = {form: {text: _read_time(text, form) for text in texts} for form in forms}
        return found, Counter({f: sum(x == x for x in own.values()) for f, own in found.items()})

    _, fitting = read(known[:: 1 + len(known) // _SAMPLE], forms)
    found, counts = read(known, [form for form in forms if fitting[form] == max(fitting.values())])
    form = max(counts, key=counts.__getitem__)
    values = np.array([found[form].get(text, np.nan) for text in texts], dtype=np.float64)
    unknown = Counter(text for text, x in zip(texts, values, strict=True) if text and x != x)
    _check_known(unknown, len(texts), f"the forms of a date are {', '.join(forms)}")
    if not counts[form]:
        raise ValueError("the column of the split has no dates; name another")
    one, other = found[form], found.get("day/month/year", {})
    if form == "month/day/year" and counts[form] == counts["day/month/year"]:
        known = [text for text in known if one[text] == one[text]]
        if sorted(known, key=one.__getitem__) != sorted(known, key=other.__getitem__):
            example = next(text for text in known if one[text] != other[text])
            remedy = "write dates as 2024-12-31"
            raise ValueError(f"{example!r} may be month/day/year or day/month/year; {remedy}")
    return values, form


def _read_time(text: str, form: str) -> float:
    if form == "number":
        try:
            return value if abs(value := float(text)) < np.inf else np.nan
        except ValueError:
            return np.nan
    if not (match := DATES[form].fullmatch(text)):
        return np.nan
    year, month, day = int(match["year"]), match["month"].casefold(), int(match["day"] or 1)
    if len(match["year"]) == 2:
        year += 2000 if year < 69 else 1900  # as in POSIX
    named = next((number for start, number in _MONTHS.items() if month.startswith(start)), 0)
    try:
        return date(year, int(month) if month.isdigit() else named, day).toordinal()
    except ValueError:  # also for the month 0
        return np.nan


def _check_known(unknown: Counter[str], count: int, expected: str) -> None:
    if unknown.total() > _MOST_UNKNOWN * count:
        listed = ", ".join(repr(word) for word, _ in unknown.most_common(5))
        many = f"{unknown.total():,} of {count:,} rows"
        raise ValueError(f"{many} have {listed} in the column of the split; {expected}")


def _as_given(
    data: SplitData, parts: np.ndarray, fractions: Fractions, notes: list[str], warnings: list[str]
) -> SplitResult:
    """Return parts that are not drawn again: what a part lacks is a warning."""
    present = [float((parts == part).any() or fractions[part]) for part in range(3)]
    warnings += data.lacks(_lacking(data, parts, present, list(range(data.labels.shape[1]))))
    return SplitResult(_positions(parts), np.flatnonzero(parts < 0), notes, warnings)


# Groups of molecules.


def kept_array(path: Path | None, length: int, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the array of this length in a file, or make it and write the file."""
    if path and path.is_file() and len(found := np.load(path, allow_pickle=False)) == length:
        return found
    found = make()
    if path:
        file = io.BytesIO()
        np.save(file, found)
        write_atomically(path, [file.getbuffer()])
    return found


def _numbered(items: Iterable[Any]) -> np.ndarray:
    """Number different items by appearance; return the number of each, int64."""
    return pd.factorize(items if isinstance(items, np.ndarray) else np.array([*items], object))[0]


def _positions(parts: np.ndarray, names: Sequence[str] = SPLIT_NAMES) -> Splits:
    return {name: np.flatnonzero(parts == part) for part, name in enumerate(names)}


def _cuts(count: int, fractions: Fractions) -> tuple[int, int]:
    """Return where train ends and where valid ends."""
    if len(fractions) != 3 or not min(fractions) >= 0 or not abs(sum(fractions) - 1) <= 1e-6:
        expected = "three shares that add up to 1, of train, valid and test"
        raise ValueError(f"fractions = {tuple(fractions)}: expected {expected}")
    return round(count * fractions[0]), round(count * (fractions[0] + fractions[1]))


SPLITS: dict[str, Callable[[SplitData, Fractions, int], SplitResult]] = {
    "random": _random,  # molecules drawn at random
    "stratified": _stratified,  # random, with equal shares of classes or values
    "scaffold": partial(_similar, "scaffold", scaffolds),  # one Bemis-Murcko scaffold together
    "cluster": partial(_similar, "cluster", clusters),  # similar molecules together (Butina)
    "column": _column,  # the column names train, valid or test
    "time": _time,  # the oldest molecules in train, the newest in test
    "group": _group,  # rows with the same value together
}
BY_COLUMN = ("column", "time", "group")  # splits that name a column
