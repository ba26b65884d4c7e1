"""Texts: reviews by bytes or words, pairs of papers, and the words of a vocabulary."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support.task_files import write_reviews

from slicegraph.tasks import TaskError, load_task
from slicegraph.tasks.texts import VOCABULARY, encode, read_pairs, split_words, vocabulary


@pytest.fixture
def reviews(tmp_path):
    write_reviews(tmp_path / "aclImdb", 10)
    return tmp_path / "aclImdb"


def sizes(dataset) -> list[int]:
    return [len(dataset.splits[name]) for name in ("train", "valid", "test")]


def test_the_vocabulary_has_the_words_of_the_training_split_alone(tmp_path, reviews):
    found = load_task("imdb", tmp_path, reviews)
    assert {"dull", "fine"} <= set(found.words)
    assert not any(word.startswith("test") for word in found.words)
    held_out = {found.words[token] for i in found.splits["test"] for token in found.store[i][0]}
    assert "<unk>" in held_out
    assert sizes(found) == [18, 2, 20]


def test_texts_are_numbered_by_given_words(tmp_path, reviews):
    words = ["<pad>", "<unk>", "film", "dull", "fine"]
    own, given = (load_task("imdb", tmp_path, reviews, words=some) for some in ((), words))
    assert given.words == tuple(words) != own.words
    first, last = (given.store[int(given.splits["test"][i])][0].tolist() for i in (0, -1))
    assert (first, last) == ([1, 3, 2, 1, 1], [1, 4, 2, 1, 1])  # A dull film, number test0.
    again = load_task("imdb", tmp_path, reviews, words=own.words)
    assert again.store.folder == own.store.folder


def test_frequent_words_come_first_and_unknown_ones_are_one():
    words = vocabulary(["b a b", "c b"])
    assert words == ["<pad>", "<unk>", "b", "a", "c"]
    assert len(words) <= VOCABULARY
    number = {word: place for place, word in enumerate(words)}
    assert encode("B z a!", number).tolist() == [2, 1, 3]
    assert split_words("It's<br />NEW") == ["it's", "new"]


@pytest.mark.parametrize(
    ("text", "in_bytes", "num_words"),
    [("A dull film.", b"A dull film.", 3), ("", b" ", 1), ("fine " * 1000, b"fine " * 1000, 1000)],
)
def test_a_text_is_written_whole_as_bytes_and_as_words(
    tmp_path, reviews, text, in_bytes, num_words
):
    (reviews / "test" / "neg" / "0_1.txt").write_text(text)
    by_bytes, by_words = (load_task(name, tmp_path, reviews) for name in ("text", "imdb"))
    first = int(by_bytes.splits["test"][0])
    elements, label = by_bytes.store[first]
    assert bytes(elements) == in_bytes
    assert by_bytes.class_names[label] == "negative"
    assert by_words.store.lengths[first] == num_words
    if not text:
        assert by_words.words[by_words.store[first][0][0]] == "<unk>"
    assert by_words.batch([first], max_length=600).x.shape == (1, min(num_words, 600))


@pytest.mark.parametrize("opinion", ["neg", "pos"])
def test_reviews_of_one_opinion_are_an_error(tmp_path, reviews, opinion):
    for path in (reviews / "train" / opinion).iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"train has no {opinion}/\*\.txt; unpack all"):
        load_task("text", tmp_path, reviews)


def test_pairs_are_bytes_and_an_empty_text_is_a_space(tmp_path):
    path = tmp_path / "new_aan_pairs.train.tsv"
    path.write_bytes(
        b'"1.0"\tP1\tP2\tna\xc3\xafve "text"\tother\n0.0\tP3\tP4\t' + b"a" * 5000 + b"\t\xff\n"
        b"1\ta\tb\t\tsecond\n\n \r\n"
    )
    found = [([bytes(text) for text in pair], label) for pair, label in read_pairs(path)]
    assert found == [
        ([b'na\xc3\xafve "text"', b"other"], 1),
        ([b"a" * 5000, b"\xff"], 0),
        ([b" ", b"second"], 1),
    ]


def write_files(folder, line: str, names=("train", "eval", "test")) -> None:
    for name in names:
        (folder / f"new_aan_pairs.{name}.tsv").write_text(line)


def test_pairs_of_papers_are_two_sequences_a_sample(tmp_path):
    write_files(tmp_path, "0\ta\tb\tfirst 0\tsecond\n1\ta\tb\tfirst 1\tsecond\n\n \r\n")
    pairs = load_task("retrieval", tmp_path / "root", tmp_path)
    assert sizes(pairs) == [2, 2, 2]
    batch = pairs.batch(pairs.splits["test"])
    assert batch.x.shape == (2, 2, len("first 0"))
    assert batch.mask.sum(-1).tolist() == [[7, 6], [7, 6]]
    (tmp_path / "new_aan_pairs.eval.tsv").write_text("\n")
    with pytest.raises(TaskError, match=r"new_aan_pairs\.eval\.tsv has no samples"):
        load_task("retrieval", tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("line", "names", "message"),
    [
        ("1\ta\tb\tc\td\n", ("train", "eval"), r"there is no new_aan_pairs\.test\.tsv"),
        ("7\ta\tb\tc\td\n", ("train", "eval", "test"), "line 1: '7' is not a label, expected 0"),
    ],
)
def test_a_load_that_fails_leaves_nothing_behind(tmp_path, line, names, message):
    """Whether before anything is written (a file is missing) or in the middle of it."""
    write_files(tmp_path, line, names)
    with pytest.raises(ValueError, match=message):
        load_task("retrieval", tmp_path / "root", tmp_path)
    assert not [path for path in (tmp_path / "root").rglob("*") if path.name != "tasks"]


def test_series_are_numbers_in_the_order_of_their_archive(tmp_path, monkeypatch):
    def load_acsf1(split):
        labels = np.array(["10", "9"] * 10)
        return np.arange(20.0)[:, None, None] + np.zeros((20, 1, 5)) + len(split), labels

    datasets = SimpleNamespace(load_acsf1=load_acsf1)
    monkeypatch.setitem(sys.modules, "aeon", SimpleNamespace(datasets=datasets))
    series = load_task("acsf1", tmp_path)
    assert sizes(series) == [18, 2, 20]
    assert series.class_names == ("9", "10")
    x, y = series.arrays("test")
    assert x[:, 0].tolist() == (np.arange(20.0) + 4).tolist()
    assert y.tolist() == [1, 0] * 10
