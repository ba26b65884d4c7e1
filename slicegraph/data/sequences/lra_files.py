"""The official files of the Long Range Arena, as sequences.

What the folder `lra_release` holds, and the folder of the IMDB reviews: tokens of ListOps, bytes of
texts, shades of pixels. Every reader takes one split.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from slicegraph.data.sequences.listops import TOKENS, is_expression
from slicegraph.data.sequences.picture_shades import with_shades
from slicegraph.data.sequences.sequences import Sequences
from slicegraph.data.sequences.text_tokens import EMPTY

_LISTOPS = {word: token for token, word in enumerate(TOKENS) if token}
_BRACKETS = {"(", ")"}


def read_listops(path: str | Path) -> Sequences:
    """`basic_train.tsv` and the like: a header, then an expression and its value a line.

    The round brackets of the files group pairs and say nothing more; they are left out.
    """
    return _join(_listops_rows(Path(path)))


def read_aan(path: str | Path) -> Sequences:
    """`new_aan_pairs.train.tsv` and the like: pairs of papers, and whether one cites the other.

    Lines are label, two names, and two texts, of which an empty one is a space.
    """
    return _join(_aan_rows(Path(path)))


def aan_samples(path: Path) -> Iterator[tuple[list[np.ndarray], int]]:
    """The rows of :func:`read_aan` one after another: they are many."""
    for pair, label in _aan_rows(path):
        yield [np.frombuffer(text, np.uint8) for text in pair], label


def count_lines(path: Path) -> int:
    """How many lines a file of `read_aan` or `read_listops` has, but for blank ones at the end."""
    return sum(1 for _ in _lines(path))


def read_imdb(folder: str | Path) -> Sequences:
    """The folder `train` or `test` of the IMDB reviews: a text a file, in `neg` and `pos`.

    A text that is empty is a space.
    """
    return _join(([path.read_bytes() or EMPTY], label) for path, label in list_imdb(folder))


def read_pathfinder(folder: str | Path) -> Sequences:
    """`pathfinder32/curv_contour_length_14` and the like: pictures that `metadata` lists."""
    listed = list_pathfinder(folder)
    return _join(([read_picture(path).tobytes()], label) for path, label in listed)


def list_pathfinder(folder: str | Path) -> list[tuple[Path, int]]:
    """The pictures that `metadata` lists, and the label of each."""
    folder = Path(folder)
    tables = sorted((folder / "metadata").glob("*.npy"), key=lambda path: (len(path.stem), path))
    if not tables:
        raise FileNotFoundError(f"read_pathfinder: {folder} has no metadata/*.npy")
    rows = [row for table in tables for row in _pathfinder_rows(folder, table)]
    if not rows:
        raise ValueError(f"read_pathfinder: {tables[0]} lists no picture")
    return rows


def read_picture(path: Path, size: int | None = None) -> np.ndarray:
    """The shades of a picture's pixels, row by row; raises if it is not ``size`` high and wide."""
    from PIL import Image

    with Image.open(path) as picture:
        if size is not None and picture.size != (size, size):
            raise ValueError(f"{path} has {picture.size} pixels, expected {size} x {size}")
        return np.asarray(with_shades(picture, "L"), np.uint8).ravel()


def list_imdb(folder: str | Path) -> list[tuple[Path, int]]:
    """The texts in `neg` (label 0) and `pos` (1) of a folder."""
    files: list[tuple[Path, int]] = []
    for label, name in enumerate(("neg", "pos")):
        found = sorted(Path(folder, name).glob("*.txt"))
        if not found:
            raise FileNotFoundError(f"read_imdb: {folder} has no {name}/*.txt; unpack all of it")
        files += [(path, label) for path in found]
    return files


def _listops_rows(path: Path) -> Iterator[tuple[list[bytes], int]]:
    for number, fields in _fields(path, 2):
        if number == 1 and fields[0] == "Source":
            continue
        words = [word for word in fields[0].split() if word not in _BRACKETS]
        if unknown := next((word for word in words if word not in _LISTOPS), None):
            raise ValueError(f"read_listops: {path} line {number}: unknown word {unknown!r}")
        label = _label(path, number, fields[1], classes=10)
        tokens = bytes(_LISTOPS[word] for word in words)
        if not is_expression(np.frombuffer(tokens, np.uint8)):
            raise ValueError(
                f"read_listops: {path} line {number}: {fields[0]!r:.60} is no expression, "
                "expected one such as [MAX 3 [MIN 4 8 ] ]"
            )
        yield [tokens], label


def _aan_rows(path: Path) -> Iterator[tuple[list[bytes], int]]:
    for number, (label, _, _, *texts) in _fields(path, 5):
        pair = [text.encode(errors="surrogateescape") or EMPTY for text in texts]
        yield pair, _label(path, number, label.strip('"'), classes=2)


def _pathfinder_rows(folder: Path, table: Path) -> Iterator[tuple[Path, int]]:
    """Rows are folder, name, number, label, ..."""
    for number, fields in enumerate(_table(table), 1):
        if len(fields) < 4:
            raise ValueError(f"read_pathfinder: {table} line {number}: {fields} names no picture")
        yield folder / fields[0] / fields[1], _label(table, number, fields[3], classes=2)


def _table(path: Path) -> list[list[str]]:
    """The fields of a file called .npy, which is text in the release, or an array of texts."""
    try:
        if not path.read_bytes().startswith(MAGIC_PREFIX):
            return [line.split() for line in path.read_text("utf-8").rstrip().splitlines()]
        found = np.load(path, allow_pickle=False)
        if found.dtype.kind in "SU" and found.ndim in (1, 2):
            rows = found.astype(str).tolist()
            return [row.split() if found.ndim == 1 else row for row in rows]
        problem = f"it has {found.dtype} {list(found.shape)}"
    except (ValueError, EOFError) as error:
        problem = str(error)
    raise ValueError(
        f"read_pathfinder: {path} is neither lines of text nor rows of texts in an array: {problem}"
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The number and the text of every line but for blank ones at the end."""
    blank: list[tuple[int, str]] = []
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for number, line in enumerate(file, 1):
            blank.append((number, line.rstrip("\r\n")))
            if line.strip(" \r\n"):
                yield from blank
                blank.clear()


def _fields(path: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    """The number and the fields of every line."""
    for number, line in _lines(path):
        fields = line.split("\t")
        if len(fields) != count:
            raise ValueError(
                f"{path} line {number}: {len(fields)} fields between tabs, expected {count}"
            )
        yield number, fields


def _label(path: Path, number: int, text: str, classes: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value.is_integer() or not 0 <= value < classes:
        raise ValueError(f"{path} line {number}: {text!r} is no label, expected 0 to {classes - 1}")
    return int(value)


def _join(rows: Iterable[tuple[list[bytes], int]]) -> Sequences:
    texts: list[bytes] = []
    labels: list[int] = []
    for parts, label in rows:
        texts += parts
        labels.append(label)
    ptr = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return Sequences(np.frombuffer(b"".join(texts), np.uint8), ptr, np.array(labels, np.uint8))
