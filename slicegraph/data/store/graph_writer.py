"""A store of graphs that are in memory: small sets that have no SMILES."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from slicegraph.data.molecule.molecule_graph import MoleculeGraph
from slicegraph.data.preparation.folder import PrepareFolder, software
from slicegraph.data.store.layout import StoreError
from slicegraph.data.store.part import Molecule, StorePart, Vocabularies, build_part
from slicegraph.data.store.writer import write_store


def write_graphs(
    folder: str | Path,
    graphs: Iterable[tuple[MoleculeGraph, Sequence[float]]],
    atom_vocabulary: Sequence[int],
    bond_vocabulary: Sequence[int],
    label_names: Sequence[str],
    source_name: str,
) -> None:
    """Makes a store of graphs and their labels; the texts of its molecules are empty.

    The source that the store names is `source_name`, with the SHA-256 and size of its arrays.

    Args:
        folder: where the store is made; new or empty.
        graphs: each graph in numpy arrays, and its labels, NaN for a gap.
        atom_vocabulary: how many values each feature of an atom takes.
        bond_vocabulary: the same for bonds.
        label_names: what the labels are called.
        source_name: where the graphs come from.

    Example:
        >>> graphs = [(read_smiles("CCO"), [7.5]), (read_smiles("CC"), [9.0])]
        >>> write_graphs("two", graphs, OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary,
        ...              ["gap"], "by hand")
    """
    vocabularies = Vocabularies(tuple(atom_vocabulary), tuple(bond_vocabulary), len(label_names))
    molecules = list(_molecules(graphs, len(label_names)))
    if not molecules:
        raise ValueError("write_graphs: there are no graphs")
    part = build_part(0, len(molecules), molecules, [], vocabularies)
    facts = {
        "labels": list(label_names),
        "canonical": False,
        "source": {"name": source_name, **_identity(part)},
        "software": software(),
    }
    target = PrepareFolder(folder)
    with target.lock():
        if target.finished() is not None:
            raise StoreError(folder, "is a finished store; choose another folder")
        target.begin(facts, restart=False)
        write_store(target.path, target.parts, [part], part.lengths(), vocabularies, facts)
        target.remove_parts()


def _molecules(
    graphs: Iterable[tuple[MoleculeGraph, Sequence[float]]], num_labels: int
) -> Iterator[Molecule]:
    for number, (graph, labels) in enumerate(graphs):
        if len(labels) != num_labels:
            raise ValueError(
                f"write_graphs: graph {number} has {len(labels)} labels, expected {num_labels}"
            )
        _check_bonds(number, graph)
        yield Molecule(number, "", graph, labels)


def _check_bonds(number: int, graph: MoleculeGraph) -> None:
    bonds, atoms = np.asarray(graph.bonds), len(graph.atoms)
    if bonds.ndim != 2 or bonds.shape[1] != 2 or len(bonds) != len(graph.bond_features):
        raise ValueError(
            f"write_graphs: bonds of graph {number} have shape {list(bonds.shape)}, "
            f"expected [{len(graph.bond_features)}, 2]"
        )
    if bonds.size and not 0 <= bonds.min() <= bonds.max() < min(atoms, 1 << 16):
        raise ValueError(
            f"write_graphs: a bond of graph {number} goes from {bonds.min()} to {bonds.max()}, "
            f"expected 0 to {min(atoms, 1 << 16) - 1}"
        )


def _identity(part: StorePart) -> dict[str, str | int]:
    arrays = part.arrays.values()
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    return {"sha256": digest, "bytes": sum(array.nbytes for array in arrays)}
