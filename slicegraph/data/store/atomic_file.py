"""Files that are there whole or not at all, whenever the process or the machine stops."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, blocks: Iterable[bytes | memoryview]) -> None:
    """Writes beside the file, brings it to the disk, and then gives it its name."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(draft, "wb") as file:
            file.writelines(blocks)
            sync(file)
        os.replace(draft, path)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError) and error.filename == str(draft):
            error.filename = str(path)
        raise


def sync(file: BinaryIO) -> None:
    """Brings what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Brings the names in a folder to the disk, where the system can."""
    with suppress(OSError, AttributeError):
        number = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
