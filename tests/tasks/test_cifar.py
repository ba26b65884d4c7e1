"""CIFAR in each of its forms, and pickles that are not CIFAR's."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from slicegraph.tasks import TaskError, load_task

BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
TEN, HUNDRED = "cifar-10-batches-py", "cifar-100-python"


def python2(value) -> bytes:
    """A value as the pickles of Python 2 and of the NumPy of its time have it."""
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(one) for pair in value.items() for one in pair) + b"u"
    name = python2(value.dtype.str[1:].encode())
    order = b"\x88" if value.flags.fnc else b"\x89"
    return b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR(K\x01(",
            *(python2(size) for size in value.shape),
            b"tcnumpy\ndtype\n(" + name + b"K\x00K\x01tR(K\x03U\x01" + value.dtype.str[:1].encode(),
            b"NNN" + python2(-1) * 2 + b"K\x00tb" + order + python2(value.tobytes("A")) + b"tb",
        ]
    )


def python2_pickle(value) -> bytes:
    return b"\x80\x02" + python2(value) + b"."


def pictures(count: int) -> np.ndarray:
    """Rows of which each colour of each has its own shade."""
    shades = np.arange(3 * count, dtype=np.uint8).reshape(count, 3)
    return np.repeat(shades, 1024, axis=1)


def write_pickles(folder, labels: list[int], order: str = "C") -> None:
    folder.mkdir()
    batch = {b"batch_label": b"some", b"labels": labels, b"filenames": [b"a.png"] * len(labels)}
    batch[b"data"] = np.asarray(pictures(len(labels)), order=order)
    for name in (*BATCHES, "test_batch"):
        (folder / name).write_bytes(python2_pickle(batch))


def check(task, labels: list[int]) -> None:
    x, y = task.arrays("test")
    assert y.tolist() == labels
    assert (x.reshape(len(labels), -1) == pictures(len(labels))).all()


def test_binary_files_become_colour_images_and_grey_pixels(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    rows = np.zeros((4, 3073), np.uint8)
    rows[:, 0] = [0, 1, 2, 9]
    rows[:, 1:1025] = 100  # red
    for name in (*BATCHES, "test_batch"):
        rows.tofile(folder / f"{name}.bin")
    colour, grey = (load_task(name, tmp_path, tmp_path) for name in ("images", "image"))
    x, y = colour.arrays("test")
    assert x.shape == (4, 3, 32, 32)
    assert (x[:, 0] == 100).all()
    assert not x[:, 1:].any()
    assert y.tolist() == [0, 1, 2, 9]
    assert (grey.arrays("test")[0] == round(0.299 * 100)).all()


@pytest.mark.parametrize(("order", "inner"), [("C", ""), ("F", TEN)])
def test_cifar_10_for_python(tmp_path, order, inner):
    write_pickles(tmp_path / TEN, [0, 9, 3], order)
    known = pickle.loads((tmp_path / TEN / "test_batch").read_bytes(), encoding="bytes")
    assert np.array_equal(known[b"data"], pictures(3))
    cifar = load_task("images", tmp_path / "root", tmp_path / inner)
    assert [len(cifar.splits[name]) for name in ("train", "valid", "test")] == [14, 1, 3]
    check(cifar, [0, 9, 3])
    assert cifar.class_names[9] == "truck"


def test_a_pickle_of_python_3_is_read_too(tmp_path):
    write_pickles(tmp_path / TEN, [1])
    batch = {b"data": pictures(2), b"labels": [4, 5]}
    (tmp_path / TEN / "test_batch").write_bytes(pickle.dumps(batch, protocol=4))
    check(load_task("images", tmp_path / "root", tmp_path), [4, 5])


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", [HUNDRED, "cifar-100-binary"])
def test_cifar_100_has_fine_labels_and_their_names_if_there_is_a_file(tmp_path, name, named):
    folder, names = tmp_path / name, [b"name_%d" % number for number in range(100)]
    folder.mkdir()
    for split in ("train", "test"):
        if name == HUNDRED:
            batch = {b"data": pictures(2), b"fine_labels": [99, 5], b"coarse_labels": [1, 2]}
            (folder / split).write_bytes(python2_pickle(batch))
        else:
            rows = np.concatenate([[[11, 99], [12, 5]], pictures(2)], axis=1).astype(np.uint8)
            rows.tofile(folder / f"{split}.bin")
    if named and name == HUNDRED:
        (folder / "meta").write_bytes(python2_pickle({b"fine_label_names": names}))
    elif named:
        (folder / "fine_label_names.txt").write_bytes(b"\n".join(names))
    cifar = load_task("images", tmp_path / "root", tmp_path)
    check(cifar, [99, 5])
    assert cifar.class_names[99] == ("name_99" if named else "99")
    assert cifar.source["files"] == "CIFAR-100"


def test_cifar_10_beside_cifar_100_is_an_error_that_names_both(tmp_path):
    for name in (TEN, HUNDRED):
        (tmp_path / name).mkdir()
    with pytest.raises(TaskError, match=f"{TEN} and {HUNDRED}; name one of them with --data"):
        load_task("images", tmp_path / "root", tmp_path)


class Make:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_names_a_function_is_refused_and_nothing_is_run(tmp_path, protocol):
    write_pickles(tmp_path / TEN, [1, 2])
    made = tmp_path / "made"
    content = pickle.dumps({"data": Make(made)}, protocol=protocol)
    (tmp_path / TEN / "data_batch_3").write_bytes(content)
    with pytest.raises(TaskError, match=r"data_batch_3 is not read: it has \w+\.mkdir in it"):
        load_task("images", tmp_path / "root", tmp_path)
    assert not made.exists()
    pickle.loads(content)
    assert made.exists()


def test_the_functions_that_a_pickle_may_name_are_not_called(tmp_path):
    write_pickles(tmp_path / TEN, [1, 2])
    # numpy.ndarray((2**60,)) would ask for more memory than there is
    content = b"\x80\x02}(" + python2(b"data") + b"cnumpy\nndarray\n(\x8a\x08"
    content += struct.pack("<q", 2**60) + b"\x85tRu."
    (tmp_path / TEN / "test_batch").write_bytes(content)
    with pytest.raises((MemoryError, ValueError), match="array"):
        pickle.loads(content, encoding="bytes")
    with pytest.raises(TaskError, match=r"test_batch has no data of bytes \[n, 3072\]"):
        load_task("images", tmp_path / "root", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *(
            (python2_pickle({b"data": data, b"labels": [1, 2]}), r"no data of bytes \[n, 3072\]")
            for data in (pictures(2).astype("<i2"), pictures(2)[:, :9], pictures(2)[0])
        ),
        (python2_pickle({b"labels": [1, 2]}), r"no data of bytes \[n, 3072\]"),
        *(
            (python2_pickle({b"data": pictures(2), b"labels": labels}), message)
            for labels, message in (
                ([1], "no labels for each of 2 images"),
                ([1, b"2"], "no labels for each of 2 images"),
                ([1, 10], "the label 10, expected 0 to 9"),
                ([-1, 1], "the label -1, expected 0 to 9"),
            )
        ),
        (python2_pickle([1, 2]), "has a list, expected a dict"),
        *(
            (content, "is damaged, or not a file of CIFAR")
            for content in (b"", b"no pickle", python2_pickle({b"a": b"bcd"})[:-4])
        ),
    ],
)
def test_a_wrong_pickle_is_named_with_what_is_wrong(tmp_path, content, message):
    write_pickles(tmp_path / TEN, [1, 2])
    (tmp_path / TEN / "test_batch").write_bytes(content)
    with pytest.raises(TaskError, match=f"test_batch .*{message}"):
        load_task("images", tmp_path / "root", tmp_path)


def test_wrong_binary_files_and_names_are_named(tmp_path):
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3074))
    with pytest.raises(TaskError, match=r"data_batch_1\.bin has 3074 bytes, expected 3073 for"):
        load_task("images", tmp_path / "root", tmp_path)
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "fine_label_names.txt").write_text("apple\n")
    with pytest.raises(TaskError, match=r"fine_label_names\.txt does not have the names of 100"):
        load_task("images", tmp_path / "root", folder)
