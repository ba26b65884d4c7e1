"""Opens the arrays of a store where they lie on disk, and tells whether they are undamaged."""

from pathlib import Path
from typing import Any

import numpy as np

from slicegraph.data.store.layout import StoreError, array_types, sha256_of

_REMEDY = "copy it again from where it is whole, or prepare it again into another folder"
_ENDS = {"atom_ptr.npy": "atoms.npy", "bond_ptr.npy": "bonds.npy", "smiles_ptr.npy": "smiles.npy"}


def check_sizes(folder: Path, meta: dict[str, Any]) -> None:
    """A `StoreError` if a file is missing, cut off or too long."""
    for name, entry in meta["files"].items():
        path = folder / name
        if not path.is_file():
            raise StoreError(folder, f"{name} is missing; {_REMEDY}")
        if (size := path.stat().st_size) != entry["bytes"]:
            what = "truncated" if size < entry["bytes"] else "too long"
            raise StoreError(
                folder, f"{name} is {what}: {size} bytes, expected {entry['bytes']}; {_REMEDY}"
            )


def check_contents(folder: Path, meta: dict[str, Any]) -> None:
    """A `StoreError` if a single bit of a file is not as it was written."""
    for name, entry in meta["files"].items():
        if (found := sha256_of(folder / name)) != entry["sha256"]:
            raise StoreError(
                folder,
                f"{name} is damaged: its SHA-256 is {found[:12]}..., "
                f"expected {entry['sha256'][:12]}...; {_REMEDY}",
            )


def open_arrays(folder: Path, meta: dict[str, Any]) -> dict[str, np.ndarray]:
    """Every array by its file name without the ending, mapped from disk and not read."""
    types = array_types(meta["atom_vocabulary"], meta["bond_vocabulary"], len(meta["labels"]))
    arrays = {name: _open_array(folder, name) for name in types}
    lengths = _lengths(meta, arrays)
    for name, (dtype, trailing) in types.items():
        expected, found = (lengths[name], *trailing), arrays[name]
        if found.dtype != dtype or found.shape != expected or not found.flags.c_contiguous:
            raise StoreError(
                folder,
                f"{name} holds {found.dtype} {list(found.shape)}, "
                f"expected {dtype} {list(expected)} in C order; {_REMEDY}",
            )
    return {name.removesuffix(".npy"): array for name, array in arrays.items()}


def check_pointers(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """A `StoreError` if molecules overlap, or lie outside the arrays."""
    for name, target in _ENDS.items():
        ptr, end = arrays[name.removesuffix(".npy")], len(arrays[target.removesuffix(".npy")])
        if int(ptr[0]) != 0 or int(ptr[-1]) != end:
            raise StoreError(
                folder,
                f"{name} goes from {int(ptr[0])} to {int(ptr[-1])}, "
                f"expected 0 to {end}, the length of {target}; {_REMEDY}",
            )
        if (descends := ptr[1:] < ptr[:-1]).any():
            i = int(descends.argmax())
            raise StoreError(
                folder,
                f"{name} must not descend, but {int(ptr[i + 1])} follows {int(ptr[i])} "
                f"at position {i}; {_REMEDY}",
            )


def _open_array(folder: Path, name: str) -> np.ndarray:
    try:
        array = np.load(folder / name, mmap_mode="r", allow_pickle=False)
        filled = array.offset + array.nbytes == (folder / name).stat().st_size
    except Exception as error:  # whatever a damaged header makes numpy raise
        raise StoreError(folder, f"{name} is no npy file ({error}); {_REMEDY}") from error
    if not filled:
        raise StoreError(folder, f"{name} is longer than its header says; {_REMEDY}")
    return array.view(np.ndarray)


def _lengths(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, int]:
    molecules = meta["molecules"]
    return {
        **{"atoms.npy": meta["atoms"], "bonds.npy": meta["bonds"]},
        **{"bond_features.npy": meta["bonds"], "smiles.npy": arrays["smiles.npy"].size},
        **dict.fromkeys(_ENDS, molecules + 1),
        **dict.fromkeys(("labels.npy", "rows.npy"), molecules),
    }
