"""Training, evaluation and analysis on a task of sequences or images.

The functions for training are those that :mod:`slicegraph.train.data` has for molecules; the others
are the parts of `slicegraph evaluate` and `slicegraph analyze` for models of sequences or images.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from slicegraph.data.batch import SizeGroupedBatchSampler, batch_loader
from slicegraph.data.datasets import PREFIX, names
from slicegraph.data.store import META
from slicegraph.files import write_atomically
from slicegraph.models import (
    SEQUENCE_PRESETS,
    VISION_PRESETS,
    SequenceSliceformer,
    VisionSliceformer,
    sequence_preset,
    vision_preset,
)
from slicegraph.models.base import read_config
from slicegraph.predict.table import labelled_table
from slicegraph.registry import TASK_PRESETS
from slicegraph.tasks import TASKS, check_request, load_task
from slicegraph.tasks.store import ExampleBatch, Request, SequenceSet, SequenceStore
from slicegraph.train.config import TrainConfig
from slicegraph.train.data import RunData
from slicegraph.train.run_folder import settings_of_run

_SMALL: dict[str, Any] = {
    "batch_size": 32,
    "epochs": 10,
    "lr": 1e-3,
    "end_lr": 1e-6,
    "weight_decay": 0.01,
    "clip": 1.0,
}
_LARGE = _SMALL | {"epochs": 20, "lr": 3e-4}  # for the models of the paper
_RECIPES = {
    **dict.fromkeys(TASK_PRESETS.values(), _SMALL),
    "mini-digits": _SMALL | {"epochs": 30, "lr": 2e-3, "threads": 1},
    "mini-mnist": _SMALL | {"epochs": 10, "lr": 2e-3, "threads": 1},
    "mini-reviews": _SMALL | {"epochs": 4},
    "mini-text": _SMALL | {"epochs": 6},
    "mini-series": _SMALL | {"epochs": 60, "batch_size": 16},
}


def recipe(preset: str) -> dict[str, Any]:
    """How a preset of sequences or images is trained."""
    return dict(_RECIPES.get(preset, _LARGE))


def named_files(data: str | None, task: str | None) -> str | None:
    """The files that a user names; the name of the task means a folder only if there is one."""
    if data is None or data != task:
        return data
    return os.path.join(os.curdir, data) if os.path.exists(data) else None


def check(config: TrainConfig) -> None:
    """Raises for settings that are wrong whatever the data is."""
    check_request(Request(config.task or "", examples=config.examples))
    if config.start is None:
        with torch.device("meta"):
            new_model(config, config.model)


def load_set(
    config: TrainConfig, words: Sequence[str] = (), size: int | None = None
) -> SequenceSet:
    """The task of a run; ``words`` and ``size`` (of images) are those of a model that reads it."""
    task = config.task or ""
    preset_size = VISION_PRESETS.get(config.preset or "", {}).get("image_size")
    size = (config.model.get("image_size") or size or preset_size) if TASKS[task].resized else None
    options: dict[str, Any] = {"image_size": size, "words": words}
    return load_task(task, config.root or "dataset", config.data, config.examples, **options)


class TaskBatches(Dataset[ExampleBatch]):
    """A data set whose items are batches: ``batches[numbers]`` are these samples of a split."""

    def __init__(self, dataset: SequenceSet, split: str, max_length: int | None) -> None:
        self.dataset, self.max_length = dataset, max_length
        self.positions = dataset.splits[split]

    def __getitem__(self, numbers: list[int]) -> ExampleBatch:
        return self.dataset.batch(self.positions[numbers], self.max_length)

    def __len__(self) -> int:
        return len(self.positions)


class SequenceData(RunData):
    """The splits of a task, with sequences of similar lengths in a batch."""

    def _load(self, progress: bool) -> SequenceSet:
        start = self.config.start
        saved = {} if start is None else read_config(start)
        return load_set(self.config, saved.get("words") or (), saved.get("image_size"))

    def _loader(self, split: str, batch_size: int, **options: Any) -> DataLoader[Any]:
        batches = TaskBatches(self.dataset, split, self._max_length)
        sizes = self.dataset.store.sequences.sizes(batches.positions, batches.max_length)
        options = {"rank": self.rank, "world": self.world} | options
        sampler = SizeGroupedBatchSampler(sizes, batch_size, **options)
        return batch_loader(batches, sampler, self.workers)

    @property
    def remark(self) -> str:
        """Describes how many sequences are longer than the model reads, if there are any."""
        store = self.dataset.store
        return store.sequences.cut_note(np.arange(len(store)), self._max_length)

    @property
    def _max_length(self) -> int | None:
        return getattr(self.model_config, "max_length", None)


run_data = SequenceData


def model_fields(config: TrainConfig, data: RunData) -> dict[str, Any]:
    """What the data decides about the model; raises if the preset is for other data."""
    dataset, vision = data.dataset, config.preset in VISION_PRESETS
    store = dataset.store
    if vision != (store.shape is not None):
        takes, has = ("images", "sequences") if vision else ("sequences", "images")
        fitting = ", ".join(SEQUENCE_PRESETS if vision else VISION_PRESETS)
        raise ValueError(
            f"train: preset {config.preset!r} takes {takes}, and task {dataset.name!r} has {has}; "
            f"presets for it are {fitting}"
        )
    classes = dataset.class_names
    fields: dict[str, Any] = {"num_classes": len(classes), "class_names": classes}
    if store.shape is not None:
        channels, height, _ = store.shape
        return fields | {"image_channels": channels, "image_size": height}
    fields |= {"vocabulary": store.vocabulary, "towers": store.towers}
    if store.vocabulary is None:
        return fields | {"in_channels": 1}
    return fields | {"in_channels": None, "words": dataset.words}


def new_model(
    config: TrainConfig, fields: dict[str, Any]
) -> SequenceSliceformer | VisionSliceformer:
    """A new model of the preset, with these fields of its configuration."""
    name = config.preset or ""
    if name in VISION_PRESETS:
        return VisionSliceformer(vision_preset(name, **fields))
    if name in SEQUENCE_PRESETS:
        return SequenceSliceformer(sequence_preset(name, **fields))
    known = ", ".join([*SEQUENCE_PRESETS, *VISION_PRESETS])
    raise ValueError(f"train: there is no preset {config.preset!r} for a task; there are {known}")


def evaluate(model: Any, args: argparse.Namespace) -> None:
    """Prints the accuracy on a split of the task that the model was trained for."""
    for name in ("smiles", "target", "metric", "censored"):
        if getattr(args, name) is not None:
            raise ValueError(f"--{name} is for a model of molecules")
    settings = settings_of_run(Path(args.model))
    if settings is None or settings.task not in TASKS:
        raise ValueError(f"{args.model} is not in the folder of a run, which names its task")
    data = settings.data if args.data is None else named_files(args.data, settings.task)
    dataset = _load_for(model, settings, args.root, data)
    _check_samples(args.model, model, dataset.store, dataset.name)
    own, theirs = model.config.class_names, dataset.class_names
    if model.config.num_classes != len(theirs) or (own and own != theirs):
        known = f" ({', '.join(own)})" if own else ""
        raise ValueError(
            f"the model does not fit {dataset.name}: it has {model.config.num_classes} classes"
            f"{known}, the data have {len(theirs)} ({', '.join(theirs)})"
        )
    parts = {**dataset.splits, "all": np.arange(len(dataset.store))}
    if args.split not in parts:
        raise ValueError(f"{dataset.name} has no split {args.split!r}, expected {', '.join(parts)}")
    positions = parts[args.split]
    classes = model.predict_set(dataset, positions, args.batch_size).argmax(-1)
    dataset.evaluator.update(dataset.labels(positions), classes)
    print(f"{args.split} {dataset.evaluator.name} {dataset.evaluator.compute():.4g}")
    most = getattr(model.config, "max_length", None)
    if note := dataset.store.sequences.cut_note(positions, most):
        print(f"note {note}")
    if args.out:
        write_atomically(Path(args.out), [labelled_table(dataset, positions, classes[:, None])])
        print(f"{len(positions):,} {dataset.noun} in {args.out}")


def _load_for(model: Any, settings: TrainConfig, root: str | None, data: str | None) -> SequenceSet:
    """A task in the words and at the image size of a model, with the files of a run or others."""
    examples = settings.examples if data == settings.data else None
    config = replace(settings, root=root, data=data, examples=examples)
    words = getattr(model.config, "words", ()) if TASKS[config.task or ""].of_words else ()
    return load_set(config, words, getattr(model.config, "image_size", None))


def _check_samples(path: str, model: Any, store: SequenceStore, name: str) -> None:
    """Raises if a model does not take the samples of a store."""
    config, channels = model.config, 1 if store.vocabulary is None else None
    fields: list[tuple[str, Any, Any]]
    if isinstance(model, VisionSliceformer):
        size = config.image_size
        fields = [("shape", (config.image_channels, size, size), store.shape)]
    else:
        fields = [("shape", None, store.shape), ("in_channels", config.in_channels, channels)]
        shared = ("towers", "vocabulary", "words")
        fields += [(name, getattr(config, name), getattr(store, name)) for name in shared]
    for field, own, found in fields:
        if own != found:
            raise ValueError(
                f"{path} is a model of {model.takes} with {field} = {own!r:.60}, and {name} has "
                f"{field} = {found!r:.60}; name data that it takes with --data"
            )


def analysis_samples(models: Mapping[str, Any], args: argparse.Namespace) -> Any:
    """At most ``args.samples`` samples of ``args.data``, or of the run, as the models take them.

    The models are by their paths, that of ``args.model`` first. Sequences are cut after the number
    of elements that all of them read.
    """
    from slicegraph.analysis import Samples, spaced_positions

    store, name = _find_store(models[args.model], args)
    for path, model in models.items():
        _check_samples(path, model, store, name)
    chosen = spaced_positions(store.splits, args.split, name, args.samples)
    lengths = {} if store.shape else {path: m.config.max_length for path, m in models.items()}
    most = min(lengths.values(), default=None)
    note = store.sequences.cut_note(chosen, most)
    if note and len(set(lengths.values())) > 1:
        shortest = min(lengths, key=lengths.__getitem__)
        note += f"; this is the max_length of {shortest}, the smaller of the two"
    return Samples(
        lambda numbers: store.examples(chosen[numbers], most).inputs,
        store.sequences.sizes(chosen, most),
        f"{name}, {args.split}",
        note,
    )


def _find_store(model: Any, args: argparse.Namespace) -> tuple[SequenceStore, str]:
    """The samples that ``args.data`` and ``args.task`` name, or those of the run; their name."""
    named = None if args.data is None else args.data[0]
    if named is not None and named not in TASKS:
        if named in names() or named.startswith(PREFIX):
            raise ValueError(f"{args.model} is a model of {model.takes}, and {named} has molecules")
        if not Path(named).is_dir():
            raise ValueError(f"--data {named} is neither a task ({', '.join(TASKS)}) nor a folder")
        if args.task is None and (Path(named) / META).is_file():
            return SequenceStore(named), Path(named).name
    settings = settings_of_run(Path(args.model))
    task = args.task or (named if named in TASKS else getattr(settings, "task", None))
    if task is None:
        problem = "is missing" if named is None else f"{named} is of no known task"
        reason = f"{args.model} is not in the folder of a run; name the task with --task"
        raise ValueError(f"--data {problem}: {reason}")
    if settings is None or settings.task != task:
        settings = TrainConfig(task=task)
    data = named_files(named, task) or settings.data
    return _load_for(model, settings, args.root, data).store, Path(data or task).name


def check_twins(models: Mapping[str, Any]) -> None:
    """Raises if two models take different kinds of input, such as molecules and images."""
    paths = list(models)
    path, twin = paths[0], paths[-1]
    if type(models[path]) is not type(models[twin]):
        raise ValueError(
            f"--twin {twin} is a model of {models[twin].takes}, and {path} of {models[path].takes}"
            "; give a twin that was trained on the same data"
        )
