"""Small graphs with OGB-like features, for tests of layers and models."""

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS


def random_graph(num_nodes: int, seed: int = 0, extra_edges: int = 2) -> Data:
    """A connected graph (a random tree and a few more edges) with random categories."""
    g = torch.Generator().manual_seed(seed)
    tree = [(int(torch.randint(0, i, (1,), generator=g)), i) for i in range(1, num_nodes)]
    more = torch.randint(0, num_nodes, (extra_edges, 2), generator=g).tolist()
    pairs = [(i, j) for i, j in [*tree, *more] if i != j]
    edge_index = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T.contiguous()
    edge_index = to_undirected(edge_index, num_nodes=num_nodes)
    return Data(
        x=_categories(OGB_ATOMS, num_nodes, g),
        edge_index=edge_index,
        edge_attr=_categories(OGB_BONDS, edge_index.shape[1], g),
    )


def disconnected_graph() -> Data:
    """A triangle, an edge and a node by itself."""
    edge_index = to_undirected(torch.tensor([[0, 1, 2, 3], [1, 2, 0, 4]]), num_nodes=6)
    g = torch.Generator().manual_seed(0)
    return Data(
        x=_categories(OGB_ATOMS, 6, g),
        edge_index=edge_index,
        edge_attr=_categories(OGB_BONDS, edge_index.shape[1], g),
    )


def equal_graph(num_nodes: int = 6) -> Data:
    """A ring in which all nodes and all edges are the same."""
    nodes = torch.arange(num_nodes)
    edge_index = to_undirected(torch.stack([nodes, nodes.roll(-1)]), num_nodes=num_nodes)
    x = torch.zeros(num_nodes, len(OGB_ATOMS), dtype=torch.int64)
    edge_attr = torch.zeros(edge_index.shape[1], len(OGB_BONDS), dtype=torch.int64)
    return Data(x=x, edge_index=edge_index, edge_attr=edge_attr)


def renumbered(data: Data, perm: Tensor) -> Data:
    """The same graph; new node ``i`` is old node ``perm[i]``."""
    inverse = torch.empty_like(perm)
    inverse[perm] = torch.arange(perm.numel())
    return Data(x=data.x[perm], edge_index=inverse[data.edge_index], edge_attr=data.edge_attr)


def _categories(sizes: tuple[int, ...], count: int, generator: torch.Generator) -> Tensor:
    columns = [torch.randint(0, size, (count,), generator=generator) for size in sizes]
    return torch.stack(columns, 1)
