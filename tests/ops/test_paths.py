"""Shortest paths against scipy and networkx, walks against matrix powers, and both by hand."""

from collections.abc import Iterator
from itertools import pairwise

import networkx
import numpy
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.multigraphs import Graph, batched, edge_tensor, graphs, sparse_graph
from support.variants import running
from torch import Tensor

from slicegraph.ops import ShortestPaths, cpu, paths, shortest_paths
from slicegraph.testing import assert_backends_agree

needs_kernels = pytest.mark.skipif(cpu.problem("cpu") is not None, reason="no C++ kernels")
any_batch = st.lists(graphs(), max_size=4)


@pytest.fixture(params=["reference", pytest.param("cpu", marks=needs_kernels)])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(request.param):
        yield request.param


def of_graph(paths: ShortestPaths, b: int, n: int) -> tuple[Tensor, Tensor]:
    """Distance `[n, n]` and path `[n, n, max_hops]` of one graph."""
    pairs = slice(int(paths.pair_ptr[b]), int(paths.pair_ptr[b + 1]))
    return paths.distance[pairs].view(n, n), paths.path[pairs].view(n, n, -1)


def alone(graph: Graph, **options: int) -> tuple[Tensor, Tensor]:
    return of_graph(shortest_paths(*batched([graph]), **options), 0, graph[0])


def scipy_distance(graph: Graph, max_distance: int) -> Tensor:
    n, edges = graph
    start, end = edge_tensor(edges).numpy()
    weights = scipy.sparse.csr_array((numpy.ones(len(edges)), (start, end)), shape=(n, n))
    distance = scipy.sparse.csgraph.shortest_path(weights, unweighted=True)
    clipped = torch.from_numpy(distance).clamp(max=max_distance)
    return clipped.masked_fill(torch.from_numpy(numpy.isinf(distance)), max_distance + 1)


def smallest_path(graph: Graph, i: int, j: int, max_hops: int) -> list[int]:
    """The definition: the smallest node sequence of all shortest paths, by the first edges."""
    simple = networkx.DiGraph()
    simple.add_nodes_from(range(graph[0]))
    simple.add_edges_from(graph[1])
    if i == j or not networkx.has_path(simple, i, j):
        return [-1] * max_hops
    nodes = min(networkx.all_shortest_paths(simple, i, j))
    edges = [graph[1].index(step) for step in pairwise(nodes)]
    return (edges + [-1] * max_hops)[:max_hops]


def test_path_of_three_nodes(backend: str) -> None:
    distance, path = alone((3, [(0, 1), (1, 0), (1, 2), (2, 1)]), max_hops=2)
    assert distance.tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    assert path.tolist() == [
        [[-1, -1], [0, -1], [0, 2]],
        [[1, -1], [-1, -1], [2, -1]],
        [[3, 1], [3, -1], [-1, -1]],
    ]


def test_edges_are_directed(backend: str) -> None:
    distance, path = alone((3, [(0, 1), (1, 2), (2, 0)]), max_hops=2)
    assert distance.tolist() == [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    assert path[1, 0].tolist() == [1, 2]


def test_tie_goes_through_the_lowest_node_from_the_beginning(backend: str) -> None:
    # 0 -> 1 -> 4 -> 5 comes before 0 -> 2 -> 3 -> 5, although 3 precedes 4.
    edges = [(0, 2), (2, 3), (3, 5), (0, 1), (1, 4), (4, 5)]
    _, path = alone((6, edges), max_hops=3)
    assert path[0, 5].tolist() == [3, 4, 5]
    _, path = alone((6, edges[::-1]), max_hops=3)
    assert path[0, 5].tolist() == [2, 1, 0]


def test_first_of_parallel_edges_is_taken_and_self_loops_are_not(backend: str) -> None:
    distance, path = alone((2, [(1, 1), (0, 0), (0, 1), (0, 1), (0, 0)]), max_hops=2)
    assert distance.tolist() == [[0, 1], [255, 0]]
    assert path.tolist() == [[[-1, -1], [2, -1]], [[-1, -1], [-1, -1]]]


def test_clipped_distances_keep_their_first_edges(backend: str) -> None:
    distance, path = alone((6, [(i, i + 1) for i in range(5)]), max_distance=2, max_hops=3)
    assert distance[0].tolist() == [0, 1, 2, 2, 2, 2]
    assert distance[5].tolist() == [3, 3, 3, 3, 3, 0]
    assert path[0, 5].tolist() == [0, 1, 2]
    assert path[5, 0].tolist() == [-1, -1, -1]


def test_offsets_number_pairs_and_edges_of_each_graph(backend: str) -> None:
    edge_index, ptr = batched([(2, [(0, 1)]), (0, []), (1, []), (3, [(0, 1), (2, 1)])])
    paths = shortest_paths(edge_index, ptr.int(), max_hops=1)
    assert paths.pair_ptr.tolist() == [0, 4, 4, 5, 14]
    assert paths.edge_ptr.tolist() == [0, 1, 1, 1, 3]
    assert of_graph(paths, 3, 3)[1].squeeze(-1).tolist() == [[-1, 0, -1], [-1] * 3, [-1, 1, -1]]


@pytest.mark.parametrize(
    "batch", [[], [(0, [])], [(0, []), (0, [])], [(1, [])], [(3, []), (1, [])]]
)
def test_graphs_without_edges(backend: str, batch: list[Graph]) -> None:
    paths = shortest_paths(*batched(batch))
    expected = [torch.full((n, n), 255).fill_diagonal_(0).flatten() for n, _ in batch]
    assert paths.distance.tolist() == torch.cat([torch.empty(0), *expected]).tolist()
    assert torch.equal(paths.path, torch.full((len(paths.distance), 5), -1, dtype=torch.int16))


@pytest.mark.parametrize("max_hops", [0, 1, 5, 9])
def test_any_number_of_hops(backend: str, max_hops: int) -> None:
    for n in (4, 70):
        _, path = alone((n, [(i, i + 1) for i in range(n - 1)]), max_hops=max_hops)
        assert path.shape == (n, n, max_hops)
        assert path[0, n - 1].tolist() == ([*range(n - 1)] + [-1] * max_hops)[:max_hops]


@pytest.mark.parametrize(("max_distance", "dtype"), [(254, torch.uint8), (255, torch.int16)])
def test_distances_are_bytes_while_they_fit(
    backend: str, max_distance: int, dtype: torch.dtype
) -> None:
    graph = (300, [(i, i + 1) for i in range(299)])
    distance, _ = alone(graph, max_distance=max_distance)
    assert distance.dtype == dtype
    assert distance[0].tolist() == [min(j, max_distance) for j in range(300)]
    assert distance[299, 0] == max_distance + 1


@pytest.mark.parametrize(("count", "dtype"), [(32767, torch.int16), (32768, torch.int32)])
@pytest.mark.parametrize("nodes", [3, 80])
def test_paths_of_graphs_with_many_edges_are_int32(
    backend: str, nodes: int, count: int, dtype: torch.dtype
) -> None:
    graph = (nodes, [(0, 1)] * (count - 1) + [(1, 2)])
    path = shortest_paths(*batched([(2, [(0, 1)]), graph]))
    assert path.path.dtype == dtype
    assert of_graph(path, 1, nodes)[1][0, 2].tolist() == [0, count - 1, -1, -1, -1]


@settings(deadline=None, max_examples=30)
@given(batch=any_batch, max_distance=st.integers(1, 6))
def test_distances_equal_scipy(batch: list[Graph], max_distance: int) -> None:
    paths = shortest_paths(*batched(batch), max_distance=max_distance)
    for b, graph in enumerate(batch):
        if graph[0]:
            distance, _ = of_graph(paths, b, graph[0])
            assert torch.equal(distance.double(), scipy_distance(graph, max_distance))


@settings(deadline=None, max_examples=30)
@given(batch=any_batch, max_hops=st.integers(0, 6))
def test_paths_are_the_smallest_of_all_shortest(batch: list[Graph], max_hops: int) -> None:
    paths = shortest_paths(*batched(batch), max_hops=max_hops)
    for b, graph in enumerate(batch):
        n = graph[0]
        _, path = of_graph(paths, b, n) if n else (None, torch.empty(0, 0, max_hops))
        expected = [[smallest_path(graph, i, j, max_hops) for j in range(n)] for i in range(n)]
        assert path.tolist() == expected


@needs_kernels
@settings(deadline=None, max_examples=30)
@given(batch=any_batch, max_distance=st.sampled_from([1, 3, 254, 300]), max_hops=st.integers(0, 6))
def test_kernels_equal_the_reference(batch: list[Graph], max_distance: int, max_hops: int) -> None:
    edge_index, ptr = batched(batch)
    assert "cpu" in assert_backends_agree(shortest_paths, edge_index, ptr, max_distance, max_hops)


@pytest.mark.parametrize("nodes", [63, 64, 65, 129])
def test_graphs_around_the_size_of_a_word(backend: str, nodes: int) -> None:
    graph = sparse_graph(nodes, seed=nodes)
    distance, path = alone(graph)
    assert torch.equal(distance.double(), scipy_distance(graph, 254))
    for i, j in torch.randint(nodes, (40, 2), generator=torch.Generator().manual_seed(0)).tolist():
        assert path[i, j].tolist() == smallest_path(graph, i, j, 5)


def test_nodes_of_a_path_do_not_depend_on_the_order_of_edges(backend: str) -> None:
    for nodes in (20, 90):
        edge_index, ptr = batched([sparse_graph(nodes, seed=1, chords=20)])
        edge_index = edge_index.unique(dim=1)
        perm = torch.randperm(edge_index.shape[1])
        path = shortest_paths(edge_index, ptr).path.long()
        shuffled = shortest_paths(edge_index[:, perm], ptr).path.long()
        assert torch.equal(torch.where(shuffled < 0, -1, perm[shuffled]), path)


def test_graph_does_not_depend_on_its_companions(backend: str) -> None:
    batch = [sparse_graph(n, seed=n) for n in (12, 70, 3, 64, 1, 30)]
    paths = shortest_paths(*batched(batch))
    for b, graph in enumerate(batch):
        expected = alone(graph)
        for actual, own in zip(of_graph(paths, b, graph[0]), expected, strict=True):
            assert torch.equal(actual, own)


def test_strided_edges(backend: str) -> None:
    edge_index, ptr = batched([sparse_graph(20, seed=0)])
    expected = shortest_paths(edge_index, ptr)
    apart = edge_index.repeat_interleave(2, dim=1)[:, ::2]
    for other in (edge_index.t().contiguous().t(), apart):
        assert not other.is_contiguous()
        assert torch.equal(shortest_paths(other, ptr).path, expected.path)


@needs_kernels
def test_result_does_not_depend_on_the_number_of_threads() -> None:
    edges, before = batched([sparse_graph(n, seed=n) for n in (400, *range(2, 66))]), None
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            paths = shortest_paths(*edges)
            assert before is None or all(map(torch.equal, paths[:4], before[:4]))
            before = paths
    finally:
        torch.set_num_threads(threads)


def test_distances_of_a_ring_equal_graphormer(backend: str) -> None:
    # OC1CC1C=O; from the published code.
    ends = [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 1, 3]
    edges = list(zip([0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 3, 1], ends, strict=True))
    distance, _ = alone((6, edges))
    assert distance.tolist() == [
        [0, 1, 2, 2, 3, 4],
        [1, 0, 1, 1, 2, 3],
        [2, 1, 0, 1, 2, 3],
        [2, 1, 1, 0, 1, 2],
        [3, 2, 2, 1, 0, 1],
        [4, 3, 3, 2, 1, 0],
    ]


def test_bonds_along_a_chain_equal_graphormer(backend: str) -> None:
    # O=COC=NCC#N, the kind of bond at each hop; from the published code.
    edges = [edge for i in range(7) for edge in ((i, i + 1), (i + 1, i))]
    kinds = torch.tensor([1, 0, 0, 1, 0, 0, 2]).repeat_interleave(2)
    _, path = alone((8, edges))
    found = torch.where(path < 0, -1, kinds[path.long()])
    assert found[2].tolist() == [
        [0, 1, -1, -1, -1],
        [0, -1, -1, -1, -1],
        [-1, -1, -1, -1, -1],
        [0, -1, -1, -1, -1],
        [0, 1, -1, -1, -1],
        [0, 1, 0, -1, -1],
        [0, 1, 0, 0, -1],
        [0, 1, 0, 0, 2],
    ]
    assert found[7, 0].tolist() == [2, 0, 0, 1, 0]


CASES = {
    "edge_beyond_the_nodes": (
        [(0, 1), (1, 5)],
        [0, 2, 5],
        r"edge_index\[:, 1\] = \[1, 5\] is beyond the 5 nodes",
    ),
    "negative_node": ([(-1, 0)], [0, 2], r"edge_index\[:, 0\] = \[-1, 0\] is beyond the 2 nodes"),
    "no_nodes": ([(0, 0)], [0], r"edge_index\[:, 0\] = \[0, 0\] is beyond the 0 nodes"),
    "edge_between_graphs": (
        [(0, 1), (2, 1)],
        [0, 2, 4],
        r"edge_index\[:, 1\] = \[2, 1\] joins two graphs",
    ),
    "edges_not_grouped": (
        [(0, 1), (2, 3), (1, 0)],
        [0, 2, 4],
        r"edge 2 of graph 0 follows edge 1 of graph 1; group the edges by graph: perm = batch\[",
    ),
    "ptr_starts_late": ([], [1, 2], r"ptr\[0\] = 1, expected 0"),
    "ptr_descends": ([], [0, 3, 2], r"ptr must not descend, but ptr\[2\] = 2 follows ptr\[1\] = 3"),
}


@pytest.mark.parametrize("case", CASES)
def test_edges_in_the_wrong_place_are_named(backend: str, case: str) -> None:
    edges, ptr, message = CASES[case]
    with pytest.raises(ValueError, match=f"shortest_paths: {message}"):
        shortest_paths(edge_tensor(edges), torch.tensor(ptr))


def test_the_advice_on_grouping_works() -> None:
    edge_index, batch = edge_tensor([(0, 1), (2, 3), (1, 0)]), torch.tensor([0, 0, 1, 1])
    perm = batch[edge_index[0]].argsort(stable=True)
    paths = shortest_paths(edge_index[:, perm], torch.tensor([0, 2, 4]))
    assert paths.distance.tolist() == [0, 1, 1, 0, 0, 1, 255, 0]


EDGES, PTR = edge_tensor([(0, 1)]), torch.tensor([0, 2])


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, "edge_index is torch.int32, expected int64", (EDGES.int(), PTR)),
        (TypeError, "ptr is torch.float32, expected int32 or int64", (EDGES, PTR.float())),
        (TypeError, "ptr is list, expected a tensor", (EDGES, [0, 2])),
        (ValueError, r"edge_index has shape \[1, 2\], expected \[2, E\]", (EDGES.t(), PTR)),
        (ValueError, r"ptr has shape \[0\], expected \[B \+ 1\]", (EDGES, PTR[:0])),
        (ValueError, "ptr is on meta, expected the CPU", (EDGES, PTR.to("meta"))),
        (ValueError, r"max_distance = 0 is not in 1\.\.32766", (EDGES, PTR, 0)),
        (ValueError, r"max_distance = 32767 is not in 1\.\.32766", (EDGES, PTR, 32767)),
        (ValueError, "max_hops = -1 is negative", (EDGES, PTR, 254, -1)),
    ],
)
def test_wrong_arguments_are_named(error: type, message: str, arguments: tuple) -> None:
    with pytest.raises(error, match=f"shortest_paths: {message}"):
        shortest_paths(*arguments)


def matrix_powers(graph: Graph, length: int) -> Tensor:
    """The definition of `random_walks` for one graph, in double precision: `[n * n, length]`."""
    nodes, edges = graph
    counts = torch.zeros(nodes, nodes, dtype=torch.float64)
    for i, j in edges:
        counts[i, j] += 1
    step = counts / counts.sum(1, keepdim=True).clamp(min=1)
    powers = [torch.linalg.matrix_power(step, k) for k in range(length)]
    return torch.stack(powers, -1).view(nodes * nodes, length)


@settings(deadline=None, max_examples=60)
@given(batch=any_batch, length=st.integers(1, 6), part=st.sampled_from([1, 200, 1 << 24]))
def test_walks_are_the_powers_of_the_step_matrix(
    batch: list[Graph], length: int, part: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "_MOST_WALKS", part)  # however many graphs are padded at a time
        found = paths.random_walks(*batched(batch), length)
    none = torch.empty(0, length, dtype=torch.float64)
    expected = torch.cat([none, *(matrix_powers(graph, length) for graph in batch)])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_walks_of_length_zero_are_an_error() -> None:
    with pytest.raises(ValueError, match="random_walks: length = 0 must be at least 1"):
        paths.random_walks(*batched([(1, [])]), 0)
