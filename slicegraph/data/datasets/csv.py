"""A user's own table as a data set: checked, prepared, split and summarised.

Whatever is guessed about the file becomes a line of the summary. What would give a plausible number
from broken data is an error: several possible targets, values such as ">10", many rejected rows.
"""

import csv
import hashlib
import json
import math
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import rdkit
from rdkit import Chem

from slicegraph.data import columns, molecules, splits
from slicegraph.data.cells import ColumnFormat, sign_of
from slicegraph.data.datasets.source import MissingDataset, MoleculeDataset, Source
from slicegraph.data.smiles import JOINT
from slicegraph.data.splits import Task
from slicegraph.data.store import REJECTED, MoleculeStore
from slicegraph.data.summary import count_conflicts, reason_kind, summarize
from slicegraph.data.table import SDF_RECORDS
from slicegraph.files import FolderBusy, folder_lock, write_atomically
from slicegraph.metrics import counted

PREFIX = "csv:"
ALL = "all"  # the only split of a table that is not split
REPLICATES = ("keep", "mean", "median")
_NOT_LOST = ("no label", "a limit")  # reasons of rows that are left out as their owner meant it
_PATIENCE = 3600.0  # seconds to wait for another process that prepares the same table
_MOST_REASONS = 3
_LIMITS_ARE = {"drop": "left out", "value": "taken as values", "loss": "trained as limits"}
_FEW_CLASSES = 10  # whole numbers with at most so many values may be classes


def cache_folder() -> Path:
    """Return the folder of the tables that were prepared; SLICEGRAPH_CACHE overrides it."""
    if own := os.environ.get("SLICEGRAPH_CACHE"):
        return Path(own).expanduser()
    above = os.environ.get("XDG_CACHE_HOME")
    return (Path(above) if above else Path.home() / ".cache") / "slicegraph"


def as_data(data: Any) -> str:
    """Return the name of a data set, of a path of a table or of a table in memory.

    A `pandas.DataFrame` or a dict of columns is written to the cache folder, once for each content.
    """
    if isinstance(data, str | Path):
        known = str(data).startswith(PREFIX) or not Path(data).is_file()
        return str(data) if known else f"{PREFIX}{data}"
    import pandas as pd

    if not isinstance(data, pd.DataFrame | Mapping):
        kind = f"a {type(data).__name__}"
        raise TypeError(f"data is {kind}, expected a name, a path, a DataFrame or a dict")
    frame = pd.DataFrame(data)
    for name, column in frame.items():
        if any(isinstance(value, Chem.Mol) for value in column):
            frame[name] = [
                Chem.MolToSmiles(value) if isinstance(value, Chem.Mol) else value
                for value in column
            ]
    text = frame.to_csv(index=False).encode()
    path = cache_folder() / "frames" / f"frame-{hashlib.sha256(text).hexdigest()[:12]}.csv"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, [text])
    return f"{PREFIX}{path}"


class CsvSource(Source):
    """A table of the user with the options of :func:`slicegraph.data.load`.

    The name of the folder of its prepared molecules has a checksum of the file and of how it is
    read: a file that has changed is prepared again, in another folder.
    """

    labels: tuple[str, ...]

    def __init__(
        self,
        name: str,
        root: str | Path | None = None,
        *,
        smiles: str | Sequence[str] | None = None,
        targets: str | Sequence[str] | None = None,
        split: str | None = None,
        seed: int = 0,
        fractions: Sequence[float] = (0.8, 0.1, 0.1),
        folds: int | None = None,
        fold: int = 1,
        task: str | None = None,
        metric: str | None = None,
        standardize: Sequence[str] = (),
        replicates: str = "keep",
        censored: str = "stop",
        allow_rejected: float = 0.05,
        class_names: Sequence[str] = (),
        features: Sequence[str] = (),
        weight_column: str | None = None,
    ) -> None:
        self.name, self.path = name, Path(name.removeprefix(PREFIX)).expanduser()
        if self.path.is_dir():
            raise MissingDataset(f"{name}: {str(self.path)!r} is a folder, expected a file")
        if not self.path.is_file():
            raise MissingDataset(f"{name}: there is no file {str(self.path)!r}")
        if replicates not in REPLICATES:
            raise ValueError(f"replicates = {replicates!r}, expected {', '.join(REPLICATES)}")
        if split not in (None, ALL):
            splits.parse_split(split)
        self._given = {"split": split, "task": task, "metric": metric}
        self._guessed_smiles = smiles is None
        self._seed, self._fractions = seed, tuple(fractions)
        self._folds, self._fold = folds, fold
        self.standardize, self._replicates = molecules.check_steps(standardize), replicates
        self._censored, self._allowed = censored, allow_rejected
        self._class_names, self._weight_column = tuple(class_names), weight_column
        self._features = tuple(dict.fromkeys(features))
        self.profile, self.molecules = self._profile(smiles)
        self.smiles = list(self.molecules) or self.profile.smiles
        given = None if targets is None else _targets(targets, self.profile)
        self._guessed = given is None
        command = f"slicegraph train --data {shlex.quote(name)}"
        self.labels = columns.choose_targets(self.profile, given, command)
        for name in self._features:
            if name in self.labels:
                raise ValueError(f"{self.name}: {name!r} is a target and a feature; choose one")
        for name in self.molecules:
            if name in (*self.labels, *self._features):
                raise ValueError(f"{self.name}: {name!r} is in --smiles; it cannot be a number too")
        self.formats = {target: self._format(target) for target in self.labels}
        self.notes, self.warnings = list(self.profile.notes), list(self.profile.warnings)
        formats = [form.to_dict() for form in self.formats.values()]
        read: list[Any] = [self.sha256, self.smiles, self.labels, self.standardize, formats]
        read += [molecules.RULES, rdkit.__version__]
        checksum = hashlib.sha256(json.dumps(read).encode()).hexdigest()[:12]
        above = cache_folder() / "tables" if root is None else Path(root) / "csv"
        self.folder = above / f"{self.path.name.split('.')[0]}-{checksum}"

    def _profile(
        self, smiles: str | Sequence[str] | None
    ) -> tuple[columns.TableProfile, tuple[str, ...]]:
        """Describe the columns; also return those of the molecules if a row has several."""
        names = columns.molecule_columns(self.path, smiles)
        several = tuple(map(str, names)) if len(names) > 1 else ()
        return columns.profile_table(self.path, names[0]), several

    def _format(self, target: str) -> ColumnFormat:
        """Return the format of a target; raise if it has ">10" and `censored` is not given."""
        column = self.profile[target]
        self._check_limits(column.censored, target)
        form = replace(column.format, censored=self._censored)
        if not (self._class_names and form.words):
            return form
        known = {name.casefold(): number for number, name in enumerate(self._class_names)}
        own = {number: known[word] for word, number in form.words if word in known}
        for word, number in form.words:  # another spelling of a known class is that class
            known.setdefault(word, own.get(number, -1))
            if known[word] < 0:
                listed = ", ".join(self._class_names)
                raise ValueError(f"{self.name}: {target} = {word!r}, the model knows {listed}")
        return replace(form, words=tuple((word, known[word]) for word, _ in form.words))

    def _check_limits(self, count: int, target: str) -> None:
        if count and self._censored == "stop":
            raise ValueError(
                f"{self.name}: {count:,} values of {target!r} are limits such as '>10' or '<0.1', "
                "not measurements; choose --censored drop (leave them out), --censored value (take "
                "the limit as the value) or --censored loss (train towards the right side of the "
                "limit, and leave them out of the scores)"
            )

    def columns(self) -> dict[str, Any]:
        names = ("smiles", "labels", "formats", "standardize")
        return {name: getattr(self, name) for name in names}

    def dataset(self, workers: int | None = None, progress: bool = True) -> MoleculeDataset:
        """Return the table as a `MoleculeDataset` with its summary."""
        store = self.store(workers, progress)
        with open(store.folder / REJECTED, encoding="utf-8", newline="") as file:
            _, *rows = csv.reader(file)
        rejected = [(int(row), text, reason) for row, text, reason in rows]
        self._check_share(store, rejected)
        self._describe_reading()
        measured = np.array(store.labels)
        bounds = self._bounds(store, measured)
        measured, names = self._classes(measured)
        task = self._task(measured, names)
        keys = self._keys("keys.npy", molecules.molecule_keys, store)
        store, lacking = self._with_numbers(store.with_labels(measured, bounds))
        labelled = ~np.isnan(measured).all(1)
        lost = [one for i in lacking if labelled[i] for one in _unused(store, [i], lacking[i])]
        self._check_share(store, rejected + lost)
        usable = np.setdiff1d(np.flatnonzero(labelled), np.array([*lacking], np.int64))
        split, parts, left_out = self._parts(store, usable, keys, task)
        left_out += _unused(store, np.flatnonzero(~labelled), "a limit (--censored drop)") + lost
        self._check_share(store, rejected + left_out)
        alike = _with_conditions(keys, store)  # the same molecule under the same conditions
        conflicts = count_conflicts(alike, measured)
        parts, store = self._merged(store, parts, task)
        self._check_constant(store, parts)
        made: Any = {"keys": keys, "standardize": self.standardize, "split": split}
        dataset = MoleculeDataset(self.name, store, parts, task, task.evaluator(), **made)
        summary = summarize(
            dataset,
            keys=keys,
            alike=alike,
            rows=len(store) + store.meta["rejected"],
            rejected=rejected + left_out,
            notes=self.notes,
            warnings=self.warnings,
            bounds=store.bounds,
            standardize=self.standardize,
        )
        return replace(dataset, summary=summary | {"conflicts": conflicts})

    def prepare(self, workers: int | None, progress: bool) -> None:
        """Write the store from the table; wait if another process does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = self.folder / "table.lock"
        try:
            with folder_lock(lock):
                return super().prepare(workers, progress)
        except FolderBusy:
            print(f"{self.name}: waiting for another process that prepares it", file=sys.stderr)
        with folder_lock(lock, patience=_PATIENCE):
            return super().prepare(workers, progress)

    def _check_share(self, store: MoleculeStore, rejected: list[tuple[int, str, str]]) -> None:
        """Raise if more rows were lost than allowed; rows without any label are not lost."""
        counts = Counter(reason_kind(reason) for _, _, reason in rejected)
        lost = sum(count for kind, count in counts.items() if not kind.startswith(_NOT_LOST))
        rows = len(store) + store.meta["rejected"]
        if lost <= self._allowed * rows and len(store):
            return
        least = min(1.0, math.ceil(100 * lost / rows) / 100)
        lines = [f"{self.name}: {lost:,} of {rows:,} rows cannot be used"]
        for kind, count in counts.most_common(_MOST_REASONS):
            row, text, reason = next(one for one in rejected if reason_kind(one[2]) == kind)
            where = f"data row {row} {text[:60]!r}"
            lines.append(f"  {counted(count, 'rows')}: {reason} (first in {where})")
        lines.append(
            f"data rows are counted from 0, without the header; more than {self._allowed:.0%} stop "
            f"the run: mend them (rejected rows are in {store.folder / REJECTED}), or go on "
            f"without them by --allow-rejected {least:.2g}"
        )
        raise ValueError("\n".join(lines))

    def _describe_reading(self) -> None:
        """Add a note for whatever was guessed, with the flag that overrides it."""
        if self._guessed_smiles and self.smiles is not None:
            kind, sdf = self.profile.structure, f"molecules from {SDF_RECORDS}"
            text = f"{kind} from column {self.smiles!r} (--smiles to change)"
            self.notes.append(sdf if kind == "molblock" else text)
        if self.molecules:
            listed = ", ".join(map(repr, self.molecules))
            self.notes.append(f"{len(self.molecules)} molecules in a row: {listed}")
        if self._guessed:
            listed = ", ".join(map(repr, self.labels))
            self.notes.append(f"target {listed}: the only likely column (--targets to change)")
        for target in self.labels:
            column = self.profile[target]
            if column.note:
                self.notes.append(f"{target}: {column.note}")
            if column.bad and len(self.labels) > 1:
                such = f", such as {column.examples[0][1]!r}" if column.examples else ""
                text = f"{column.bad:,} values of {target!r} cannot be read and are gaps{such}"
                self.warnings.append(text)
        if count := sum(self.profile[target].censored for target in self.labels):
            self.notes.append(f"{count:,} values such as '>10' are {_LIMITS_ARE[self._censored]}")

    def _classes(self, labels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
        """Number the classes 0, 1, ... if they are words or asked for; return their names, if any.

        A trained model gives the names of its classes; any other value is an error.
        """
        formats = list(self.formats.values())
        if any(form.words for form in formats):
            found = {form.names for form in formats}
            if not all(form.words for form in formats) or (
                len(found) > 1 and not self._two_words()
            ):
                notes = {name: self.profile[name].note or "numbers" for name in self.labels}
                kinds = ", ".join(f"{name} ({note})" for name, note in notes.items())
                problem = f"the targets have different classes: {kinds}"
                raise ValueError(f"{self.name}: {problem}; train one at a time, by --targets NAME")
            return labels, self._class_names or (found.pop() if len(found) == 1 else ())
        values = np.unique(labels[~np.isnan(labels)])
        if self._given["task"] not in ("binary", "multiclass") or (values % 1).any():
            return labels, ()
        names = tuple(f"{value:g}" for value in values)
        if self._class_names:
            if not set(names) <= set(self._class_names):
                plain = set(names) <= set(map(str, range(len(self._class_names))))
                if not plain or len(self._class_names) > 2 or self._class_names[0][-1:].isdigit():
                    unknown = next(name for name in names if name not in self._class_names)
                    listed = ", ".join(self._class_names)
                    raise ValueError(f"{self.name}: class {unknown}, the model knows {listed}")
                self.notes.append(f"classes 0 and 1 are {' and '.join(self._class_names)}")
                return labels, self._class_names
            values, names = np.array([float(n) for n in self._class_names]), self._class_names
        elif np.array_equal(values, np.arange(len(values))):
            return labels, ()
        numbered = (labels[..., None] == values).argmax(-1).astype(labels.dtype)
        numbered[np.isnan(labels)] = np.nan
        self.notes.append(f"classes {', '.join(names)} are numbered from 0")
        return numbered, names

    def _two_words(self) -> bool:
        return all(len(form.names) == 2 for form in self.formats.values())

    def _task(self, labels: np.ndarray, names: tuple[str, ...]) -> Task:
        """Return the task; raise if there is nothing to learn."""
        kind = self._given["task"]
        if any(form.words for form in self.formats.values()):
            allowed = ("binary", "multiclass") if self._two_words() else ("multiclass",)
            if kind not in (None, *allowed):
                raise ValueError(f"{self.name}: task = {kind!r}, but the labels are words: {names}")
            kind = kind or allowed[0]
        task = splits.task_of_labels(labels, self.labels, kind, self._given["metric"])
        if names and task.kind == "multiclass":
            task = replace(task, num_classes=len(names))
        task = replace(task, class_names=names)
        for target, column in zip(task.target_names, labels.T, strict=True):
            own = np.unique(column[~np.isnan(column)])
            if len(own) > 1 or self._given["split"] == ALL:
                continue
            shown = [names[int(value)] if names else value for value in own]
            problem = f"every known value of {target!r} is {shown[0]}" if shown else ""
            problem = problem or f"no row has a value of {target!r}"
            if len(task.target_names) == 1:
                remedy = "there is nothing to learn, and no split can help"
                raise ValueError(f"{self.name}: {problem}: {remedy}")
            self.warnings.append(f"{problem}: there is nothing to learn from it")
        values = np.unique(labels[~np.isnan(labels)])
        if kind is None and task.kind == "regression":
            if len(values) <= _FEW_CLASSES and not (values % 1).any():
                taken = "whole numbers, taken as a regression (--task multiclass for classes)"
                self.notes.append(f"{', '.join(task.target_names)}: {len(values)} {taken}")
        elif kind is None and task.kind == "binary" and not names:
            self.notes.append("labels 0 and 1, taken as classes (--task regression for numbers)")
        return task

    def _bounds(self, store: MoleculeStore, labels: np.ndarray) -> np.ndarray | None:
        """Return -1, 0 or 1 for each label: an upper limit, a value, a lower limit.

        A limit is written with the value, or in a column of relations next to a single target; with
        `censored="drop"` the labels of the latter become gaps.
        """
        bounds = np.zeros(labels.shape, np.int8)
        if any(self.profile[target].censored for target in self.labels):
            bounds = columns.read_bounds(self.path, self.labels, self.formats)[store.rows]
        relations = [c.name for c in self.profile.columns if c.reason == "relations"]
        if len(relations) == 1 and len(self.labels) == 1 and not self.formats[self.labels[0]].words:
            signs = columns.read_column(self.path, relations[0])
            own = np.array([sign_of(signs[row]) for row in store.rows], np.int8)
            own[np.isnan(labels[:, 0])] = 0
            if count := int(np.count_nonzero(own)):
                self._check_limits(count, self.labels[0])
                how = f"by column {relations[0]!r} and {_LIMITS_ARE[self._censored]}"
                self.notes.append(f"{count:,} values are limits {how}")
                self.warnings = [text for text in self.warnings if repr(relations[0]) not in text]
                bounds = np.where(own[:, None] != 0, own[:, None], bounds)
                if self._censored == "drop":
                    labels[own != 0] = np.nan
        return bounds if self._censored == "loss" and bounds.any() else None

    def _keys(
        self, name: str, make: Callable[[Sequence[str]], np.ndarray], store: MoleculeStore
    ) -> np.ndarray:
        """Return a number for each molecule; they are kept on disk, as making them takes time."""
        path = store.folder.with_name(f"{store.folder.name}-{name}")
        return splits.kept_array(
            path, len(store), lambda: make([store.smiles(i) for i in range(len(store))])
        )

    def _merged(
        self, store: MoleculeStore, parts: splits.Splits, task: Task
    ) -> tuple[splits.Splits, MoleculeStore]:
        """Return parts and store with replicates merged, if asked for.

        Replicates are rows of one molecule, stereochemistry and salt included, in one part and with
        the same features. The first keeps the mean or median of the measured labels, for classes
        the most frequent one. If there are only limits, it keeps the strictest, and none if they go
        both ways. Its weight is the mean of theirs.
        """
        if self._replicates == "keep":
            return parts, store
        labels, bounds, weights = np.array(store.labels), store.bounds, store.weights
        bounds = None if bounds is None else np.array(bounds)
        weights = None if weights is None else np.array(weights)
        exact = self._keys("exact_keys.npy", molecules.exact_keys, store)
        exact = _with_conditions(exact, store)
        merge: Any = {"mean": np.mean, "median": np.median}[self._replicates]
        merge = merge if task.kind == "regression" else None
        kept, merged, unclear = {}, 0, 0
        for name, positions in parts.items():
            _, first, group = np.unique(exact[positions], return_index=True, return_inverse=True)
            order = np.argsort(group, kind="stable")
            ends = np.flatnonzero(np.diff(group[order])) + 1
            for members in (positions[one] for one in np.split(order, ends) if len(one) > 1):
                for target in range(labels.shape[1]):
                    own = labels[members, target]
                    signs = np.zeros(len(own)) if bounds is None else bounds[members, target]
                    value, sign = _one_label(own, signs, merge)
                    labels[members[0], target] = value
                    if bounds is not None:
                        bounds[members[0], target] = sign
                if weights is not None:
                    weights[members[0]] = weights[members].mean()
            chosen = positions[np.sort(first)]
            known = ~np.isnan(labels[chosen]).all(1)
            kept[name] = chosen[known]
            merged, unclear = merged + len(positions) - len(chosen), unclear + (~known).sum()
        if merged:
            done = f"{merged:,} replicate rows merged by {self._replicates}"
            count = sum(map(len, kept.values()))
            self.notes.append(f"{done}: {count:,} molecules (--replicates)")
        if unclear:
            why = "because their labels contradict each other"
            self.warnings.append(f"{unclear:,} molecules are left out, {why}")
        store = store.with_labels(labels, bounds)
        return kept, store if weights is None else store.with_weights(weights)

    def _with_numbers(self, store: MoleculeStore) -> tuple[MoleculeStore, dict[int, str]]:
        """Return the store with the features and the weights of its rows; and why rows lack one.

        The reasons are those of positions in the store.
        """
        lacking: dict[int, str] = {}
        rows = store.rows.tolist()
        found = []
        for name in self._features:
            values, reasons = columns.read_numbers(self.path, self.profile, name)
            found.append(values[store.rows])
            lacking = {i: reasons[row] for i, row in enumerate(rows) if row in reasons} | lacking
        if found:
            store = store.with_features(np.stack(found, axis=1))
            listed = ", ".join(map(repr, self._features))
            self.notes.append(f"features of the rows: {listed}; a row without one is rejected")
        if self._weight_column is None:
            return store, lacking
        name = self._weight_column
        values, reasons = columns.read_numbers(self.path, self.profile, name)
        weights = values[store.rows]
        for position in np.flatnonzero(weights < 0):
            reasons[int(store.rows[position])] = f"{name} = {weights[position]:g} is below 0"
        lacking = {i: reasons[row] for i, row in enumerate(rows) if row in reasons} | lacking
        zeros = int((weights == 0).sum())
        none = f", {zeros:,} of them 0: these rows are scored and not trained on" if zeros else ""
        self.notes.append(f"weights of the rows from {name!r}{none}")
        return store.with_weights(np.where(weights >= 0, weights, 0)), lacking

    def _check_constant(self, store: MoleculeStore, parts: splits.Splits) -> None:
        if self._features and len(train := parts.get("train", ())):
            values: Any = store[train].numbers("columns")
            for name, column in zip(self._features, values.T, strict=True):
                if column.min() == column.max():
                    text = (
                        f"feature {name!r} is {column[0]:g} in every training row: it is not used"
                    )
                    self.warnings.append(text)

    def _parts(
        self, store: MoleculeStore, positions: np.ndarray, keys: np.ndarray, task: Task
    ) -> tuple[str, splits.Splits, list[tuple[int, str, str]]]:
        """Return the name of the split, the positions of its parts, and the rows it leaves out."""
        chosen = self._given["split"]
        if chosen == ALL:
            return "none", {ALL: positions}, []
        if chosen is None:
            chosen = "random" if task.kind == "regression" else "stratified"
            self.notes.append(f"split {chosen}, seed {self._seed} (--split to change)")
        _, column = splits.parse_split(chosen)
        texts = columns.read_column(self.path, column) if column else []
        if self.molecules and not column:
            keys = self._keys("first_keys.npy", _first_keys, store)
            same = f"rows with the same {self.molecules[0]!r} stay on one side"
            self.notes.append(f"{same} (--split group:NAME for another column)")
        data = splits.SplitData(
            keys=keys[positions],
            smiles=lambda i: store.smiles(int(positions[i])).partition(JOINT)[0],
            labels=store.labels[positions],
            kind=task.kind,
            values=[texts[row] for row in store.rows[positions]] if column else None,
            cache=self.folder,
            names=task.target_names,
        )
        number, options = "", (self._fractions, self._seed)
        try:
            if self._folds is None:
                found = splits.make_splits(chosen, data, *options)
            else:
                number = f", fold {self._fold} of {self._folds}"
                found = splits.fold_splits(chosen, data, self._folds, self._fold, *options)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        self.notes += found.notes
        self.warnings += found.warnings
        parts = {name: positions[part] for name, part in found.parts.items()}
        left_out = _unused(store, positions[found.left_out], f"left out by split {chosen}")
        return f"{chosen}, seed {self._seed}{number}", parts, left_out


def _first_keys(texts: Iterable[str]) -> np.ndarray:
    """Return the keys of the first molecules of rows with several."""
    return molecules.molecule_keys(text.partition(JOINT)[0] for text in texts)


def _with_conditions(keys: np.ndarray, store: MoleculeStore) -> np.ndarray:
    """Return keys that also differ where the features of the rows in the table do."""
    if (values := store.numbers("columns")) is None:
        return keys
    rows = zip(keys.tolist(), np.ascontiguousarray(values), strict=True)
    digests = (
        hashlib.blake2b(f"{key} ".encode() + own.tobytes(), digest_size=8).digest()
        for key, own in rows
    )
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _unused(
    store: MoleculeStore, positions: Iterable[int], reason: str
) -> list[tuple[int, str, str]]:
    """Return row, text and reason of molecules that are in the store and are not used."""
    return [(int(store.rows[i]), store.smiles(int(i)), reason) for i in positions]


def _one_label(
    labels: np.ndarray, signs: np.ndarray, merge: Callable[[np.ndarray], float] | None
) -> tuple[float, int]:
    """Return the label and the bound of several rows of a molecule; without `merge`, of classes."""
    known = ~np.isnan(labels)
    if (exact := known & (signs == 0)).any():
        if merge is not None:
            return float(merge(labels[exact])), 0
        values, counts = np.unique(labels[exact], return_counts=True)
        tie = (counts == counts.max()).sum() > 1
        return (math.nan if tie else float(values[counts.argmax()])), 0
    lower, upper = labels[known & (signs > 0)], labels[known & (signs < 0)]
    if len(lower) and not len(upper):
        return float(lower.max()), 1
    if len(upper) and not len(lower):
        return float(upper.min()), -1
    return math.nan, 0


def _targets(given: str | Sequence[str], profile: columns.TableProfile) -> list[str]:
    """Return the names of the targets; a name with commas is found with or without quotes."""
    names = [column.name for column in profile.columns]
    if isinstance(given, str) and given not in names:
        given = columns.split_names(given)
    found = [given] if isinstance(given, str) else [name.strip() for name in given]
    for name in names:
        parts = [part.strip() for part in name.split(",")]
        for start in range(len(found) - len(parts) + 1) if len(parts) > 1 else ():
            if found[start : start + len(parts)] == parts:
                found[start : start + len(parts)] = [name]
    return found
