"""ListOps, Pathfinder and Path-X: generated, or from the files of the Long Range Arena."""

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.data.sequences import lra_files
from slicegraph.data.sequences.contents import (
    FRACTIONS,
    SEED,
    Contents,
    Request,
    TaskError,
    in_parts,
    random_order,
    readable,
)
from slicegraph.data.sequences.listops import TOKENS, generate_listops
from slicegraph.data.sequences.pathfinder_images import generate_pathfinder
from slicegraph.data.sequences.pathfinder_settings import PATHFINDER
from slicegraph.data.sequences.sequences import Sequences
from slicegraph.data.sequences.user_files import find_file, find_files
from slicegraph.data.sets.splits import SPLIT_NAMES

EXAMPLES = {"listops": 20_000, "pathfinder": 20_000, "pathx": 5_000}
"""How many are generated unless told otherwise."""
_DIGITS = tuple(map(str, range(10)))
_JOINED = ("apart", "joined")
_PART = 2048
_FILES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
_SIZES = {"pathfinder": 32, "pathx": 128}


def listops(request: Request) -> Contents:
    """Expressions of 501 to 1,999 tokens and their values."""
    if request.data is not None:
        return _official_listops(listops_files(request))
    count = request.examples or EXAMPLES["listops"]
    source = {"generator": "listops", "seed": SEED, "examples": count}
    return Contents(_expressions(count), _splits(count), _DIGITS, len(TOKENS), source=source)


def pathfinder(request: Request) -> Contents:
    """Pictures as sequences of pixels, and whether the marked ends are joined."""
    size = _SIZES[request.task]
    if request.data is not None:
        return _official_pathfinder(request, size)
    count = request.examples or EXAMPLES[request.task]
    source = {"generator": "pathfinder", "seed": SEED, "examples": count, "image_size": size}
    return Contents(_pictures(count, size), _splits(count), _JOINED, source=source)


def listops_files(request: Request) -> list[Path]:
    """The official files of the user."""
    folder = request.folder("the folder lra_release, or that of basic_train.tsv")
    return find_files(folder, _FILES)


def pathfinder_folder(request: Request) -> list[Path]:
    """The folder of the official pictures of the user."""
    name = f"pathfinder{_SIZES[request.task]}"
    folder = request.folder(f"the folder lra_release, with {name}/curv_contour_length_14")
    known = folder.name == name or (folder / "metadata").is_dir()
    place = folder if known else find_file(folder, name)
    return [place if (place / "metadata").is_dir() else find_file(place, "curv_contour_length_14")]


def file_splits(paths: list[Path], counts: Iterable[int]) -> dict[str, int]:
    """How many samples each split has, a file for each; raises for a file that has none."""
    found = dict(zip(paths, counts, strict=True))
    if empty := [path for path, count in found.items() if not count]:
        raise TaskError(f"{empty[0]} has no samples, expected at least one")
    return dict(zip(SPLIT_NAMES, found.values(), strict=True))


def _splits(count: int) -> dict[str, int]:
    if count < 10:
        raise TaskError(f"examples = {count}, expected at least 10")
    ends = [0, *(round(count * sum(FRACTIONS[: k + 1])) for k in range(3))]
    return dict(zip(SPLIT_NAMES, np.diff(ends).tolist(), strict=True))


def _part_seeds() -> Iterator[int]:
    """The seeds of the parts, of which the whole is made."""
    number = 0
    while True:
        yield int(np.random.SeedSequence([SEED, number]).generate_state(1)[0])
        number += 1


def _expressions(count: int) -> Iterator[Sequences]:
    """No expression comes twice; of those that came a few bytes each are remembered."""
    seen: set[bytes] = set()
    for seed in _part_seeds():
        part = generate_listops(min(_PART, count - len(seen)), seed)
        names = [hashlib.blake2b(one.tobytes(), digest_size=12).digest() for one in part]
        new = [i for i, name in enumerate(names) if name not in seen]
        seen.update(names)
        yield from in_parts(
            ([part.elements[part.ptr[i] : part.ptr[i + 1]]], part.labels[i]) for i in new
        )
        if len(seen) >= count:
            return


def _pictures(count: int, size: int) -> Iterator[Sequences]:
    for start, seed in zip(range(0, count, _PART), _part_seeds(), strict=False):
        yield generate_pathfinder(min(_PART, count - start), seed, PATHFINDER[size])


def _official_listops(paths: list[Path]) -> Contents:
    parts = [lra_files.read_listops(path) for path in paths]
    splits = file_splits(paths, map(len, parts))
    return Contents(parts, splits, _DIGITS, len(TOKENS), source={"files": "lra_release"})


def _official_pathfinder(request: Request, size: int) -> Contents:
    (place,) = pathfinder_folder(request)
    listed = lra_files.list_pathfinder(place)
    order, splits = random_order(len(listed))
    source: dict[str, Any] = {"files": f"lra_release/pathfinder{size}"}
    files = [listed[i] for i in order]
    read = partial(lra_files.read_picture, size=size)
    samples = readable(files, read, splits, source)
    return Contents(in_parts(samples), splits, _JOINED, source=source)
