"""Time structural encodings on one core: `python -m benchmarks.structure`.

The figures are molecules per second, and their ratio to those of `preprocess_item` in transformers
4.57.1 (its Graphormer), which computes the same properties of a molecule: distances, the bonds
along one shortest path per pair, degrees. There are two sets of 256 molecules: all of 15 atoms, and
a mix of 5 to 50. All candidates take turns in one process, with one thread; the median counts.

- *kernel*: `shortest_paths` on an existing batch.
- *batch*: `StructuralEncoding` on an existing PyG `Batch`, as in collate.
- *graph*: `StructuralEncoding` on one graph after the other, as in a data set.
- *plain*: as kernel, on the reference backend.
- *transformers*: `preprocess_item` on one molecule after the other. It needs `.[peers]` and a C++
  compiler; without it there are no ratios.
"""

import argparse
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import torch
from ogb.utils import smiles2graph
from torch_geometric.data import Batch, Data

from benchmarks.timing import median_ms, print_rates
from slicegraph.ops import use_backend
from slicegraph.ops.paths import shortest_paths
from slicegraph.transforms import StructuralEncoding

COUNT = 256
FIFTEEN_ATOMS = """
    CC(=O)Nc1ccc(O)cc1OC(C)=O CC(C)Cc1ccc(cc1)C(C)C(=O)O COc1cc(CC=C)ccc1OC(C)=O
    CC(C)NCC(O)COc1ccccc1 CN(C)CCOC(=O)c1ccccc1N CCOC(=O)c1ccc(NC(C)=O)cc1
    Cn1cnc2c1c(=O)n(C)c(=O)n2CO OC(=O)CCCCCCCCCCCC
"""
FIVE_TO_FIFTY_ATOMS = """
    CC(=O)OC Oc1ccccc1C CC(N)Cc1ccccc1 CC(=O)Oc1ccccc1C(=O)O Cn1cnc2c1c(=O)n(C)c(=O)n2C
    COc1ccc2[nH]cc(CCNC(C)=O)c2c1 CC(C)NCC(O)COc1cccc2ccccc12
    CN1CCC23c4c5ccc(O)c4OC2C(O)C=CC3C1C5 CC1(C)SC2C(NC(=O)Cc3ccccc3)C(=O)N2C1C(=O)O
    CC(C)CCCC(C)C1CCC2C1(C)CCC1C2CC=C2CC(O)CCC12C
    CCCc1nn(C)c2c1nc([nH]c2=O)-c1cc(ccc1OCC)S(=O)(=O)N1CCN(C)CC1
    Cc1ccc(NC(=O)c2ccc(CN3CCN(C)CC3)cc2)cc1Nc1nccc(n1)-c1cccnc1
    CC(C)CC(NC(=O)C(Cc1ccccc1)NC(=O)CNC(=O)CNC(=O)C(N)Cc1ccc(O)cc1)C(=O)O
    CC(C)c1c(C(=O)Nc2ccccc2)c(-c2ccccc2)c(-c2ccc(F)cc2)n1CCC(O)CC(O)CC(=O)O
    CCCCCCCCCCCCCCCCCC(=O)OCC(O)COC(=O)CCCCCCCCCCCCCCCCC
    CCC(=O)OCC1OC(OC2C(COC(=O)CC)OC(OC(=O)CC)C(OC(C)=O)C2OC(C)=O)C(OC(C)=O)C(OC(C)=O)C1OC(C)=O
"""
INSTALL = "pip install -c constraints.txt '.[peers]'"


def molecules(smiles: str) -> list[dict[str, Any]]:
    """Return molecules in the format of `preprocess_item`, repeated up to the batch size."""
    items = []
    for one in smiles.split():
        graph = smiles2graph(one)
        items.append({**graph, "edge_attr": graph["edge_feat"], "y": 0.0})
    return list(islice(cycle(items), COUNT))


def peer() -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return `preprocess_item`; if it is missing, print how to install it and return None."""
    try:
        from transformers.models.deprecated.graphormer.collating_graphormer import preprocess_item

        preprocess_item(molecules("CO")[0])
    except ImportError as error:
        print(f"no ratios, as transformers' Graphormer does not run here ({error}): {INSTALL}")
        return None
    return preprocess_item


def candidates(items: list[dict[str, Any]]) -> dict[str, Callable[[], object]]:
    graphs = [
        Data(
            x=torch.from_numpy(item["node_feat"]),
            edge_index=torch.from_numpy(item["edge_index"]),
            edge_attr=torch.from_numpy(item["edge_feat"]),
        )
        for item in items
    ]
    batch, encode = Batch.from_data_list(graphs), StructuralEncoding()
    return {
        "kernel": lambda: shortest_paths(batch.edge_index, batch.ptr),
        "batch": lambda: encode(batch),
        "graph": lambda: [encode(graph) for graph in graphs],
        "plain": use_backend("reference")(lambda: shortest_paths(batch.edge_index, batch.ptr)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="timed rounds (default: 7)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    preprocess_item = peer()
    for name, smiles in (("15 atoms", FIFTEEN_ATOMS), ("5 to 50 atoms", FIVE_TO_FIFTY_ATOMS)):
        items = molecules(smiles)
        runs = candidates(items)
        if preprocess_item is not None:
            runs["transformers"] = lambda items=items: [preprocess_item(dict(i)) for i in items]
        ms = median_ms(runs, arguments.repeats)
        mean = sum(item["num_nodes"] for item in items) / COUNT
        rates = {run: 1e3 * COUNT / taken for run, taken in ms.items()}
        print_rates(f"{name} (mean {mean:.0f})", rates)


if __name__ == "__main__":
    main()
