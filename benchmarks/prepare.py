"""Molecules a second from SMILES to graphs on one core: `python -m benchmarks.prepare`.

How many times those of `ogb.utils.smiles2graph`, which keeps the order of the text and returns
numpy arrays. All candidates take turns in one process, with one thread; the median counts.

- *featurize, order of the text*: `featurize(smiles, canonical=False)`, a PyG `Data`.
- *read, order of the text*: `read_smiles(smiles, canonical=False)`, numpy arrays, as for files.
- *featurize*, *read*: the same in canonical order.

The sets of molecules: hand-written drugs and building blocks of 5 to 50 atoms; the same as RDKit
writes them, as most published tables have them; and others with chirality, in random spellings.
Files and stores are timed by `python -m benchmarks.prepare_store`.
"""

import argparse
from collections.abc import Callable

import torch
from ogb.utils import smiles2graph
from rdkit import Chem

from benchmarks.structure import FIFTEEN_ATOMS, FIVE_TO_FIFTY_ATOMS
from benchmarks.timing import median_ms
from slicegraph.data.molecule.featurize import featurize, read_smiles

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


def candidates(texts: list[str]) -> dict[str, Callable[[], None]]:
    return {
        "smiles2graph": over(texts, smiles2graph),
        "featurize, order of the text": over(texts, lambda text: featurize(text, canonical=False)),
        "read, order of the text": over(texts, lambda text: read_smiles(text, canonical=False)),
        "featurize": over(texts, featurize),
        "read": over(texts, read_smiles),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=25)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, smiles in sets().items():
        texts = smiles * (COUNT // len(smiles) + 1)
        ms = median_ms(candidates(texts), arguments.repeats)
        atoms = sum(len(read_smiles(text).atoms) for text in smiles) / len(smiles)
        print(f"{name} (mean {atoms:.0f} atoms), molecules a second")
        for run, taken in ms.items():
            ratio = ms["smiles2graph"] / taken
            print(f"  {run:30} {1e3 * len(texts) / taken:8,.0f} {ratio:6.2f}x", flush=True)


if __name__ == "__main__":
    main()
