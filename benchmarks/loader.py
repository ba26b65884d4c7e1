"""Time the way from a store on disk to batches on one core: `python -m benchmarks.loader`.

The figures are molecules per second, and their ratio to those of `GraphormerDataCollator` in
transformers 4.57.1 with `on_the_fly_processing`, which makes the input of its Graphormer from a
list of graphs. There are two sets of molecules: all of 15 atoms, and a mix of 5 to 50; both in
batches of 256. All candidates take turns in one process, with one thread; the median counts.

- *loader*: an epoch of `molecule_loader`: shuffled, grouped by size, read, encoded.
- *collate*: one batch of molecules in random order, read and encoded.
- *plain*: as collate, without the encodings, for models that only sort.
- *transformers*: the collator on the same molecules, which are already in memory as arrays. It
  needs `.[peers]` and a C++ compiler; without it there are no ratios.
"""

import argparse
import tempfile
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.structure import FIFTEEN_ATOMS, FIVE_TO_FIFTY_ATOMS, INSTALL
from benchmarks.timing import median_ms, print_rates
from slicegraph.data.batch import collate, molecule_loader
from slicegraph.data.prepare import prepare
from slicegraph.data.store import MoleculeStore

BATCH = 256
Run = tuple[Callable[[], object], int]


def make_store(folder: Path, smiles: str, count: int) -> MoleculeStore:
    """Prepare a store from a file of `count` molecules, which repeats the given ones."""
    rows = (f"{one},0.5\n" for one in islice(cycle(smiles.split()), count))
    source = folder / "molecules.csv"
    source.write_text("smiles,gap\n" + "".join(rows))
    prepare(source, folder / "store", smiles="smiles", labels=["gap"], workers=1)
    return MoleculeStore(folder / "store")


def graphs(store: MoleculeStore, indices: np.ndarray) -> list[dict[str, Any]]:
    """Return molecules in the format that the collator of transformers takes."""
    return [
        {
            "node_feat": data.x.numpy(),
            "edge_index": data.edge_index.numpy(),
            "edge_attr": data.edge_attr.numpy(),
            "num_nodes": data.num_nodes,
            "y": data.y[0].numpy(),
        }
        for data in store[indices]
    ]


def peer() -> Callable[[list[dict[str, Any]]], object] | None:
    """Return the collator of transformers; if it is missing, print how to install it."""
    try:
        from transformers.models.deprecated.graphormer.collating_graphormer import (
            GraphormerDataCollator,
        )

        return GraphormerDataCollator(on_the_fly_processing=True)
    except ImportError as error:
        print(f"no ratios, as transformers' Graphormer does not run here ({error}): {INSTALL}")
        return None


def candidates(store: MoleculeStore) -> dict[str, Run]:
    """Return the candidates, each with the number of molecules it reads."""
    loader = molecule_loader(store, BATCH)
    indices = np.random.default_rng(0).permutation(len(store))[:BATCH]
    return {
        "loader": (lambda: [batch.num_graphs for batch in loader], len(store)),
        "collate": (lambda: collate(store, indices), BATCH),
        "plain": (lambda: collate(store, indices, encode=None), BATCH),
    }


def measure(store: MoleculeStore, repeats: int, collator: Callable | None) -> dict[str, float]:
    """Return the molecules per second of each candidate."""
    runs = candidates(store)
    if collator is not None:
        items = graphs(store, np.arange(BATCH))
        runs["transformers"] = (lambda: collator([dict(item) for item in items]), BATCH)
    ms = median_ms({name: run for name, (run, _) in runs.items()}, repeats)
    return {name: 1e3 * count / ms[name] for name, (_, count) in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="timed rounds (default: 7)")
    parser.add_argument(
        "--molecules", type=int, default=20_480, help="molecules in the store (default: 20480)"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    collator = peer()
    for name, smiles in (("15 atoms", FIFTEEN_ATOMS), ("5 to 50 atoms", FIVE_TO_FIFTY_ATOMS)):
        with tempfile.TemporaryDirectory() as folder:
            store = make_store(Path(folder), smiles, arguments.molecules)
            rates = measure(store, arguments.repeats, collator)
        print_rates(f"{name} (mean {store.num_atoms.mean():.0f})", rates)


if __name__ == "__main__":
    main()
