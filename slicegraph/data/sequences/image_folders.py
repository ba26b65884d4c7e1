"""Folders of pictures: which class each picture has, and which split it is in.

The class is the subfolder, or what the name of the file begins with (`cat.0.jpg`, as in Kaggle's
Dogs-vs-Cats), or what the table of Tiny-ImageNet's `val` says. The splits are:

| subfolders (or `training`, `dev`, `test_set` and the like) | splits |
|---|---|
| those of classes, or none | all at random by seed 0, 80/10/10 |
| train, val, test | as they are |
| train, test | a tenth of train is valid |
| train, val | val is test, a tenth of train is valid |
| train | all of train at random by seed 0, 80/10/10 |

A test without classes (`test1` of Dogs-vs-Cats, `test` of Tiny-ImageNet) is left alone. Other files
are not read either, and are named unless they are hidden or by their ending lists and notes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slicegraph.data.sequences.contents import TaskError, random_order, with_valid
from slicegraph.data.sequences.user_files import paths_below
from slicegraph.data.sets.splits import SPLIT_NAMES

WHAT = (
    "a folder of pictures with a subfolder for each class, or with names such as cat.0.jpg "
    "(or train, val and test, each like this)"
)
Labelled = list[tuple[Path, int]]
_SPLITS = {
    **dict.fromkeys(("train", "training", "train_set", "training_set"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "val_set", "validation_set"), "valid"),
    **dict.fromkeys(("test", "test1", "testing", "test_set"), "test"),
}
_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
_NOTES = {".txt", ".md", ".csv", ".tsv", ".json", ".xml", ".db", ".ini"}
_UNSORTED, _TABLE = "images", "val_annotations.txt"


@dataclass(frozen=True)
class Pictures:
    """The files and labels of pictures, those of the first split first; the files not read."""

    class_names: list[str]
    files: Labelled
    splits: dict[str, int]
    others: list[Path]


def find_pictures(folder: Path) -> Pictures:
    """The pictures of a folder; raises if their classes or splits cannot be told."""
    places = _places(folder)
    found = {split: _with_class(place) for split, place in places.items()}
    alone = [places["test"]] if found.get("test") == [] and _pictures(places["test"]) else []
    if alone:
        del found["test"]
    names = sorted({name for _, name in found["train"]})
    if len(names) < 2:
        raise TaskError(f"{places['train']} has pictures of {len(names)} classes; --data is {WHAT}")
    parts = {split: _labelled(places[split], found[split], names) for split in found}
    return Pictures(names, *_divided(parts), list(_others(folder, parts, alone)))


def _places(folder: Path) -> dict[str, Path]:
    """The folder of each split; the whole is train if the subfolders are not those of splits."""
    places = _subfolders(folder)
    known = [place for place in places if place.name.lower() in _SPLITS]
    found = {_SPLITS[place.name.lower()]: place for place in known}
    if not known or not (len(known) == len(places) or {"train"} < set(found)):
        return {"train": folder}
    if "train" not in found or len(found) < len(known):
        names = ", ".join(place.name for place in known)
        raise TaskError(
            f"{folder} has the subfolders {names}, which are no classes but splits: "
            "expected train, with at most one such as val and one such as test; if they are "
            "classes, rename them"
        )
    return found


def _divided(parts: dict[str, Labelled]) -> tuple[Labelled, dict[str, int]]:
    train, *others = (parts[name] for name in SPLIT_NAMES if name in parts)
    if len(others) == 1:
        return with_valid(train, others[0])
    if others:
        files = [row for part in (train, *others) for row in part]
        return files, {name: len(parts[name]) for name in SPLIT_NAMES}
    order, splits = random_order(len(train))
    return [train[i] for i in order], splits


def _with_class(folder: Path) -> list[tuple[Path, str]]:
    """Every picture and the name of its class; none if nothing tells it."""
    places = _subfolders(folder)
    if [place.name for place in places] == [_UNSORTED]:
        return list(_annotated(folder)) if (folder / _TABLE).is_file() else []
    _refuse_splits(folder, places)
    found = [(path, place.name) for place in places for path in _pictures(place)]
    return found or _by_file_name(folder)


def _refuse_splits(folder: Path, places: list[Path]) -> None:
    """Raises if what would be classes has no pictures of its own, but the same classes each."""
    inner = [{one.name for one in _subfolders(place)} for place in places]
    alike = len(places) > 1 and len(inner[0]) > 1 and all(one == inner[0] for one in inner)
    if alike and not any(_is_picture(path) for place in places for path in place.iterdir()):
        outer, classes = ", ".join(place.name for place in places), ", ".join(sorted(inner[0]))
        raise TaskError(
            f"{folder} has the subfolders {outer:.200}, and each of them has {classes:.200}: if "
            "the former are splits, call them train, val and test; if they are classes, put the "
            "pictures of each into one folder"
        )


def _annotated(folder: Path) -> Iterator[tuple[Path, str]]:
    """Lines of file, class and box, with tabs between them."""
    table = folder / _TABLE
    lines = table.read_text("utf-8", errors="replace").rstrip().split("\n")
    for number, line in enumerate(lines, 1):
        name, *rest = line.split("\t")
        if not rest:
            raise TaskError(f"{table} line {number}: {line!r} names no file and class")
        yield folder / _UNSORTED / name, rest[0].strip()


def _by_file_name(folder: Path) -> list[tuple[Path, str]]:
    """The class is what comes before the first dot of three parts; 7.jpg has none."""
    paths = [path for path in sorted(folder.iterdir()) if _is_picture(path)]
    names = [path.name.split(".")[0] for path in paths if path.name.count(".") > 1]
    if len(names) < len(paths) or len(set(names)) < 2:
        return []
    return list(zip(paths, names, strict=True))


def _labelled(folder: Path, found: list[tuple[Path, str]], names: list[str]) -> Labelled:
    if len(found) < 10:
        raise TaskError(f"{folder} has {len(found)} pictures with a class, expected at least 10")
    number = {name: label for label, name in enumerate(names)}
    if unknown := {name for _, name in found} - set(number):
        raise TaskError(f"{folder} has the class {min(unknown)!r}, which train has not")
    return [(path, number[name]) for path, name in found]


def _others(folder: Path, parts: dict[str, Labelled], alone: list[Path]) -> Iterator[Path]:
    """The files that are neither read nor left alone: some may be samples that are missed."""
    known = {path for part in parts.values() for path, _ in part}
    for path in paths_below(folder):
        if path in known or path.suffix.lower() in _NOTES or not path.is_file():
            continue
        if not any(map(path.is_relative_to, alone)):
            yield path


def _subfolders(folder: Path) -> list[Path]:
    places = sorted(folder.iterdir())
    return [place for place in places if place.is_dir() and not place.name.startswith(".")]


def _pictures(folder: Path) -> list[Path]:
    return [path for path in paths_below(folder) if _is_picture(path)]


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS and not path.name.startswith(".")
