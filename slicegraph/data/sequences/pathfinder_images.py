"""The pictures of Pathfinder scenes: shades of grey, as images or as sequences of pixels."""

import numpy as np

from slicegraph.data.sequences.pathfinder import Scenes, generate_scenes, scene_parts
from slicegraph.data.sequences.pathfinder_settings import PATHFINDER, PathfinderSettings
from slicegraph.data.sequences.sequences import Sequences

_PART = 256


def draw(scenes: Scenes, settings: PathfinderSettings = PATHFINDER[32]) -> np.ndarray:
    """``[B, image_size, image_size]`` uint8: dashes and white discs, with soft edges, on black."""
    parts = [_draw(part, settings) for part in scene_parts(scenes, _PART)]
    size = settings.image_size
    return np.concatenate(parts) if parts else np.zeros((0, size, size), np.uint8)


def generate_pathfinder(
    count: int, seed: int = 0, settings: PathfinderSettings = PATHFINDER[32]
) -> Sequences:
    """Pictures as sequences of pixels, row by row, and whether the marked ends are joined.

    See :func:`~slicegraph.data.sequences.pathfinder.generate_scenes`.

    Example:
        >>> pathfinder = generate_pathfinder(6)
        >>> pathfinder.lengths.tolist(), pathfinder.labels.sum()
        ([1024, 1024, 1024, 1024, 1024, 1024], np.uint64(3))
    """
    scenes = generate_scenes(count, seed, settings)
    ptr = np.arange(count + 1, dtype=np.int64) * settings.image_size**2
    return Sequences(draw(scenes, settings).ravel(), ptr, scenes.labels)


def _draw(scenes: Scenes, settings: PathfinderSettings) -> np.ndarray:
    size = settings.image_size
    canvas = np.zeros((len(scenes), size * size), np.float32)
    discs = np.stack([scenes.markers, scenes.markers], axis=2)
    contrast = np.full(scenes.dashes.shape[1], settings.distractor_contrast)
    contrast[: 2 * settings.contour_length] = settings.contrast
    _stamp(canvas, scenes.dashes, settings.dash, settings.thickness / 2, size, contrast)
    _stamp(canvas, discs, 0.0, settings.marker_radius, size, np.ones(2))
    return np.rint(canvas.clip(0, 1) * 255).astype(np.uint8).reshape(-1, size, size)


def _stamp(
    canvas: np.ndarray,
    segments: np.ndarray,
    length: float,
    radius: float,
    size: int,
    contrast: np.ndarray,
) -> None:
    """Draws ``[B, D, 2, 2]`` segments of a length and a contrast, as wide as twice the radius."""
    reach = int(np.ceil(length / 2 + radius + 1))
    steps = np.arange(-reach, reach + 1)
    window = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    pixels = np.rint(segments.mean(2))[:, :, None] + window
    shade = np.clip(radius + 0.5 - _distance(pixels, segments), 0, 1) * contrast[:, None]
    inside = ((pixels >= 0) & (pixels < size)).all(-1)
    x, y = pixels[inside].astype(np.int64).T
    picture = np.nonzero(inside)[0]
    np.maximum.at(canvas, (picture, y * size + x), shade[inside].astype(np.float32))


def _distance(pixels: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """``[B, D, P]``: how far each pixel is from its segment."""
    start, along = segments[:, :, None, 0], np.diff(segments, axis=2)
    squared = np.maximum(np.square(along).sum(-1), 1e-12)
    share = np.clip(((pixels - start) * along).sum(-1) / squared, 0, 1)
    return np.sqrt(np.square(pixels - start - share[..., None] * along).sum(-1))
