"""Pictures of two classes, in a folder with a subfolder for each."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_stripes(folder: Path, count: int = 30) -> Path:
    """Pictures of 8 x 8 pixels with stripes: upright ones, and ones that lie."""
    rng = np.random.default_rng(0)
    for name in ("lying", "upright"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = rng.integers(0, 60, (8, 8, 3), dtype=np.uint8)
            lines = pixels if name == "lying" else pixels.transpose(1, 0, 2)
            lines[number % 2 :: 2] += 180
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder
