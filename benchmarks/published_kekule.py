"""Other Kekulé structures of the same molecules, by which training graphs are varied.

The graphs of ZINC-12k have single, double and triple bonds and no aromatic ones: which bonds of a
benzene ring are double is arbitrary, and no target depends on it.
"""

import numpy as np
import torch
from torch import Tensor

from benchmarks.published_data import Graphs
from slicegraph.ops import rings

SINGLE_AND_DOUBLE = 3
"""The sum of the two types of bonds, 1 and 2; no other two of the types 1, 2 and 3 have it."""


class KekuleFlips:
    """Swaps the single and the double bonds of rings of six in which they alternate.

    Args:
        graphs: the training graphs, whose only edge feature is the type of a bond.
        rounds: how many rings of a graph are drawn, each swapped with probability 1/2. A swap can
            make the bonds of the next ring alternate.
    """

    def __init__(self, graphs: Graphs, rounds: int = 4) -> None:
        self.rounds = rounds
        rings, counts = [], [0]
        for number in range(len(graphs)):
            found = _six_rings(graphs.graph(number).edge_index.T.tolist())
            rings += found
            counts.append(len(found))
        self.rings = np.array(rings, dtype=np.int64).reshape(-1, 2, 6)
        self.ptr = np.cumsum(counts)

    def __call__(
        self, bonds: Tensor, first: np.ndarray, chosen: list[int], seed: list[int]
    ) -> None:
        """Change the bonds of a batch in place.

        Args:
            bonds: ``[E, 1]``, their types.
            first: the first edge of each graph in the batch.
            chosen: which of the training graphs these are.
            seed: decides the swaps.
        """
        random, values = np.random.default_rng(seed), bonds.numpy()[:, 0]
        start, count = self.ptr[chosen], self.ptr[np.array(chosen) + 1] - self.ptr[chosen]
        for _ in range(self.rounds):
            drawn = start + (random.random(len(chosen)) * count).astype(np.int64)
            taken = (random.random(len(chosen)) < 0.5) & (count > 0)
            places = self.rings[drawn[taken]] + first[taken, None, None]
            along = values[places[:, 0]]
            alternating = (along + np.roll(along, 1, axis=1) == SINGLE_AND_DOUBLE).all(1)
            swapped = places[alternating]
            values[swapped] = SINGLE_AND_DOUBLE - values[swapped]


def _six_rings(edges: list[list[int]]) -> list[list[list[int]]]:
    """Return the edges of each ring of six, by their numbers: in one direction and in the other."""
    place = {(source, target): number for number, (source, target) in enumerate(edges)}
    ends = torch.tensor(edges, dtype=torch.int64).view(-1, 2).T
    found = rings(ends, torch.tensor([0, 1 + max(map(max, edges), default=-1)]), 6)
    every = (part.tolist() for part in found.nodes.tensor_split(found.ring_ptr[1:-1]))
    steps = (list(zip(ring, ring[1:] + ring[:1], strict=True)) for ring in every if len(ring) == 6)
    return [[[place[a, b] for a, b in some], [place[b, a] for a, b in some]] for some in steps]
