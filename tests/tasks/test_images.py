"""Folders of pictures: their classes, their splits, and pictures that cannot be read."""

import struct
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.task_files import CLASSES, paint, write_pictures

from slicegraph.tasks import TaskError, load_task
from slicegraph.tasks.images import readable

TRAIN, VAL, TEST = 1, 2, 3
"""How blue the pictures of a split are, to tell where they came from."""


def write_flat(folder, count: int) -> None:
    for name, shade in CLASSES.items():
        for number in range(count):
            paint(folder / f"{name}.{number}.jpg", shade, number)


def write_unlabelled(folder, count: int) -> None:
    for number in range(count):
        paint(folder / f"{number}.jpg", 50, number, TEST)


def sizes(task) -> list[int]:
    return [len(task.splits[name]) for name in ("train", "valid", "test")]


def blues(task, split: str) -> set[int]:
    """Where the pictures of a split came from; checks the label of each."""
    x, y = task.arrays(split)
    shades = np.array([CLASSES[task.class_names[label]] for label in y])
    assert (x[:, 1, 0, 0] == shades).all()
    return set(x[:, 2, 0, 0].tolist())


def test_a_folder_of_pictures_is_brought_to_one_size(tmp_path):
    write_pictures(tmp_path / "pictures", 10)
    pictures = load_task("images", tmp_path, tmp_path / "pictures", image_size=8)
    x, y = pictures.arrays("train")
    assert x.shape == (16, 3, 8, 8)
    assert pictures.class_names == ("dark", "light")
    assert ((x[:, 1] == 200).all((1, 2)) == (y == 1)).all()


def test_pictures_that_cannot_be_read_are_left_out_and_named(tmp_path):
    folder = tmp_path / "pictures"
    write_pictures(folder, 10)
    whole = (folder / "dark" / "0.png").read_bytes()
    broken = {"light/0.png": b"", "light/1.png": b"no picture", "dark/3.png": whole[:-30]}
    for name, content in broken.items():
        (folder / name).write_bytes(content)
    for _ in range(2):  # when it is written, and when it is there
        with pytest.warns(UserWarning, match="images: 3 of 20 images cannot be read"):
            pictures = load_task("images", tmp_path, folder)
    assert len(pictures.store) == 17
    assert sum(map(len, pictures.splits.values())) == 17
    assert sorted(pictures.source["left_out"]) == sorted(str(folder / name) for name in broken)
    for split in pictures.splits:
        x, y = pictures.arrays(split)
        assert ((x[:, 1] == 200).all((1, 2)) == (y == 1)).all()


def save_pictures(folder, picture, ending: str, **options) -> None:
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(10):
            picture.save(folder / name / f"{number}{ending}", **options)


SHADES = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4


@pytest.mark.parametrize("ending", [".png", ".tif", ".TIFF", ".pgm"])
def test_grey_of_16_bits_keeps_its_shades(tmp_path, ending):
    deep = Image.fromarray(SHADES.astype(np.uint16) * 257)
    save_pictures(tmp_path / "pictures", deep, ending)
    pictures = load_task("images", tmp_path, tmp_path / "pictures", image_size=8)
    assert (pictures.arrays("train")[0] == SHADES).all()


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_a_picture_whose_white_is_not_known_is_refused(tmp_path, dtype):
    save_pictures(tmp_path / "pictures", Image.fromarray(SHADES.astype(dtype)), ".tif")
    with pytest.raises(
        TaskError, match=r"\d\.tif: the picture has shades of 32 bits \(mode [IF]\)"
    ):
        load_task("images", tmp_path, tmp_path / "pictures")


def test_a_picture_is_upright(tmp_path):
    exif = Image.Exif()
    exif[274] = 6  # orientation: the first row is the right side
    save_pictures(tmp_path / "pictures", Image.fromarray(SHADES), ".png", exif=exif)
    pictures = load_task("images", tmp_path, tmp_path / "pictures", image_size=8)
    assert (pictures.arrays("train")[0] == np.rot90(SHADES, -1)).all()


def test_files_that_may_be_missed_are_named_and_notes_are_not(tmp_path):
    folder = tmp_path / "pictures"
    write_pictures(folder, 10)
    for name in ("dark/x.heic", "dark/boxes.txt", "README.md", "light/.hidden.heic", ".git/head"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    paint(folder / "stray.png", 50, 1)
    paint(folder / "dark" / ".ipynb_checkpoints" / "0-checkpoint.png", 0, 0)
    for _ in range(2):  # when it is written, and when it is there
        with pytest.warns(UserWarning, match=r"2 files are not read, .* such as .*dark/x\.heic"):
            pictures = load_task("images", tmp_path, folder)
    assert pictures.source["not_read"] == [str(folder / "dark/x.heic"), str(folder / "stray.png")]
    assert len(pictures.store) == 20


def test_a_folder_next_to_those_of_splits_is_named(tmp_path):
    for name in ("train", "test", "extra"):
        write_pictures(tmp_path / "pictures" / name, 10)
    with pytest.warns(UserWarning, match=r"20 files are not read, .* such as .*extra/dark/0\.png"):
        load_task("images", tmp_path, tmp_path / "pictures")


def test_a_split_without_a_picture_is_an_error(tmp_path):
    write_pictures(tmp_path / "pictures" / "train", 10)
    write_pictures(tmp_path / "pictures" / "test", 10)
    for path in (tmp_path / "pictures" / "test").rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(TaskError, match=r"no picture of the split 'test' can be read: .*\.png"):
        load_task("images", tmp_path, tmp_path / "pictures")


def test_train_val_and_test_stay_as_they_are(tmp_path):
    for name, count, blue in (("train", 10, TRAIN), ("val", 6, VAL), ("test", 5, TEST)):
        write_pictures(tmp_path / "pictures" / name, count, blue)
    (tmp_path / "pictures" / "notes").mkdir()
    pictures = load_task("images", tmp_path, tmp_path / "pictures")
    assert sizes(pictures) == [20, 12, 10]
    assert [blues(pictures, split) for split in pictures.splits] == [{TRAIN}, {VAL}, {TEST}]


def test_pictures_behind_links_are_read_and_their_changes_seen(tmp_path):
    stores = []
    for name, count in (("one", 10), ("other", 12)):
        write_pictures(tmp_path / "disk" / name, count)
        (tmp_path / name).mkdir()
        for place in (tmp_path / "disk" / name).iterdir():
            (tmp_path / name / place.name).symlink_to(place)
        stores.append(load_task("images", tmp_path, tmp_path / name).store)
    assert [len(store) for store in stores] == [20, 24]
    (tmp_path / "disk" / "one" / "dark" / "0.png").unlink()
    assert len(load_task("images", tmp_path, tmp_path / "one").store) == 19
    (tmp_path / "disk" / "one" / "dark" / "all").symlink_to(tmp_path / "disk" / "one")  # a circle
    assert len(load_task("images", tmp_path, tmp_path / "one").store) == 29


def test_a_class_may_be_called_train(tmp_path):
    for name in ("train", "bus", "tram"):
        for number in range(10):
            paint(tmp_path / "pictures" / name / f"{number}.png", 50, number)
    assert load_task("images", tmp_path, tmp_path / "pictures").class_names == (
        "bus",
        "train",
        "tram",
    )


def write_tiny_imagenet(folder) -> None:
    """The layout of tiny-imagenet-200, in which n01 is light, and so is every third of val."""
    for name, shade in (("n02", 0), ("n01", 200)):
        for number in range(10):
            paint(folder / "train" / name / "images" / f"{name}_{number}.JPEG", shade, number)
        (folder / "train" / name / f"{name}_boxes.txt").write_text("n_0.JPEG\t0\t0\t9\t9\n")
    lines = []
    for number in range(12):
        paint(folder / "val" / "images" / f"val_{number}.JPEG", 200 * (number % 3 == 0), number)
        lines.append(f"val_{number}.JPEG\t{'n02' if number % 3 else 'n01'}\t0\t32\t44\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    write_unlabelled(folder / "test" / "images", 10)
    (folder / "wnids.txt").write_text("n02\nn01\n")


def test_tiny_imagenets_val_is_labelled_by_its_table_and_its_test_left_alone(tmp_path):
    write_tiny_imagenet(tmp_path / "tiny")
    tiny = load_task("images", tmp_path, tmp_path / "tiny")
    assert tiny.class_names == ("n01", "n02")
    assert sizes(tiny) == [18, 2, 12]
    for split in tiny.splits:
        x, y = tiny.arrays(split)
        assert (x[:, 2] == 7).all()
        assert ((x[:, 1, 0, 0] == 200) == (y == 0)).all()
    assert tiny.arrays("test")[1].tolist() == [0, 1, 1] * 4


@pytest.mark.parametrize("inner", ["", "train"])
def test_dogs_and_cats_are_told_by_the_names_of_the_files(tmp_path, inner):
    write_flat(tmp_path / "pets" / inner, 10)
    if inner:
        write_unlabelled(tmp_path / "pets" / "test1", 30)
    pets = load_task("images", tmp_path, tmp_path / "pets")
    assert pets.class_names == ("dark", "light")
    assert sizes(pets) == [16, 2, 2]
    assert [blues(pets, split) for split in pets.splits] == [{7}, {7}, {7}]


def test_a_picture_that_pillow_finds_too_large_is_left_out(tmp_path, monkeypatch):
    write_pictures(tmp_path / "pictures", 10)
    Image.new("RGB", (40, 40)).save(tmp_path / "pictures" / "dark" / "3.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    with pytest.warns(UserWarning, match=r"1 of 20 images .*3\.png"):
        assert len(load_task("images", tmp_path, tmp_path / "pictures").store) == 19


def read_with(error: Exception):
    def read(path):
        if path.name == "broken":
            raise error
        return np.zeros(1, np.uint8)

    splits = {"train": 2}
    return readable([(Path("whole"), 0), (Path("broken"), 1)], read, splits, {}), splits


@pytest.mark.parametrize(
    "error", [OSError(), ValueError(), SyntaxError(), EOFError(), struct.error(), zlib.error()]
)
def test_what_pillow_raises_for_broken_files_leaves_them_out(error):
    samples, splits = read_with(error)
    assert [label for _, label in samples] == [0]
    assert splits == {"train": 1}


@pytest.mark.parametrize("error", [TypeError, AttributeError, KeyError, IndexError, NameError])
def test_a_mistake_in_the_program_stays_an_error(error):
    samples, _ = read_with(error("a mistake"))
    with pytest.raises(error, match="a mistake"):
        list(samples)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("train", name) for name in ("val", "valid", "validation", "Val", "test", "dev")),
        *(("training", "testing"), ("training_set", "test_set")),
    ],
)
def test_the_one_folder_next_to_train_is_test_and_a_tenth_of_train_is_valid(
    tmp_path, first, second
):
    write_pictures(tmp_path / "pictures" / first, 10, TRAIN)
    write_pictures(tmp_path / "pictures" / second, 6, VAL)
    pictures = load_task("images", tmp_path, tmp_path / "pictures")
    assert pictures.class_names == ("dark", "light")
    assert sizes(pictures) == [18, 2, 12]
    assert [blues(pictures, split) for split in pictures.splits] == [{TRAIN}, {TRAIN}, {VAL}]


def unknown_class(folder):
    write_pictures(folder / "train", 10)
    write_pictures(folder / "val", 10)
    (folder / "val" / "dark").rename(folder / "val" / "Dark")


def no_class(folder):
    write_pictures(folder / "train", 10)
    write_unlabelled(folder / "val", 10)


def one_class(folder):
    write_pictures(folder / "dark", 10)
    (folder / "light").mkdir()


def splits(*names: str):
    def write(folder):
        for name in names:
            write_pictures(folder / name, 10)

    return write


def annotated(line: str):
    def write(folder):
        write_tiny_imagenet(folder)
        with open(folder / "val" / "val_annotations.txt", "a") as file:
            file.write(line + "\n")

    return write


REMEDY = ".*expected train, with .* rename them"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (unknown_class, "val has the class 'Dark', which does not occur in train"),
        (no_class, "val has 0 pictures with a class"),
        (one_class, "pictures has pictures of 1 classes; --data is a folder"),
        (partial(write_unlabelled, count=20), r"of 0 classes; .*names such as cat\.0\.jpg"),
        (splits("seg_train", "seg_test"), "seg_test, seg_train, and each of them has dark, light:"),
        (splits("test", "val"), f"has the subfolders test, val, {REMEDY}"),
        (splits("train", "val", "valid"), f"has the subfolders train, val, valid, {REMEDY}"),
        (splits("validation"), f"has the subfolders validation, {REMEDY}"),
        (annotated("val_9.JPEG n01"), r"annotations\.txt line 13: 'val_9.JPEG n01' names no file"),
        (
            annotated("val_9.JPEG\tn03\t0\t0\t9\t9"),
            "the class 'n03', which does not occur in train",
        ),
    ],
)
def test_folders_whose_classes_or_splits_are_unclear_are_named(tmp_path, write, message):
    write(tmp_path / "pictures")
    with pytest.raises(TaskError, match=message):
        load_task("images", tmp_path, tmp_path / "pictures")
