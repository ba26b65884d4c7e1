"""A data set for Lightning: batches of train, valid and test on this rank."""

import math
from typing import Any, Generic, TypeVar

import lightning.pytorch as pl
import numpy as np
from torch.utils.data import DataLoader
from torch_geometric.data import Batch

from slicegraph.data.batch.collate import ENCODING
from slicegraph.data.batch.loader import molecule_loader
from slicegraph.data.sequences.sequence_set import SequenceSet
from slicegraph.data.sets.datasets import DataSet, load
from slicegraph.data.store.molecule_store import MoleculeStore
from slicegraph.ops.shortest_paths import MAX_DISTANCE
from slicegraph.train.checkpoints import epochs_done
from slicegraph.train.config import TrainConfig
from slicegraph.train.setting import DEFAULT
from slicegraph.transforms import StructuralEncoding

EVALUATED = ("valid", "test")
"""The splits whose predictions are written at the end, as far as the data set has them."""

_EVALUATION_BATCH = 128


AnyDataSet = DataSet | SequenceSet
SomeDataSet = TypeVar("SomeDataSet", DataSet, SequenceSet)


class RunData(pl.LightningDataModule, Generic[SomeDataSet]):
    """The splits of a data set by name, whatever is in it.

    A batch of training is ``batch_size / (ranks * accumulate)`` samples of this rank, so that an
    update is made of the same samples whatever the number of ranks. In evaluation every sample is
    in exactly one batch of one rank.
    """

    def __init__(self, config: TrainConfig, dataset: SomeDataSet | None = None) -> None:
        super().__init__()
        self.config = config
        self._dataset: SomeDataSet | None = dataset

    @property
    def dataset(self) -> SomeDataSet:
        """What was loaded; `setup` loads it."""
        if self._dataset is None:
            raise RuntimeError(f"{type(self).__name__}: not set up")
        return self._dataset

    def _load(self, progress: bool) -> SomeDataSet:
        raise NotImplementedError

    def _loader(self, split: str, batch_size: int, **options: Any) -> DataLoader[Any]:
        raise NotImplementedError

    def prepare_data(self) -> None:
        """Fetches and prepares the samples, on one rank of each node."""
        if self._dataset is None:
            self._dataset = self._load(progress=True)

    def setup(self, stage: str | None = None) -> None:
        if self._dataset is None:
            self._dataset = self._load(progress=False)

    @property
    def unit(self) -> str:
        """The unit of the targets, as the user says it or the data set has it."""
        return self.dataset.task.unit if self.config.unit is None else self.config.unit

    @property
    def remark(self) -> str:
        """What a user should know about how the data is read, if anything."""
        return ""

    @property
    def world(self) -> int:
        return self.trainer.world_size if self.trainer is not None else 1

    @property
    def rank(self) -> int:
        return self.trainer.global_rank if self.trainer is not None else 0

    @property
    def local_batch(self) -> int:
        """The samples of a training batch on one rank."""
        whole, parts = self.config.batch_size or 1, self.world * self.config.accumulate
        if whole % parts:
            raise ValueError(
                f"train: batch_size = {whole} cannot be shared evenly by {self.world} ranks in "
                f"{self.config.accumulate} parts each; choose a multiple of {parts}"
            )
        return whole // parts

    @property
    def evaluated(self) -> list[str]:
        """The splits to evaluate at the end."""
        return [name for name in EVALUATED if name in self.dataset.splits]

    def train_dataloader(self) -> DataLoader[Any]:
        """The batches of training, from where the run is: also in the middle of an epoch."""
        loader = self._train_loader()
        sampler: Any = loader.sampler
        sampler.resume(*self._position(len(sampler)))
        return loader

    def _train_loader(self) -> DataLoader[Any]:
        config = self.config
        return self._loader("train", self.local_batch, seed=config.seed, parts=config.accumulate)

    def _position(self, batches: int) -> tuple[int, int]:
        if self.trainer is None:
            return 0, 0
        done = self.trainer.fit_loop.epoch_loop.batch_progress.current.ready
        return epochs_done(self.trainer), done % batches

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader("valid", self._evaluation_batch, shuffle=False)

    def test_dataloader(self) -> list[DataLoader[Any]]:
        return [
            self._loader(name, self._evaluation_batch, shuffle=False) for name in self.evaluated
        ]

    @property
    def _evaluation_batch(self) -> int:
        return max(self.local_batch, _EVALUATION_BATCH)

    @property
    def steps_per_epoch(self) -> int:
        """How many updates an epoch has."""
        sampler: Any = self._train_loader().sampler
        return len(sampler) // self.config.accumulate

    @property
    def total_steps(self) -> int:
        """How many updates the run has."""
        if self.config.max_steps is not None:
            return self.config.max_steps
        return self.epochs * self.steps_per_epoch

    @property
    def epochs(self) -> int:
        """How many epochs the run has; the last may be cut short by ``max_steps``."""
        steps, config = self.steps_per_epoch, self.config
        if config.max_steps is not None:
            return math.ceil(config.max_steps / steps)
        return max(config.epochs or 1, math.ceil((config.min_steps or 0) / steps))


class MoleculeData(RunData[DataSet]):
    """The splits of a data set of molecules."""

    def _load(self, progress: bool) -> DataSet:
        config = self.config
        options: dict[str, Any] = {}
        if config.is_table:
            chosen = {
                "smiles": config.smiles,
                "targets": config.targets,
                "split": config.split,
                "fractions": config.fractions,
                "seed": config.split_seed,
                "task": config.task,
                "metric": config.metric,
            }
            options = {name: value for name, value in chosen.items() if value is not None}
        return load(config.data or DEFAULT, config.root, progress=progress, **options)

    def split(self, name: str) -> MoleculeStore:
        """The molecules of a split."""
        return self.dataset.store[self.dataset.splits[name]]

    def _loader(self, split: str, batch_size: int, **options: Any) -> DataLoader[Batch]:
        return molecule_loader(
            self.split(split),
            batch_size,
            encode=self._encoding(),
            rank=self.rank,
            world=self.world,
            num_workers=self.config.workers,
            **options,
        )

    def _encoding(self) -> StructuralEncoding | None:
        """What the model reads of a graph, if there is a model yet."""
        module: Any = None if self.trainer is None else self.trainer.lightning_module
        config = getattr(getattr(module, "model", None), "config", None)
        if config is None:
            return ENCODING
        if config.mixer == "sort":
            return None
        return StructuralEncoding(min(config.max_distance, MAX_DISTANCE), max(1, config.max_hops))

    def mean_and_deviation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Of each target over the known labels of train; a deviation of 0 counts as 1."""
        labels = self.split("train").labels.astype(np.float64)
        for target, name in enumerate(self.dataset.task.target_names):
            if np.isnan(labels[:, target]).all():
                raise ValueError(f"train: target {name!r} has no label in the training split")
        deviation = np.nanstd(labels, axis=0)
        deviation[deviation == 0] = 1.0
        return tuple(np.nanmean(labels, axis=0).tolist()), tuple(deviation.tolist())
