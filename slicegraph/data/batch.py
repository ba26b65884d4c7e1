"""From a store to the batches that a model takes: sampler, collate and loader."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from slicegraph.data.smiles import MoleculeGraph
from slicegraph.data.store import Indices, MoleculeArrays, MoleculeData, MoleculeStore
from slicegraph.transforms import StructuralEncoding

ENCODING = StructuralEncoding()  # of a batch by default: Graphormer's distances and paths
_ALIGNMENT = 64  # bytes: the tensors of a flat buffer begin at multiples of it


class SizeGroupedBatchSampler(Sampler[list[int]]):
    """Batches of molecules of similar size, so that little is padded, in a new order each epoch.

    All molecules are shuffled; then those of every ``window`` batches in a row are sorted by size
    and cut into batches; then the batches are shuffled. An epoch has every molecule exactly once.
    It depends on ``seed`` and the number of the epoch alone, and each iteration is another epoch.

    With several ranks a *global* batch of ``world * batch_size`` molecules is cut and dealt out:
    rank ``r`` gets every ``world``-th molecule of it from the ``r``-th on. So the ``b``-th batches
    of all ranks are together the ``b``-th batch of one process with ``world`` times the batch size,
    all ranks have equally many batches, and these have molecules of the same sizes.

    What does not fill a global batch is shared evenly with the batch before: the last two cut are
    the only smaller ones, and at least half full, so every rank gets something of each. With
    ``batch_size=1`` that may be impossible, and some ranks get two molecules in one of the batches.

    With ``parts`` each rank gets its share of a global batch in that many batches, one after the
    other, as for gradients that are summed before an update: ranks and parts together are dealt
    out to as ``world * parts`` ranks would be.

    Args:
        sizes: ``[N]``, the number of atoms of each molecule.
        batch_size: the molecules in a batch of one rank.
        shuffle: without it molecules keep their order, but for the sorting in each window.
        seed, rank, world: as for any other sampler; not negative. ``N`` must be at least
            ``world * parts``.
        drop_last: what does not fill a global batch is left out of this epoch.
        window: how many global batches to sort together; 0 sorts nothing.
        parts: in how many batches a rank gets its share of a global batch.

    Example:
        >>> sampler = SizeGroupedBatchSampler([3, 9, 4, 8], batch_size=2, shuffle=False)
        >>> list(sampler)
        [[0, 2], [3, 1]]
    """

    def __init__(
        self,
        sizes: np.ndarray | Tensor | list[int],
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        *,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
        window: int = 32,
        parts: int = 1,
    ) -> None:
        self.sizes = np.asarray(sizes)
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.rank, self.world, self.window, self.parts = rank, world, window, parts
        self._shares = world * parts
        self._check()
        counts = _batch_counts(len(self.sizes), batch_size * self._shares, self._shares, drop_last)
        self._ptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.epoch, self._first = 0, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; from its beginning, unless it was resumed."""
        if epoch != self.epoch:
            self.resume(epoch, 0)

    def resume(self, epoch: int, batch: int) -> None:
        """Skip the first `batch` batches of the epoch in the next iteration, and only in it."""
        if epoch < 0 or not 0 <= batch <= len(self):
            place = f"batch {batch} of epoch {epoch}, an epoch has {len(self)}"
            raise ValueError(f"SizeGroupedBatchSampler: cannot resume at {place}")
        self.epoch, self._first = epoch, batch

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, whether it was resumed or not."""
        return (len(self._ptr) - 1) * self.parts

    def __iter__(self) -> Iterator[list[int]]:
        # A DataLoader with workers makes two iterators an epoch and begins one of them, so the
        # epoch passes when the first batch is taken.
        molecules, batches = self._plan(self.epoch)
        turns = range(self._first, len(self))
        self.resume(self.epoch + 1, 0)
        for turn in turns:
            b, part = batches[turn // self.parts], turn % self.parts
            own = self._ptr[b] + self.rank + part * self.world
            yield molecules[own : self._ptr[b + 1] : self._shares].tolist()

    def _plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the molecules, global batch after global batch, and the order of these."""
        molecules, batches = np.arange(len(self.sizes)), np.arange(len(self._ptr) - 1)
        if self.shuffle:
            random = np.random.default_rng((self.seed, epoch))
            random.shuffle(molecules)
            random.shuffle(batches)
        molecules = molecules[: self._ptr[-1]]
        if self.window:
            window = (np.arange(len(batches)) // self.window).repeat(np.diff(self._ptr))
            molecules = molecules[np.lexsort((self.sizes[molecules], window))]
        return molecules, batches

    def _check(self) -> None:
        name, count = "SizeGroupedBatchSampler", len(self.sizes)
        least_values = {"batch_size": 1, "world": 1, "parts": 1, "seed": 0, "window": 0}
        for argument, least in least_values.items():
            if (value := getattr(self, argument)) < least:
                raise ValueError(f"{name}: {argument} = {value}, expected at least {least}")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"{name}: rank = {self.rank} is not in 0..{self.world - 1}")
        if count < self._shares:
            shares = f"{self.world} ranks of {self.parts} parts; use at most {count} in all"
            raise ValueError(f"{name}: {count} molecules cannot be dealt out to {shares}")


def _batch_counts(molecules: int, batch: int, shares: int, drop_last: bool) -> list[int]:
    """Return how many molecules each global batch has, with at least one for each share."""
    full, rest = divmod(molecules, batch)
    if drop_last and not full:
        problem = f"with drop_last {molecules} molecules fill no batch of {batch}"
        raise ValueError(f"SizeGroupedBatchSampler: {problem}; use a smaller batch_size")
    if drop_last or not rest:
        return [batch] * full
    if not full:
        return [rest]
    shared = batch + rest
    last = [shared - shared // 2, shared // 2] if shared // 2 >= shares else [shared]
    return [batch] * (full - 1) + last


def collate(
    store: MoleculeStore, indices: Indices, encode: BaseTransform | None = ENCODING
) -> Batch:
    """Make a PyG ``Batch`` of these molecules of the store, in this order.

    It is what ``Batch.from_data_list([store[i] for i in indices])`` gives, less the ``smiles`` and
    with features of one byte, made all at once: it separates (``batch[0]``), moves and is pinned
    like any other, all tensors together as in :class:`FlatBatch`.

    Where rows have several molecules, ``ptr`` and ``batch`` are of the molecules, those of a row
    one after the other; ``y`` and ``index`` are of the rows.

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
        - bound: ``[B, L]``, int8, as :attr:`MoleculeStore.bounds`; weight: ``[B]``, float32, as
          :attr:`MoleculeStore.weights`; features: ``[B, F]``, float32, as
          :attr:`MoleculeStore.features`; each is absent if the store has none.
        - index: ``[B]``, int64, the positions in the whole store.
        - max_nodes: a Python integer, the atoms of the largest molecule: on a GPU a model needs it
          to pad without waiting.
        - pair_distance: ``[P]``, uint8, pair_path: ``[P, hops]``, int16, in_degree, out_degree:
          ``[T]``, int16, as in :class:`slicegraph.transforms.StructuralEncoding`.

    Example:
        >>> collate(MoleculeStore("dataset/mini"), [3, 1, 4])
        MoleculeDataFlatBatch(x=[26, 9], edge_index=[2, 52], ..., out_degree=[26])
    """
    arrays = store.batch(indices)
    if len(arrays.index) == 0:
        raise ValueError("collate: indices are empty, expected at least one molecule")
    if _pyg_is_known():
        batch = _joined(arrays)
    else:
        view = store[indices]
        left_out = ["smiles", "ptr"]
        batch = Batch.from_data_list([view[i] for i in range(len(view))], exclude_keys=left_out)
        batch.ptr = torch.from_numpy(arrays.ptr)
        batch.batch = torch.repeat_interleave(batch.ptr.diff())
    batch.max_nodes = int(np.diff(arrays.ptr).max())
    return batch if encode is None else encode(batch)


class _Flat(NamedTuple):
    """Tensors as views of one buffer of bytes."""

    buffer: Tensor  # [bytes] uint8
    places: dict[Any, tuple[torch.dtype, tuple[int, ...], int]]  # type, shape and first byte

    @classmethod
    def of(cls, tensors: dict[Any, Tensor]) -> "_Flat":
        places, end = {}, 0
        for key, value in tensors.items():
            places[key] = (value.dtype, tuple(value.shape), end)
            end += -(-value.nbytes // _ALIGNMENT) * _ALIGNMENT
        found = cls(torch.empty(end, dtype=torch.uint8), places)
        for key, view in found.views().items():
            view.copy_(tensors[key])
        return found

    def views(self) -> dict[Any, Tensor]:
        found = {}
        for key, (dtype, shape, first) in self.places.items():
            size = math.prod(shape) * dtype.itemsize
            found[key] = self.buffer[first : first + size].view(dtype).view(shape)
        return found

    def holds(self, tensors: dict[Any, Tensor]) -> bool:
        """Return whether these tensors are its views, all of them."""
        start = self.buffer.data_ptr()
        return tensors.keys() == self.places.keys() and all(
            (value.dtype, tuple(value.shape)) == self.places[key][:2]
            and (value.numel() == 0 or value.data_ptr() == start + self.places[key][2])
            and value.is_contiguous()
            for key, value in tensors.items()
        )


class FlatBatch(Batch):
    """A PyG ``Batch`` that is sent by a process, pinned and moved to a device as one tensor.

    A batch of molecules has a dozen tensors, and as many again for separating it. Each of them
    would be a file between two processes, and a copy on the way to a GPU. So they are put into one
    buffer of bytes there, and those that arrive are views of it; an attribute that was changed
    since is put into a new buffer. A batch that the buffer cannot hold, with other objects than
    tensors and plain values or with tensors that need a gradient, is treated by PyG.
    """

    def to(self, device: Any, *names: str, non_blocking: bool = False) -> Any:
        """Move all attributes in one copy, or only those with the given names."""
        flat = None
        if not names and isinstance(device, str | int | torch.device):
            flat = self._packed(torch.device(device))
        if flat is None:
            return super().to(device, *names, non_blocking=non_blocking)
        return self._hold(flat._replace(buffer=flat.buffer.to(device, non_blocking=non_blocking)))

    def cuda(self, device: Any = None, *names: str, non_blocking: bool = False) -> Any:
        """Move to a CUDA device, as :meth:`to`."""
        return self.to("cuda" if device is None else device, *names, non_blocking=non_blocking)

    def pin_memory(self, *names: str) -> Any:
        """Copy all attributes to page-locked memory at once, or those with the given names."""
        flat = None if names else self._packed()
        if flat is None:
            return super().pin_memory(*names)
        return self._hold(flat._replace(buffer=flat.buffer.pin_memory()))

    def __reduce__(self) -> Any:
        attributes, plain = self._split()
        if attributes is None:
            return super().__reduce__()
        parts = ("", attributes), ("slice", self._slice_dict), ("inc", self._inc_dict)
        tensors = {(kind, name): value for kind, part in parts for name, value in part.items()}
        # A tensor with several names is sent once, under the first.
        first: dict[int, tuple[str, str]] = {}
        names = {key: first.setdefault(id(value), key) for key, value in tensors.items()}
        flat = _Flat.of({key: tensors[key] for key in first.values()})
        return _arrived, (type(self).__bases__, flat, names, plain)

    def _split(self) -> tuple[dict[str, Tensor] | None, dict[str, Any]]:
        """Return the attributes that are tensors, None if no buffer can hold them, and the rest."""
        hidden = vars(self._store)
        plain = {name: hidden[name] for name in hidden if name not in _NOT_PLAIN}
        tensors: dict[str, Tensor] = {}
        for name, value in self._store.items():
            if type(value) is Tensor and value.layout == torch.strided and not value.requires_grad:
                tensors[name] = value
            elif value is None or type(value) in (bool, int, float, str):
                plain[name] = value
            else:
                return None, plain
        return (tensors if len({value.device for value in tensors.values()}) == 1 else None), plain

    def _packed(self, target: torch.device | None = None) -> _Flat | None:
        """Return the buffer of the attributes as they are now; None if they are on the target."""
        tensors, _ = self._split()
        if tensors is None or next(iter(tensors.values())).device == target:
            return None
        known = vars(self._store).get(_BUFFER)
        if known is not None and known.holds(tensors):
            return known
        return _Flat.of(tensors) if next(iter(tensors.values())).is_cpu else None

    def _hold(self, flat: _Flat) -> "FlatBatch":
        for name, value in flat.views().items():
            self[name] = value
        setattr(self, _BUFFER, flat)
        return self


_BUFFER = "_flat"
_NOT_PLAIN = ("_mapping", "_parent", "_slice_dict", "_inc_dict", _BUFFER)


def _arrived(bases: Any, flat: _Flat, names: dict[Any, Any], plain: dict[str, Any]) -> FlatBatch:
    """Return a batch whose tensors are views of the buffer that was sent."""
    batch, views = bases[0](_base_cls=bases[1]), flat.views()
    tables: dict[str, dict[str, Tensor]] = {"": {}, "slice": {}, "inc": {}}
    for (kind, name), first in names.items():
        tables[kind][name] = views[first]
    for name, value in (tables[""] | plain).items():
        setattr(batch, name, value)
    batch._slice_dict, batch._inc_dict = tables["slice"], tables["inc"]
    # The attributes are in front: only that part of the buffer is pinned and moved.
    places = {key[1]: place for key, place in flat.places.items() if not key[0]}
    end = min((place[2] for key, place in flat.places.items() if key[0]), default=None)
    setattr(batch, _BUFFER, _Flat(flat.buffer[:end], places))
    return batch


@lru_cache
def _pyg_is_known() -> bool:
    """Return whether PyG has the private names by which a batch separates into its graphs."""
    batch = Batch.from_data_list([MoleculeData(x=torch.zeros(1, 1))])
    known = all(hasattr(batch, name) for name in ("_num_graphs", "_slice_dict", "_inc_dict"))
    return known and isinstance(Batch(_base_cls=MoleculeData), MoleculeData)


def _joined(arrays: MoleculeArrays) -> Batch:
    found = {name: array for name, array in arrays._asdict().items() if array is not None}
    tensors = {name: torch.from_numpy(array) for name, array in found.items()}
    ptr, edge_ptr = tensors["ptr"], tensors.pop("edge_ptr")
    each = torch.arange(len(arrays.index) + 1)
    rows = ptr[:: (len(ptr) - 1) // len(arrays.index)]  # which may have several molecules each
    slices = {"x": rows, "edge_index": edge_ptr, "edge_attr": edge_ptr, "y": each, "index": each}
    if arrays.y.shape[1] == 0:
        del tensors["y"], slices["y"]
    slices |= {name: each for name in ("bound", "weight", "features") if name in tensors}
    graph_of_atom = torch.from_numpy(np.arange(len(ptr) - 1).repeat(np.diff(arrays.ptr)))
    batch = FlatBatch(_base_cls=MoleculeData, batch=graph_of_atom, **tensors)
    zeros = torch.zeros(len(rows) - 1, dtype=torch.int64)
    batch._num_graphs = len(rows) - 1
    batch._slice_dict = slices
    batch._inc_dict = {**dict.fromkeys(slices, zeros), "edge_index": rows[:-1]}
    return batch


def collate_graphs(graphs: Sequence[MoleculeGraph]) -> Data:
    """Join graphs in memory into one `Data` with the attributes that a model reads.

    Example:
        >>> collate_graphs([read_smiles("CCO"), read_smiles("C")])
        Data(x=[4, 9], edge_index=[2, 4], edge_attr=[4, 3], ptr=[3], max_nodes=3)
    """
    if not graphs:
        raise ValueError("collate_graphs: there are no graphs, expected at least one")
    rows = np.concatenate([[0], np.cumsum([len(graph.atoms) for graph in graphs])])
    edges = [graph.directed() for graph in graphs]
    numbered = [index + first for (index, _), first in zip(edges, rows[:-1], strict=True)]
    sizes = [size for graph in graphs for size in graph.sizes or (len(graph.atoms),)]
    ptr = np.concatenate([[0], np.cumsum(sizes)])  # a row may have several molecules
    return Data(
        x=torch.from_numpy(np.concatenate([graph.atoms for graph in graphs])),
        edge_index=torch.from_numpy(np.concatenate(numbered, axis=1)),
        edge_attr=torch.from_numpy(np.concatenate([features for _, features in edges])),
        ptr=torch.from_numpy(ptr),
        max_nodes=int(np.diff(ptr).max()),
    )


class _BatchesOfStore(Dataset[Batch]):
    """The data set whose items are batches: ``batches[indices]`` is their :func:`collate`."""

    def __init__(self, store: MoleculeStore, encode: BaseTransform | None) -> None:
        self.store, self.encode = store, encode

    def __getitem__(self, indices: list[int]) -> Batch:
        return collate(self.store, indices, self.encode)

    def __len__(self) -> int:
        return len(self.store)


def molecule_loader(
    store: MoleculeStore,
    batch_size: int,
    *,
    encode: BaseTransform | None = ENCODING,
    shuffle: bool = True,
    seed: int = 0,
    rank: int = 0,
    world: int = 1,
    drop_last: bool = False,
    window: int = 32,
    parts: int = 1,
    num_workers: int = 0,
    **options: Any,
) -> DataLoader[Batch]:
    """Load batches of the molecules of a store, as :func:`collate` makes them.

    Every iteration is an epoch with every molecule once, however large; ``loader.sampler`` is the
    :class:`SizeGroupedBatchSampler`, whose ``set_epoch`` and ``resume`` choose where it begins.
    The batches do not depend on ``num_workers``, nor is torch's global random state touched.

    Args:
        store: the molecules; of a split, ``store[splits["train"]]``.
        batch_size: the molecules in a batch of this rank.
        encode: as in :func:`collate`.
        shuffle, seed, rank, world, drop_last, window, parts: as in
            :class:`SizeGroupedBatchSampler`.
        num_workers: how many processes make batches ahead; 0 makes them in this one.
        options: other arguments of :class:`torch.utils.data.DataLoader`; ``pin_memory`` is true by
            default if there is a CUDA device.

    Example:
        >>> loader = molecule_loader(MoleculeStore("dataset/mini"), batch_size=256, num_workers=2)
        >>> for batch in loader:
        ...     prediction = model(batch)
    """
    chosen: dict[str, Any] = {"rank": rank, "world": world, "parts": parts}
    chosen |= {"drop_last": drop_last, "window": window}
    sampler = SizeGroupedBatchSampler(store.num_atoms, batch_size, shuffle, seed, **chosen)
    return batch_loader(_BatchesOfStore(store, encode), sampler, num_workers, **options)


def batch_loader(
    batches: Dataset[Any], sampler: SizeGroupedBatchSampler, num_workers: int, **options: Any
) -> DataLoader[Any]:
    """Load a data set whose items are batches, in the order of the sampler."""
    defaults: dict[str, Any] = {
        **{"batch_size": None, "sampler": sampler, "collate_fn": _unchanged},
        **{"num_workers": num_workers, "persistent_workers": num_workers > 0},
        "pin_memory": torch.cuda.is_available(),
        "generator": torch.Generator().manual_seed(sampler.seed),
    }
    return DataLoader(batches, **(defaults | options))


def _unchanged(batch: Any) -> Any:
    return batch
