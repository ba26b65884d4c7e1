"""A torch `DataLoader` from a store to the batches that a model takes."""

from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Batch

from slicegraph.data.batch.batch_sampler import SizeGroupedBatchSampler
from slicegraph.data.batch.collate import ENCODING, collate
from slicegraph.data.store.molecule_store import MoleculeStore
from slicegraph.transforms import StructuralEncoding

_NAMED = 3


class BatchesOfStore(Dataset[Batch]):
    """The data set whose items are batches: ``batches[indices]`` is their :func:`collate`."""

    def __init__(self, store: MoleculeStore, encode: StructuralEncoding | None = ENCODING) -> None:
        self.store, self.encode = store, encode

    def __getitem__(self, indices: list[int]) -> Batch:
        return collate(self.store, indices, self.encode)

    def __len__(self) -> int:
        return len(self.store)


def molecule_loader(
    store: MoleculeStore,
    batch_size: int,
    *,
    encode: StructuralEncoding | None = ENCODING,
    shuffle: bool = True,
    seed: int = 0,
    rank: int = 0,
    world: int = 1,
    drop_last: bool = False,
    window: int = 32,
    parts: int = 1,
    num_workers: int = 0,
    pin_memory: bool | None = None,
    max_atoms: int | None = None,
    oversize: Literal["refuse", "keep"] = "refuse",
    **options: Any,
) -> DataLoader[Batch]:
    """Batches of the molecules of a store, as :func:`collate` makes them.

    Every iteration is an epoch with every molecule once; ``loader.sampler`` is the
    :class:`SizeGroupedBatchSampler`, whose ``set_epoch`` and ``resume`` choose where it begins.
    The batches do not depend on ``num_workers``, nor is torch's global random state touched.

    Args:
        store: the molecules; of a split, ``store[splits["train"]]``.
        batch_size: the molecules in a batch of this rank.
        encode: as in :func:`collate`.
        shuffle, seed, rank, world, drop_last, window, parts: as in
            :class:`SizeGroupedBatchSampler`.
        num_workers: how many processes make batches ahead; 0 makes them in this one.
        pin_memory: by default if there is a CUDA device.
        max_atoms: what to call oversize.
        oversize: ``"refuse"`` raises if there are such molecules, and names them; with ``"keep"``
            they are batched like any other. None is ever left out.
        options: other arguments of :class:`torch.utils.data.DataLoader`.

    Example:
        >>> loader = molecule_loader(MoleculeStore("dataset/mini"), batch_size=256, num_workers=2)
        >>> for batch in loader:
        ...     prediction = model(batch)
    """
    sizes = store.num_atoms
    _check_oversize(store, sizes, max_atoms, oversize)
    sampler = SizeGroupedBatchSampler(
        sizes, batch_size, shuffle, seed, rank, world, drop_last, window, parts
    )
    return batch_loader(BatchesOfStore(store, encode), sampler, num_workers, pin_memory, **options)


def batch_loader(
    batches: Dataset[Any],
    sampler: SizeGroupedBatchSampler,
    num_workers: int = 0,
    pin_memory: bool | None = None,
    **options: Any,
) -> DataLoader[Any]:
    """A loader of a data set whose items are batches, in the order of the sampler."""
    defaults: dict[str, Any] = {
        "pin_memory": torch.cuda.is_available() if pin_memory is None else pin_memory,
        "persistent_workers": num_workers > 0,
        "generator": torch.Generator().manual_seed(sampler.seed),
    }
    return DataLoader(
        batches,
        batch_size=None,
        sampler=sampler,
        num_workers=num_workers,
        collate_fn=_as_it_is,
        **(defaults | options),
    )


def _as_it_is(batch: Any) -> Any:
    return batch


def _check_oversize(
    store: MoleculeStore, sizes: np.ndarray, max_atoms: int | None, oversize: str
) -> None:
    if oversize not in ("refuse", "keep"):
        raise ValueError(f"molecule_loader: oversize = {oversize!r}, expected 'refuse' or 'keep'")
    if max_atoms is None or oversize == "keep":
        return
    large = np.flatnonzero(sizes > max_atoms)
    if len(large):
        named = [f"store[{i}] {store.smiles(i)!r} ({sizes[i]} atoms)" for i in large[:_NAMED]]
        raise ValueError(
            f"molecule_loader: {len(large)} of {len(store)} molecules have more than "
            f"max_atoms = {max_atoms}: {', '.join(named)}{', ...' if len(large) > _NAMED else ''}; "
            "keep them with oversize='keep', or leave them out with "
            f"store[store.num_atoms <= {max_atoms}]"
        )
