"""Millions of molecules on disk, read one by one or by the batch."""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from slicegraph.data.molecule.feature_code import FeatureCode
from slicegraph.data.store.files import check_contents, check_pointers, check_sizes, open_arrays
from slicegraph.data.store.layout import StoreError, read_meta
from slicegraph.data.store.molecule_data import MoleculeData

Indices = slice | Sequence[int] | Sequence[bool] | np.ndarray | Tensor


class MoleculeArrays(NamedTuple):
    """Molecules one after another; `T` atoms, `E` directed bonds and `B` molecules in all.

    A bond is two edges, one after the other: there and back, as in OGB.
    """

    x: np.ndarray  # [T, F] uint8
    ptr: np.ndarray  # [B + 1] int64, the first atom of each molecule
    edge_index: np.ndarray  # [2, E] int64, atoms numbered over all molecules
    edge_attr: np.ndarray  # [E, G] uint8
    edge_ptr: np.ndarray  # [B + 1] int64, the first edge of each molecule
    y: np.ndarray  # [B, L] float32, NaN where there is no label
    index: np.ndarray  # type: ignore[assignment]  # [B] int64, the positions in the whole store


class MoleculeStore:
    """The molecules that `slicegraph prepare` wrote into a folder.

    The arrays are mapped, not read: opening costs 8 bytes a molecule, and the processes of a machine that
    open the same folder share what was read. A pickled store is its folder and its positions.

    Args:
        folder: where the molecules are.
        verify: reads every file once and compares its SHA-256 with the one that was written. Sizes
            are compared in any case. Whatever is wrong is a :class:`StoreError`.

    ``store[i]`` is a molecule, a PyG ``Data`` of int64 features with its ``smiles``, its ``index``
    in the store and, if there are labels, ``y`` of shape ``[1, L]``. ``store[indices]`` (a slice,
    numbers, or a mask) is a store of these molecules; it copies nothing.

    Example:
        >>> store = MoleculeStore("dataset/mini")
        >>> store[0]
        MoleculeData(x=[9, 9], edge_index=[2, 18], edge_attr=[18, 3], index=[1], y=[1, 1], smiles='...')
        >>> train = store[:10000]
    """  # noqa: E501

    def __init__(self, folder: str | Path, verify: bool = True) -> None:
        folder, meta = Path(folder).absolute(), read_meta(folder)
        check_sizes(folder, meta)
        if verify:
            check_contents(folder, meta)
        self._open(folder, meta)
        if verify:
            check_pointers(folder, self._arrays)
        self._choose(None)

    def _open(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder, self.meta = folder, meta
        self._arrays = open_arrays(folder, meta)
        self._atom_code = FeatureCode(meta["atom_vocabulary"])
        self._bond_code = FeatureCode(meta["bond_vocabulary"])

    def _choose(self, positions: np.ndarray | None) -> None:
        self._whole = positions is None
        self.positions = np.arange(self.meta["molecules"]) if positions is None else positions

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> MoleculeData: ...

    @overload
    def __getitem__(self, index: Indices) -> "MoleculeStore": ...

    def __getitem__(self, index: int | Indices) -> "MoleculeData | MoleculeStore":
        if isinstance(index, slice):
            return self._view(self.positions[index])
        if isinstance(index, Sequence) or (isinstance(index, np.ndarray | Tensor) and index.ndim):
            return self._view(self._positions_of(index))
        return self._molecule(operator.index(index))

    def batch(self, indices: Indices) -> MoleculeArrays:
        """The arrays of these molecules, in this order."""
        positions = self._positions_of(indices)
        files = self._arrays
        atoms, ptr = _rows_of(files["atom_ptr"], positions)
        bonds, bond_ptr = _rows_of(files["bond_ptr"], positions)
        ends = files["bonds"][bonds] + ptr[:-1].repeat(np.diff(bond_ptr))[:, None]
        return MoleculeArrays(
            x=self._atom_code.decode(files["atoms"][atoms]),
            ptr=ptr,
            edge_index=np.stack([ends, ends[:, ::-1]]).reshape(2, -1),
            edge_attr=self._bond_code.decode(files["bond_features"][bonds]).repeat(2, axis=0),
            edge_ptr=2 * bond_ptr,
            y=files["labels"][positions],
            index=positions,
        )

    def smiles(self, index: int) -> str:
        """The text that the molecule was made from; empty if it was made from none."""
        position = self._positions_of([index])[0]
        start, end = self._arrays["smiles_ptr"][position : position + 2]
        return self._arrays["smiles"][start:end].tobytes().decode()

    @property
    def labels(self) -> np.ndarray:
        """``[N, L]`` float32, NaN where there is none."""
        labels = self._arrays["labels"]
        return labels if self._whole else labels[self.positions]

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

    def _molecule(self, index: int) -> MoleculeData:
        arrays = self.batch([index])
        data = MoleculeData(
            x=torch.from_numpy(arrays.x).long(),
            edge_index=torch.from_numpy(arrays.edge_index),
            edge_attr=torch.from_numpy(arrays.edge_attr).long(),
            index=torch.from_numpy(arrays.index),
        )
        if self.meta["labels"]:
            data.y = torch.from_numpy(arrays.y)
        if self._arrays["smiles"].size:
            data.smiles = self.smiles(index)
        return data

    def _positions_of(self, indices: Indices) -> np.ndarray:
        if isinstance(indices, slice):
            return self.positions[indices].copy()
        numbers = np.asarray(indices)
        if numbers.size == 0 and numbers.dtype != bool:
            numbers = numbers.astype(np.int64)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iub":
            raise TypeError(
                f"MoleculeStore: indices are {numbers.dtype} {list(numbers.shape)}, "
                "expected a row of integers, or a mask"
            )
        try:
            return self.positions[numbers]
        except IndexError as error:
            raise IndexError(f"MoleculeStore of {len(self)} molecules: {error}") from None

    def _view(self, positions: np.ndarray) -> "MoleculeStore":
        view = object.__new__(MoleculeStore)
        view.__dict__ |= self.__dict__
        view._choose(positions)
        return view

    def __getstate__(self) -> dict[str, Any]:
        positions = None if self._whole else self.positions
        return {"folder": self.folder, "files": self.meta["files"], "positions": positions}

    def __setstate__(self, state: dict[str, Any]) -> None:
        folder, meta = state["folder"], read_meta(state["folder"])
        if meta["files"] != state["files"]:
            raise StoreError(folder, "was prepared anew since this store was pickled; open it anew")
        check_sizes(folder, meta)
        self._open(folder, meta)
        self._choose(state["positions"])

    def __repr__(self) -> str:
        return f"MoleculeStore({str(self.folder)!r}, {len(self)} of {self.meta['molecules']})"


def _rows_of(ptr: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of these molecules in an array whose first rows are `ptr`, and their own first."""
    starts, counts = ptr[positions], ptr[positions + 1] - ptr[positions]
    own = np.concatenate([[0], counts.cumsum()])
    return np.arange(own[-1]) + (starts - own[:-1]).repeat(counts), own
