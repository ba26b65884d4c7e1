"""Measure molecules per second from SMILES to graphs on one core: `python -m benchmarks.prepare`.

All candidates take turns in one process, with one thread; the median counts. The ratios are to OGB:

- *read*: `read_smiles`, which returns numpy arrays in canonical order, as for files; compared with
  `ogb.utils.smiles2graph`, which keeps the atom order of the SMILES. *read, order of the text* is
  `read_smiles` with `canonical=False`.
- *featurize*, *featurize, order of the text*: the same with a PyG `Data` as the result; compared
  with `smiles2graph` and a `Data` of its arrays.

The sets of molecules are hand-written drugs and building blocks of 5 to 50 atoms; the same
molecules as RDKit's canonical SMILES, as in most published tables; and chiral molecules as random
SMILES. `python -m benchmarks.prepare_store` times files and stores.
"""

import argparse
from collections.abc import Callable

import torch
from ogb.utils import smiles2graph
from rdkit import Chem
from torch_geometric.data import Data

from benchmarks.structure import FIFTEEN_ATOMS, FIVE_TO_FIFTY_ATOMS
from benchmarks.timing import median_ms
from slicegraph.data.smiles import featurize, read_smiles

CHIRAL = """
    N[C@@H](Cc1ccc(O)cc1)C(=O)O C[C@H](O)[C@@H](N)C(=O)O CC(C)C[C@H](N)C(=O)N[C@@H](C)C(=O)O
    O[C@H]1[C@@H](O)[C@@H](O)[C@H](O)[C@@H](CO)O1 C[C@@H]1CC[C@H](C(C)C)[C@@H](O)C1
    CN1CC[C@]23c4c5ccc(O)c4O[C@H]2[C@@H](O)C=C[C@H]3[C@H]1C5 C/C=C/[C@H](O)/C=C\\C
    CC1(C)S[C@@H]2[C@H](NC(=O)Cc3ccccc3)C(=O)N2[C@H]1C(=O)O CN[C@@H](C)[C@H](O)c1ccccc1
"""
COUNT = 256


def sets() -> dict[str, list[str]]:
    written = (FIFTEEN_ATOMS + FIVE_TO_FIFTY_ATOMS).split()
    chiral = [
        text
        for smiles in CHIRAL.split()
        for text in Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), 4, randomSeed=1)
    ]
    return {
        "hand-written": written,
        "as RDKit writes them": [Chem.CanonSmiles(smiles) for smiles in written],
        "chiral, random spellings": chiral,
    }


def over(texts: list[str], read: Callable[[str], object]) -> Callable[[], None]:
    def run() -> None:
        for text in texts:
            read(text)

    return run


def data_of_ogb(text: str) -> Data:
    graph = {name: torch.as_tensor(value) for name, value in smiles2graph(text).items()}
    return Data(graph["node_feat"], graph["edge_index"], graph["edge_feat"])


def candidates(texts: list[str]) -> dict[str, Callable[[], None]]:
    return {
        "smiles2graph": over(texts, smiles2graph),
        "read, order of the text": over(texts, lambda text: read_smiles(text, canonical=False)),
        "read": over(texts, read_smiles),
        "smiles2graph and Data": over(texts, data_of_ogb),
        "featurize, order of the text": over(texts, lambda text: featurize(text, canonical=False)),
        "featurize": over(texts, featurize),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=25, help="timed rounds (default: 25)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, smiles in sets().items():
        texts = smiles * (COUNT // len(smiles) + 1)
        ms = median_ms(candidates(texts), arguments.repeats)
        atoms = sum(len(read_smiles(text).atoms) for text in smiles) / len(smiles)
        print(f"{name} (mean {atoms:.0f} atoms), molecules a second")
        for run, taken in ms.items():
            ogb = "smiles2graph and Data" if "featurize" in run else "smiles2graph"
            ratio = ms[ogb] / taken
            print(f"  {run:30} {1e3 * len(texts) / taken:8,.0f} {ratio:6.2f}x", flush=True)


if __name__ == "__main__":
    main()
