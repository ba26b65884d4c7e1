"""Operators on sets and graphs (sorting, pairs, edges, paths): one meaning, several backends."""

from slicegraph.ops.mix import dense_mix
from slicegraph.ops.operator import use_backend
from slicegraph.ops.pairs import pair_mix
from slicegraph.ops.paths import (
    Rings,
    ShortestPaths,
    edge_sum,
    gather_sum,
    rings,
    shortest_paths,
)
from slicegraph.ops.slice_attention import slice_attention
from slicegraph.ops.sort import column_sort, decompositions, interleave_descending, max_exchange

__all__ = [
    "Rings",
    "ShortestPaths",
    "column_sort",
    "decompositions",
    "dense_mix",
    "edge_sum",
    "gather_sum",
    "interleave_descending",
    "max_exchange",
    "pair_mix",
    "rings",
    "shortest_paths",
    "slice_attention",
    "use_backend",
]
