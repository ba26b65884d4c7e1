"""Writes a store from lists, straight from the table of its format and without the package."""

import hashlib
import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

Graph = tuple[Sequence[Sequence[int]], Sequence[tuple[int, int]], Sequence[Sequence[int]]]
"""Atom features, bonds (each once), bond features."""

ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
ATOM_BITS = (7, 3, 4, 4, 4, 3, 3, 1, 1)
BOND_SIZES = (5, 6, 2)
BOND_BITS = (3, 3, 1)


def random_graph(atoms: int, bonds: int, seed: int) -> Graph:
    random = np.random.default_rng(seed)
    ends = random.integers(0, atoms, (bonds, 2))
    return (
        random.integers(0, ATOM_SIZES, (atoms, 9)).tolist(),
        [(int(i), int(j)) for i, j in ends],
        random.integers(0, BOND_SIZES, (bonds, 3)).tolist(),
    )


def chain(atoms: int) -> Graph:
    """Carbon atoms in a row, joined by single bonds."""
    ends = [(i, i + 1) for i in range(atoms - 1)]
    return [[5, 0, 4, 5, 3, 0, 2, 0, 0]] * atoms, ends, [[0, 0, 0]] * len(ends)


def packed(features: Sequence[int], bits: Sequence[int]) -> int:
    starts = [0, *accumulate(bits)]
    return sum(value << start for value, start in zip(features, starts, strict=False))


def offsets(counts: Sequence[int]) -> np.ndarray:
    return np.array([0, *accumulate(counts)], dtype="<i8")


def write_store(
    folder: Path,
    graphs: Sequence[Graph],
    labels: Sequence[Sequence[float]] | None = None,
    smiles: Sequence[str] | None = None,
    names: Sequence[str] = ("gap",),
) -> Path:
    """A whole store; without labels there are none, without SMILES they are empty."""
    names = list(names) if labels is not None else []
    texts = [text.encode() for text in smiles or [""] * len(graphs)]
    bonds = [bond for graph in graphs for bond in graph[1]]
    arrays = {
        "atoms": np.array([packed(a, ATOM_BITS) for g in graphs for a in g[0]], dtype="<u4"),
        "atom_ptr": offsets([len(graph[0]) for graph in graphs]),
        "bonds": np.array(bonds, dtype="<u2").reshape(-1, 2),
        "bond_features": np.array([packed(b, BOND_BITS) for g in graphs for b in g[2]], dtype="u1"),
        "bond_ptr": offsets([len(graph[1]) for graph in graphs]),
        "labels": np.array(labels or [], dtype="<f4").reshape(len(graphs), len(names)),
        "rows": np.arange(len(graphs), dtype="<i8"),
        "smiles": np.frombuffer(b"".join(texts), dtype="u1"),
        "smiles_ptr": offsets([len(text) for text in texts]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "rejected.csv").write_text("row,text,reason\n")
    write_meta(folder, counts(arrays, names))
    return folder


def counts(arrays: dict[str, np.ndarray], names: Sequence[str]) -> dict[str, Any]:
    sizes = {"molecules": "rows", "atoms": "atoms", "bonds": "bonds"}
    return {
        **{key: len(arrays[name]) for key, name in sizes.items()},
        **{"rejected": 0, "duplicates": 0, "labels": list(names), "canonical": True},
        **{"atom_vocabulary": list(ATOM_SIZES), "bond_vocabulary": list(BOND_SIZES)},
        "source": {"name": "small", "sha256": hashlib.sha256(b"").hexdigest(), "bytes": 0},
        "software": {"slicegraph": "0", "rdkit": "0", "numpy": "0", "python": "0"},
    }


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """`meta.json` with the checksums of the files as they are now."""
    files = {
        path.name: {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
        }
        for path in sorted(folder.iterdir())
        if path.name != "meta.json"
    }
    write_json(folder, {"format": "slicegraph-molecules", "version": 1, **meta, "files": files})


def write_json(folder: Path, meta: dict[str, Any]) -> None:
    text = json.dumps(meta, sort_keys=True, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    (folder / "meta.json").write_text(json.dumps({**meta, "checksum": checksum}, indent=1))
