"""The transform on graphs and batches, and how PyG collates what it writes."""

import copy
from itertools import pairwise

import networkx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.multigraphs import Graph, batched, edge_tensor, graphs, sparse_graph
from torch.utils.data import Dataset
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose, ToUndirected

from slicegraph.ops import rings, shortest_paths, use_backend
from slicegraph.ops.paths import random_walks
from slicegraph.transforms import RingNodes, StructuralEncoding

NAMES = ("pair_distance", "pair_path", "in_degree", "out_degree")


def data_of(graph: Graph) -> Data:
    return Data(x=torch.ones(graph[0], 2), edge_index=edge_tensor(graph[1]))


def assert_same_encoding(actual: Data, expected: Data) -> None:
    for name in NAMES:
        assert torch.equal(actual[name], expected[name]), name
        assert actual[name].dtype == expected[name].dtype, name


def test_literal_graph() -> None:
    data = StructuralEncoding(max_distance=2, max_hops=1)(data_of((3, [(0, 1), (0, 1), (1, 2)])))
    assert data.pair_distance.tolist() == [0, 1, 2, 3, 0, 1, 3, 3, 0]
    assert data.pair_path.flatten().tolist() == [-1, 0, 0, -1, -1, 2, -1, -1, -1]
    assert data.in_degree.tolist() == [0, 2, 1]
    assert data.out_degree.tolist() == [2, 1, 0]
    types = [data[name].dtype for name in NAMES]
    assert types == [torch.uint8, torch.int16, torch.int16, torch.int16]


def test_walks_are_written_if_asked_for_and_separate_from_a_batch() -> None:
    encode, graphs_ = StructuralEncoding(walk_length=4), [sparse_graph(n, seed=n) for n in (5, 1)]
    each = [encode(data_of(graph)) for graph in graphs_]
    for data, graph in zip(each, graphs_, strict=True):
        assert torch.equal(data.pair_walk, random_walks(*batched([graph]), 4))
    batch = encode(Batch.from_data_list([data_of(graph) for graph in graphs_]))
    for data, alone in zip(batch.to_data_list(), each, strict=True):
        torch.testing.assert_close(data.pair_walk, alone.pair_walk)
    assert "pair_walk" not in StructuralEncoding()(data_of(graphs_[0]))
    with pytest.raises(ValueError, match="walk_length = -1 is negative"):
        StructuralEncoding(walk_length=-1)


def test_input_stays_as_it_was() -> None:
    data = data_of(sparse_graph(5, seed=0))
    for given_graph in (data, Batch.from_data_list([data, data])):
        before = copy.deepcopy(given_graph)
        StructuralEncoding()(given_graph)
        after, before = given_graph.to_dict(), before.to_dict()
        assert set(after) == set(before)
        assert all(torch.equal(after[key], before[key]) for key in before)
        assert set(getattr(given_graph, "_slice_dict", {})).isdisjoint(NAMES)


@settings(deadline=None, max_examples=40)
@given(batch=st.lists(graphs(most_nodes=6), min_size=1, max_size=4))
def test_batch_of_encodings_is_the_encoding_of_the_batch(batch: list[Graph]) -> None:
    encode, data = StructuralEncoding(), [data_of(graph) for graph in batch]
    each = Batch.from_data_list([encode(d) for d in data])
    assert_same_encoding(encode(Batch.from_data_list(data)), each)
    paths = shortest_paths(*batched(batch))
    assert torch.equal(each.pair_distance, paths.distance)
    assert torch.equal(each.pair_path, paths.path)


def test_encoded_batch_separates_into_encoded_graphs() -> None:
    encode, data = StructuralEncoding(), [data_of(sparse_graph(n, seed=n)) for n in (4, 1, 9)]
    batch = encode(Batch.from_data_list(data))
    for separated, graph in zip(batch.to_data_list(), data, strict=True):
        assert_same_encoding(separated, encode(graph))
    assert_same_encoding(batch[2], encode(data[2]))


class Encoded(Dataset):
    """Encodes a graph when it is asked for, in the process that asks."""

    def __init__(self, data: list[Data]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> Data:
        return StructuralEncoding()(self.data[i])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_data_loader_works_unchanged(num_workers: int) -> None:
    data = [data_of(sparse_graph(n, seed=n)) for n in (200, *range(1, 8))]
    loader = DataLoader(Encoded(data), batch_size=4, num_workers=num_workers)
    for i, batch in enumerate(loader):
        expected = StructuralEncoding()(Batch.from_data_list(data[4 * i : 4 * i + 4]))
        assert_same_encoding(batch, expected)


def test_works_in_a_chain_of_transforms() -> None:
    data = Compose([ToUndirected(), StructuralEncoding()])(data_of((3, [(0, 1), (1, 2)])))
    assert data.pair_distance.tolist() == [0, 1, 2, 1, 0, 1, 2, 1, 0]


def test_both_backends_agree() -> None:
    batch = Batch.from_data_list([data_of(sparse_graph(n, seed=n)) for n in (3, 70, 20)])
    with use_backend("reference"):
        expected = StructuralEncoding()(batch)
    assert_same_encoding(StructuralEncoding()(batch), expected)


@pytest.mark.parametrize("num_nodes", [0, 1, 3])
def test_graph_without_edge_index_has_no_edges(num_nodes: int) -> None:
    data = StructuralEncoding()(Data(x=torch.ones(num_nodes, 1)))
    assert data.pair_distance.shape == (num_nodes**2,)
    assert data.in_degree.tolist() == data.out_degree.tolist() == [0] * num_nodes


def test_large_degrees_are_clipped() -> None:
    data = StructuralEncoding()(data_of((2, [(0, 1)] * 40_000)))
    assert data.in_degree.tolist() == [0, 32767]


def test_representation_names_the_settings() -> None:
    assert repr(StructuralEncoding(20, 3)) == "StructuralEncoding(max_distance=20, max_hops=3)"


@pytest.mark.parametrize(
    ("error", "message", "data"),
    [
        (TypeError, "HeteroData is not supported", HeteroData()),
        (ValueError, "batch and no ptr", Data(x=torch.ones(2, 1), batch=torch.zeros(2).long())),
        (
            ValueError,
            "adjacency matrix and no edge_index",
            Data(x=torch.ones(2, 1), adj_t=torch.eye(2).to_sparse()),
        ),
    ],
)
def test_what_it_cannot_encode_is_named(error: type, message: str, data: Data) -> None:
    with pytest.raises(error, match=message):
        StructuralEncoding()(data)


@pytest.mark.parametrize("options", [{"max_distance": 0}, {"max_hops": -1}])
def test_wrong_settings_are_named_at_once(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"StructuralEncoding: {next(iter(options))} = "):
        StructuralEncoding(**options)


@given(st.integers(1, 12), st.floats(0.0, 0.6), st.integers(0, 99), st.integers(3, 9))
@settings(max_examples=60, deadline=None)
def test_rings_are_the_chordless_cycles_of_networkx(nodes, density, seed, longest) -> None:
    graph = networkx.gnp_random_graph(nodes, density, seed=seed)
    ends = torch.tensor(list(graph.edges), dtype=torch.int64).view(-1, 2).T
    two = torch.cat([ends, ends + nodes], 1), torch.tensor([0, nodes, 2 * nodes])
    found = rings(*two, longest)
    with use_backend("reference"):
        for mine, expected in zip(found, rings(*two, longest), strict=True):
            assert torch.equal(mine, expected)
    cycles = [part.tolist() for part in found.nodes.tensor_split(found.ring_ptr[1:-1])]
    cycles = cycles[: int(found.graph_ptr[1])]
    expected = networkx.chordless_cycles(graph, longest)
    assert sorted(map(sorted, cycles)) == sorted(map(sorted, expected))
    closed = ([*ring, ring[0]] for ring in cycles)
    assert all(graph.has_edge(*ends) for ring in closed for ends in pairwise(ring))
    half = len(found.nodes) // 2
    assert torch.equal(found.nodes[half:], found.nodes[:half] + nodes)


def test_rings_become_nodes_with_edges_to_their_atoms() -> None:
    """A triangle 0 1 2 that shares the edge 1 2 with a square 1 2 4 3, and a node without edges."""
    ends = torch.tensor([[0, 1, 2, 1, 3, 4], [1, 2, 0, 3, 4, 2]])
    edge_index = torch.cat([ends, ends.flip(0)], 1)
    data = Data(torch.arange(12).view(6, 2), edge_index, torch.ones(12, 2).long())
    found = RingNodes(6, node_categories=28, edge_categories=4)(data)
    assert torch.equal(found.x[:6], data.x)
    assert found.x[6:].tolist() == [[28, 0], [29, 0]]
    assert torch.equal(found.edge_index[:, :12], edge_index)
    assert torch.equal(found.edge_attr[:12], data.edge_attr)
    assert found.edge_attr[12:].tolist() == [[4, 0]] * 14
    added = {tuple(edge) for edge in found.edge_index[:, 12:].T.tolist()}
    inside = {(6, 0), (6, 1), (6, 2), (7, 1), (7, 2), (7, 3), (7, 4)}
    assert added == inside | {(atom, ring) for ring, atom in inside}
    assert len(RingNodes(3, 28, 4)(data).x) == 7
    with pytest.raises(ValueError, match="max_length = 2, expected at least 3"):
        RingNodes(2, 28, 4)
    with pytest.raises(ValueError, match="apply it before StructuralEncoding"):
        RingNodes(6, 28, 4)(StructuralEncoding()(data.clone()))
    with pytest.raises(TypeError, match="the categories of the features"):
        RingNodes(6, 28, 4)(Data(data.x.float(), edge_index, data.edge_attr))
    with pytest.raises(ValueError, match="edge_attr is missing"):
        RingNodes(6, 28, 4)(Data(data.x, edge_index))


def ring_graphs() -> list[Data]:
    """A triangle and a square that share an edge; one node; a path; and two triangles apart."""
    found = []
    for nodes, ends in (
        (6, [(0, 1), (1, 2), (2, 0), (1, 3), (3, 4), (4, 2)]),
        (1, []),
        (3, [(0, 1), (1, 2)]),
        (7, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]),
    ):
        edge_index = edge_tensor([*ends, *((b, a) for a, b in ends)])
        x = torch.arange(2 * nodes, dtype=torch.uint8).view(nodes, 2)
        attr = torch.arange(edge_index.shape[1], dtype=torch.uint8).view(-1, 1) % 4
        found.append(Data(x, edge_index, attr))
    return found


@pytest.mark.parametrize("categories", [28, 254], ids=["one byte", "more than a byte holds"])
def test_rings_of_a_batch_are_those_of_its_graphs(categories) -> None:
    transform = RingNodes(6, categories, 4)
    expected = [transform(graph.clone()) for graph in ring_graphs()]
    batch = Batch.from_data_list(ring_graphs())
    batch.max_nodes = 7
    batch = transform(batch)
    assert batch.num_rings.tolist() == [2, 0, 0, 2]
    assert batch.max_nodes == 9
    joined = Batch.from_data_list(expected)
    for name in ("x", "edge_index", "edge_attr", "batch", "ptr", "num_rings"):
        assert torch.equal(batch[name], joined[name]), name
    for found, graph in zip(batch.to_data_list(), expected, strict=True):
        for name in ("x", "edge_index", "edge_attr", "num_rings"):
            assert torch.equal(found[name], graph[name]), name
    encoded = StructuralEncoding()(batch)
    assert encoded.pair_distance.numel() == int(batch.ptr.diff().square().sum())


def test_a_molecule_of_many_rings_has_room_for_all_of_them() -> None:
    """A complete graph of 9 nodes has 84 triangles, more than there is room for at first."""
    ends = torch.combinations(torch.arange(9)).T
    assert len(rings(ends, torch.tensor([0, 9]), 8).ring_ptr) == 85
