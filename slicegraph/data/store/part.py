"""A few thousand molecules on their way to a store: in memory, and as a file that proves itself."""

import hashlib
import json
from collections.abc import Sequence
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from slicegraph.data.molecule.feature_code import FeatureCode
from slicegraph.data.molecule.molecule_graph import MoleculeGraph
from slicegraph.data.store.atomic_file import write_atomically
from slicegraph.data.store.layout import array_types

DIGESTS = "digests"
_MAGIC = b"slicegraph part 1\n"


class Rejection(NamedTuple):
    """A row that is not in the store, and why."""

    row: int
    text: str
    reason: str


class Molecule(NamedTuple):
    """A row that is."""

    row: int
    text: str
    graph: MoleculeGraph
    labels: Sequence[float]


class StorePart(NamedTuple):
    """The arrays of consecutive molecules, under the names they have in the store.

    They are as in `store_layout.ARRAYS`, but for the pointers: those are how many atoms, bonds and
    bytes each molecule has. `digests` (uint64) are eight bytes of a hash of each graph.
    """

    first_row: int
    rows: int
    arrays: dict[str, np.ndarray]
    rejections: list[Rejection]

    def lengths(self) -> dict[str, int]:
        return {name: len(array) for name, array in self.arrays.items()}


class Vocabularies(NamedTuple):
    """What the features of atoms and bonds can be, and how many labels there are."""

    atoms: tuple[int, ...]
    bonds: tuple[int, ...]
    labels: int

    def types(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        return array_types(list(self.atoms), list(self.bonds), self.labels)


def build_part(
    first_row: int,
    rows: int,
    molecules: Sequence[Molecule],
    rejections: list[Rejection],
    vocabularies: Vocabularies,
) -> StorePart:
    """The arrays of `molecules`, which are those of the given rows that were not rejected."""
    graphs = [molecule.graph for molecule in molecules]
    texts = [molecule.text.encode() for molecule in molecules]
    columns = {
        "atoms.npy": _encode(FeatureCode(vocabularies.atoms), [graph.atoms for graph in graphs]),
        "atom_ptr.npy": [len(graph.atoms) for graph in graphs],
        "bonds.npy": np.concatenate([np.empty((0, 2), "<u2"), *(graph.bonds for graph in graphs)]),
        "bond_features.npy": _encode(
            FeatureCode(vocabularies.bonds), [graph.bond_features for graph in graphs]
        ),
        "bond_ptr.npy": [len(graph.bonds) for graph in graphs],
        "labels.npy": np.array([molecule.labels for molecule in molecules], "<f4").reshape(
            len(molecules), vocabularies.labels
        ),
        "rows.npy": [molecule.row for molecule in molecules],
        "smiles.npy": np.frombuffer(b"".join(texts), "u1"),
        "smiles_ptr.npy": [len(text) for text in texts],
    }
    arrays = {
        name: np.ascontiguousarray(columns[name], dtype)
        for name, (dtype, _) in vocabularies.types().items()
    }
    arrays[DIGESTS] = np.array([graph_digest(graph) for graph in graphs], "<u8")
    return StorePart(first_row, rows, arrays, rejections)


def graph_digest(graph: MoleculeGraph) -> int:
    """Eight bytes of a hash of the graph: the same for the same atoms, bonds and features."""
    digest = hashlib.blake2b(len(graph.atoms).to_bytes(8, "little"), digest_size=8)
    for array in graph:
        digest.update(array.tobytes())
    return int.from_bytes(digest.digest(), "little")


def write_part(path: Path, job: str, part: StorePart) -> None:
    """Writes a file that holds its own checksum and the job it belongs to."""
    header = {
        "job": job,
        "first_row": part.first_row,
        "rows": part.rows,
        "arrays": {name: [a.dtype.str, a.shape] for name, a in part.arrays.items()},
        "rejections": part.rejections,
    }
    blocks = [json.dumps(header).encode() + b"\n", *(a.tobytes() for a in part.arrays.values())]
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    write_atomically(path, [_MAGIC, digest.hexdigest().encode() + b"\n", *blocks])


def read_part(path: Path, job: str) -> StorePart | None:
    """The part in the file; None if it is not there, not whole, or of another job."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    start = len(_MAGIC) + 65
    body = memoryview(content)[start:]
    proof = _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n"
    if content[:start] != proof:
        return None
    end = content.index(b"\n", start)
    header = json.loads(content[start:end])
    if header["job"] != job:
        return None
    arrays = _split(content, end + 1, header["arrays"])
    rejections = list(starmap(Rejection, header["rejections"]))
    return StorePart(header["first_row"], header["rows"], arrays, rejections)


def _split(content: bytes, start: int, types: dict[str, Any]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, (dtype, shape) in types.items():
        arrays[name] = np.ndarray(shape, dtype, content, start)
        start += arrays[name].nbytes
    return arrays


def _encode(code: FeatureCode, features: list[np.ndarray]) -> np.ndarray:
    empty = np.empty((0, len(code.vocabulary)), np.uint8)
    return code.encode(np.concatenate([empty, *features]))
