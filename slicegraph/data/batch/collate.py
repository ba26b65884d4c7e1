"""From molecules of a store to the batch that a model takes."""

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from slicegraph.data.store.molecule_data import MoleculeData
from slicegraph.data.store.molecule_store import Indices, MoleculeArrays, MoleculeStore
from slicegraph.transforms import StructuralEncoding

ENCODING = StructuralEncoding()
"""What a batch is encoded with unless told otherwise: Graphormer's distances and paths."""


def collate(
    store: MoleculeStore, indices: Indices, encode: StructuralEncoding | None = ENCODING
) -> Batch:
    """A PyG ``Batch`` of these molecules of the store, in this order.

    It is what ``Batch.from_data_list([store[i] for i in indices])`` gives, less the ``smiles`` and
    with features of one byte, made all at once: it separates (``batch[0]``), moves and is pinned
    like any other.

    Args:
        store: the molecules.
        indices: the positions in ``store``, at least one.
        encode: writes distances, paths and degrees into the batch. None leaves them out, for
            models that sort and do not attend.

    Shapes:
        For ``B`` molecules with ``T`` atoms, ``E`` directed bonds and ``P`` pairs of atoms in all:

        - x: ``[T, F]``, edge_attr: ``[E, G]``, uint8 (uint16 if a vocabulary is above 256).
        - edge_index: ``[2, E]``, batch: ``[T]``, ptr: ``[B + 1]``, int64.
        - y: ``[B, L]``, float32, NaN where there is no label; absent if the store has no labels.
        - index: ``[B]``, int64, the positions in the whole store.
        - pair_distance: ``[P]``, uint8, pair_path: ``[P, hops]``, int16, in_degree, out_degree:
          ``[T]``, int16, as :class:`slicegraph.transforms.StructuralEncoding` says.

    Example:
        >>> collate(MoleculeStore("dataset/mini"), [3, 1, 4])
        MoleculeDataBatch(x=[26, 9], edge_index=[2, 52], ..., out_degree=[26])
    """
    arrays = store.batch(indices)
    if len(arrays.index) == 0:
        raise ValueError("collate: indices are empty, expected at least one molecule")
    batch = _batch(arrays)
    return batch if encode is None else encode(batch)


def _batch(arrays: MoleculeArrays) -> Batch:
    tensors = {name: torch.from_numpy(array) for name, array in arrays._asdict().items()}
    ptr, edge_ptr = tensors["ptr"], tensors.pop("edge_ptr")
    each = torch.arange(len(ptr))
    slices = {"x": ptr, "edge_index": edge_ptr, "edge_attr": edge_ptr, "y": each, "index": each}
    if arrays.y.shape[1] == 0:
        del tensors["y"], slices["y"]
    batch = Batch(_base_cls=MoleculeData, batch=_graph_of_atom(arrays.ptr), **tensors)
    zeros = torch.zeros(len(ptr) - 1, dtype=torch.int64)
    batch._num_graphs = len(ptr) - 1
    batch._slice_dict = slices
    batch._inc_dict = {**dict.fromkeys(slices, zeros), "edge_index": ptr[:-1]}
    return batch


def _graph_of_atom(ptr: np.ndarray) -> Tensor:
    return torch.from_numpy(np.arange(len(ptr) - 1).repeat(np.diff(ptr)))
