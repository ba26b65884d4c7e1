"""Small data sets in the folders of OGB and PyG, written without the package."""

import csv
import gzip
import io
import os
import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from ogb.utils import smiles2graph

MOLECULES = ["CCO", "c1ccccc1", "C", "CC(=O)[O-].[Na+]", "C#N", "OCC1CC1", "N", "CC", "CCC", "FC=C"]
LSC_FOLDERS = {"pcqm4m-v2": "pcqm4m-v2", "pcqm4m": "pcqm4m_kddcup2021"}
LSC_SPLITS = {
    "pcqm4m-v2": {
        "train": [7, 0, 3, 4],
        "valid": [9, 1],
        "test-dev": [8, 2],
        "test-challenge": [5, 6],
    },
    "pcqm4m": {"train": [0, 3, 4, 7], "valid": [1, 9], "test": [8, 2, 6, 5]},
}
MOL_SPLITS = {"train": [4, 0, 1, 2, 9, 3], "valid": [5, 8], "test": [6, 7]}


def write_csv_gz(path: Path, rows: Sequence[Sequence[object]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def gap(row: int) -> float:
    return 1.0 + row / 8


def write_lsc(root: Path, name: str, smiles: Sequence[str] = MOLECULES) -> Path:
    """PCQM4Mv2 or PCQM4M: the labels of the test molecules are empty, the splits are arrays."""
    folder = root / LSC_FOLDERS[name]
    splits = LSC_SPLITS[name]
    hidden = {row for split in splits if split.startswith("test") for row in splits[split]}
    rows = [(i, text, "" if i in hidden else gap(i)) for i, text in enumerate(smiles)]
    write_csv_gz(folder / "raw" / "data.csv.gz", [("idx", "smiles", "homolumogap"), *rows])
    torch.save({split: np.array(rows) for split, rows in splits.items()}, folder / "split_dict.pt")
    (folder / "RELEASE_v1.txt").touch()
    return folder


def write_mol(root: Path, name: str, tasks: int, folder_name: str | None = None) -> Path:
    """An ogbg-mol* set: the graphs as OGB has them, and the table that they come from."""
    folder = root / (folder_name or name.replace("-", "_"))
    labels = [["" if (row + 3 * task) % 5 == 4 else (row + task) % 2 for task in range(tasks)]
              for row in range(len(MOLECULES))]  # fmt: skip
    header = [*(f"task-{task}" for task in range(tasks)), "smiles", "mol_id"]
    table = [[*labels[i], text, f"MOL-{i}"] for i, text in enumerate(MOLECULES)]
    write_csv_gz(folder / "mapping" / "mol.csv.gz", [header, *table])
    for split, rows in MOL_SPLITS.items():
        write_csv_gz(folder / "split" / "scaffold" / f"{split}.csv.gz", [[row] for row in rows])
    _write_graphs(folder / "raw", labels)
    (folder / "RELEASE_v1.txt").touch()
    return folder


def _write_graphs(folder: Path, labels: Sequence[Sequence[object]]) -> None:
    graphs = [smiles2graph(text) for text in MOLECULES]
    once = slice(None, None, 2)  # OGB adds the other direction when it reads
    files = {
        "edge": [pair for graph in graphs for pair in graph["edge_index"].T[once]],
        "edge-feat": [row for graph in graphs for row in graph["edge_feat"][once]],
        "node-feat": [row for graph in graphs for row in graph["node_feat"]],
        "num-node-list": [[graph["num_nodes"]] for graph in graphs],
        "num-edge-list": [[graph["edge_index"].shape[1] // 2] for graph in graphs],
        "graph-label": labels,
    }
    for name, rows in files.items():
        write_csv_gz(folder / f"{name}.csv.gz", rows)


def write_zinc(folder: Path, sizes: dict[str, int], seed: int = 0) -> None:
    """ZINC's pickles of tensors, and for each split the numbers of every other molecule."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for split, size in sizes.items():
        molecules = []
        for _ in range(size):
            atoms = int(random.integers(2, 9))
            half = np.triu(random.integers(0, 4, (atoms, atoms)), 1)
            molecules.append(
                {
                    "num_atom": atoms,
                    "atom_type": torch.from_numpy(random.integers(0, 28, atoms)),
                    "bond_type": torch.from_numpy(half + half.T),
                    "logP_SA_cycle_normalized": torch.tensor([random.normal()]).float(),
                }
            )
        (folder / f"{split}.pickle").write_bytes(pickle.dumps(molecules))
        chosen = ",".join(map(str, range(size - 1, 0, -2)))
        (folder / f"{split}.index").write_text(f"{chosen}\n")


def zipped(folder: Path, target: Path) -> Path:
    """A zip file of a folder, which is in it under its own name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder.parent))
    return target


class Trap:
    """Makes a file when it is unpickled by a reader that runs what it reads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)
