"""The sequences or images for `slicegraph analyze`: those of the run, of a task, or of a folder."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli.analysis_kinds import kind_of_model, kind_of_store
from slicegraph.cli.run_data import PREFIX, set_of_run, settings_of_run

if TYPE_CHECKING:
    from slicegraph.data.sequences.sequence_store import SequenceStore


def examples_for(
    models: Mapping[str, Any], args: argparse.Namespace
) -> tuple["SequenceStore", str]:
    """What ``args.data`` and ``args.task`` name, or what the model was trained on; and its name.

    Raises an error if these are no samples of the kind that the models, by their paths, take.
    """
    store, name = _find(models[args.model], args)
    theirs = kind_of_store(store)
    for path, model in models.items():
        own = kind_of_model(model)
        if not own.takes(theirs):
            raise ValueError(
                f"{path} is a model of {own}, and {name} has {theirs.beside(own)}; name such as "
                "the model takes with --task and --data, or leave both out for those of its run"
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
