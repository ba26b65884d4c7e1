"""A page in one HTML file, around its parts, and the figures beside it."""

import hashlib
import os
from collections.abc import Container, Iterable
from html import escape
from pathlib import Path

from slicegraph.report.plot import Picture
from slicegraph.report.stylesheet import stylesheet

# Nothing is fetched and no script runs, whatever the names and SMILES of a run contain.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_LIST = "<!-- figures:"


def document(title: str, parts: Iterable[str]) -> str:
    """The whole page as HTML; empty parts are left out."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>\n{stylesheet()}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def write_document(page: Path, text: str, figures: Iterable[Picture]) -> None:
    """Writes the page, and its figures as ``figures/*.png`` in the same folder.

    The page ends with a comment that lists them. Figures that an earlier page lists and this one
    has no place for are removed, if they are still as they were written.
    """
    folder = page.parent / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    written = {f"{drawn.plot.name}.png": drawn.light for drawn in figures}
    for name, content in written.items():
        replace(folder / name, content)
    _remove_others(folder, page, written)
    listed = " ".join(f"{_checksum(content)}/{name}" for name, content in written.items())
    replace(page, f"{text}{_LIST} {listed} -->\n".encode("utf-8", "replace"))


def _remove_others(folder: Path, page: Path, written: Container[str]) -> None:
    lines = page.read_text("utf-8", "replace").splitlines() if page.is_file() else []
    if not lines or not lines[-1].startswith(_LIST):
        return
    for entry in lines[-1].removeprefix(_LIST).split():
        checksum, _, name = entry.partition("/")
        path = folder / Path(name).name
        if name not in written and path.is_file() and _checksum(path.read_bytes()) == checksum:
            path.unlink()


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def replace(path: Path, content: bytes) -> None:
    """Writes a file, the whole of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
