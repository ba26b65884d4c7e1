"""From SMILES to values: a model that featurises what it is given."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data

from slicegraph.class_predictor import SequencePredictor, VisionPredictor
from slicegraph.data.batch.collate import collate
from slicegraph.data.batch.collate_graphs import collate_graphs
from slicegraph.data.molecule.feature_code import OGB_ATOM_CODE, OGB_BOND_CODE
from slicegraph.data.molecule.featurize import SmilesError, read_smiles
from slicegraph.data.molecule.molecule_graph import MoleculeGraph
from slicegraph.data.store.molecule_store import MoleculeStore
from slicegraph.models import GraphSliceformer, checkpoint
from slicegraph.models.run_checkpoint import load_checkpoint

_MOST_PAIRS = 1 << 20
"""Pairs of atoms in a batch: of larger molecules than 64 atoms fewer than 256 are taken at once."""

Vocabulary = Sequence[int] | None


class Predictions(NamedTuple):
    """Values of shape ``[N, ...]``, NaN for a row with an error, and the error of each row."""

    values: np.ndarray
    errors: list[str | None]


class MoleculePredictor(GraphSliceformer):
    """A :class:`~slicegraph.models.GraphSliceformer` that takes SMILES; `load` makes one.

    The atoms are put in canonical order, so that every spelling of a molecule gives the same
    prediction, and a prediction does not depend on the other molecules.

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
        """A value for each molecule, in the order given.

        Args:
            smiles: SMILES, or one of them.
            batch_size: how many molecules are computed at once; it does not change the values.
            on_error: what to do with a text that is no molecule: raise an error that names it, or
                give NaN.

        Shapes:
            - output: ``[N]`` for one target, ``[N, targets]`` for several: values in the unit of
              the targets, or probabilities of class 1. ``[N, classes]`` or
              ``[N, targets, classes]``, probabilities, for a multiclass model.
        """
        if on_error not in ("raise", "nan"):
            raise ValueError(f"predict: on_error = {on_error!r}, expected 'raise' or 'nan'")
        texts = [smiles] if isinstance(smiles, str) else list(smiles)
        values, errors = self.predict_rows(texts, batch_size)
        if on_error == "raise":
            for number, error in enumerate(errors):
                if error is not None:
                    raise ValueError(f"predict: smiles[{number}] = {texts[number]!r}: {error}")
        return values[:, 0] if self.config.num_targets == 1 else values

    def predict_rows(self, smiles: Sequence[str], batch_size: int = 256) -> Predictions:
        """As `predict`, but what is no molecule gets NaN and a reason, and targets have an axis."""
        return self.predict_graphs(list(map(read_graph, smiles)), batch_size)

    def predict_graphs(
        self, graphs: Sequence[MoleculeGraph | str], batch_size: int = 256
    ) -> Predictions:
        """As `predict_rows`, of what `read_graph` has read."""
        self.check_features(OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary)
        errors = [graph if isinstance(graph, str) else None for graph in graphs]
        good = [graph for graph in graphs if not isinstance(graph, str)]
        found = self._predict(
            np.array([len(graph.atoms) for graph in good], dtype=np.int64),
            batch_size,
            lambda chosen: collate_graphs([good[i] for i in chosen]),
        )
        double = self.head.weight.dtype == torch.float64
        dtype = np.float64 if double else np.float32
        values = np.full((len(graphs), *found.shape[1:]), np.nan, dtype)
        values[[error is None for error in errors]] = found
        finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        for row in np.flatnonzero(~finite):
            errors[row] = errors[row] or "the model gives no finite number"
        return Predictions(values, errors)

    def predict_store(self, store: MoleculeStore, batch_size: int = 256) -> np.ndarray:
        """``[N, targets]`` or ``[N, targets, classes]``: a value for each molecule of a store."""
        self.check_features(store.meta["atom_vocabulary"], store.meta["bond_vocabulary"])
        return self._predict(
            store.num_atoms, batch_size, lambda chosen: collate(store, chosen, encode=None)
        )

    def check_features(self, atoms: Sequence[int], bonds: Sequence[int]) -> None:
        """Raises if the model was made for other features than these, by their vocabularies."""
        config = self.config
        for what, own, given in (
            ("atom", config.node_vocabulary, atoms),
            ("bond", config.edge_vocabulary, bonds),
        ):
            unread = what == "bond" and own is None and config.edge_dim is None
            if not unread and not _covers(own, given):
                raise ValueError(
                    f"the model reads {what} features with {_listed(own)} categories, these "
                    f"molecules have {_listed(given)}"
                )

    @torch.inference_mode()
    def _predict(
        self, sizes: np.ndarray, batch_size: int, make: Callable[[np.ndarray], Data]
    ) -> np.ndarray:
        if batch_size < 1:
            raise ValueError(f"predict: batch_size = {batch_size}, expected at least 1")
        config, training = self.config, self.training
        classes = (config.num_classes,) if config.task == "multiclass" else ()
        weight = self.head.weight
        values = torch.empty(len(sizes), config.num_targets, *classes, dtype=weight.dtype)
        self.eval()
        try:
            for chosen in _batches(sizes, batch_size):
                values[torch.from_numpy(chosen)] = self(make(chosen).to(weight.device)).cpu()
        finally:
            self.train(training)
        return _as_probabilities(values, config.task).numpy()


def load(model: str | Path, device: str | torch.device = "cpu") -> Any:
    """A trained model, ready to predict: for molecules a :class:`MoleculePredictor`, for sequences
    a :class:`~slicegraph.class_predictor.SequencePredictor`, for images a
    :class:`~slicegraph.class_predictor.VisionPredictor`.

    Args:
        model: the folder of a run, a folder that ``model.save(folder)`` wrote, or a checkpoint of
            a run (``RUN/checkpoints/best.ckpt``). No code in these files is run.
        device: where to put the weights.

    Example:
        >>> slicegraph.load("runs/mini").predict("CCO").shape
        (1,)
    """
    path = Path(model)
    if path.is_file():
        return load_checkpoint(path, device, _predictor)
    for folder in (path, path / "model"):
        if (folder / checkpoint.CONFIG_FILE).is_file():
            return checkpoint.load(folder, device, _predictor)
    if (best := path / "checkpoints" / "best.ckpt").is_file():
        return load_checkpoint(best, device, _predictor)
    if (path / "config.yaml").is_file():
        raise FileNotFoundError(
            f"load: the run {path} has no model yet; go on with it by slicegraph train --resume "
            f"{path}"
        )
    raise FileNotFoundError(
        f"load: there is no model in {path}, expected the folder of a run (with model/), of a "
        f"saved model (with {checkpoint.CONFIG_FILE}), or a checkpoint file"
    )


def _predictor(saved: type[torch.nn.Module]) -> type[torch.nn.Module]:
    kinds = (MoleculePredictor, SequencePredictor, VisionPredictor)
    found = next((kind for kind in kinds if issubclass(kind, saved)), None)
    if found is None:
        raise ValueError(
            f"load: it is of model {saved.__name__!r}, which is no {MoleculePredictor.__name__} or "
            "the like; slicegraph.models.load(folder) loads it"
        )
    return found


def read_graph(smiles: object) -> MoleculeGraph | str:
    """The graph of a molecule in canonical order, or what is wrong with the text."""
    if not isinstance(smiles, str):
        return f"{smiles!r} is no text"
    if not smiles.strip():
        return "no SMILES"
    try:
        return read_smiles(smiles)
    except SmilesError as error:
        return str(getattr(error, "reason", error))
    except (ValueError, RuntimeError) as error:  # RDKit's own errors are of both kinds
        return str(error)


def _batches(sizes: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Molecules of about one size together, the largest first: what is too much fails at once."""
    order = np.argsort(-sizes, kind="stable")
    while len(order):
        count = max(1, min(batch_size, _MOST_PAIRS // int(sizes[order[0]] + 1) ** 2))
        yield order[:count]
        order = order[count:]


def _as_probabilities(values: torch.Tensor, task: str) -> torch.Tensor:
    """In double precision: large logits, which single precision makes 1, stay in their order."""
    if task == "regression":
        return values if values.dtype == torch.float64 else values.float()
    return values.double().sigmoid() if task == "binary" else values.double().softmax(-1)


def _covers(own: Vocabulary, given: Sequence[int]) -> bool:
    if own is None or len(own) != len(given):
        return False
    return all(mine >= theirs for mine, theirs in zip(own, given, strict=True))


def _listed(sizes: Vocabulary) -> str:
    return "no" if sizes is None else ", ".join(map(str, sizes))
