"""The Sliceformer on images, and the vision Transformer with it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.models.checkpoint import save
from slicegraph.models.sequence_presets import vision_preset
from slicegraph.models.sequence_sliceformer import SequenceSliceformer
from slicegraph.models.vision_config import VisionSliceformerConfig


class VisionSliceformer(torch.nn.Module):
    r"""The image model of the `Sliceformer: Make Multi-head Attention as Simple as Sorting in
    Discriminative Tasks <https://arxiv.org/abs/2310.17683>`_ paper; with ``mixer="qkv"``, the ViT
    of `"An Image is Worth 16x16 Words" <https://arxiv.org/abs/2010.11929>`_.

    An image is cut into patches, row by row, which are the vectors of a
    :class:`~slicegraph.models.SequenceSliceformer` with learned positions.

    Args:
        config: the configuration.

    Shapes:
        - **x**: ``[B, image_channels, image_size, image_size]``.
        - **output**: ``[B, num_classes]``, logits.

    Example:
        >>> model = VisionSliceformer.from_preset("vit-mnist", num_layers=1)
        >>> model(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, config: VisionSliceformerConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = SequenceSliceformer(config.of_patches())

    @classmethod
    def from_preset(cls, name: str, mixer: str = "sort", **overrides: Any) -> "VisionSliceformer":
        """A new model of a preset's size, see :func:`slicegraph.models.vision_preset`."""
        return cls(vision_preset(name, mixer, **overrides))

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        self.patches.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return self.patches(self.cut(x))

    def score(self, batch: Any) -> Tensor:
        """``[B, 1, num_classes]``: the logits of a batch with ``x``."""
        return self(batch.x).unsqueeze(1)

    def embed(self, x: Tensor) -> Tensor:
        """``[B, channels]``: the vector of each image that the head reads."""
        return self.patches.embed(self.cut(x))

    def cut(self, x: Tensor) -> Tensor:
        """``[B, num_patches, image_channels * patch_size ** 2]``: the patches of each image."""
        c = self.config
        if x.dim() != 4 or x.shape[1:] != (c.image_channels, c.image_size, c.image_size):
            raise ValueError(
                f"VisionSliceformer: x has shape {list(x.shape)}, expected "
                f"[B, {c.image_channels}, {c.image_size}, {c.image_size}]"
            )
        # Of no images torch makes no patches: the sizes are written out.
        size = (x.shape[0], c.image_channels * c.patch_size**2, c.num_patches)
        return functional.pixel_unshuffle(x, c.patch_size).reshape(size).transpose(1, 2)

    def save(self, folder: str | Path) -> None:
        """Writes ``config.json`` and ``model.safetensors``, for :func:`slicegraph.models.load`."""
        save(self, folder)
