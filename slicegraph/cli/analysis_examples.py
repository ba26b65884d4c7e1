"""The sequences or images for `slicegraph analyze`: those of the run, of a task, or of a folder."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slicegraph.cli.run_data import PREFIX, set_of_run, settings_of_run

if TYPE_CHECKING:
    from slicegraph.data.sequences.sequence_store import SequenceStore


class Kind(NamedTuple):
    """What samples are made of: images, or as many sequences as a sample has, and their elements.

    A model that was saved without its words takes all words.
    """

    towers: int = 0
    vocabulary: int | None = None
    words: tuple[str, ...] = ()

    def takes(self, other: "Kind") -> bool:
        """Whether a model of this kind takes samples of the other."""
        return self[:2] == other[:2] and self.words in ((), other.words)

    def __str__(self) -> str:
        if not self.towers:
            return "images"
        return f"{'pairs of ' if self.towers == 2 else ''}sequences of {self._elements}"

    @property
    def _elements(self) -> str:
        from slicegraph.data.sequences.text_tokens import BYTES

        if self.vocabulary is None:
            return "numbers"
        if self.words:
            return "words"
        return "bytes" if self.vocabulary == BYTES else f"{self.vocabulary:,} tokens"


def examples_for(model: Any, args: argparse.Namespace) -> tuple["SequenceStore", str]:
    """What ``args.data`` and ``args.task`` name, or what the model was trained on; and its name.

    Raises an error if these are no samples of the kind that the model takes.
    """
    store, name = _find(model, args)
    own, theirs = _kind_of_model(model), _kind_of_store(store)
    if not own.takes(theirs):
        has = theirs if str(own) != str(theirs) else "others"
        raise ValueError(
            f"{args.model} is a model of {own}, and {name} has {has}; name such as the model takes "
            "with --task and --data, or leave both out for those of its run"
        )
    return store, name


def _find(model: Any, args: argparse.Namespace) -> tuple["SequenceStore", str]:
    from slicegraph.data.sequences.sequence_store import SequenceStore
    from slicegraph.data.sequences.tasks import TASKS, load_task
    from slicegraph.data.store.layout import META
    from slicegraph.train.task_files import named_files

    named = None if args.data is None else args.data[0]
    if named is not None and named not in TASKS:
        _check_folder(model, named, args)
        if args.task is None and (Path(named) / META).is_file():
            return SequenceStore(named), Path(named).name
    settings = settings_of_run(Path(args.model))
    task = args.task or (named if named in TASKS else _task_of_run(settings, args))
    words = getattr(model.config, "words", ()) if TASKS[task].of_words else ()
    data = named_files(named, task)
    if settings is not None and settings.task == task:
        found = set_of_run(settings, args.root, data, words)
        return found.store, Path(data or settings.data or task).name
    size = getattr(model.config, "image_size", None) if task == "images" else None
    found = load_task(task, args.root, data, image_size=size, words=words)
    return found.store, Path(data or task).name


def _check_folder(model: Any, named: str, args: argparse.Namespace) -> None:
    from slicegraph.data.sequences.tasks import TASKS
    from slicegraph.data.sets.datasets import names

    if named in names() or named.startswith(PREFIX):
        raise ValueError(f"{args.model} is a model of {model.takes}, and {named} has molecules")
    if not Path(named).is_dir():
        raise ValueError(f"--data {named} is neither a task ({', '.join(TASKS)}) nor a folder")


def _task_of_run(settings: Any, args: argparse.Namespace) -> str:
    if settings is not None and settings.task is not None:
        return settings.task
    asked = "is missing" if args.data is None else f"{args.data[0]} is of no known task"
    raise ValueError(
        f"--data {asked}: {args.model} is not in the folder of a run, which says what it was "
        "trained for; name the task with --task"
    )


def _kind_of_model(model: Any) -> Kind:
    from slicegraph.class_predictor import VisionPredictor

    if isinstance(model, VisionPredictor):
        return Kind()
    return Kind(model.config.towers, model.config.vocabulary, model.config.words)


def _kind_of_store(store: "SequenceStore") -> Kind:
    if store.shape is not None:
        return Kind()
    return Kind(store.towers, store.meta["vocabulary"], tuple(store.meta.get("words", ())))
