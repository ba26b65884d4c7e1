"""A picture of any kind, with eight bits a shade."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

_SIXTEEN_BITS = {"PNG", "PPM"}
"""The formats of which Pillow gives grey of 16 bits in the mode for 32."""


def with_shades(picture: "Image", mode: str) -> "Image":
    """The picture in the mode L or RGB.

    Grey of 16 bits is divided by 257, where Pillow's `convert` cuts it off at 255; other numbers of
    32 bits have no white that is known, and raise.
    """
    from PIL import Image

    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in _SIXTEEN_BITS):
        shades = np.rint(np.asarray(picture) / 257).astype(np.uint8)
        return Image.fromarray(shades).convert(mode)
    if picture.mode in ("I", "F"):
        raise ValueError(
            f"the picture has shades of 32 bits (mode {picture.mode}), expected 8 or 16"
        )
    return picture.convert(mode)
