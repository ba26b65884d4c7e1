"""Layers that sort: for sequences and sets, feature maps, and readouts."""

from slicegraph.nn.aggregation import SliceSortAggregation
from slicegraph.nn.order import Order
from slicegraph.nn.slice_sort import SliceSort
from slicegraph.nn.slice_sort_2d import SliceSort2d

__all__ = ["Order", "SliceSort", "SliceSort2d", "SliceSortAggregation"]
