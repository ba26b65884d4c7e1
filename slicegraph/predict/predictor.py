"""SMILES to values: a trained model that featurises its own input."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform, Compose

from slicegraph.data.batch import collate, collate_graphs
from slicegraph.data.molecules import isotopes, remarks, standardize
from slicegraph.data.smiles import (
    OGB_ATOM_CODE,
    OGB_BOND_CODE,
    MoleculeGraph,
    SmilesError,
    read_smiles,
)
from slicegraph.data.store import MoleculeStore
from slicegraph.data.table import NOT_TEXT, is_text
from slicegraph.models import GraphSliceformer, GraphSliceformerConfig
from slicegraph.models.base import load
from slicegraph.nn.mixer import ENCODER_MIXERS
from slicegraph.ops.paths import MAX_DISTANCE
from slicegraph.registry import predictor_class
from slicegraph.transforms import StructuralEncoding

_MAX_PAIRS = 1 << 20  # of atoms in a batch: a batch of 256 molecules has at most 64 atoms each


class Predictions(NamedTuple):
    """Values of shape ``[N, ...]``, NaN for a row with an error, and the error of each row.

    A warning names what is unusual in a molecule, such as a metal; it is "" for most.
    """

    values: np.ndarray
    errors: list[str | None]
    warnings: list[str]


class MoleculePredictor(GraphSliceformer):
    """A :class:`~slicegraph.models.GraphSliceformer` that takes SMILES, from `slicegraph.load`.

    Atoms are put in canonical order, so every spelling of a molecule gives the same prediction. A
    prediction does not depend on the other molecules of the call. Molecules are standardised in the
    same way as those of the training, by the steps in ``config.standardize``.

    Example:
        >>> model = slicegraph.load("runs/mini")
        >>> model.predict(["CCO", "c1ccccc1"]).shape
        (2,)
    """

    takes = "molecules"

    def predict(
        self,
        smiles: str | Iterable[str],
        batch_size: int = 256,
        on_error: Literal["raise", "nan"] = "raise",
    ) -> np.ndarray:
        """Predict one value for each molecule, in the given order.

        Args:
            smiles: one SMILES or several.
            batch_size: molecules computed at once; does not change the values.
            on_error: what to do with a text that is not a molecule: raise an error that names it,
                or return NaN for it.

        Shapes:
            - output: ``[N]`` for one target, ``[N, targets]`` for several: values in the unit of
              the targets, or probabilities of class 1. ``[N, classes]`` or
              ``[N, targets, classes]``, probabilities, for a multiclass model.
        """
        if on_error not in ("raise", "nan"):
            raise ValueError(f"predict: on_error = {on_error!r}, expected 'raise' or 'nan'")
        texts = [smiles] if isinstance(smiles, str) else list(smiles)
        values, errors, _ = self.predict_rows(texts, batch_size)
        if on_error == "raise":
            _raise_first("predict", texts, errors)
        return values[:, 0] if self.config.num_targets == 1 else values

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

        Shapes:
            - output: ``[N, channels]``, for the readout ``"quantiles"`` ``[N, quantiles *
              channels]``; a tensor with gradients for a PyG batch, else a numpy array.

        Example:
            >>> vectors = slicegraph.load("runs/mini").embed(["CCO", "c1ccccc1"])
            >>> Ridge().fit(vectors, [0.5, -2.1])
        """
        if isinstance(smiles, Data):
            return super().embed(smiles)
        if on_error not in ("raise", "nan"):
            raise ValueError(f"embed: on_error = {on_error!r}, expected 'raise' or 'nan'")
        texts = [smiles] if isinstance(smiles, str) else list(smiles)
        graphs = read_graphs(texts, self.config.standardize)
        vectors, errors, _ = self.embed_graphs(graphs, batch_size)
        if on_error == "raise":
            _raise_first("embed", texts, errors)
        return vectors

    def predict_rows(self, smiles: Sequence[str], batch_size: int = 256) -> Predictions:
        """As `predict`, with a target axis; NaN and a reason for a text that is not a molecule."""
        found = self.predict_graphs(read_graphs(smiles, self.config.standardize), batch_size)
        return found._replace(warnings=add_isotopes(found.warnings, smiles))

    def predict_graphs(
        self, graphs: Sequence[MoleculeGraph | str], batch_size: int = 256
    ) -> Predictions:
        """As `predict_rows`, for the results of `read_graph`."""
        return self._graph_rows(graphs, batch_size, self._predict)

    def embed_graphs(
        self, graphs: Sequence[MoleculeGraph | str], batch_size: int = 256
    ) -> Predictions:
        """The vectors of `embed`, ``[N, C]``, for the results of `read_graph`."""
        return self._graph_rows(graphs, batch_size, self._embed)

    def _graph_rows(
        self, graphs: Sequence[MoleculeGraph | str], batch_size: int, compute: Callable
    ) -> Predictions:
        self.check_features(OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary)
        errors = [graph if isinstance(graph, str) else None for graph in graphs]
        good = [graph for graph in graphs if not isinstance(graph, str)]
        found = compute(
            np.array([len(graph.atoms) for graph in good], dtype=np.int64),
            batch_size,
            lambda chosen: collate_graphs([good[i] for i in chosen]),
        )
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
        self.check_features(store.meta["atom_vocabulary"], store.meta["bond_vocabulary"])
        return self._predict(
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
        shape = (self.readout.out_channels,)
        return self._each(sizes, batch_size, make, super().embed, shape).float().numpy()

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

    def _predict(
        self, sizes: np.ndarray, batch_size: int, make: Callable[[np.ndarray], Data]
    ) -> np.ndarray:
        config = self.config
        classes = (config.num_classes,) if config.task == "multiclass" else ()
        values = self._each(sizes, batch_size, make, self, (config.num_targets, *classes))
        if config.task == "regression":
            return (values if values.dtype == torch.float64 else values.float()).numpy()
        values = values.double()  # single precision rounds large logits to 1
        return (values.sigmoid() if config.task == "binary" else values.softmax(-1)).numpy()


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
    return load(model, device, lambda saved: predictor_class(saved.__name__))


def _raise_first(what: str, texts: Sequence[str], errors: Sequence[str | None]) -> None:
    for number, error in enumerate(errors):
        if error is not None:
            raise ValueError(f"{what}: smiles[{number}] = {texts[number]!r}: {error}")


def read_graph(smiles: object, steps: Sequence[str] = ()) -> MoleculeGraph | str:
    """Return the graph of a molecule in canonical order, or the reason why there is none.

    The molecule is standardised by these steps of :mod:`slicegraph.data.molecules`.
    """
    if not isinstance(smiles, str):
        return f"{smiles!r} is not text"
    if not smiles.strip():
        return "no SMILES"
    if not is_text(smiles):
        return NOT_TEXT
    try:
        return read_smiles(standardize(smiles, steps))
    except (ValueError, RuntimeError) as error:  # RDKit raises both
        return error.reason if isinstance(error, SmilesError) else str(error)


def read_graphs(texts: Sequence[object], steps: Sequence[str]) -> list[MoleculeGraph | str]:
    """Return the `read_graph` of each text."""
    return [read_graph(text, steps) for text in texts]


def add_isotopes(warnings: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Add a warning for each molecule with isotopes, which no feature of an atom tells."""
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
