"""What a folder of prepared molecules holds, and what is wrong with one that does not.

A store is arrays beside one another and a `meta.json` that is written last: a folder that has it
is complete, and the checksums in it tell whether it still is.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.data.molecule.feature_code import FeatureCode

FORMAT = "slicegraph-molecules"
VERSION = 1
META = "meta.json"
REJECTED = "rejected.csv"
PARTS = "parts"  # the folder of what is not finished
LOCK = "prepare.lock"

ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    "atoms.npy": ("<u4", ()),  # [A] the code of each atom's features
    "atom_ptr.npy": ("<i8", ()),  # [N + 1] the first atom of each molecule
    "bonds.npy": ("<u2", (2,)),  # [M, 2] each bond once, atoms numbered within the molecule
    "bond_features.npy": ("u1", ()),  # [M] the code of each bond's features
    "bond_ptr.npy": ("<i8", ()),  # [N + 1] the first bond of each molecule
    "labels.npy": ("<f4", (-1,)),  # [N, L] NaN where there is none
    "rows.npy": ("<i8", ()),  # [N] the row of the source, from 0, header not counted
    "smiles.npy": ("u1", ()),  # [S] the text of the source in UTF-8, one after another
    "smiles_ptr.npy": ("<i8", ()),  # [N + 1] the first byte of each text
}
"""Type and trailing shape of each file with OGB's vocabularies; -1 is the number of labels.

The files are in C order, npy version 1.0. `array_types` gives the types with other vocabularies.
"""

_KEYS: dict[str, type] = {
    **dict.fromkeys(("molecules", "atoms", "bonds", "rejected", "duplicates"), int),
    **dict.fromkeys(("labels", "atom_vocabulary", "bond_vocabulary"), list),
    **{"canonical": bool, "source": dict, "software": dict, "files": dict},
}
_AGAIN = "prepare it again into another folder"


class StoreError(ValueError):
    """A folder that is not a whole store: damaged, half-written, foreign or newer."""

    def __init__(self, folder: str | Path, what: str) -> None:
        super().__init__(f"store {str(folder)!r}: {what}")
        self.arguments = (folder, what)

    def __reduce__(self) -> tuple[type, tuple[str | Path, str]]:
        return type(self), self.arguments


def array_types(
    atom_vocabulary: list[int], bond_vocabulary: list[int], labels: int
) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """As `ARRAYS`, for these vocabularies and this number of labels."""
    types = {
        name: (np.dtype(dtype), tuple(labels if size == -1 else size for size in trailing))
        for name, (dtype, trailing) in ARRAYS.items()
    }
    types["atoms.npy"] = (FeatureCode(atom_vocabulary).dtype, ())
    types["bond_features.npy"] = (FeatureCode(bond_vocabulary).dtype, ())
    return types


def read_meta(folder: str | Path) -> dict[str, Any]:
    """What `meta.json` says; a `StoreError` if this is no finished store that we can read."""
    try:
        text = (Path(folder) / META).read_bytes()
    except FileNotFoundError:
        raise StoreError(folder, _why_no_meta(Path(folder))) from None
    except NotADirectoryError:
        raise StoreError(folder, "is a file, expected the folder of a store") from None
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(folder, f"{META} is not JSON ({error}); {_AGAIN}") from None
    _check_format(folder, meta)
    if (checksum := meta.pop("checksum", None)) not in (None, _checksum(meta)):
        raise StoreError(folder, f"{META} is damaged: {checksum!r} is not its checksum; {_AGAIN}")
    _check_keys(folder, meta)
    return meta


def meta_bytes(meta: dict[str, Any]) -> bytes:
    """`meta.json` as it is written: with `checksum`, the SHA-256 of everything else in it."""
    return json.dumps({**meta, "checksum": _checksum(meta)}, indent=1, sort_keys=True).encode()


def sha256_of(path: str | Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _checksum(meta: dict[str, Any]) -> str:
    text = json.dumps(meta, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _why_no_meta(folder: Path) -> str:
    if not folder.exists():
        return "there is no such folder; make it with `slicegraph prepare SOURCE --out FOLDER`"
    stems = tuple(name.split(".")[0] for name in (*ARRAYS, REJECTED, PARTS, LOCK))
    if any(entry.name.startswith(stems) for entry in folder.iterdir()):
        return (
            f"is half-written: it has no {META}, so preparing it did not end; "
            "run the same `slicegraph prepare` again, which goes on where it was"
        )
    return f"is no store: it has no {META}; `slicegraph prepare` makes one"


def _check_format(folder: str | Path, meta: Any) -> None:
    found = meta.get("format") if isinstance(meta, dict) else None
    if found != FORMAT:
        raise StoreError(folder, f"is foreign: {META} says format {found!r}, expected {FORMAT!r}")
    version = meta.get("version")
    if type(version) is int and version > VERSION:
        raise StoreError(
            folder, f"has version {version}, newer than {VERSION}; update slicegraph to read it"
        )
    if type(version) is not int or version != VERSION:
        raise StoreError(folder, f"has version {version!r}, expected {VERSION}; {_AGAIN}")


def _check_keys(folder: str | Path, meta: dict[str, Any]) -> None:
    for key, kind in _KEYS.items():
        value = meta.get(key)
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            raise StoreError(folder, f"{META} has {key} = {value!r}, expected {kind.__name__}")
    for key, kind in (("labels", str), ("atom_vocabulary", int), ("bond_vocabulary", int)):
        if any(type(value) is not kind for value in meta[key]):
            raise StoreError(folder, f"{META} has {key} = {meta[key]}, expected {kind.__name__}s")
    _check_files(folder, meta["files"])
    for key in ("atom_vocabulary", "bond_vocabulary"):
        try:
            FeatureCode(meta[key])
        except ValueError as error:
            raise StoreError(folder, f"{META} has a wrong {key} ({error}); {_AGAIN}") from None


def _check_files(folder: str | Path, files: dict[str, Any]) -> None:
    for name in {**dict.fromkeys((*ARRAYS, REJECTED)), **files}:
        entry = files.get(name)
        kinds = [type(entry.get(key)) for key in ("sha256", "bytes")] if type(entry) is dict else []
        if kinds != [str, int] or Path(name).name != name:
            raise StoreError(folder, f"{META} has no sha256 and bytes of {name!r}; {_AGAIN}")
