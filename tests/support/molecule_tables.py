"""Tables of molecules for tests, and what a folder holds."""

import csv
import random
from collections.abc import Sequence
from pathlib import Path

_PIECES = ("C", "CC", "C(C)", "C(=O)", "O", "N", "C(F)", "C(Cl)", "c1ccccc1", "C1CCCC1", "c1ccncc1")


def random_smiles(count: int, seed: int = 0, pieces: int = 4) -> list[str]:
    """Molecules of a few pieces in a row."""
    draw = random.Random(seed)
    return ["".join(draw.choices(_PIECES, k=draw.randint(1, pieces))) for _ in range(count)]


def write_csv(
    path: Path, rows: Sequence[Sequence[object]], header: Sequence[str] = ("smiles", "gap")
) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def molecule_csv(path: Path, count: int, seed: int = 0) -> Path:
    """Molecules with a label, every seventh row bad in one of three ways."""
    rows: list[list[object]] = [[text, i / 8] for i, text in enumerate(random_smiles(count, seed))]
    for i in range(5, count, 7):
        rows[i] = [["C1CC", 1.0], ["CCO", ""], ["CCO", "much"]][i // 7 % 3]
    return write_csv(path, rows)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path from there; a folder ends with a slash."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        found[f"{name}/" if path.is_dir() else name] = b"" if path.is_dir() else path.read_bytes()
    return found


def rejected(folder: Path) -> list[tuple[int, str, str]]:
    """The rows of `rejected.csv`."""
    with open(folder / "rejected.csv", newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["row", "text", "reason"]
    return [(int(row), text, reason) for row, text, reason in rows]
