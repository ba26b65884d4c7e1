"""Fetches a data set from where OGB keeps it, without a question asked."""

import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from ogb.utils.url import download_url, extract_zip

from slicegraph.data.sets.source import MissingDataSet

_SECONDS = 30


class Archive(NamedTuple):
    """A zip file of OGB, and where what is in it belongs.

    `inner` is the folder in the zip file, `folder` the one that OGB keeps it in, and `file` the
    path in it without which the data set is missing.
    """

    name: str
    url: str
    inner: str
    folder: Path
    file: str


def download(archive: Archive) -> None:
    """Downloads and unpacks an archive; a zip file that lies beside the folder is taken instead.

    OGB's own `download` asks on standard input before a large file, and may be left with half of
    one. Here everything is unpacked elsewhere and then moved.
    """
    root = archive.folder.parent
    given = root / archive.url.rpartition("/")[2]
    try:
        if not given.is_file():
            with urlopen(archive.url, timeout=_SECONDS):
                pass  # fails at once where there is no network; OGB's download_url would wait
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=f".{archive.name}-") as temporary:
            path = given if given.is_file() else download_url(archive.url, temporary)
            extract_zip(path, temporary)
            inner = Path(temporary, archive.inner)
            shutil.copytree(inner, archive.folder, dirs_exist_ok=True, copy_function=shutil.move)
    except zipfile.BadZipFile as error:
        raise MissingDataSet(f"{archive.name}: {given} is damaged ({error}); delete it") from None
    except (OSError, RuntimeError) as error:
        raise MissingDataSet(_sentence(archive, error)) from None


def _sentence(archive: Archive, error: Exception) -> str:
    unpack = f"unpack that into {archive.folder.parent}"
    if archive.inner != archive.folder.name:
        unpack += f" and rename {archive.inner} to {archive.folder.name}"
    return (
        f"{archive.name} is not here: there is no {archive.folder / archive.file}, and OGB's "
        f"{archive.url} cannot be fetched ({error}); {unpack}"
    )
