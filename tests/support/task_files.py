"""Small files of the tasks that read the user's own: reviews, pictures, pairs of papers."""

from pathlib import Path

from PIL import Image


def write_reviews(folder: Path, count: int) -> None:
    """The layout of aclImdb, ``count`` reviews of each opinion in train and in test."""
    for split in ("train", "test"):
        for label, word in (("neg", "dull"), ("pos", "fine")):
            place = folder / split / label
            place.mkdir(parents=True)
            for number in range(count):
                (place / f"{number}_1.txt").write_text(f"A {word} film, number {split}{number}.")


CLASSES = {"dark": 0, "light": 200}


def paint(path: Path, shade: int, number: int, blue: int = 7) -> None:
    """One picture, which differs from those with other numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 9), (shade + number, shade, blue)).save(path, format="PNG")


def write_pictures(folder: Path, count: int, blue: int = 7) -> None:
    """A folder for each of two classes, with ``count`` pictures each."""
    for name, shade in CLASSES.items():
        for number in range(count):
            paint(folder / name / f"{number}.png", shade, number, blue)


def write_pairs(folder: Path, count: int) -> None:
    """The layout of lra_release: ``count`` pairs that cite and ``count`` that do not, a split."""
    place = folder / "lra_release" / "tsv_data"
    place.mkdir(parents=True)
    for split in ("train", "eval", "test"):
        lines = [
            f'"{label}.0"\tpaper{number}\tother\tOn {subject} {number}\tOn trees'
            for number in range(count)
            for label, subject in ((0, "seas"), (1, "trees"))
        ]
        (place / f"new_aan_pairs.{split}.tsv").write_text("\n".join(lines) + "\n")
