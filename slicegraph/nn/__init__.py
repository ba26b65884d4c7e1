"""Layers that sort: for sequences and sets, feature maps, graphs, and readouts."""

from slicegraph.nn.bias import PairBias, SetAttention, StructuralBias
from slicegraph.nn.block import EncoderBlock
from slicegraph.nn.conv import SliceSortConv
from slicegraph.nn.embedding import FeatureTable, GraphEmbedding, SequenceEmbedding
from slicegraph.nn.local import Edges, GatedBranch, LocalBranch
from slicegraph.nn.mixer import Mixer, QuantileContext, SequenceMixer
from slicegraph.nn.order import Order
from slicegraph.nn.readout import GraphReadout, SequenceReadout, SliceSortAggregation
from slicegraph.nn.slice_sort import SliceSort, SliceSort2d

__all__ = [
    "Edges",
    "EncoderBlock",
    "FeatureTable",
    "GatedBranch",
    "GraphEmbedding",
    "GraphReadout",
    "LocalBranch",
    "Mixer",
    "Order",
    "PairBias",
    "QuantileContext",
    "SequenceEmbedding",
    "SequenceMixer",
    "SequenceReadout",
    "SetAttention",
    "SliceSort",
    "SliceSort2d",
    "SliceSortAggregation",
    "SliceSortConv",
    "StructuralBias",
]
