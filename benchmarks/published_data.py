"""The data sets of `benchmarks.published`: how each is read, what is predicted, and its score.

All graphs are held in memory as numpy arrays. Tables of SMILES are read once and kept as an npz
file in the folder of the runs.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data

from slicegraph.data.datasets import source
from slicegraph.data.molecules import morgan_counts
from slicegraph.data.smiles import SmilesError, read_smiles
from slicegraph.data.splits import random_split
from slicegraph.metrics import Evaluator, counted, evaluator
from slicegraph.models.graph import pair_rows
from slicegraph.ops.paths import random_walks
from slicegraph.transforms import RingNodes


@dataclass(frozen=True)
class Graphs:
    """One split in memory: graph ``g`` has nodes ``ptr[g]`` and edges ``edge_ptr[g]`` onwards.

    ``walks`` ``[T, K]``, if they were computed, are the probabilities that a random walk of 1, 2,
    ... steps leads from a node back to itself (RWSE). ``counts`` ``[N, 1024]``, if the table has
    SMILES, are the Morgan counts of each graph.
    """

    x: np.ndarray
    edge_index: np.ndarray
    edge_attr: np.ndarray
    ptr: np.ndarray
    edge_ptr: np.ndarray
    y: np.ndarray
    walks: np.ndarray | None = None
    counts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.ptr)

    def batch(self, chosen: list[int] | np.ndarray, encode: Callable[[Data], Data] | None) -> Data:
        """Join some graphs into one `Data` with ``ptr``, and encode it."""
        nodes, ptr = _rows(self.ptr, chosen)
        edges, edge_ptr = _rows(self.edge_ptr, chosen)
        shift = (ptr[:-1] - self.ptr[chosen]).repeat(np.diff(edge_ptr))
        data = Data(
            x=torch.from_numpy(self.x[nodes]),
            edge_index=torch.from_numpy(self.edge_index[:, edges] + shift),
            edge_attr=torch.from_numpy(self.edge_attr[edges]),
            y=torch.from_numpy(self.y[chosen]),
            ptr=torch.from_numpy(ptr),
        )
        if self.walks is not None:
            data.random_walk_pe = torch.from_numpy(self.walks[nodes])
        if self.counts is not None:
            data.features = torch.from_numpy(self.counts[chosen]).float()
        return data if encode is None else encode(data)

    def with_walks(self, steps: int) -> "Graphs":
        """Return the same graphs with the walks of up to so many steps."""
        found = [np.empty((0, steps), dtype=np.float32)]
        for part in self.parts(range(len(self)), MOST_WALKED):
            data = self.batch(part, None)
            walks = random_walks(data.edge_index, data.ptr, steps + 1)
            found.append(walks[pair_rows(data.ptr, len(data.x)), 1:].numpy())
        return replace(self, walks=np.concatenate(found))

    def with_rings(self, rings: RingNodes) -> "Graphs":
        """Return the same graphs with a node for each of their rings, before walks are added."""
        found = [rings(self.graph(number)) for number in range(len(self))]
        arrays = {
            "x": torch.cat([data.x for data in found]),
            "edge_index": torch.cat([data.edge_index for data in found], 1),
            "edge_attr": torch.cat([data.edge_attr for data in found]),
        }
        counts = {
            "num_nodes": np.array([len(data.x) for data in found]),
            "num_edges": np.array([len(data.edge_attr) for data in found]),
        }
        made = _graphs(
            {name: value.numpy() for name, value in arrays.items()} | counts | {"y": self.y}
        )
        return replace(made, counts=self.counts)

    def graph(self, number: int) -> Data:
        """Return one graph, without its target."""
        nodes = slice(self.ptr[number], self.ptr[number + 1])
        edges = slice(self.edge_ptr[number], self.edge_ptr[number + 1])
        return Data(
            x=torch.from_numpy(self.x[nodes]),
            edge_index=torch.from_numpy(self.edge_index[:, edges] - self.ptr[number]),
            edge_attr=torch.from_numpy(self.edge_attr[edges]),
        )

    def parts(self, chosen: Sequence[int], most_pairs: int) -> Iterator[list[int]]:
        """Cut graphs, whose order is kept, into parts whose pairs of nodes fit into memory.

        Args:
            chosen: the graphs.
            most_pairs: the largest number of pairs of a part, where every graph counts as large
                as the largest of its part, to which it is padded. A graph with more is a part.
        """
        part: list[int] = []
        largest = 0
        for graph in chosen:
            size = int(self.ptr[graph + 1] - self.ptr[graph])
            if part and (len(part) + 1) * max(largest, size) ** 2 > most_pairs:
                yield part
                part, largest = [], 0
            part.append(int(graph))
            largest = max(largest, size)
        if part:
            yield part


def _rows(ptr: np.ndarray, chosen: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of these sets, one set after the other, and where each set then begins."""
    counts = np.diff(ptr)[chosen]
    new = np.concatenate([[0], np.cumsum(counts)])
    return np.arange(new[-1]) + (ptr[chosen] - new[:-1]).repeat(counts), new


MOST_WALKED = 100_000
"""The pairs of nodes whose walks are in memory at a time."""

Splits = dict[str, Graphs]
_ARRAYS = ("x", "edge_index", "edge_attr", "num_nodes", "num_edges", "y")
_MOST_COUNTED = 255  # a larger Morgan count counts as that
_SPLITS = {"train": "train", "valid": "valid", "val": "valid", "test": "test"}
"""The splits by the names that files have for them."""


def read_zinc(folder: Path, _: Path | None = None) -> Splits:
    """Read ZINC-12k: 28 types of atoms, 3 types of bonds (1 to 3), and nothing else."""
    return _load(folder / "zinc12k_graphs.npz")


def read_peptides(folder: Path, cache: Path) -> Splits:
    """Read Peptides-func: a table with `smiles`, the labels `y0` to `y9` and `split`."""
    return _read_table(folder / "peptides_func.csv.gz", [f"y{n}" for n in range(10)], cache)


def read_molhiv(folder: Path, cache: Path) -> Splits:
    """Read ogbg-molhiv: a table with `smiles`, the label `HIV_active` and `split`."""
    return _read_table(folder / "ogbg_molhiv.csv.gz", ["HIV_active"], cache)


def _read_table(file: Path, labels: list[str], cache: Path) -> Splits:
    def convert() -> dict[str, np.ndarray]:
        table = pd.read_csv(file, usecols=["smiles", *labels, "split"])
        wrong = set(table["split"]) - set(_SPLITS)
        if wrong:
            raise ValueError(f"{file} has splits {sorted(wrong)}, expected {', '.join(_SPLITS)}")
        return _from_smiles(table["smiles"], table[labels].to_numpy(), table["split"].map(_SPLITS))

    return _load(_cached(cache, [file], convert))


def read_gaps(folder: Path, cache: Path) -> Splits:
    """Read QM9 with its gap in eV, from the CSV files of qm9pack: in the folder, or installed.

    The split is random, 110,000 / 10,000 / 10,831 molecules with the seed 0, and equals that of
    `slicegraph train --data qm9-gap`.
    """
    given = all((folder / part).is_file() for part in source.PARTS)
    found = folder if given else source.qm9_folder()
    if found is None:
        raise ValueError(
            f"{folder} does not have {', '.join(source.PARTS)}, and qm9pack is not installed; "
            "pip install 'slicegraph[qm9]', or name its folder `data` by --data-folder"
        )

    def convert() -> dict[str, np.ndarray]:
        table, sizes = source.read_qm9(found), source.SPLIT_SIZES
        if len(table) != sum(sizes):
            raise ValueError(f"{found} has {len(table)} molecules, expected {sum(sizes)}")
        split = np.empty(len(table), dtype="<U5")
        for name, rows in random_split(len(table), [n / len(table) for n in sizes]).items():
            split[rows] = name
        gaps = table[["gap_hartree"]].to_numpy() * source.HARTREE_IN_EV
        return _from_smiles(table["smiles"], gaps, split)

    return _load(_cached(cache, [found / part for part in source.PARTS], convert))


def _from_smiles(texts: Iterable[str], y: np.ndarray, split: Any) -> dict[str, np.ndarray]:
    """Return the graphs of molecules in the arrays of ZINC's file, with OGB's features and counts.

    Molecules that RDKit cannot read are left out; the array `left_out` has their rows, from 0.
    """
    found: dict[str, list[tuple[np.ndarray, ...]]] = {name: [] for name in _SPLITS.values()}
    left_out = []
    for row, (text, part) in enumerate(zip(texts, split, strict=True)):
        try:
            graph = read_smiles(text, canonical=False)  # in OGB's order
        except SmilesError:
            left_out.append(row)
            continue
        edge_index, edge_attr = graph.directed()
        counts = np.array([len(graph.atoms)]), np.array([len(edge_attr)])
        edges = edge_index.astype(np.int32), edge_attr
        morgan = morgan_counts([text]).clip(max=_MOST_COUNTED).astype(np.uint8)
        found[part].append((graph.atoms, *edges, *counts, y[row, None], morgan))
    arrays = {
        f"{part}_{name}": np.concatenate(values, axis=1 if name == "edge_index" else 0)
        for part, graphs in found.items()
        for name, values in zip((*_ARRAYS, "counts"), zip(*graphs, strict=True), strict=True)
    }
    return arrays | {"left_out": np.array(left_out, dtype=np.int64)}


def _cached(cache: Path, sources: list[Path], convert: Callable[[], dict[str, np.ndarray]]) -> Path:
    """Return the npz file with the arrays of these files, and write it if they have changed."""
    digest = hashlib.sha256(b"".join(hashlib.sha256(f.read_bytes()).digest() for f in sources))
    file = cache / f"{sources[0].name.split('.')[0]}_{digest.hexdigest()[:16]}_counts.npz"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (part := file.with_suffix(".part")).open("wb") as handle:
            np.savez(handle, **convert())
        part.replace(file)
    return file


def _load(file: Path) -> Splits:
    with np.load(file) as arrays:
        if "left_out" in arrays and len(rows := arrays["left_out"]):
            shown = ", ".join(map(str, rows[:10].tolist())) + (", ..." if len(rows) > 10 else "")
            what = f"{counted(len(rows), 'molecules')} that RDKit cannot read left out"
            print(f"{file.name}: {what}, in rows {shown} (from 0)", file=sys.stderr)
        own = {name: part for part, name in _SPLITS.items() if f"{part}_x" in arrays}
        found = {
            name: _graphs({array: arrays[f"{own[name]}_{array}"] for array in _ARRAYS})
            for name in ("train", "valid", "test")
        }
        return {
            name: replace(graphs, counts=arrays.get(f"{own[name]}_counts"))
            for name, graphs in found.items()
        }


def _graphs(arrays: dict[str, np.ndarray]) -> Graphs:
    ptr, edge_ptr = (
        np.concatenate([[0], np.cumsum(arrays[name], dtype=np.int64)])
        for name in ("num_nodes", "num_edges")
    )
    shift = ptr[:-1].repeat(np.diff(edge_ptr))  # the file counts the nodes of each graph from 0
    x, edge_attr = (
        arrays[name].astype(np.uint8).reshape(len(arrays[name]), -1) for name in ("x", "edge_attr")
    )
    return Graphs(
        x=x,
        edge_index=arrays["edge_index"].astype(np.int64) + shift,
        edge_attr=edge_attr,
        ptr=ptr,
        edge_ptr=edge_ptr,
        y=arrays["y"].astype(np.float32).reshape(len(ptr) - 1, -1),
    )


@dataclass(frozen=True)
class Task:
    """One data set.

    Args:
        title: its name in the literature.
        read: reads it from a folder; a second one is for files that save time.
        fields: what the models of all rows have in common. Distances and degrees above the largest
            share a row of their tables.
        loss: of scores and (standardised) targets.
        metric: of the true and the predicted targets.
        metric_name: its name.
        largest_is_best: whether a higher score is better.
        most_parameters: the limit of the published table, if it has one.
    """

    title: str
    read: Callable[[Path, Path], Splits]
    fields: dict[str, Any]
    loss: Callable[[Tensor, Tensor], Tensor]
    metric: Callable[[Tensor, Tensor], float]
    metric_name: str
    largest_is_best: bool = False
    most_parameters: int | None = None

    def best(self, scores: Iterable[float]) -> float:
        return (max if self.largest_is_best else min)(scores)


def _mae(y: Tensor, scores: Tensor) -> float:
    return float((y - scores).abs().mean())


def _scored_by(make: Callable[[], Evaluator], y: Tensor, scores: Tensor) -> float:
    judge = make()
    judge.update(y, scores)
    return judge.compute()


_BINARY = functional.binary_cross_entropy_with_logits

TASKS = {
    "zinc": Task(
        "ZINC-12k",
        read_zinc,
        {"node_vocabulary": (28,), "edge_vocabulary": (4,), "max_distance": 40, "max_degree": 7},
        functional.l1_loss,
        _mae,
        "MAE",
        most_parameters=500_000,
    ),
    "peptides-func": Task(
        "Peptides-func",
        read_peptides,
        {"task": "binary", "num_targets": 10, "max_distance": 160, "max_degree": 7},
        _BINARY,
        partial(_scored_by, partial(Evaluator, "ap", 10)),
        "AP",
        largest_is_best=True,
        most_parameters=500_000,
    ),
    "molhiv": Task(
        "ogbg-molhiv",
        read_molhiv,
        {"task": "binary", "max_distance": 60, "max_degree": 10},
        _BINARY,
        partial(_scored_by, partial(evaluator, "ogbg-molhiv")),
        "ROC-AUC",
        largest_is_best=True,
    ),
    "qm9-gap": Task(
        "QM9, gap in eV",
        read_gaps,
        {"unit": "eV", "max_distance": 20, "max_degree": 7},
        functional.l1_loss,
        _mae,
        "MAE",
    ),
}
"""The data sets by name."""
