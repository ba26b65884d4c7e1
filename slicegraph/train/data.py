"""The data of a run: batches of train, valid and test on this rank; and the side of molecules.

The functions `check`, `run_data`, `model_fields` and `new_model` are for molecules;
:mod:`slicegraph.tasks.domain` has the same for sequences and images.
"""

import math
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Batch

from slicegraph.data.batch import molecule_loader
from slicegraph.data.columns import number_formats
from slicegraph.data.datasets import MoleculeDataset, load_dataset
from slicegraph.data.descriptors import DESCRIPTORS, FEATURE_BITS, FRAGMENTS, with_features
from slicegraph.data.pool import cores
from slicegraph.data.store import MoleculeStore
from slicegraph.data.table import open_table
from slicegraph.models import GraphSliceformer, preset
from slicegraph.predict.predictor import encoding_of
from slicegraph.train.config import (
    COMPUTED_FEATURES,
    DEFAULT,
    FILE_PREFIX,
    SMALL_TABLE,
    TABLE_ONLY,
    TrainConfig,
)
from slicegraph.train.head import MOST_ROWS

_MOST_WORKERS = 8  # processes that load data, for each device
_QUARTILES = 1.349  # the distance of the quartiles of a normal distribution of deviation 1
_EVALUATION_BATCH = 128  # or more, if a training batch is larger
_MOST_MEASURED = 100_000  # molecules whose descriptors are standardised by
_MOST_TRAIN = 200_000  # samples; a larger training split is not evaluated at the end


class RunData(pl.LightningDataModule):
    """The splits of a data set, as batches.

    A training batch is ``batch_size / (ranks * accumulate)`` samples of this rank, so that an
    update is made of the same samples whatever the number of ranks. In evaluation every sample is
    in exactly one batch of one rank.

    A subclass has ``_load(progress)``, which returns an object like
    :class:`~slicegraph.data.datasets.MoleculeDataset`, and
    ``_loader(split, batch_size, **options)``. A `dataset` that is given is not loaded again.
    """

    _load: Any
    _loader: Any
    scores_test = True  # or only valid is evaluated at the end

    def __init__(self, config: TrainConfig, dataset: Any = None) -> None:
        super().__init__()
        self.config, self.dataset = config, dataset
        self.rank, self.world, self.workers = 0, 1, config.workers or 0

    def prepare_data(self, progress: bool = True) -> None:
        """Download and prepare the samples, on one rank of each node."""
        if self.dataset is None:
            self.dataset = self._load(progress)

    def setup(self, stage: str | None = None) -> None:
        """Load the data set; raise if ranks and parts cannot have equal shares of a batch."""
        self.prepare_data(progress=False)
        config = self.config
        if self.trainer is not None:
            self.rank, self.world = self.trainer.global_rank, self.trainer.world_size
            if config.workers is None and self.trainer.strategy.root_device.type != "cpu":
                own = cores() // self.trainer.num_devices - 1
                self.workers = max(1, min(_MOST_WORKERS, own))
        size, parts = config.batch_size or 1, self.world * config.accumulate
        if config.device_batch_size is not None:
            size = config.device_batch_size * self.world
        if size % parts:
            raise ValueError(
                f"train: batch_size = {size} cannot be shared evenly by {self.world} ranks in "
                f"{config.accumulate} parts each; choose a multiple of {parts}"
            )
        self.batch_size, self.local_batch = size, size // parts

    def count_updates(self) -> None:
        """Set the number of epochs and of updates, in each epoch and in all."""
        config = self.config
        steps = self.steps_per_epoch = len(self._train_loader().sampler) // config.accumulate
        self.epochs = max(config.epochs or 1, math.ceil((config.min_steps or 0) / steps))
        if config.max_steps is not None:  # which may cut the last epoch short
            self.epochs = math.ceil(config.max_steps / steps)
        self.total_steps = config.max_steps or self.epochs * steps

    @property
    def unit(self) -> str:
        """The unit of the targets, from the settings or the data set."""
        return self.dataset.task.unit if self.config.unit is None else self.config.unit

    @property
    def remark(self) -> str:
        """A note for the user on how the data is read, or nothing."""
        return ""

    @property
    def model_config(self) -> Any:
        """The configuration of the model that is trained; None before there is one."""
        module: Any = None if self.trainer is None else self.trainer.lightning_module
        return getattr(getattr(module, "model", None), "config", None)

    @property
    def evaluated(self) -> list[str]:
        """The splits to evaluate at the end of the run."""
        sizes = {name: len(part) for name, part in self.dataset.splits.items()}
        if self.config.trains_on_valid:  # its score would not be that of new molecules
            del sizes["valid"]
        if not self.scores_test:
            sizes = {name: size for name, size in sizes.items() if name == "valid"}
        most = {"train": _MOST_TRAIN, "valid": math.inf, "test": math.inf}
        return [name for name in most if 0 < sizes.get(name, 0) <= most[name]]

    def train_dataloader(self) -> DataLoader[Any]:
        """The training batches from the current update on, also in the middle of an epoch."""
        loader = self._train_loader()
        if self.trainer is not None:
            epoch, update = divmod(self.trainer.global_step, self.steps_per_epoch)
            loader.sampler.resume(epoch, update * self.config.accumulate)
        return loader

    def val_dataloader(self) -> DataLoader[Any]:
        return self._evaluation_loader("valid")

    def test_dataloader(self) -> list[DataLoader[Any]]:
        return [self._evaluation_loader(name) for name in self.evaluated]

    def all_batches(self, split: str) -> DataLoader[Any]:
        """All samples of a split, on every rank, in large batches."""
        return self._evaluation_loader(split, rank=0, world=1)

    def _train_loader(self) -> Any:
        config = self.config
        return self._loader("train", self.local_batch, seed=config.seed, parts=config.accumulate)

    def _evaluation_loader(self, split: str, **options: Any) -> DataLoader[Any]:
        size = max(self.local_batch, _EVALUATION_BATCH)
        return self._loader(split, size, shuffle=False, **options)


class MoleculeRunData(RunData):
    """The splits of a data set of molecules."""

    def _load(self, progress: bool) -> MoleculeDataset:
        config = self.config
        options = {name: getattr(config, name) for name in TABLE_ONLY}
        options["seed"] = options.pop("split_seed")
        options = {name: value for name, value in options.items() if value is not None}
        kinds = options.pop("features", ())
        if columns := [name for name in kinds if name not in COMPUTED_FEATURES]:
            options["features"] = columns
        found = load_dataset(config.data or DEFAULT, config.root, progress=progress, **options)
        if config.is_table and kinds[-2:] != COMPUTED_FEATURES:  # both: a kernel has added them
            _check_shadowed(config, kinds)
        if kinds:
            names, counts = _computed(kinds, found)
            store = with_features(found.store, names, counts, progress=progress)
            found = replace(found, store=store)
        return found if config.train_splits is None else _joined(found, config.train_splits)

    def _loader(self, split: str, batch_size: int, **options: Any) -> DataLoader[Batch]:
        options = {"rank": self.rank, "world": self.world, "num_workers": self.workers} | options
        if (config := self.model_config) is not None:
            options["encode"] = encoding_of(config)
        return molecule_loader(self.split(split), batch_size, **options)

    def split(self, name: str) -> MoleculeStore:
        """The molecules of a split."""
        return self.dataset.store[self.dataset.splits[name]]


run_data = MoleculeRunData


def _joined(dataset: MoleculeDataset, names: tuple[str, ...]) -> MoleculeDataset:
    """The same data set with the molecules of these splits as the split "train"."""
    known = [name for name in dataset.splits if not name.startswith("test")]
    for name in names:
        if name not in known:
            given = f"train: train_splits = {','.join(names)!r}"
            raise ValueError(f"{given}, expected splits of {dataset.name}: {', '.join(known)}")
    positions = [dataset.splits[name] for name in dict.fromkeys(names)]
    return replace(dataset, splits={**dataset.splits, "train": np.concatenate(positions)})


def rows_of(config: TrainConfig) -> int | None:
    """The number of rows of a small table; None for a larger one and for other data."""
    if not config.is_table or config.is_task:
        return None
    path = Path(str(config.data).removeprefix(FILE_PREFIX)).expanduser()
    try:
        rows = islice(open_table(path, config.smiles, ()).rows(), SMALL_TABLE + 1)
        count = sum(1 for _ in rows)
    except (OSError, ValueError):  # the data set explains what is wrong with the file
        return None
    return count if count <= SMALL_TABLE else None


def check(config: TrainConfig) -> None:
    """Raise for a preset or model fields that are wrong, before any data is prepared."""
    if config.start is None:
        with torch.device("meta"):
            new_model(config, config.model)


def model_fields(config: TrainConfig, data: MoleculeRunData) -> dict[str, Any]:
    """The fields of the model's configuration that the data decides."""
    task, mean, deviation = data.dataset.task, None, None
    if config.log_target:
        _check_logarithms(data.dataset)
    if task.kind == "regression" and config.standardise:
        mean, deviation = _standard(data.dataset, config.log_target)
    fields: dict[str, Any] = {
        "num_targets": task.num_targets,
        "task": task.kind,
        "task_level": "graph",
        "target_names": task.target_names,
        "unit": data.unit,
        "class_names": tuple(getattr(task, "class_names", ())),
        "standardize": tuple(getattr(data.dataset, "standardize", ())),
        "target_mean": mean,
        "target_std": deviation,
        "log_target": config.log_target,
        **_feature_fields(config, data.dataset),
        "molecule_columns": data.dataset.store.molecule_columns,
        "label_means": _label_means(data.dataset, config.log_target),
        "kernel_rows": 0,
    }
    several = fields["molecule_columns"] and config.head != "ridge"  # else a sum over molecules
    if config.head == "kernel":
        rows = min(len(data.dataset.splits["train"]), MOST_ROWS)
        fields |= {"kernel_rows": rows, "head_layers": 1}
    elif fields["feature_columns"] or fields["descriptors"] or fields["fingerprint"] or several:
        fields |= {} if "head_layers" in config.model else {"head_layers": 2}
    if task.kind == "multiclass":
        fields["num_classes"] = task.num_classes
    if config.start is None:
        meta = data.dataset.store.meta
        vocabularies = {
            "node_vocabulary": tuple(meta["atom_vocabulary"]),
            "edge_vocabulary": tuple(meta["bond_vocabulary"]) or None,
        }
        fields |= {name: value for name, value in vocabularies.items() if name not in config.model}
    return fields


def _check_shadowed(config: TrainConfig, kinds: tuple[str, ...]) -> None:
    """Raise if a column of numbers has the name of computed features that are asked for."""
    path = Path((config.data or "").removeprefix(FILE_PREFIX)).expanduser()
    for name in (name for name in kinds if name in COMPUTED_FEATURES):
        with suppress(ValueError):  # there is no such column, or it has no numbers
            number_formats(path, [name])
            break
    else:
        return
    raise ValueError(
        f"train: {config.data} has a column {name!r} of numbers, and features = {name!r} are those "
        "that are computed for each molecule; rename the column"
    )


def _computed(kinds: tuple[str, ...], dataset: MoleculeDataset) -> tuple[tuple[str, ...], int]:
    """Return the descriptors and the number of counts that features of these kinds have, of all
    molecules of a row."""
    names = (*DESCRIPTORS, *FRAGMENTS) if "rdkit" in kinds else ()
    in_a_row = len(dataset.store.molecule_columns) or 1
    return in_a_row * names, in_a_row * (FEATURE_BITS if "morgan" in kinds else 0)


def _feature_fields(config: TrainConfig, dataset: MoleculeDataset) -> dict[str, Any]:
    """Return the fields of the model's configuration for the numbers joined to the graphs.

    Columns have mean and deviation of the training rows. Descriptors have heavy tails: they have
    the median, and the deviation that a normal distribution of the same quartiles has.
    """
    kinds = config.features or ()
    columns = tuple(name for name in kinds if name not in COMPUTED_FEATURES)
    descriptors, counts = _computed(kinds, dataset)
    fields: dict[str, Any] = {"feature_columns": columns, "descriptors": descriptors}
    fields["fingerprint"] = counts
    train, mean, spread = dataset.splits["train"], list[float](), list[float]()
    if columns:
        values = dataset.store[train].numbers("columns").astype(np.float64)
        mean, spread = values.mean(0).tolist(), values.std(0).tolist()
    if descriptors:
        few = train[:: -(-len(train) // _MOST_MEASURED)]
        for column in dataset.store[few].numbers("descriptors").astype(np.float64).T:
            known = column[~np.isnan(column)]
            middle, width = 0.0, 0.0
            if 2 * len(known) >= len(column):
                low, middle, high = np.quantile(known, (0.25, 0.5, 0.75)).tolist()
                width = (high - low) / _QUARTILES or float(known.std())
            mean, spread = [*mean, middle], [*spread, width]
    return fields | {"feature_mean": tuple(mean), "feature_std": tuple(spread)}


def _standard(
    dataset: MoleculeDataset, logarithm: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each target in train, 1 for a deviation of 0."""
    positions = dataset.splits["train"]
    labels = dataset.labels(positions).astype(np.float64)
    weights = (~np.isnan(labels)).astype(np.float64)
    if dataset.store.weights is not None:
        weights *= dataset.store.weights[positions][:, None]
    if (empty := weights.sum(0) == 0).any():
        name = dataset.task.target_names[empty.argmax()]
        raise ValueError(f"train: target {name!r} has no label in the training split")
    labels = np.where(np.isnan(labels), 1, labels)
    labels = np.log10(labels) if logarithm else labels
    mean = np.average(labels, 0, weights)
    spread = np.sqrt(np.average((labels - mean) ** 2, 0, weights))
    return tuple(mean.tolist()), tuple(np.where(spread == 0, 1.0, spread).tolist())


def _check_logarithms(dataset: MoleculeDataset) -> None:
    """Raise if a target has values without a logarithm, and name the first."""
    task, positions = dataset.task, np.concatenate(list(dataset.splits.values()))
    if task.kind != "regression":
        names = ", ".join(task.target_names)
        raise ValueError(f"train: log_target is for numbers, {names} is a {task.kind} task")
    store = dataset.store[positions]
    labels = np.array(store.labels)
    for name, column in zip(task.target_names, labels.T, strict=True):
        if len(bad := np.flatnonzero(column <= 0)):
            where = f"{column[bad[0]]:g} in data row {store.rows[bad[0]]}"
            raise ValueError(
                f"train: log_target needs values above 0, and {len(bad):,} of {name!r} are not "
                f"(first {where}); mend or remove these rows, or leave out log_target"
            )


def _label_means(dataset: MoleculeDataset, logarithm: bool) -> tuple[float, ...] | None:
    """The mean of each target in train, or the shares of its classes; None if one has no label."""
    task, labels = dataset.task, dataset.labels(dataset.splits["train"]).astype(np.float64)
    if np.isnan(labels).all(0).any():
        return None
    if task.kind != "multiclass":
        return tuple(np.nanmean(np.log10(labels) if logarithm else labels, axis=0).tolist())
    known = (column[~np.isnan(column)].astype(int) for column in labels.T)
    counts = [np.bincount(column, minlength=task.num_classes) for column in known]
    return tuple(float(share) for each in counts for share in each / each.sum())


def new_model(config: TrainConfig, fields: dict[str, Any]) -> GraphSliceformer:
    """Make a model of the preset with random weights."""
    return GraphSliceformer(preset(config.preset or DEFAULT, **fields))
