"""Small data sets in the folders and files of PyG: TUDataset, Planetoid and ModelNet."""

import pickle
from pathlib import Path

import numpy as np
import scipy.sparse

MODELNET = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa",
            "table", "toilet")  # fmt: skip
BOX_FACES = ((0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5))


def write_tu(root: Path, name: str, graphs: int = 12, labels: bool = True) -> None:
    """Rings of 3 or 6 nodes, of class -1 and 1; without `labels` the nodes have no features."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    edges, graph_of_node = [], []
    for graph in range(graphs):
        size, first = 3 + 3 * (graph % 2), len(graph_of_node) + 1
        pairs = [(first + i, first + (i + 1) % size) for i in range(size)]
        edges += [f"{i}, {j}\n{j}, {i}" for i, j in pairs]
        graph_of_node += size * [graph + 1]
    files = {
        "A": edges,
        "graph_indicator": graph_of_node,
        "graph_labels": [2 * (graph % 2) - 1 for graph in range(graphs)],
    }
    if labels:
        files["node_labels"] = [node % 3 for node in range(len(graph_of_node))]
    for kind, lines in files.items():
        (folder / f"{name}_{kind}.txt").write_text("".join(f"{line}\n" for line in lines))


def write_planetoid(root: Path, name: str, classes: int = 3, words: int = 9) -> None:
    """A ring of 600 nodes: 2 of each class to train on, 500 for validation, 40 for test."""
    random, nodes, trained, tested = np.random.default_rng(0), 600, 2 * classes, 40
    y = np.arange(nodes) % classes
    x = scipy.sparse.csr_matrix(np.eye(words, dtype=np.float32)[y + classes * (y % 2)])
    one_hot, rest = np.eye(classes, dtype=np.int32)[y], nodes - tested
    graph = {i: [(i - classes) % nodes, (i + classes) % nodes] for i in range(nodes)}
    test_index = random.permutation(np.arange(rest, nodes))
    parts = {
        "x": x[:trained],
        "allx": x[:rest],
        "tx": x[test_index],
        "y": one_hot[:trained],
        "ally": one_hot[:rest],
        "ty": one_hot[test_index],
        "graph": graph,
    }
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    for kind, part in parts.items():
        (folder / f"ind.{name.lower()}.{kind}").write_bytes(pickle.dumps(part))
    lines = "".join(f"{number}\n" for number in test_index)
    (folder / f"ind.{name.lower()}.test.index").write_text(lines)


def write_modelnet(root: Path, name: str, train: int = 2, test: int = 1) -> None:
    """Boxes, a shape for each of the ten classes of ModelNet10."""
    corners = np.array(list(np.ndindex(2, 2, 2)), dtype=float)
    faces = "".join(f"4 {' '.join(map(str, face))}\n" for face in BOX_FACES)
    faces += "3 0 1 2\n"  # PyG reads triangles too
    for number, kind in enumerate(MODELNET):
        for split, count in (("train", train), ("test", test)):
            folder = root / name / "raw" / kind / split
            folder.mkdir(parents=True)
            for mesh in range(count):
                points = corners * (1 + number, 1 + mesh, 1)
                lines = "".join(f"{x} {y} {z}\n" for x, y, z in points)
                text = f"OFF\n{len(points)} {len(BOX_FACES) + 1} 0\n{lines}{faces}"
                (folder / f"{kind}_{mesh + 1:04}.off").write_text(text)
