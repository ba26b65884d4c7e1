"""Graphs of any kind as plain lists of edges, batched as PyG batches them."""

import torch
from hypothesis import strategies as st
from torch import Tensor

Graph = tuple[int, list[tuple[int, int]]]


@st.composite
def graphs(draw: st.DrawFn, most_nodes: int = 9) -> Graph:
    """Any directed multigraph: self loops, parallel edges, several components, no nodes."""
    num_nodes = draw(st.integers(0, most_nodes))
    if num_nodes == 0:
        return 0, []
    node = st.integers(0, num_nodes - 1)
    return num_nodes, draw(st.lists(st.tuples(node, node), max_size=3 * num_nodes))


def sparse_graph(num_nodes: int, seed: int, chords: int = 6) -> Graph:
    """A random tree and some chords, in both directions, like a molecule."""
    generator = torch.Generator().manual_seed(seed)

    def below(most: int) -> int:
        return int(torch.randint(most, (), generator=generator))

    bonds = [(i, max(0, i - 1 - below(3))) for i in range(1, num_nodes)]
    bonds += [(below(num_nodes), below(num_nodes)) for _ in range(chords)]
    return num_nodes, [edge for i, j in bonds for edge in ((i, j), (j, i))]


def edge_tensor(edges: list[tuple[int, int]]) -> Tensor:
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()


def batched(batch: list[Graph]) -> tuple[Tensor, Tensor]:
    """`edge_index` and `ptr`."""
    ptr = torch.tensor([0, *(n for n, _ in batch)]).cumsum(0)
    parts = [edge_tensor(e) + start for (_, e), start in zip(batch, ptr[:-1], strict=True)]
    return torch.cat([edge_tensor([]), *parts], dim=1), ptr
