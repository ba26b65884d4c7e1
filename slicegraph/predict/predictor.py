"""SMILES to values: a trained model that featurises its own input."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform, Compose

from slicegraph.data.batch import collate, collate_graphs
from slicegraph.data.descriptors import named_features, with_features
from slicegraph.data.molecules import for_each, isotopes, remarks, standard_texts, standardize
from slicegraph.data.smiles import (
    JOINT,
    NOT_TEXT,
    OGB_ATOM_CODE,
    OGB_BOND_CODE,
    MoleculeGraph,
    SmilesError,
    is_text,
    join_graphs,
    join_texts,
    read_cells,
    read_smiles,
)
from slicegraph.data.store import MoleculeStore
from slicegraph.models import GraphSliceformer, GraphSliceformerConfig
from slicegraph.models.base import find_model, load, member_folders, save_members
from slicegraph.nn.mixer import ENCODER_MIXERS
from slicegraph.ops.paths import MAX_DISTANCE
from slicegraph.predict.explain import SAMPLES, Explanations, Sample, explain_rows
from slicegraph.predict.uncertainty import Calibration, Neighbours, deviation, in_logarithms
from slicegraph.registry import predictor_class
from slicegraph.transforms import StructuralEncoding

NEAR_COLUMNS = ("nearest_train_similarity", "nearest_train_molecule", "outside_domain")
_MAX_PAIRS = 1 << 20  # of atoms in a batch: a batch of 256 molecules has at most 64 atoms each


class Predictions(NamedTuple):
    """Values of shape ``[N, ...]``, NaN for a row with an error, and the error of each row.

    A warning names what is unusual in a molecule, such as a metal; it is "" for most. `more` are
    further columns by name, ``[N]`` each: see :meth:`MoleculePredictor.predict_rows`.
    """

    values: np.ndarray
    errors: list[str | None]
    warnings: list[str]
    more: dict[str, np.ndarray] = {}  # noqa: RUF012 (never changed)


Read = MoleculeGraph | Sample | str  # what a model reads of a row, or why it cannot be read
Numbers = Any  # a mapping or DataFrame of columns, or an array [N, columns]


@dataclass(frozen=True)
class RowReader:
    """Reads the molecule and the numbers of a row for a model; small when pickled."""

    steps: tuple[str, ...]
    molecules: tuple[str, ...]
    columns: tuple[str, ...]
    descriptors: tuple[str, ...]
    counts: int

    @classmethod
    def of(cls, config: GraphSliceformerConfig, embed: bool = False) -> "RowReader":
        """Return the reader of a model; with `embed`, of its encoder, which reads no numbers."""
        if embed:
            return cls(config.standardize, config.molecule_columns, (), (), 0)
        numbers = config.feature_columns, config.descriptors, config.fingerprint
        return cls(config.standardize, config.molecule_columns, *numbers)

    def __call__(self, text: object, numbers: Any, problem: str | None = None) -> Read:
        """Read a row with these numbers ``[columns]``, or return why it cannot be read."""
        graph = problem or read_graph(text, self.steps, self.molecules)
        if isinstance(graph, str) or not (self.columns or self.descriptors or self.counts):
            return graph
        for name, value in zip(self.columns, numbers, strict=True):
            if not math.isfinite(value):
                return f"{name} has no value"
        own = np.asarray(numbers, np.float32)
        if self.descriptors or self.counts:
            kept = _standard(str(text), self.steps)
            computed = named_features(kept, self.descriptors, self.counts)
            own = np.concatenate([own, computed])
        return Sample(graph, own)

    def each(self, texts: Sequence[object], numbers: Numbers = None) -> list[Read]:
        """Read several rows; `numbers` as `MoleculePredictor.predict` takes them."""
        return list(map(self, texts, self.numbers(numbers, len(texts))))

    def numbers(self, given: Numbers, rows: int) -> np.ndarray:
        """Return the numbers of the columns, ``[rows, columns]``; raise if a column is missing."""
        listed = ", ".join(map(repr, self.columns))
        if given is None:
            if self.columns:
                raise ValueError(f"predict: the model needs features, the numbers of {listed}")
            return np.empty((rows, 0))
        if not self.columns:
            raise ValueError("predict: features are given, and the model was trained without any")
        if hasattr(given, "keys"):
            for name in self.columns:
                if name not in given:
                    found = ", ".join(map(repr, given.keys()))
                    raise ValueError(f"predict: features have no {name!r}, only {found}")
            each = [
                np.broadcast_to(np.asarray(given[name], np.float64), rows) for name in self.columns
            ]
            return np.stack(each, axis=1)
        values = np.asarray(given, np.float64)
        values = values.reshape(rows, -1) if values.ndim == 1 and len(self.columns) == 1 else values
        if values.shape != (rows, len(self.columns)):
            expected = f"[{rows}, {len(self.columns)}] for {listed}"
            raise ValueError(
                f"predict: features have shape {list(values.shape)}, expected {expected}"
            )
        return values


class MoleculePredictor(GraphSliceformer):
    """A :class:`~slicegraph.models.GraphSliceformer` that takes SMILES, from `slicegraph.load`.

    Atoms are put in canonical order, so every spelling of a molecule gives the same prediction. A
    prediction does not depend on the other molecules of the call. Molecules are standardised in the
    same way as those of the training, by the steps in ``config.standardize``.

    For a model of ``config.molecule_columns``, a row of several molecules is a tuple of their
    SMILES, or a text with ``>>`` between them.

    A run of folds or of an ensemble has several models, the `members`: the prediction is their
    mean. As a module, for PyG batches, it is the first of them.

    Example:
        >>> model = slicegraph.load("runs/mini")
        >>> model.predict(["CCO", "c1ccccc1"]).shape
        (2,)
    """

    takes = "molecules"
    others: tuple["MoleculePredictor", ...] = ()
    calibration: Calibration | None = None

    @property
    def members(self) -> tuple["MoleculePredictor", ...]:
        """The models of an ensemble, whose mean is the prediction; this one alone if it is none."""
        return (self.first(), *self.others) if self.others else (self,)

    def attach(self, others: Sequence["MoleculePredictor"], calibration: Calibration | None) -> Any:
        """Add the other models of an ensemble, and what its intervals are computed from."""
        self.others, self.calibration = tuple(one.first() for one in others), calibration
        return self

    # The others are not submodules: the weights and the parameters are those of the first.
    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        for model in self.others:
            model._apply(fn, recurse)
        return super()._apply(fn, recurse)

    def train(self, mode: bool = True) -> Any:
        for model in self.others:
            model.train(mode)
        return super().train(mode)

    def save(self, folder: str | Path, half: bool = False) -> None:
        """Write the model, or all models of the ensemble, with its calibration.

        Args:
            folder: the folder to write to.
            half: whether a single model is written in half precision.
        """
        if not self.others:
            super().save(folder, half)
        else:
            save_members(Path(folder), [self.first(), *self.others])
        if self.calibration is not None:
            self.calibration.write(Path(folder))

    def first(self) -> "MoleculePredictor":
        """The first model of an ensemble, alone."""
        alone = copy(self)
        alone.others, alone.calibration = (), None
        return alone

    def predict(
        self,
        smiles: str | Iterable[str],
        batch_size: int = 256,
        on_error: Literal["raise", "nan"] = "raise",
        *,
        features: Numbers = None,
    ) -> np.ndarray:
        """Predict one value for each molecule, in the given order.

        Args:
            smiles: one SMILES or several; for a model of several molecules a row, tuples of them.
            batch_size: molecules computed at once; does not change the values.
            on_error: what to do with a text that is not a molecule: raise an error that names it,
                or return NaN for it.
            features: the numbers of ``config.feature_columns``, for a model that was trained with
                any: a DataFrame or a mapping of these columns, each of ``N`` numbers or one number
                for all molecules; or an array ``[N, columns]``. A gap (NaN) is an error of its row.

        Shapes:
            - output: ``[N]`` for one target, ``[N, targets]`` for several: values in the unit of
              the targets, or probabilities of class 1. ``[N, classes]`` or
              ``[N, targets, classes]``, probabilities, for a multiclass model.
        """
        if on_error not in ("raise", "nan"):
            raise ValueError(f"predict: on_error = {on_error!r}, expected 'raise' or 'nan'")
        texts = self._texts(smiles)
        found = self.predict_rows(texts, batch_size, features=features)
        if on_error == "raise":
            _raise_first("predict", texts, found.errors)
        return found.values[:, 0] if self.config.num_targets == 1 else found.values

    def predict_interval(
        self,
        smiles: str | Iterable[str],
        level: float = 0.9,
        batch_size: int = 256,
        on_error: Literal["raise", "nan"] = "raise",
        *,
        features: Numbers = None,
    ) -> np.ndarray:
        """Compute conformal intervals, which have the true value with this probability.

        This holds for molecules like the held-out ones of the training, on average over molecules
        and trainings: :meth:`slicegraph.predict.uncertainty.Calibration.intervals`.

        Args:
            smiles, batch_size, on_error, features: as in :meth:`predict`.
            level: the probability.

        Shapes:
            - output: ``[N, 2]``, the lower and the upper end; ``[N, targets, 2]`` for several
              targets; for classes the conformal sets, ``[N, classes]`` or ``[N, targets,
              classes]``, with true for each class in the set.

        Example:
            >>> low, high = slicegraph.load("runs/mini").predict_interval("CCO", 0.9)[0]
        """
        texts = self._texts(smiles)
        calibration = self._calibration()
        graphs = RowReader.of(self.config).each(texts, features)
        found, errors, _, _ = self._graph_rows(graphs, batch_size, self._predict_sure)
        if on_error == "raise":
            _raise_first("predict_interval", texts, errors)
        if self.config.task == "regression":
            ends = self._intervals(calibration, *self._parted(found), level)
        else:
            ends = calibration.sets(found, level)
            ends[np.isnan(found).any(axis=tuple(range(1, found.ndim)))] = False
        return ends[:, 0] if self.config.num_targets == 1 else ends

    def nearest(self, smiles: str | Iterable[str]) -> Neighbours:
        """Find the most similar training molecule of each molecule (Morgan fingerprints, Tanimoto).

        Example:
            >>> slicegraph.load("runs/mini").nearest(["CCO"]).similarity
        """
        texts = self._texts(smiles)
        calibration = self._calibration()
        if not len(calibration.bits):
            raise ValueError("the model was saved without the fingerprints of its training")
        return calibration.neighbours([_standard(t, self.config.standardize) for t in texts])

    def _calibration(self) -> Calibration:
        if self.calibration is None:
            raise ValueError(
                "the model was saved without predictions for held-out molecules, which intervals "
                "and neighbours need; models of `slicegraph train` with a valid split have them"
            )
        return self.calibration

    def embed(
        self,
        smiles: Data | str | Iterable[str],
        batch_size: int = 256,
        on_error: Literal["raise", "nan"] = "raise",
    ) -> Any:
        """Compute the vector of each molecule that the head reads, in the given order.

        Args:
            smiles: one SMILES or several; or a PyG batch, as for any ``GraphSliceformer``.
            batch_size, on_error: as in :meth:`predict`.

        The vector is that of the encoder: the numbers of a model with ``features`` are not in it.

        Shapes:
            - output: ``[N, channels]``, for the readout ``"quantiles"`` ``[N, quantiles *
              channels]``; a tensor with gradients for a PyG batch, else a numpy array. The vectors
              of the models of an ensemble are joined; those of a PyG batch are of the first model.

        Example:
            >>> vectors = slicegraph.load("runs/mini").embed(["CCO", "c1ccccc1"])
            >>> Ridge().fit(vectors, [0.5, -2.1])
        """
        if isinstance(smiles, Data):
            return super().embed(smiles)
        if on_error not in ("raise", "nan"):
            raise ValueError(f"embed: on_error = {on_error!r}, expected 'raise' or 'nan'")
        texts = self._texts(smiles)
        graphs = RowReader.of(self.config, embed=True).each(texts)
        found = self.embed_graphs(graphs, batch_size)
        if on_error == "raise":
            _raise_first("embed", texts, found.errors)
        return found.values

    def explain(
        self,
        smiles: str | Iterable[str],
        targets: str | Iterable[str] | None = None,
        samples: int = SAMPLES,
        seed: int = 0,
        batch_size: int = 256,
        features: Numbers = None,
    ) -> Explanations:
        """Compute the contribution of every atom to the prediction of each molecule and target.

        The contributions are Shapley values and add up to the prediction minus a baseline, the
        mean of the training labels: see :mod:`slicegraph.predict.explain`. For classes they are
        of the log-odds of class 1 or, of several classes, of the predicted class.

        Args:
            smiles: one SMILES or several.
            targets: names of targets (default: all).
            samples: how many orders of the atoms are taken, an even number; more are slower and
                more accurate. Molecules of few atoms have all orders.
            seed: of the orders.
            batch_size, features: as in :meth:`predict`. All parts of a molecule keep its numbers;
                for a kernel head they have those of their atoms.

        Returns:
            A list of :class:`~slicegraph.predict.Explanation`, molecule by molecule. In a notebook
            it shows the molecules with coloured atoms; ``table()`` is a row for each atom.

        Example:
            >>> found = slicegraph.load("runs/mini").explain("CCO")[0]
            >>> found.contributions.sum() + found.baseline == found.prediction
            >>> Path("CCO.svg").write_text(found.draw())
        """
        texts = self._texts(smiles)
        names = [targets] if isinstance(targets, str) else targets
        chosen = None if names is None else list(names)
        found, numbers = Explanations(), None
        if self.config.num_features or features is not None:
            read = RowReader.of(self.config).each(texts, features)
            if bad := [row if isinstance(row, str) else None for row in read]:
                _raise_first("explain", texts, bad)
            numbers = [row.features if isinstance(row, Sample) else None for row in read]
        options = (chosen, samples, seed, batch_size, numbers)
        for number, one in enumerate(explain_rows(self, texts, *options)):
            if isinstance(one, str):
                raise ValueError(f"explain: smiles[{number}] = {texts[number]!r}: {one}")
            found += one
        return found

    @property
    def embedding_channels(self) -> int:
        """The length of the vectors of :meth:`embed`; those of an ensemble are joined."""
        return (1 + len(self.others)) * self.config.molecules * self.readout.out_channels

    @property
    def example(self) -> str:
        """The text of a row that can be predicted."""
        return JOINT.join("C" * self.config.molecules)

    def _texts(self, smiles: Any) -> list[Any]:
        """The text of each row; that of a row with several molecules is joined."""
        if isinstance(smiles, str):
            return [smiles]
        if self.config.molecules == 1:
            return list(smiles)
        if hasattr(smiles, "columns"):  # a DataFrame
            names = list(self.config.molecule_columns)
            smiles = (smiles[names] if {*names} <= {*smiles.columns} else smiles).to_numpy(object)
        one_row = isinstance(smiles, tuple) and all(isinstance(one, str) for one in smiles)
        return list(map(row_text, [smiles] if one_row else smiles))

    def predict_rows(
        self,
        smiles: Sequence[str],
        batch_size: int = 256,
        interval: float | None = None,
        near: bool = False,
        features: Numbers = None,
    ) -> Predictions:
        """As `predict`, with a target axis; NaN and a reason for a text that is not a molecule.

        The field `more` has columns by name. For several models, and for a kernel head of a
        regression, ``<target>_std``, see :func:`~slicegraph.predict.uncertainty.deviation`. With an
        `interval`, such as 0.9, ``<target>_low`` and ``<target>_high``, for
        classes ``<target>_calibrated`` probabilities and the ``<target>_set`` of classes. With
        `near`, ``nearest_train_similarity``, ``nearest_train_molecule`` and ``outside_domain``.
        """
        texts = self._texts(smiles)
        graphs = RowReader.of(self.config).each(texts, features)
        found = self.predict_graphs(graphs, batch_size, interval)
        more = found.more | (self.near_columns(texts) if near else {})
        return found._replace(warnings=add_isotopes(found.warnings, texts), more=more)

    def predict_graphs(
        self,
        graphs: Sequence[Read],
        batch_size: int = 256,
        interval: float | None = None,
        more: bool = True,
    ) -> Predictions:
        """As `predict_rows`, for the results of `RowReader`; with ``more=False`` values alone."""
        compute = self._predict_sure if more else self._predict
        found = self._graph_rows(graphs, batch_size, compute)
        members, std = self._parted(found.values)
        columns = self._more_columns(members, std, interval) if more else {}
        return found._replace(values=members.mean(1), more=columns)

    def _parted(self, found: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """The values of each model and, of kernel heads, their deviations."""
        count = 1 + len(self.others)
        return found[:, :count], found[:, count:] if found.shape[1] > count else None

    def _more_columns(
        self, members: np.ndarray, std: np.ndarray | None, interval: float | None
    ) -> dict[str, np.ndarray]:
        """The columns of deviation and interval, of ``[N, models, targets(, classes)]``."""
        config, values, more = self.config, members.mean(1), dict[str, np.ndarray]()
        calibration = None if interval is None else self._calibration()
        bad = ~np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        level = 0.0 if interval is None else interval
        if members.shape[1] > 1 or std is not None:
            stds = deviation(members, std).T
            more = {
                f"{name}_std": own for name, own in zip(target_labels(config), stds, strict=True)
            }
        if calibration is None:
            return more
        if config.task == "regression":
            ends = self._intervals(calibration, members, std, level)
            for target, name in enumerate(target_labels(config)):
                more[f"{name}_low"], more[f"{name}_high"] = ends[:, target].T
            return more
        inside, chances = calibration.sets(members, level), calibration.probabilities(values)
        words = class_labels(config)
        for target, name in enumerate(target_labels(config)):
            added = {f"{name}_calibrated": chances[:, target]}
            if config.task == "multiclass":
                columns = zip(words, chances[:, target].T, strict=True)
                added = {f"{name}_calibrated_{word}": column for word, column in columns}
            rows = zip(bad, inside[:, target], strict=True)
            texts = ["" if empty else "|".join(np.array(words)[row]) for empty, row in rows]
            more |= added | {f"{name}_set": np.array(texts, object)}
        return more

    def _intervals(
        self, calibration: Calibration, members: np.ndarray, std: np.ndarray | None, level: float
    ) -> np.ndarray:
        """The intervals of a regression; those of logarithms are computed from logarithms."""
        if not self.config.log_target:
            return calibration.intervals(members, level, std)
        members, std = in_logarithms(members, std)
        return 10 ** calibration.intervals(members, level, std)

    def check_extras(self, interval: float | None = None, near: bool = False) -> None:
        """Raise if `predict_rows` cannot compute these columns."""
        graphs = [RowReader.of(self.config, embed=True)(self.example, ())]
        if (size := self.config.num_features) and not isinstance(graphs[0], str | Sample):
            graphs = [Sample(graphs[0], np.full(size, np.nan, np.float32))]
        self.predict_graphs(graphs, interval=interval)
        if near:
            self.near_columns([self.example])

    def near_columns(self, smiles: Sequence[str]) -> dict[str, np.ndarray]:
        """The columns of the nearest training molecule of each molecule."""
        near = self.nearest(smiles)
        flags = ["yes" if outside else "" for outside in near.outside]
        columns = (near.similarity, np.array(near.molecules, object), np.array(flags, object))
        return dict(zip(NEAR_COLUMNS, columns, strict=True))

    def embed_graphs(self, graphs: Sequence[Read], batch_size: int = 256) -> Predictions:
        """The vectors of `embed`, ``[N, C]``, for the results of `read_graph`."""
        return self._graph_rows(graphs, batch_size, self._embed)

    def _graph_rows(self, rows: Sequence[Read], batch_size: int, compute: Callable) -> Predictions:
        self.check_features(OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary)
        graphs = [row.graph if isinstance(row, Sample) else row for row in rows]
        errors = [graph if isinstance(graph, str) else None for graph in graphs]
        good = [graph for graph in graphs if not isinstance(graph, str)]
        numbers = [row.features for row in rows if isinstance(row, Sample)]

        def make(chosen: np.ndarray) -> Data:
            batch = collate_graphs([good[i] for i in chosen])
            if numbers:
                batch.features = torch.from_numpy(np.stack([numbers[i] for i in chosen]))
            return batch

        sizes = np.array([len(graph.atoms) for graph in good], dtype=np.int64)
        found = compute(sizes, batch_size, make)
        dtype = np.float64 if self.head.weight.dtype == torch.float64 else np.float32
        values = np.full((len(graphs), *found.shape[1:]), np.nan, dtype)
        values[[error is None for error in errors]] = found
        finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        for row in np.flatnonzero(~finite):
            errors[row] = errors[row] or "the model gives no finite number"
        warnings = ["" if isinstance(graph, str) else remarks(graph) for graph in graphs]
        return Predictions(values, errors, warnings)

    def predict_store(self, store: MoleculeStore, batch_size: int = 256) -> np.ndarray:
        """Predict every molecule of a store: ``[N, targets]`` or ``[N, targets, classes]``."""
        return self.predict_members(store, batch_size).mean(1)

    def deviations_store(self, store: MoleculeStore, batch_size: int = 256) -> np.ndarray | None:
        """The deviations of kernel heads, ``[N, models, targets]``; None of any other model."""
        if not self.config.has_deviation:
            return None
        return self._parted(self.predict_members(store, batch_size, self._predict_sure))[1]

    def predict_members(
        self, store: MoleculeStore, batch_size: int = 256, compute: Callable | None = None
    ) -> np.ndarray:
        """As `predict_store`, by each model: ``[N, models, targets]`` or with classes."""
        self.check_features(store.meta["atom_vocabulary"], store.meta["bond_vocabulary"])
        config, own = self.config, store.numbers("columns")
        if (count := len(store.molecule_columns) or 1) != config.molecules:
            wanted = ", ".join(config.molecule_columns) or "one molecule"
            remedy = "choose the columns by --smiles"
            raise ValueError(f"predict: a row has {count} molecules, expected {wanted}; {remedy}")
        if (0 if own is None else own.shape[1]) != len(config.feature_columns):
            listed = ", ".join(map(repr, config.feature_columns))
            raise ValueError(f"predict: the model needs the features {listed} of the data")
        if config.descriptors or config.fingerprint:
            store = with_features(store, config.descriptors, config.fingerprint)
        return (compute or self._predict)(
            store.num_atoms, batch_size, lambda chosen: collate(store, chosen, encode=None)
        )

    def check_features(self, atoms: Sequence[int], bonds: Sequence[int]) -> None:
        """Raise if the model reads other features than those with these category counts, or
        predicts for nodes."""
        config = self.config
        if config.task_level == "node":
            raise ValueError(
                "the model predicts for nodes, expected one that predicts for molecules"
            )
        kinds = {"atom": (config.node_vocabulary, atoms), "bond": (config.edge_vocabulary, bonds)}
        for what, (own, given) in kinds.items():
            ignored = what == "bond" and own is None and config.edge_dim is None
            fits = own is not None and len(own) == len(given) and all(map(int.__ge__, own, given))
            if not ignored and not fits:
                listed = "no" if own is None else ", ".join(map(str, own))
                reads = f"the model reads {what} features with {listed} categories"
                found = ", ".join(map(str, given)) or "no"
                raise ValueError(f"{reads}, these molecules have {found}")

    def _embed(
        self, sizes: np.ndarray, batch_size: int, make: Callable[[np.ndarray], Data]
    ) -> np.ndarray:
        def compute(batch: Data) -> torch.Tensor:
            return torch.cat([GraphSliceformer.embed(one, batch) for one in self.members], -1)

        shape = (self.embedding_channels,)
        return self._each(sizes, batch_size, make, compute, shape).float().numpy()

    @torch.inference_mode()
    def _each(
        self,
        sizes: np.ndarray,
        batch_size: int,
        make: Callable[[np.ndarray], Data],
        compute: Callable[[Data], torch.Tensor],
        shape: tuple[int, ...],
    ) -> torch.Tensor:
        """Compute something of this shape for each molecule, in evaluation mode."""
        if batch_size < 1:
            raise ValueError(f"predict: batch_size = {batch_size}, expected at least 1")
        weight, training, encode = self.head.weight, self.training, encoding_of(self.config)
        values = torch.empty(len(sizes), *shape, dtype=weight.dtype)
        rows, found = [], []
        self.eval()
        try:
            for chosen in _batches(sizes, batch_size):
                batch = make(chosen) if encode is None else encode(make(chosen))
                batch = batch.pin_memory() if weight.is_cuda else batch
                rows.append(chosen)
                # Not read yet: a GPU computes while the host makes the next batch.
                found.append(compute(batch.to(weight.device, non_blocking=True)))
        finally:
            self.train(training)
        if rows:
            values[torch.from_numpy(np.concatenate(rows))] = torch.cat(found).cpu()
        return values

    def _predict_sure(
        self, sizes: np.ndarray, batch_size: int, make: Callable[[np.ndarray], Data]
    ) -> np.ndarray:
        """As `_predict`; of kernel heads also the deviations, as further models: see `_parted`."""
        if not self.config.has_deviation:
            return self._predict(sizes, batch_size, make)

        def compute(batch: Data) -> torch.Tensor:
            each = zip(*(model.with_deviation(batch) for model in self.members), strict=True)
            return torch.stack([one for kind in each for one in kind], 1)

        shape = (2 * (1 + len(self.others)), self.config.num_targets)
        return _as_numpy(self._each(sizes, batch_size, make, compute, shape))

    def _predict(
        self, sizes: np.ndarray, batch_size: int, make: Callable[[np.ndarray], Data]
    ) -> np.ndarray:
        """The predictions of each model, ``[N, models, targets(, classes)]``."""
        config = self.config
        classes = (config.num_classes,) if config.task == "multiclass" else ()
        shape = (1 + len(self.others), config.num_targets, *classes)

        def compute(batch: Data) -> torch.Tensor:
            return torch.stack([model(batch) for model in self.members], 1)

        values = self._each(sizes, batch_size, make, compute, shape)
        if config.task == "regression":
            return _as_numpy(values)
        values = values.double()  # single precision rounds large logits to 1
        return (values.sigmoid() if config.task == "binary" else values.softmax(-1)).numpy()


def _as_numpy(values: torch.Tensor) -> np.ndarray:
    return (values if values.dtype == torch.float64 else values.float()).numpy()


def encoding_of(config: GraphSliceformerConfig) -> BaseTransform | None:
    """What is computed on the CPU for each batch of such a model: its rings; distances, paths and
    walks."""
    rings = config.ring_nodes
    if not ENCODER_MIXERS[config.mixer].needs_pairs:
        return rings
    distance, hops = min(config.max_distance, MAX_DISTANCE), max(1, config.max_hops)
    encoding = StructuralEncoding(distance, hops, config.walk_length)
    return encoding if rings is None else Compose([rings, encoding])


def load_predictor(model: str | Path, device: str | torch.device = "cpu") -> Any:
    """Load a trained model that predicts: for molecules a :class:`MoleculePredictor`, for sequences
    a :class:`~slicegraph.tasks.predictor.SequencePredictor`, for images a
    :class:`~slicegraph.tasks.predictor.VisionPredictor`. Public as ``slicegraph.load``.

    Args:
        model: the folder of a run, a folder that ``model.save(folder)`` wrote, or a checkpoint of
            a run (``RUN/checkpoints/best.ckpt``). No code in these files is executed.
        device: where to put the weights.

    Example:
        >>> slicegraph.load("runs/mini").predict("CCO").shape
        (1,)
    """
    place = find_model(model)

    def read(path: Path) -> Any:
        return load(path, device, lambda saved: predictor_class(saved.__name__))

    found = read(place)
    if place.is_dir() and isinstance(found, MoleculePredictor):
        found.attach([read(path) for path in member_folders(place)], Calibration.read(place))
    return found


def _raise_first(what: str, texts: Sequence[str], errors: Sequence[str | None]) -> None:
    for number, error in enumerate(errors):
        if error is not None:
            raise ValueError(f"{what}: smiles[{number}] = {texts[number]!r}: {error}")


def target_labels(config: GraphSliceformerConfig) -> tuple[str, ...]:
    """The names of the targets, or "target" with a number if they have none."""
    count = config.num_targets
    unnamed = ("target",) if count == 1 else tuple(f"target{k}" for k in range(count))
    return config.target_names or unnamed


def class_labels(config: GraphSliceformerConfig) -> tuple[str, ...]:
    """The names of the classes, or their numbers."""
    count = config.num_classes if config.task == "multiclass" else 2
    return config.class_names or tuple(map(str, range(count)))


def more_columns(
    config: GraphSliceformerConfig,
    models: int = 1,
    interval: float | None = None,
    near: bool = False,
) -> list[str]:
    """The names of the columns `more` of :meth:`MoleculePredictor.predict_rows`, in their order."""
    ends = ["_low", "_high"]
    if config.task != "regression":
        several = config.task == "multiclass"
        added = [f"_{word}" for word in class_labels(config)] if several else [""]
        ends = [*(f"_calibrated{word}" for word in added), "_set"]
    sure = models > 1 or config.has_deviation
    names = [f"{name}_std" for name in target_labels(config) if sure]
    if interval is not None:
        names += [f"{name}{end}" for name in target_labels(config) for end in ends]
    return [*names, *(NEAR_COLUMNS if near else ())]


@for_each
def _standard(text: str, steps: Sequence[str]) -> str:
    """Return the text that a store has of a molecule; "" if it is none."""
    try:
        return standard_texts(text, steps)[1]
    except (ValueError, RuntimeError, TypeError):  # the error of the row has the reason
        return ""


def row_text(molecules: Any) -> Any:
    """Return the text of a row with several molecules; anything else as it is."""
    if isinstance(molecules, list | tuple | np.ndarray) and len(molecules):
        return join_texts([one if isinstance(one, str) else "" for one in molecules])
    return molecules


def read_graph(
    smiles: object, steps: Sequence[str] = (), columns: Sequence[str] = ()
) -> MoleculeGraph | str:
    """Return the graph of a molecule in canonical order, or the reason why there is none.

    The molecule is standardised by these steps of :mod:`slicegraph.data.molecules`. `columns` are
    the names of the molecules of a row with several, which is a text with `JOINT` between them.
    """
    if not isinstance(smiles, str):
        return f"{smiles!r} is not text"
    texts = smiles.split(JOINT) if columns else [smiles]
    try:
        return join_graphs(read_cells(partial(_read_text, steps), texts, columns or ("",)))
    except (ValueError, RuntimeError) as error:  # RDKit raises both
        return error.reason if isinstance(error, SmilesError) else str(error)


def _read_text(steps: Sequence[str], text: str) -> MoleculeGraph:
    if not text.strip():
        raise ValueError("no SMILES")
    if not is_text(text):
        raise ValueError(NOT_TEXT)
    return read_smiles(standardize(text, steps))


def add_isotopes(warnings: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Add a warning for each molecule with isotopes, which the features of atoms do not contain."""
    found = []
    for warning, text in zip(warnings, texts, strict=True):
        try:
            named = ", ".join(isotopes(text)) if isinstance(text, str) else ""
        except ValueError:  # the error of the row has the reason
            named = ""
        said = [warning, f"isotopes ({named}) not seen by the model" if named else ""]
        found.append("; ".join(filter(None, said)))
    return found


def _batches(sizes: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Group molecules of similar size, the largest first: lack of memory shows at once."""
    order = np.argsort(-sizes, kind="stable")
    while len(order):
        count = max(1, min(batch_size, _MAX_PAIRS // int(sizes[order[0]] + 1) ** 2))
        yield order[:count]
        order = order[count:]
