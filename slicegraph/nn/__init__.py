"""Layers that sort: for sequences and sets, feature maps, graphs, and readouts."""

from slicegraph.nn.attention import (
    MultiheadSliceSort,
    SetMixer,
    SliceAttention,
    SliceAttention2d,
    SliceSortAttention,
    TokenSliceSort,
)
from slicegraph.nn.bias import PairBias, SetAttention, StructuralBias
from slicegraph.nn.block import Edges, EncoderBlock, GatedBranch, LocalBranch
from slicegraph.nn.conv import GPSLayer, SliceSortConv
from slicegraph.nn.embedding import FeatureTable, GraphEmbedding, SequenceEmbedding
from slicegraph.nn.mixer import Mixer, QuantileContext, SequenceMixer, SliceKernel
from slicegraph.nn.packed import all_pairs
from slicegraph.nn.readout import GraphReadout, SequenceReadout, SliceSortAggregation
from slicegraph.nn.slice_sort import Order, SliceSort, SliceSort2d

__all__ = [
    "Edges",
    "EncoderBlock",
    "FeatureTable",
    "GPSLayer",
    "GatedBranch",
    "GraphEmbedding",
    "GraphReadout",
    "LocalBranch",
    "Mixer",
    "MultiheadSliceSort",
    "Order",
    "PairBias",
    "QuantileContext",
    "SequenceEmbedding",
    "SequenceMixer",
    "SequenceReadout",
    "SetAttention",
    "SetMixer",
    "SliceAttention",
    "SliceAttention2d",
    "SliceKernel",
    "SliceSort",
    "SliceSort2d",
    "SliceSortAggregation",
    "SliceSortAttention",
    "SliceSortConv",
    "StructuralBias",
    "TokenSliceSort",
    "all_pairs",
]
