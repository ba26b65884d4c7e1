"""Whole models: a configuration and a module each."""

from slicegraph.models.checkpoint import load
from slicegraph.models.config import GraphSliceformerConfig
from slicegraph.models.graph_sliceformer import GraphSliceformer
from slicegraph.models.presets import PRESETS, VOCABULARIES, preset

MODELS = {"GraphSliceformer": (GraphSliceformer, GraphSliceformerConfig)}
"""The models that `load` knows, each with its configuration, by the name of the class."""

__all__ = [
    "MODELS",
    "PRESETS",
    "VOCABULARIES",
    "GraphSliceformer",
    "GraphSliceformerConfig",
    "load",
    "preset",
]
