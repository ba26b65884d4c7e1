"""A task of sequences or images for Lightning."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from slicegraph.data.batch.batch_sampler import SizeGroupedBatchSampler
from slicegraph.data.batch.loader import batch_loader
from slicegraph.data.sequences.example_batch import ExampleBatch
from slicegraph.data.sequences.sequence_set import SequenceSet
from slicegraph.data.sequences.sequences import cut_note
from slicegraph.data.sequences.tasks import load_task
from slicegraph.train.config import TrainConfig
from slicegraph.train.data import RunData
from slicegraph.train.saved_model import saved_config
from slicegraph.train.task_model import preset_image_size


class BatchesOfTask(Dataset[ExampleBatch]):
    """The data set whose items are batches: ``batches[numbers]`` are these samples of a split."""

    def __init__(self, dataset: SequenceSet, split: str, max_length: int | None) -> None:
        self.dataset, self.max_length = dataset, max_length
        self.positions = dataset.splits[split]

    def __getitem__(self, numbers: list[int]) -> ExampleBatch:
        return self.dataset.batch(self.positions[numbers], self.max_length)

    def __len__(self) -> int:
        return len(self.positions)


class SequenceData(RunData[SequenceSet]):
    """The splits of a task; sequences of like length are together, so that little is padded."""

    def _load(self, progress: bool) -> SequenceSet:
        init = self.config.init
        saved = {} if init is None else saved_config(Path(init))
        return load_set(self.config, saved.get("words") or (), saved.get("image_size"))

    def _loader(self, split: str, batch_size: int, **options: Any) -> DataLoader[Any]:
        batches = BatchesOfTask(self.dataset, split, self._max_length())
        sizes = self.dataset.store.lengths_read(batches.positions, batches.max_length)
        sampler = SizeGroupedBatchSampler(
            sizes, batch_size, rank=self.rank, world=self.world, **options
        )
        return batch_loader(batches, sampler, self.config.workers)

    @property
    def remark(self) -> str:
        """How many sequences are longer than the model reads, if there are any."""
        return cut_note(self.dataset.store.sequences.lengths, self._max_length())

    def _max_length(self) -> int | None:
        """What the model can read of a sequence, if there is a model yet."""
        module: Any = None if self.trainer is None else self.trainer.lightning_module
        config = getattr(getattr(module, "model", None), "config", None)
        return getattr(config, "max_length", None)


def load_set(
    config: TrainConfig, words: Sequence[str] = (), size: int | None = None
) -> SequenceSet:
    """The task of a run, as its settings describe it.

    Args:
        config: the settings.
        words: those of the model, if it has some.
        size: of the images of the model that the run starts from, if it takes such.
    """
    named = config.task or ""
    # In settings of older runs the name of the task stands for its own data.
    data = None if config.data == named else config.data
    size = config.model.get("image_size") or size or preset_image_size(config)
    sizes = size if named == "images" else None
    return load_task(named, config.root, data, config.examples, sizes, words)
