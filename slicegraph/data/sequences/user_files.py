"""Files of the user: how they are found below folders, and whether they have changed."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from slicegraph.data.sequences.contents import TaskError


def paths_below(folder: Path, above: frozenset[str] = frozenset()) -> Iterator[Path]:
    """All files and folders by their names, behind links too; hidden ones are passed over."""
    above |= {os.path.realpath(folder)}
    for entry in _entries(folder):
        yield Path(entry.path)
        if entry.is_dir() and os.path.realpath(entry.path) not in above:  # a link may lead back
            yield from paths_below(Path(entry.path), above)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted((one for one in entries if one.name[0] != "."), key=lambda one: one.name)


def find_file(folder: Path, name: str) -> Path:
    """A file or folder of this name in a folder, or below it, the nearest one."""
    level, seen = [folder], {os.path.realpath(folder)}
    while level:
        for place in level:
            if (place / name).exists():
                return place / name
        inner = [Path(one.path) for place in level for one in _entries(place) if one.is_dir()]
        level = [place for place in inner if os.path.realpath(place) not in seen]
        seen.update(map(os.path.realpath, level))
    raise TaskError(f"there is no {name} in {folder} or below it; see --data")


def find_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """The first of these files in a folder or below it, and the others beside it."""
    first = find_file(folder, names[0])
    return [find_file(first.parent, name) for name in names]


def state_of(places: Iterable[Path]) -> str:
    """Names files, and all files below folders, as they are now: other ones have another name."""
    digest = hashlib.sha256()
    for place in places:
        place = place.resolve()
        for path in paths_below(place) if place.is_dir() else [place]:
            if path.is_file():
                state = path.stat()
                digest.update(os.fsencode(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\0"))
    return digest.hexdigest()
