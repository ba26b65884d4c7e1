"""Small models of sequences and of images, with what to call them with."""

from typing import Any

import torch
from torch import Tensor

from slicegraph.models import (
    SequenceSliceformer,
    SequenceSliceformerConfig,
    VisionSliceformer,
    VisionSliceformerConfig,
)

SIZES = {"num_layers": 3, "channels": 16, "ffn_channels": 24, "heads": 4, "hidden_channels": 32}
LENGTHS = (7, 3, 12)


def sequence_model(mixer: str = "sort", order: str = "ascending", **fields: Any) -> Any:
    torch.manual_seed(0)
    values = {"vocabulary": 16, "max_length": 60, "num_classes": 10, **SIZES, **fields}
    return SequenceSliceformer(SequenceSliceformerConfig(mixer=mixer, order=order, **values)).eval()


def image_model(mixer: str = "sort", order: str = "ascending", **fields: Any) -> Any:
    torch.manual_seed(0)
    values = {"image_size": 8, "patch_size": 2, "image_channels": 1, "num_classes": 10, **SIZES}
    config = VisionSliceformerConfig(mixer=mixer, order=order, **{**values, **fields})
    return VisionSliceformer(config).eval()


def tokens() -> tuple[Tensor, Tensor]:
    """A padded batch of sequences, and its mask."""
    x = torch.randint(1, 16, (len(LENGTHS), max(LENGTHS)), generator=_random())
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return x * mask, mask


def images(count: int = 4) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=_random())


def _random() -> torch.Generator:
    return torch.Generator().manual_seed(0)
