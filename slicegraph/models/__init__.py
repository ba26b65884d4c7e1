"""Whole models: a configuration and a module each."""

from typing import Any

import torch

from slicegraph.models.checkpoint import load
from slicegraph.models.config import GraphSliceformerConfig
from slicegraph.models.graph_sliceformer import GraphSliceformer
from slicegraph.models.presets import PRESETS, VOCABULARIES, preset
from slicegraph.models.sequence_config import SequenceSliceformerConfig
from slicegraph.models.sequence_presets import (
    SEQUENCE_PRESETS,
    VISION_PRESETS,
    sequence_preset,
    vision_preset,
)
from slicegraph.models.sequence_sliceformer import SequenceSliceformer
from slicegraph.models.vision_config import VisionSliceformerConfig
from slicegraph.models.vision_sliceformer import VisionSliceformer

MODELS: dict[str, tuple[type[torch.nn.Module], Any]] = {
    "GraphSliceformer": (GraphSliceformer, GraphSliceformerConfig),
    "SequenceSliceformer": (SequenceSliceformer, SequenceSliceformerConfig),
    "VisionSliceformer": (VisionSliceformer, VisionSliceformerConfig),
}
"""The models that `load` knows, each with its configuration, by the name of the class."""

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
    "sequence_preset",
    "vision_preset",
]
