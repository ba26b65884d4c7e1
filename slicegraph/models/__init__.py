"""Whole models: a configuration and a module each."""

from slicegraph.models.base import MODELS, load
from slicegraph.models.graph import (
    GraphSliceformer,
    GraphSliceformerConfig,
    preset,
    register_batch,
)
from slicegraph.models.presets import PRESETS, SEQUENCE_PRESETS, VISION_PRESETS, VOCABULARIES
from slicegraph.models.sequence import (
    SequenceSliceformer,
    SequenceSliceformerConfig,
    VisionSliceformer,
    VisionSliceformerConfig,
    sequence_preset,
    vision_preset,
)

__all__ = [
    "MODELS",
    "PRESETS",
    "SEQUENCE_PRESETS",
    "VISION_PRESETS",
    "VOCABULARIES",
    "GraphSliceformer",
    "GraphSliceformerConfig",
    "SequenceSliceformer",
    "SequenceSliceformerConfig",
    "VisionSliceformer",
    "VisionSliceformerConfig",
    "load",
    "preset",
    "register_batch",
    "sequence_preset",
    "vision_preset",
]
