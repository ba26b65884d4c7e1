"""Wrong graphs name the edge and say what would be right."""

import pytest
import torch
from support.multigraphs import edge_tensor
from support.variants import running

from slicegraph.ops.shortest_paths import shortest_paths

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


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("case", CASES)
def test_edges_in_the_wrong_place_are_named(backend: str, case: str) -> None:
    edges, ptr, message = CASES[case]
    with running(backend), pytest.raises(ValueError, match=f"shortest_paths: {message}"):
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
