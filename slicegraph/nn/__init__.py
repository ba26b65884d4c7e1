"""Layers that sort: for sequences and sets, feature maps, graphs, and readouts."""

from slicegraph.nn.aggregation import SliceSortAggregation
from slicegraph.nn.encoder_block import EncoderBlock
from slicegraph.nn.feature_table import FeatureTable
from slicegraph.nn.graph_embedding import GraphEmbedding
from slicegraph.nn.graph_readout import GraphReadout
from slicegraph.nn.local_branch import Edges, LocalBranch
from slicegraph.nn.mixer import Mixer
from slicegraph.nn.order import Order
from slicegraph.nn.pair_bias import PairBias
from slicegraph.nn.quantile_context import QuantileContext
from slicegraph.nn.sequence_embedding import SequenceEmbedding
from slicegraph.nn.sequence_mixer import SequenceMixer
from slicegraph.nn.sequence_readout import SequenceReadout
from slicegraph.nn.set_attention import SetAttention
from slicegraph.nn.slice_sort import SliceSort
from slicegraph.nn.slice_sort_2d import SliceSort2d
from slicegraph.nn.slice_sort_conv import SliceSortConv
from slicegraph.nn.structural_bias import StructuralBias

__all__ = [
    "Edges",
    "EncoderBlock",
    "FeatureTable",
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
