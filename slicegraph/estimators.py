"""Estimators of scikit-learn that take molecules: a regressor and a classifier."""

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np

from slicegraph.extras import needs

with needs(__name__, "mol", "train"):
    import pandas as pd
    from rdkit import Chem
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_consistent_length, check_random_state, estimator_html_repr
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted

    from slicegraph.files import write_atomically
    from slicegraph.models.base import CARD_FILE, CONFIG_FILE, find_model
    from slicegraph.predict import Explanations, MoleculePredictor, load_predictor
    from slicegraph.predict.predictor import read_graph, row_text
    from slicegraph.train.config import TrainConfig
    from slicegraph.train.run import train
    from slicegraph.train.run_folder import settings_of_run
    from slicegraph.vocabulary import JOINT

__all__ = ["MoleculeClassifier", "MoleculeRegressor"]

_SMILES, _WEIGHT = "smiles", "weight"
_STYLE = "font-size:12px;border-collapse:collapse"


class _MoleculeEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What both estimators share: molecules in, a run of `slicegraph.train`, its model."""

    def __init__(
        self,
        preset: str | None = None,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        dropout: float | None = None,
        init: str | None = None,
        ensemble: int | None = None,
        standardize: Sequence[str] | None = None,
        validation_fraction: float = 0.1,
        split: str | None = None,
        settings: dict[str, Any] | None = None,
        run: str | None = None,
        on_error: Literal["raise", "nan"] = "raise",
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.preset, self.epochs, self.batch_size, self.lr = preset, epochs, batch_size, lr
        self.dropout, self.init, self.ensemble, self.split = dropout, init, ensemble, split
        self.standardize, self.validation_fraction = standardize, validation_fraction
        self.settings, self.run, self.on_error = settings, run, on_error
        self.random_state, self.verbose = random_state, verbose

    def _fit(self, X: Any, labels: np.ndarray, names: list[str], weights: Any, task: str) -> Any:
        """Train on these labels ``[N, targets]``; the model is then in ``model_``."""
        self._check_on_error()
        texts = _texts_of(X)
        columns = _molecule_columns(X, texts, names)
        errors = _problems(texts, columns)
        check_consistent_length(texts, labels)
        bad = [number for number, error in enumerate(errors) if error]
        if bad:
            first = f"X[{bad[0]}] = {_short(texts[bad[0]])}: {errors[bad[0]]}"
            if self.on_error == "raise":
                raise ValueError(f"fit: {first}; on_error='nan' leaves such rows out")
            count = f"{len(bad):,} of {len(texts):,} rows are left out of the training"
            warnings.warn(f"{count}, the first is {first}", stacklevel=3)
        kept = [number for number, error in enumerate(errors) if not error]
        if len(kept) < 2:
            raise ValueError(f"fit: X has {len(kept)} molecules, expected at least 2")
        rows = [texts[n].split(JOINT) if len(columns) > 1 else [texts[n]] for n in kept]
        frame = pd.DataFrame(rows, columns=columns)
        for name, column in zip(names, labels.T, strict=True):
            frame[name] = column[kept]
        if weights is not None:
            check_consistent_length(texts, weights)
            frame[_WEIGHT] = np.asarray(weights, np.float64)[kept]
        with tempfile.TemporaryDirectory(prefix="slicegraph-") as folder:
            frame.to_csv(Path(folder, "molecules.csv"), index=False)
            out = Path(folder, "run") if self.run is None else Path(self.run)
            config = self._config(Path(folder), out, columns, names, weights is not None, task)
            result = train(config, progress=self.verbose > 0)
            self._finish(result.folder)
            if self.run is not None:  # the table stays with its run
                shutil.copy(Path(folder, "molecules.csv"), result.folder)
            self._take(result.folder)
        return self

    def _config(
        self,
        folder: Path,
        out: Path,
        columns: list[str],
        names: list[str],
        weighted: bool,
        task: str,
    ) -> TrainConfig:
        """The settings of the run."""
        share = self.validation_fraction
        if not 0 <= share < 1:
            raise ValueError(f"fit: validation_fraction = {share}, expected 0 or more and below 1")
        state = self.random_state
        if not isinstance(state, int | np.integer):
            state = check_random_state(state).randint(2**31 - 1)
        given = ("preset", "epochs", "batch_size", "lr", "dropout", "init", "ensemble", "split")
        values: dict[str, Any] = {name: getattr(self, name) for name in (*given, "standardize")}
        values |= {"data": f"csv:{folder / 'molecules.csv'}", "root": str(folder / "data")}
        values |= {"smiles": columns, "targets": tuple(names), "task": task, "out": str(out)}
        values |= {"seed": int(state), "split_seed": int(state)}
        values["fractions"] = (1 - share, share, 0.0)
        if not share:  # the split is there, and is trained on
            values |= {"fractions": (0.9, 0.1, 0.0), "train_splits": ("train", "valid")}
        if weighted:
            values["weight_column"] = _WEIGHT
        return TrainConfig.from_dict(values | (self.settings or {}))

    def _finish(self, run: Path) -> None:
        """Change a run that has just ended, before its model is loaded."""

    def _take(self, path: str | Path) -> None:
        """Load the model of a run or a folder, and its card."""
        self.model_ = load_predictor(path)
        if not isinstance(self.model_, MoleculePredictor):
            raise ValueError(f"{path} is a model of {self.model_.takes}, not of molecules")
        self._n_features_out = self.model_.embedding_channels
        place = find_model(path)
        card = place / CARD_FILE if place.is_dir() else place
        text = card.read_text("utf-8", "replace") if card.name == CARD_FILE else ""
        self.card_ = text if card.is_file() else ""

    @classmethod
    def load(cls, path: str | Path, **parameters: Any) -> Any:
        """Make a fitted estimator of a run of `slicegraph train`, or of a saved model.

        Args:
            path: what :func:`slicegraph.load` takes.
            **parameters: parameters of the estimator; ``preset`` and others that are not given are
                those of the run, if it is known.
        """
        found = settings_of_run(path)
        names = ("preset", "epochs", "batch_size", "lr", "dropout", "init", "standardize")
        known = {} if found is None else {name: getattr(found, name) for name in names}
        if found is not None and found.is_solved:  # no settings of a network
            known = {"standardize": found.standardize, "settings": {"head": found.head}}
        estimator = cls(**(known | parameters))
        estimator._take(path)
        estimator._check_kind(path)
        return estimator

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, for :meth:`load`, :func:`slicegraph.load` and the command
        line. ``run="runs/mine"`` keeps the whole run of a fit, with its report's files."""
        check_is_fitted(self)
        self.model_.save(folder)
        if self.card_:
            Path(folder, CARD_FILE).write_text(self.card_, "utf-8")

    def _check_on_error(self) -> None:
        if self.on_error not in ("raise", "nan"):
            raise ValueError(f"on_error = {self.on_error!r}, expected 'raise' or 'nan'")

    @property
    def _fitted(self) -> MoleculePredictor:
        """The model; raises if there is none yet."""
        check_is_fitted(self)
        return self.model_

    def _texts(self, X: Any) -> list[Any]:
        """The SMILES to predict for."""
        check_is_fitted(self)
        self._check_on_error()
        names = list(self.model_.config.molecule_columns)
        if names and {*names} <= {*getattr(X, "columns", ())}:
            X = X[names]
        return _texts_of(X, len(names) or 1)

    def transform(self, X: Any) -> np.ndarray:
        """Compute the vector of each molecule that the head of the model reads,
        ``[N, channels]``."""
        return self._fitted.embed(self._texts(X), on_error=self.on_error)

    def explain(self, X: Any, **options: Any) -> Explanations:
        """Compute the contributions of the atoms, see
        :meth:`slicegraph.predict.MoleculePredictor.explain`."""
        return self._fitted.explain(self._texts(X), **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        tags.input_tags.string, tags.input_tags.allow_nan = True, False
        tags.no_validation = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _repr_html_(self) -> str:
        """The estimator as scikit-learn shows it and, after a fit, the card of its model."""
        card = card_html(self.card_) if getattr(self, "card_", "") else ""
        return estimator_html_repr(self) + card

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


class MoleculeRegressor(RegressorMixin, _MoleculeEstimator):
    """A regressor of scikit-learn that predicts numbers for molecules.

    Args:
        preset: size of the network and its training recipe; None for the default of a table, which
            for a small one is a kernel head, solved in seconds, and no network.
        epochs, batch_size, lr, dropout, init, ensemble, standardize, split: settings of

        validation_fraction: share of the molecules that choose the epoch and calibrate intervals;
            with 0 all molecules are trained on, the last epoch is kept, and there are no intervals.
        settings: further settings of ``TrainConfig`` by name, such as
            ``{"log_target": True, "model": {"channels": 64}}``.
        run: a new folder for the run; by default nothing is kept but the model.
        on_error: what to do with an `X` that is not a molecule: raise an error that names it, or
            leave it out of the training with a warning, and return NaN for it.
        random_state: the seed; an int gives the same model again.
        verbose: 0 prints nothing, 1 the progress and the warnings of the run.

    Attributes:
        model_: the trained :class:`~slicegraph.predict.MoleculePredictor`.
        card_: its model card.

    `X` is a list, array or Series of SMILES, InChI or RDKit molecules, or a table of one column.
    For rows of several molecules, such as solute and solvent, it is a list of tuples, an array
    ``[N, M]`` or a DataFrame of M columns.
    Labels of several targets are ``[N, targets]``, NaN where one is not known.

    Example:
        >>> model = MoleculeRegressor(epochs=50).fit(frame["smiles"], frame["logS"])
        >>> model.predict(["CCO"]), model.predict_interval(["CCO"], 0.9)
        >>> cross_val_score(MoleculeRegressor(), frame["smiles"], frame["logS"], cv=5)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "MoleculeRegressor":
        """Train a model.

        Args:
            X: ``[N]`` molecules.
            y: ``[N]`` or ``[N, targets]`` numbers.
            sample_weight: ``[N]``, the weight of each molecule in the loss.
        """
        names = _column_names(y)
        labels = np.asarray(y, np.float64)
        if np.isinf(labels).any() or (labels.ndim == 1 and np.isnan(labels).any()):
            place = np.flatnonzero(~np.isfinite(labels).reshape(len(labels), -1).all(1))[0]
            raise ValueError(f"fit: y[{place}] = {labels[place]}, expected a number")
        self._several = labels.ndim > 1
        labels = labels.reshape(len(labels), -1)
        if names is None or len(set(names)) != labels.shape[1]:
            names = ["y"] if labels.shape[1] == 1 else [f"y{k}" for k in range(labels.shape[1])]
        return self._fit(X, labels, names, sample_weight, "regression")

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict ``[N]`` values, or ``[N, targets]`` if `y` had two dimensions.

        Args:
            X: the molecules.
            return_std: also return the standard deviation that a kernel head predicts, the default
                of a small table, or that of the models of an ensemble.
        """
        texts = self._texts(X)
        values = self._shaped(self.model_.predict(texts, on_error=self.on_error))
        if not return_std:
            return values
        more = self.model_.predict_rows(texts).more
        columns = [column for name, column in more.items() if name.endswith("_std")]
        if not columns:
            raise ValueError("predict: one network has no deviation; fit with ensemble=5")
        return values, self._shaped(np.stack(columns, 1))

    def predict_interval(self, X: Any, level: float = 0.9) -> np.ndarray:
        """Compute conformal intervals ``[N, 2]`` or ``[N, targets, 2]``, see
        :meth:`slicegraph.predict.MoleculePredictor.predict_interval`."""
        return self._fitted.predict_interval(self._texts(X), level, on_error=self.on_error)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        several = getattr(self, "_several", self.model_.config.num_targets > 1)
        return values.reshape(len(values), -1) if several else values.reshape(len(values))

    def _check_kind(self, path: str | Path) -> None:
        if (task := self.model_.config.task) != "regression":
            raise ValueError(f"{path} is a {task} model; load it with MoleculeClassifier")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class MoleculeClassifier(ClassifierMixin, _MoleculeEstimator):
    """A classifier of scikit-learn that predicts the classes of molecules.

    The parameters are those of :class:`MoleculeRegressor`. The labels are words or numbers, two or
    more classes. The validation molecules have the same share of every class.

    Attributes:
        classes_: the classes, sorted; the columns of :meth:`predict_proba`.
        model_, card_: as those of :class:`MoleculeRegressor`.

    Example:
        >>> model = MoleculeClassifier().fit(["CCO", ...], ["active", ...])
        >>> model.predict_proba(["CCO"])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "MoleculeClassifier":
        """Train a model.

        Args:
            X: ``[N]`` molecules.
            y: ``[N]`` classes.
            sample_weight: ``[N]``, the weight of each molecule in the loss.
        """
        names = _column_names(y) or ["y"]
        labels = np.asarray(y)
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if labels.ndim != 1:
            raise ValueError(f"fit: y has shape {list(labels.shape)}, expected [N], a class each")
        if pd.isna(labels).any():
            place = int(np.flatnonzero(pd.isna(labels))[0])
            raise ValueError(f"fit: y[{place}] = {labels[place]}, expected a class")
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            only = f"y has only one class, {labels.tolist()[0]!r}" if len(labels) else "y is empty"
            raise ValueError(f"fit: {only}, expected two or more")
        kind = "binary" if len(self.classes_) == 2 else "multiclass"
        return self._fit(X, numbers.reshape(-1, 1), names, sample_weight, kind)

    def _finish(self, run: Path) -> None:
        """Name the classes in the configuration of the model."""
        names = list(map(str, self.classes_.tolist()))
        for path in (run / "model").rglob(CONFIG_FILE):
            config = json.loads(path.read_text("utf-8")) | {"class_names": names}
            write_atomically(path, [(json.dumps(config, indent=2) + "\n").encode()])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probability of each class, ``[N, classes]``."""
        chances = self._fitted.predict(self._texts(X), on_error=self.on_error).astype(np.float64)
        return chances if chances.ndim == 2 else np.stack([1 - chances, chances], 1)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class of each molecule, ``[N]``; None for what is not a molecule, with
        ``on_error="nan"``."""
        chances = self.predict_proba(X)
        bad = np.isnan(chances).any(1)
        found = self.classes_[np.nan_to_num(chances).argmax(1)]
        if bad.any():
            found = found.astype(object)
            found[bad] = None
        return found

    def predict_set(self, X: Any, level: float = 0.9) -> np.ndarray:
        """Compute conformal sets ``[N, classes]``, true for each class in the set: they have the
        true class with this probability."""
        return self._fitted.predict_interval(self._texts(X), level, on_error=self.on_error)

    predict_interval = predict_set

    def _check_kind(self, path: str | Path) -> None:
        config = self.model_.config
        if config.task == "regression" or config.num_targets > 1:
            what = f"{config.num_targets} {config.task} targets"
            raise ValueError(f"{path} is a model of {what}, expected one target of classes")
        count = config.num_classes if config.task == "multiclass" else 2
        self.classes_ = np.array(config.class_names or range(count))


def _texts_of(X: Any, expected: int | None = None) -> list[Any]:
    """The molecules of a list, an array, a Series or a table, as SMILES.

    Several of a row, as many as are expected, are a text with `JOINT` between them.
    """
    if isinstance(X, str | bytes | Chem.Mol) or not isinstance(X, Iterable):
        shown = "one molecule" if isinstance(X, str | Chem.Mol) else f"a {type(X).__name__}"
        raise ValueError(f"X is {shown}, expected a list, an array or a Series of molecules")
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) > 2 or (len(shape) == 2 and shape[1] != (expected or shape[1] or 1)):
        known = "[N] molecules" if expected == 1 else f"[N, {expected or 'M'}] molecules"
        raise ValueError(f"X has shape {list(shape)}, expected {known}; select columns")
    return list(map(_text_of, np.asarray(X, object) if len(shape) == 2 else X))


def _text_of(molecule: Any) -> Any:
    """The SMILES of a molecule of RDKit, the text of a row; anything else as it is."""
    if isinstance(molecule, list | tuple | np.ndarray):
        molecules = list(map(_text_of, molecule))
        return row_text(molecules) if len(molecules) > 1 else molecules[0] if molecules else ""
    return Chem.MolToSmiles(molecule) if isinstance(molecule, Chem.Mol) else molecule


def _molecule_columns(X: Any, texts: list[Any], taken: list[str]) -> list[str]:
    """The names of the columns of the molecules, those of a DataFrame if they are usable."""
    first = next((text for text in texts if isinstance(text, str) and text), "")
    if (count := first.count(JOINT) + 1) == 1:
        return [_SMILES]
    names = list(map(str, getattr(X, "columns", ())))
    usable = len({*names} - {*taken, _WEIGHT, ""}) == count
    return names if usable else [f"{_SMILES}_{number}" for number in range(1, count + 1)]


def _problems(texts: list[Any], columns: list[str]) -> list[str | None]:
    """What is wrong with each row."""
    found = (read_graph(text, (), columns if len(columns) > 1 else ()) for text in texts)
    return [one if isinstance(one, str) else None for one in found]


def _short(text: Any) -> str:
    """A molecule in an error message."""
    return repr(text) if len(repr(text)) <= 80 else f"{repr(text)[:79]}…"


def _column_names(y: Any) -> list[str] | None:
    """The names of the targets, of a Series or a DataFrame."""
    columns = getattr(y, "columns", None)
    found = [getattr(y, "name", None)] if columns is None else list(columns)
    names = [str(name) for name in found if name is not None]
    return None if len(names) != len(found) or {_SMILES, _WEIGHT} & set(names) else names


def card_html(card: str) -> str:
    """Convert a model card, in the Markdown that slicegraph writes, to HTML."""
    parts, rows, code = list[str](), list[str](), False
    for line in [*card.splitlines(), ""]:
        if line.startswith("|") and not code:
            cells = [escape(cell.strip()) for cell in line.strip("|").split("|")]
            if set("".join(cells)) - set("-: "):
                rows.append("".join(f"<td style='padding:2px 8px'>{cell}</td>" for cell in cells))
            continue
        if rows:
            inner = "".join(f"<tr>{row}</tr>" for row in rows)
            parts, rows = [*parts, f"<table style='{_STYLE}'>{inner}</table>"], []
        if line.startswith("```"):
            parts.append("</pre>" if code else "<pre>")
            code = not code
        elif code:
            parts.append(f"{escape(line)}\n")
        elif line.startswith("#"):
            parts.append(f"<p><b>{escape(line.lstrip('# '))}</b></p>")
        elif line and not line.startswith("<!--"):
            parts.append(f"<p>{escape(line)}</p>")
    return f"<details><summary>Model card</summary>{''.join(parts)}</details>"
