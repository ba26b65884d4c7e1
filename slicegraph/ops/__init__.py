"""Column-wise sorting of sets: one meaning, several backends."""

from slicegraph.ops.backends import use_backend
from slicegraph.ops.column_sort import column_sort
from slicegraph.ops.interleave import interleave_descending
from slicegraph.ops.max_exchange import max_exchange

__all__ = ["column_sort", "interleave_descending", "max_exchange", "use_backend"]
