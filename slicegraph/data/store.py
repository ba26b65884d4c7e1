"""The store: a folder of memory-mapped arrays with the molecules of a data set.

A store is a set of ``.npy`` files and a `meta.json` that is written last: a folder that has it is
complete, and the checksums in it detect damage.
"""

import csv
import hashlib
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from slicegraph.data.smiles import FeatureCode, MoleculeGraph
from slicegraph.files import Checksums, sha256_of, sync, sync_folder, write_atomically

FORMAT = "slicegraph-molecules"
VERSION = 1
META = "meta.json"
REJECTED = "rejected.csv"
PARTS = "parts"  # the folder of what is not finished
LOCK = "prepare.lock"
CHECKSUMS = "checksums.json"  # those that were found when the store was opened, see `Checksums`
DIGESTS = "digests"  # eight bytes of a hash of each graph, while a store is made

# Type and trailing shape of each file with OGB's vocabularies, -1 for the number of labels; all in
# C order, npy version 1.0. `array_types` gives the types with other vocabularies.
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
SIZES = "sizes.npy"  # [N, M] the atoms of each molecule, only where rows have several

Molecule = tuple[int, str, MoleculeGraph, Sequence[float]]  # row, text, graph, labels
Indices = slice | Sequence[int] | Sequence[bool] | np.ndarray | Tensor

_POINTERS = {"atom_ptr": "atoms", "bond_ptr": "bonds", "smiles_ptr": "smiles"}
_COUNTED = {"molecules": "rows", "atoms": "atoms", "bonds": "bonds"}  # arrays, counted in meta.json
_KEYS: dict[str, type] = {
    **dict.fromkeys(("molecules", "atoms", "bonds", "rejected", "duplicates"), int),
    **dict.fromkeys(("labels", "atom_vocabulary", "bond_vocabulary"), list),
    **{"canonical": bool, "source": dict, "software": dict, "files": dict},
}
_FEATURES = ("columns", "descriptors", "counts")  # in the order of `MoleculeStore.features`
_AGAIN = "prepare it again into another folder"
_REMEDY = f"copy it again from where it is whole, or {_AGAIN}"


class StoreError(ValueError):
    """A folder that is not a whole store: damaged, half-written, foreign or newer."""

    def __str__(self) -> str:
        return f"store {str(self.args[0])!r}: {self.args[1]}"


class MoleculeData(Data):
    """A PyG graph whose `index`, its position in the store, PyG must not renumber in a batch."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 0 if key == "index" else super().__inc__(key, value, *args, **kwargs)


class MoleculeArrays(NamedTuple):
    """Molecules one after another; `T` atoms, `E` directed bonds and `B` molecules in all.

    A bond is two edges, one after the other: there and back, as in OGB. Of rows with M molecules,
    ``ptr [B * M + 1]`` has the first atom of each of them.
    """

    x: np.ndarray  # [T, F] uint8
    ptr: np.ndarray  # [B + 1] int64, the first atom of each molecule
    edge_index: np.ndarray  # [2, E] int64, atoms numbered over all molecules
    edge_attr: np.ndarray  # [E, G] uint8
    edge_ptr: np.ndarray  # [B + 1] int64, the first edge of each molecule
    y: np.ndarray  # [B, L] float32, NaN where there is no label
    index: np.ndarray  # type: ignore[assignment]  # [B] int64, the positions in the whole store
    bound: np.ndarray | None = None  # [B, L] int8, as `MoleculeStore.bounds`
    weight: np.ndarray | None = None  # [B] float32, of the rows in the training loss
    features: np.ndarray | None = None  # [B, F] float32, numbers of the molecule, NaN for a gap


class MoleculeStore:
    """The molecules that `slicegraph prepare` wrote into a folder.

    The arrays are mapped, not read: opening costs 8 bytes a molecule, and the processes of a
    machine that open the same folder share the memory. A pickled store is its folder, its
    positions and what :meth:`with_labels`, :meth:`with_weights` and :meth:`with_features` were
    given.

    Args:
        folder: where the molecules are.
        verify: compares the SHA-256 of every file with the one that was written. A file is read
            for this once, and again if its size or time changes. Sizes are compared in any case.
            Whatever is wrong is a :class:`StoreError`.

    ``store[i]`` is a molecule, a PyG ``Data`` of int64 features with its ``smiles``, its ``index``
    in the store and, if there are labels, ``y`` of shape ``[1, L]`` (and ``bound``, if there are
    bounds, ``weight [1]``, if there are weights, and ``features [1, F]``, if there are any).
    ``store[indices]`` (a slice, numbers, or a mask) is a store of these molecules; it copies
    nothing.

    Example:
        >>> store = MoleculeStore("dataset/mini")
        >>> store[0]
        MoleculeData(x=[9, 9], edge_index=[2, 18], edge_attr=[18, 3], index=[1], y=[1, 1], ...)
        >>> train = store[:10000]
    """

    def __init__(self, folder: str | Path, verify: bool = True) -> None:
        folder, meta = Path(folder).absolute(), read_meta(folder)
        checksums = Checksums(folder / CHECKSUMS)
        check_files(folder, meta, checksums.of if verify else None)
        self._open(folder, meta, None)
        if verify:
            self._check_pointers()
            checksums.save()

    def _open(self, folder: Path, meta: dict[str, Any], positions: np.ndarray | None) -> None:
        self.folder, self.meta = folder, meta
        self._arrays = _open_arrays(folder, meta)
        self._atom_code = FeatureCode(meta["atom_vocabulary"])
        self._bond_code = FeatureCode(meta["bond_vocabulary"])
        self._whole = positions is None
        self._given: dict[str, np.ndarray] = {}  # in place of files or in addition
        self.positions = np.arange(meta["molecules"]) if positions is None else positions

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int | Indices) -> Any:
        is_array = isinstance(index, np.ndarray | Tensor) and index.ndim
        if is_array or isinstance(index, slice | Sequence):
            view = object.__new__(MoleculeStore)
            view.__dict__ |= self.__dict__
            view._whole, view.positions = False, self._positions_of(cast(Indices, index))
            return view
        index = operator.index(cast(int, index))
        arrays = self.batch([index])
        data = MoleculeData(
            x=torch.from_numpy(arrays.x).long(),
            edge_index=torch.from_numpy(arrays.edge_index),
            edge_attr=torch.from_numpy(arrays.edge_attr).long(),
            index=torch.from_numpy(arrays.index),
        )
        if self.molecule_columns:
            data.ptr = torch.from_numpy(arrays.ptr)
        if self.meta["labels"]:
            data.y = torch.from_numpy(arrays.y)
        for name in ("bound", "weight", "features"):
            if (array := getattr(arrays, name)) is not None:
                data[name] = torch.from_numpy(array)
        if self._arrays["smiles"].size:
            data.smiles = self.smiles(index)
        return data

    def with_labels(
        self,
        labels: np.ndarray,
        bounds: np.ndarray | None = None,
        names: Sequence[str] | None = None,
    ) -> "MoleculeStore":
        """Return the same molecules with other labels; the files stay as they are.

        Args:
            labels: ``[N, L]``, converted to float32, NaN where there is none.
            bounds: ``[N, L]`` int8, as :attr:`bounds`; None if every label is exact.
            names: the names of the labels (default: those of the store).
        """
        names = self.label_names if names is None else list(names)
        expected = (len(self), len(names))
        for what, given in (("labels", labels), ("bounds", bounds)):
            if given is not None and given.shape != expected:
                shapes = f"have shape {list(given.shape)}, expected {list(expected)}"
                raise ValueError(f"MoleculeStore.with_labels: {what} {shapes}")
        arrays = {name: self._given[name] for name in self._given if name != "bounds"}
        arrays["labels"] = self._for_all(labels, np.nan, np.float32)
        if bounds is not None:
            arrays["bounds"] = self._for_all(bounds, 0, np.int8)
        return self._with(arrays, names)

    def with_weights(self, weights: np.ndarray) -> "MoleculeStore":
        """Return the same molecules with weights ``[N]`` of their rows in the training loss."""
        if weights.shape != (len(self),):
            shapes = f"have shape {list(weights.shape)}, expected {[len(self)]}"
            raise ValueError(f"MoleculeStore.with_weights: weights {shapes}")
        weights = self._for_all(weights, np.nan, np.float32)
        return self._with({**self._given, "weights": weights}, self.label_names)

    def with_features(
        self,
        columns: np.ndarray | None = None,
        descriptors: np.ndarray | None = None,
        counts: np.ndarray | None = None,
    ) -> "MoleculeStore":
        """Return the same molecules with numbers in addition to the present ones.

        Args:
            columns: ``[N, C]``, those of a table.
            descriptors, counts: those that were computed for all molecules of the folder.
        """
        given, found = dict(self._given), {"descriptors": descriptors, "counts": counts}
        if columns is not None:
            given["columns"] = self._for_all(columns, np.nan, np.float32)
        for name, array in found.items():
            if array is not None:
                given[name] = array
        return self._with(given, self.label_names)

    @property
    def features(self) -> np.ndarray | None:
        """``[N, F]`` float32, NaN for a gap: columns, descriptors and counts; None without any."""
        return self.numbers(*_FEATURES)

    def numbers(self, *kinds: str) -> np.ndarray | None:
        """The `features` of some of the kinds "columns", "descriptors" and "counts"."""
        return _joined([self._given[k][self.positions] for k in kinds if k in self._given])

    @property
    def molecule_columns(self) -> tuple[str, ...]:
        """The columns of the molecules of a row, if it has several."""
        return _molecule_columns(self.meta)

    @property
    def whole(self) -> "MoleculeStore":
        """All molecules of the folder, as their files have them."""
        return MoleculeStore(self.folder, verify=False)

    def _for_all(self, values: np.ndarray, empty: float, dtype: Any) -> np.ndarray:
        """Return values of these molecules as an array of all molecules of the folder."""
        found = np.full((self.meta["molecules"], *values.shape[1:]), empty, dtype)
        found[self.positions] = values
        return found

    def _with(self, given: dict[str, np.ndarray], names: list[str]) -> "MoleculeStore":
        view = self[:]
        view._whole = self._whole
        view._give(given, names)
        return view

    def _give(self, given: dict[str, np.ndarray], names: list[str]) -> None:
        self._given, self.meta = given, {**self.meta, "labels": names}
        if "labels" in given:
            self._arrays = {**self._arrays, "labels": given["labels"]}

    def batch(self, indices: Indices) -> MoleculeArrays:
        """Return the arrays of these molecules, in this order."""
        positions, files = self._positions_of(indices), self._arrays
        given = {name: array[positions] for name, array in self._given.items()}
        atoms, ptr = _ranges(files["atom_ptr"], positions)
        bonds, bond_ptr = _ranges(files["bond_ptr"], positions)
        ends = files["bonds"][bonds] + ptr[:-1].repeat(np.diff(bond_ptr))[:, None]
        if self.molecule_columns:
            ptr = np.concatenate([[0], files["sizes"][positions].cumsum(dtype=np.int64)])
        return MoleculeArrays(
            x=self._atom_code.decode(files["atoms"][atoms]),
            ptr=ptr,
            edge_index=np.stack([ends, ends[:, ::-1]]).reshape(2, -1),
            edge_attr=self._bond_code.decode(files["bond_features"][bonds]).repeat(2, axis=0),
            edge_ptr=2 * bond_ptr,
            y=files["labels"][positions],
            index=positions,
            bound=given.get("bounds"),
            weight=given.get("weights"),
            features=_joined([given[kind] for kind in _FEATURES if kind in given]),
        )

    def smiles(self, index: int) -> str:
        """Return the text that the molecule was made from; empty if it was made from none."""
        position = self._positions_of([index])[0]
        start, end = self._arrays["smiles_ptr"][position : position + 2]
        return self._arrays["smiles"][start:end].tobytes().decode()

    @property
    def labels(self) -> np.ndarray:
        """``[N, L]`` float32, NaN where there is none."""
        labels = self._arrays["labels"]
        return labels if self._whole else labels[self.positions]

    @property
    def bounds(self) -> np.ndarray | None:
        """``[N, L]`` int8, or None if every label is exact.

        1 where the true value is at least the label (">10"), -1 where it is at most the label
        ("<0.1"), 0 where the label is the value itself.
        """
        return self._given_array("bounds")

    @property
    def weights(self) -> np.ndarray | None:
        """``[N]`` float32, the weight of each row in the training loss, or None."""
        return self._given_array("weights")

    def _given_array(self, name: str) -> np.ndarray | None:
        found = self._given.get(name)
        return found if found is None or self._whole else found[self.positions]

    @property
    def label_names(self) -> list[str]:
        """The names of the ``L`` labels."""
        return list(self.meta["labels"])

    @property
    def rows(self) -> np.ndarray:
        """``[N]`` int64, the row of the source that each molecule came from, the first being 0."""
        return self._arrays["rows"][self.positions]

    @property
    def num_atoms(self) -> np.ndarray:
        """``[N]`` int64, how many atoms each molecule has."""
        ptr = self._arrays["atom_ptr"]
        return ptr[self.positions + 1] - ptr[self.positions]

    def _positions_of(self, indices: Indices) -> np.ndarray:
        if isinstance(indices, slice):
            return self.positions[indices].copy()
        numbers = np.asarray(indices)
        if numbers.size == 0 and numbers.dtype != bool:
            numbers = numbers.astype(np.int64)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iub":
            found = f"{numbers.dtype} {list(numbers.shape)}"
            raise TypeError(f"MoleculeStore: indices are {found}, expected integers or a mask")
        try:
            return self.positions[numbers]
        except IndexError as error:
            raise IndexError(f"MoleculeStore of {len(self)} molecules: {error}") from None

    def _check_pointers(self) -> None:
        """Raise a `StoreError` if molecules overlap, or lie outside the arrays."""
        for name, target in _POINTERS.items():
            ptr, end = self._arrays[name], len(self._arrays[target])
            descends = np.flatnonzero(ptr[1:] < ptr[:-1])
            if ptr[0] != 0 or ptr[-1] != end:
                problem = f"goes from {ptr[0]} to {ptr[-1]}, expected 0 to {end} as in {target}.npy"
            elif len(descends):
                i = descends[0]
                problem = f"must not descend, but {ptr[i + 1]} follows {ptr[i]} at position {i}"
            else:
                continue
            raise StoreError(self.folder, f"{name}.npy {problem}; {_REMEDY}")

    def __getstate__(self) -> dict[str, Any]:
        positions = None if self._whole else self.positions
        state = {"folder": self.folder, "files": self.meta["files"], "positions": positions}
        return state | {"given": self._given, "names": self.label_names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        folder, meta = state["folder"], read_meta(state["folder"])
        if meta["files"] != state["files"]:
            raise StoreError(folder, "was prepared again since it was pickled; open it again")
        check_files(folder, meta)
        self._open(folder, meta, state["positions"])
        self._give(state["given"], state["names"])

    def __repr__(self) -> str:
        return f"MoleculeStore({str(self.folder)!r}, {len(self)} of {self.meta['molecules']})"


def array_types(
    atom_vocabulary: Sequence[int],
    bond_vocabulary: Sequence[int],
    labels: int,
    molecules: int = 1,
) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Return `ARRAYS` for these vocabularies, this number of labels and of molecules in a row."""
    types = {
        name: (np.dtype(dtype), tuple(labels if size == -1 else size for size in trailing))
        for name, (dtype, trailing) in ARRAYS.items()
    }
    types["atoms.npy"] = (FeatureCode(atom_vocabulary).dtype, ())
    types["bond_features.npy"] = (FeatureCode(bond_vocabulary).dtype, ())
    return types if molecules == 1 else {**types, SIZES: (np.dtype("<i8"), (molecules,))}


def _molecule_columns(facts: dict[str, Any]) -> tuple[str, ...]:
    """Return the columns of the molecules from the facts of a store whose rows have several."""
    names = facts.get("settings", {}).get("smiles")
    return tuple(names) if isinstance(names, list) else ()


def _types_of(facts: dict[str, Any]) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    vocabularies = facts["atom_vocabulary"], facts["bond_vocabulary"]
    return array_types(*vocabularies, len(facts["labels"]), len(_molecule_columns(facts)) or 1)


def read_meta(folder: str | Path) -> dict[str, Any]:
    """Read and check `meta.json`; a `StoreError` if the folder is not a store that we can read."""
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
    if problem := next(_problems(meta), None):
        raise StoreError(folder, problem)
    return meta


def check_files(
    folder: Path, meta: dict[str, Any], sha256: Callable[[Path], str] | None = None
) -> None:
    """Raise a `StoreError` if a file is missing or has another size or, with `sha256`, hash."""
    for name, entry in meta["files"].items():
        path = folder / name
        if not path.is_file():
            raise StoreError(folder, f"{name} is missing; {_REMEDY}")
        if (size := path.stat().st_size) != entry["bytes"]:
            what = "truncated" if size < entry["bytes"] else "too long"
            what += f": {size} bytes, expected {entry['bytes']}"
            raise StoreError(folder, f"{name} is {what}; {_REMEDY}")
    if sha256 is None:
        return
    for name, entry in meta["files"].items():
        if (found := sha256(folder / name)) != entry["sha256"]:
            hashes = f"its SHA-256 is {found[:12]}..., expected {entry['sha256'][:12]}..."
            raise StoreError(folder, f"{name} is damaged: {hashes}; {_REMEDY}")


def pack(
    molecules: Sequence[Molecule],
    labels: int,
    atom_code: FeatureCode,
    bond_code: FeatureCode,
    in_a_row: int = 1,
) -> dict[str, np.ndarray]:
    """Return the arrays of molecules with so many labels, as `write_store` takes them.

    `in_a_row` is the number of molecules in a row.
    """

    def encode(code: FeatureCode, features: list[np.ndarray]) -> np.ndarray:
        return code.encode(np.concatenate([np.empty((0, len(code.vocabulary)), "u1"), *features]))

    rows, texts, graphs, values = zip(*molecules, strict=True) if molecules else ((),) * 4
    encoded = [text.encode() for text in texts]
    columns: dict[str, Any] = {
        "atoms.npy": encode(atom_code, [graph.atoms for graph in graphs]),
        "atom_ptr.npy": [len(graph.atoms) for graph in graphs],
        "bonds.npy": np.concatenate([np.empty((0, 2), "<u2"), *(graph.bonds for graph in graphs)]),
        "bond_features.npy": encode(bond_code, [graph.bond_features for graph in graphs]),
        "bond_ptr.npy": [len(graph.bonds) for graph in graphs],
        "labels.npy": np.array(values, "<f4").reshape(len(values), labels),
        "rows.npy": rows,
        "smiles.npy": np.frombuffer(b"".join(encoded), "u1"),
        "smiles_ptr.npy": list(map(len, encoded)),
        DIGESTS: np.frombuffer(b"".join(map(_digest, graphs)), "<u8"),
    }
    if in_a_row > 1:
        columns[SIZES] = np.array([graph.sizes for graph in graphs]).reshape(-1, in_a_row)
    types = array_types(atom_code.vocabulary, bond_code.vocabulary, labels, in_a_row)
    types[DIGESTS] = np.dtype("<u8"), ()
    return {name: np.ascontiguousarray(columns[name], types[name][0]) for name in columns}


def _digest(graph: MoleculeGraph) -> bytes:
    sizes = [size.to_bytes(8, "little") for size in (len(graph.atoms), *graph.sizes)]
    content = b"".join([*sizes, *map(np.ndarray.tobytes, graph[:3])])
    return hashlib.blake2b(content, digest_size=8).digest()


def write_store(
    folder: Path,
    parts: Iterable[tuple[dict[str, np.ndarray], list[tuple[int, str, str]]]],
    lengths: dict[str, int],
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Write the files of a store, `meta.json` last, with one part in memory at a time.

    A part is the arrays of consecutive molecules, as `pack` returns them (numbers of atoms, bonds
    and bytes in place of pointers), and their rejections: row, text, reason. `lengths` has the
    length of each array over all parts, `facts` the entries of `meta.json` but counts and
    checksums. Drafts are written to the folder `PARTS` of the store.
    """
    scratch = folder / PARTS
    types = _types_of(facts)
    ends: Counter[str] = Counter()
    with ExitStack() as stack:
        files: dict[str, IO] = {
            name: stack.enter_context(open(scratch / name, "wb")) for name in (*types, DIGESTS)
        }
        table = stack.enter_context(open(scratch / REJECTED, "w", newline="", encoding="utf-8"))
        rejected = csv.writer(table, lineterminator="\n")
        rejected.writerow(("row", "text", "reason"))
        for name, (dtype, trailing) in types.items():
            pointers = name.endswith("_ptr.npy")
            shape = (lengths[name] + pointers, *trailing)
            header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(files[name], header)
            files[name].write(bytes(dtype.itemsize if pointers else 0))
        for arrays, rejections in parts:
            for name in files:
                array = arrays[name]
                if name.endswith("_ptr.npy"):
                    array = array.cumsum(dtype=array.dtype) + ends[name]
                    ends[name] += int(arrays[name].sum())
                files[name].write(array.tobytes())
            rejected.writerows(rejections)
            ends[REJECTED] += len(rejections)
        for file in (*files.values(), table):
            sync(file)
    names = (*types, REJECTED)
    meta = {
        **{"format": FORMAT, "version": VERSION, **facts},
        **{name: lengths[f"{array}.npy"] for name, array in _COUNTED.items()},
        "rejected": ends[REJECTED],
        "duplicates": count_duplicates(scratch / DIGESTS),
        "files": {
            name: {"sha256": sha256_of(path), "bytes": path.stat().st_size}
            for name, path in ((name, scratch / name) for name in names)
        },
    }
    for name in names:
        (scratch / name).replace(folder / name)
    sync_folder(folder)
    content = json.dumps({**meta, "checksum": _checksum(meta)}, indent=1, sort_keys=True)
    write_atomically(scratch / META, [content.encode()])
    (scratch / META).replace(folder / META)
    sync_folder(folder)
    return meta


def count_duplicates(path: Path, at_once: int = 1 << 20) -> int:
    """Count the 8-byte digests in a file that occur before in it, in bounded memory."""
    if path.stat().st_size == 0:
        return 0
    digests = np.memmap(path, "<u8", "r")
    groups, duplicates = -(-len(digests) // at_once), 0
    for group in range(groups):
        blocks = np.split(digests, range(at_once, len(digests), at_once))
        found = np.concatenate([block[block % np.uint64(groups) == group] for block in blocks])
        duplicates += len(found) - len(np.unique(found))
    return duplicates


def _checksum(meta: dict[str, Any]) -> str:
    text = json.dumps(meta, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _why_no_meta(folder: Path) -> str:
    if not folder.exists():
        return "there is no such folder; make it with `slicegraph prepare SOURCE --out FOLDER`"
    stems = tuple(name.split(".")[0] for name in (*ARRAYS, REJECTED, PARTS, LOCK))
    if any(entry.name.startswith(stems) for entry in folder.iterdir()):
        remedy = "run the same `slicegraph prepare` again, which goes on where it was"
        return f"is half-written: it has no {META}, so preparing it did not end; {remedy}"
    return f"is not a store: it has no {META}; `slicegraph prepare` makes one"


def _problems(meta: Any) -> Iterator[str]:
    """Yield what is wrong with the content of `meta.json`, and take its checksum out of it."""
    found = meta.get("format") if isinstance(meta, dict) else None
    if found != FORMAT:
        yield f"is foreign: {META} has format {found!r}, expected {FORMAT!r}"
    version = meta.get("version")
    if type(version) is not int or version != VERSION:
        yield f"has version {version!r}, expected {VERSION}; update slicegraph, or {_AGAIN}"
    if (checksum := meta.pop("checksum", None)) not in (None, _checksum(meta)):
        yield f"{META} is damaged: {checksum!r} is not its checksum; {_AGAIN}"
    for key, kind in _KEYS.items():
        value = meta.get(key)
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            yield f"{META} has {key} = {value!r}, expected {kind.__name__}; {_AGAIN}"
    for key, kind in (("labels", str), ("atom_vocabulary", int), ("bond_vocabulary", int)):
        if any(type(value) is not kind for value in meta[key]):
            yield f"{META} has {key} = {meta[key]}, expected {kind.__name__}s; {_AGAIN}"
    for key in ("atom_vocabulary", "bond_vocabulary"):
        try:
            FeatureCode(meta[key])
        except ValueError as error:
            yield f"{META} has a wrong {key} ({error}); {_AGAIN}"
    for name in {**dict.fromkeys((*ARRAYS, REJECTED)), **meta["files"]}:
        entry = meta["files"].get(name)
        kinds = [type(entry.get(key)) for key in ("sha256", "bytes")] if type(entry) is dict else []
        if kinds != [str, int] or Path(name).name != name:
            yield f"{META} has no sha256 and bytes of {name!r}; {_AGAIN}"


def _open_arrays(folder: Path, meta: dict[str, Any]) -> dict[str, np.ndarray]:
    """Map every array, by its file name without the ending; nothing is read."""
    types = _types_of(meta)
    arrays = {}
    for name in types:
        path = folder / name
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            filled = mapped.offset + mapped.nbytes == path.stat().st_size
        except Exception as error:  # whatever a damaged header makes numpy raise
            raise StoreError(folder, f"{name} is not an npy file ({error}); {_REMEDY}") from error
        if not filled:
            raise StoreError(folder, f"{name} is longer than its header gives; {_REMEDY}")
        arrays[path.stem] = mapped.view(np.ndarray)
    molecules, bonds = meta["molecules"], meta["bonds"]
    lengths = {"atoms": meta["atoms"], "bonds": bonds, "bond_features": bonds}
    lengths |= {"labels": molecules, "rows": molecules, "smiles": arrays["smiles"].size}
    lengths |= dict.fromkeys(_POINTERS, molecules + 1)
    lengths |= {"sizes": molecules} if "sizes" in arrays else {}
    for name, length in lengths.items():
        dtype, trailing = types[f"{name}.npy"]
        expected, found = (length, *trailing), arrays[name]
        if found.dtype != dtype or found.shape != expected or not found.flags.c_contiguous:
            wanted = f"{found.dtype} {list(found.shape)}, expected {dtype} {list(expected)}"
            raise StoreError(folder, f"{name}.npy holds {wanted} in C order; {_REMEDY}")
    return arrays


def _joined(arrays: list[np.ndarray]) -> np.ndarray | None:
    return np.concatenate(arrays, axis=1, dtype=np.float32) if arrays else None


def _ranges(ptr: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of these molecules, which begin at `ptr`, and the pointers of the result."""
    starts, counts = ptr[positions], ptr[positions + 1] - ptr[positions]
    own = np.concatenate([[0], counts.cumsum()])
    return np.arange(own[-1]) + (starts - own[:-1]).repeat(counts), own
