"""The folder of a store while it is made: whose it is, and what of it may be removed.

Everything unfinished is in its folder `parts`: `job.json`, which says what is being made and marks
the folder as ours, the finished parts and the drafts of the final files. `parts` is removed when
`meta.json` is there, `job.json` last. No file that we did not write is ever removed.
"""

import hashlib
import json
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import rdkit

from slicegraph import __version__
from slicegraph.data.store.atomic_file import sync_folder, write_atomically
from slicegraph.data.store.files import check_contents, check_sizes
from slicegraph.data.store.folder_lock import FolderLock
from slicegraph.data.store.layout import ARRAYS, META, REJECTED, StoreError, read_meta
from slicegraph.data.store.part import DIGESTS

LOCK = "prepare.lock"
PARTS = "parts"
JOB = "job.json"
_NAMES = "|".join(map(re.escape, (JOB, META, REJECTED, DIGESTS, *ARRAYS)))
_OURS = re.compile(rf"(\d{{8,}}\.part|{_NAMES})(\.\d+\.tmp)?")
_JOB_DRAFT = re.compile(rf"{re.escape(JOB)}\.\d+\.tmp")
_FORMAT = "slicegraph-prepare-1"


def software() -> dict[str, str]:
    """The versions that the content of a store depends on."""
    return {
        "slicegraph": __version__,
        "rdkit": rdkit.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


class PrepareFolder:
    """The folder of a store that is being made, or was."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        self.parts = self.path / PARTS

    def lock(self) -> FolderLock:
        """Makes the folder and keeps other processes out."""
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(self.path, "is a file, expected a folder")
        self.path.mkdir(parents=True, exist_ok=True)
        return FolderLock(self.path / LOCK)

    def finished(self) -> dict[str, Any] | None:
        """What `meta.json` says, None if there is none; a `StoreError` if the files are damaged."""
        if not (self.path / META).exists():
            return None
        meta = read_meta(self.path)
        check_sizes(self.path, meta)
        check_contents(self.path, meta)
        return meta

    def is_tidy(self) -> bool:
        """Whether nothing is left of making it."""
        return not (self.parts.exists() or (self.path / LOCK).exists())

    def begin(self, job: dict[str, Any], restart: bool) -> str:
        """Makes `parts` for a job, or goes on with it; returns the key of the job."""
        job = {"format": _FORMAT, **job}
        self._refuse_foreign_files()
        if (begun := self._job()) and not restart:
            self._refuse_other_job(begun, job)
            self.remove_drafts()
        else:
            self.discard()
            self.parts.mkdir(exist_ok=True)
            write_atomically(self.parts / JOB, [json.dumps(job, indent=1).encode()])
            sync_folder(self.parts)
        return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()

    def discard(self) -> None:
        """Removes all that an unfinished job has written, the mark that it is ours last."""
        if self._job():
            for name in (REJECTED, *ARRAYS):
                (self.path / name).unlink(missing_ok=True)
        self.remove_parts()

    def remove_drafts(self) -> None:
        """Removes the files in `parts` that are not finished."""
        for path in self._our_files():
            if path.suffix != ".part" and path.name != JOB:
                path.unlink(missing_ok=True)

    def remove_parts(self) -> None:
        """Removes what we wrote to `parts`, and the folder if nothing else is in it."""
        for path in sorted(self._our_files(), key=lambda path: path.name == JOB):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.parts.rmdir()

    def _job(self) -> dict[str, Any] | None:
        try:
            job = json.loads((self.parts / JOB).read_bytes())
        except (OSError, ValueError):
            return None
        return job if isinstance(job, dict) and job.get("format") == _FORMAT else None

    def _our_files(self) -> list[Path]:
        """What we wrote to `parts`: without our `job.json` at most drafts of it."""
        ours = _OURS if self._job() else _JOB_DRAFT
        return [path for path in _entries(self.parts) if ours.fullmatch(path.name)]

    def _refuse_foreign_files(self) -> None:
        known = {LOCK, PARTS, *((REJECTED, *ARRAYS) if self._job() else ())}
        strangers = [path.name for path in _entries(self.path) if path.name not in known]
        ours = self._our_files()
        strangers += [f"{PARTS}/{path.name}" for path in _entries(self.parts) if path not in ours]
        if strangers:
            raise StoreError(
                self.path, f"holds {min(strangers)!r}, which is not ours; choose an empty folder"
            )

    def _refuse_other_job(self, begun: dict[str, Any], job: dict[str, Any]) -> None:
        for group, now in job.items():
            if begun.get(group) != now:
                raise StoreError(
                    self.path,
                    f"was begun with another {group} ({_difference(begun.get(group), now)}); start "
                    "anew (--restart), which discards what is done, or choose another folder",
                )


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _difference(before: Any, now: Any) -> str:
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return f"{before!r}, now {now!r}"
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return ", ".join(f"{key} was {before.get(key)!r}, is {now.get(key)!r}" for key in keys)
