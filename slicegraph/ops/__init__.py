"""Column-wise sorting of sets, shortest paths of graphs: one meaning, several backends."""

from slicegraph.ops.backends import use_backend
from slicegraph.ops.column_sort import column_sort
from slicegraph.ops.edge_sum import edge_sum
from slicegraph.ops.gather_sum import gather_sum
from slicegraph.ops.interleave import interleave_descending
from slicegraph.ops.max_exchange import max_exchange
from slicegraph.ops.pair_mix import pair_mix
from slicegraph.ops.shortest_paths import ShortestPaths, shortest_paths

__all__ = [
    "ShortestPaths",
    "column_sort",
    "edge_sum",
    "gather_sum",
    "interleave_descending",
    "max_exchange",
    "pair_mix",
    "shortest_paths",
    "use_backend",
]
