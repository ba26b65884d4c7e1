"""Pathfinder: are two marked ends joined by a dashed path? Scenes drawn by a seed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slicegraph.data.sequences.dashed_paths import PathGrower


@dataclass(frozen=True)
class PathfinderSettings:
    """What a scene is made of; lengths are in pixels.

    Args:
        image_size: the height and width.
        contour_length: the number of dashes of each of the two long paths.
        distractor_length, num_distractors: dashes of a short path, and how many there are.
        dash, gap: the length of a dash, and of the gap before the next.
        thickness: of a dash.
        marker_radius: of the discs on the two ends.
        clearance: paths are at least this far from each other and from themselves.
        max_turn: the largest angle between a dash and the next.
    """

    image_size: int = 32
    contour_length: int = 14
    distractor_length: int = 4
    num_distractors: int = 5
    dash: float = 2.0
    gap: float = 1.0
    thickness: float = 0.5
    marker_radius: float = 1.5
    clearance: float = 1.8
    max_turn: float = 1.0

    def __post_init__(self) -> None:
        if not self.gap < self.clearance <= self.dash + self.gap:
            raise ValueError(
                f"PathfinderSettings: clearance = {self.clearance} is not above gap = {self.gap} "
                f"and at most dash + gap = {self.dash + self.gap}"
            )


PATHFINDER = {
    32: PathfinderSettings(),
    128: PathfinderSettings(
        image_size=128,
        num_distractors=8,
        dash=5.0,
        gap=2.5,
        thickness=1.5,
        marker_radius=3.0,
        clearance=6.0,
    ),
}
"""The settings of Pathfinder and of Path-X, with the lengths and counts of Long Range Arena."""


@dataclass(frozen=True)
class Scenes:
    """Pictures as geometry: all in pixels, ``(x, y)``.

    ``dashes`` ``[B, D, 2, 2]`` are the two ends of each dash, path after path; ``markers``
    ``[B, 2, 2]`` the centres of the discs; ``labels`` ``[B]`` whether a path joins them.
    """

    dashes: np.ndarray
    markers: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def generate_scenes(
    count: int, seed: int = 0, settings: PathfinderSettings = PATHFINDER[32]
) -> Scenes:
    """Draws scenes, half of them with joined ends, after `"Disentangling neural mechanisms for
    perceptual grouping" <https://arxiv.org/abs/1906.01558>`_.

    Every scene has two long dashed paths and several short ones that keep clear of each other. The
    markers are at both ends of one long path (label 1), or at one end of each (label 0).

    Args:
        count: how many scenes.
        seed: the same seed gives the same scenes; fewer of them are the first of more.
        settings: the sizes.

    Example:
        >>> scenes = generate_scenes(4)
        >>> scenes.dashes.shape, sorted(scenes.labels.tolist())
        ((4, 48, 2, 2), [0, 0, 1, 1])
    """
    rng = np.random.default_rng(seed)
    parts: list[np.ndarray] = []
    while sum(map(len, parts)) < count:
        parts.append(_draw_dashes(rng, settings))
    dashes = np.concatenate(parts)[:count] if parts else _draw_dashes(rng, settings)[:0]
    return _mark(dashes, settings.contour_length, np.random.default_rng([seed, 1]))


def _draw_dashes(rng: np.random.Generator, settings: PathfinderSettings) -> np.ndarray:
    """``[B, D, 2, 2]``: those of some hundred scenes in which every path found its way."""
    grower = PathGrower(
        rng,
        _SCENES,
        settings.image_size,
        settings.dash,
        settings.gap,
        settings.clearance,
        settings.max_turn,
        border=settings.marker_radius + 0.5,
    )
    lengths = [settings.contour_length] * 2
    lengths += [settings.distractor_length] * settings.num_distractors
    for length in lengths:
        grower.add_path(length)
    if not len(grower.dashes):
        raise ValueError(f"generate_scenes: {_SCENES} pictures had no room for {settings}")
    # Pictures in which a path was found late come last, and are the crowded ones.
    return rng.permutation(grower.dashes)


def _mark(dashes: np.ndarray, length: int, rng: np.random.Generator) -> Scenes:
    count = len(dashes)
    scene = np.arange(count)
    first, path, side, far_side = rng.integers(2, size=(count, 4)).T
    # Scenes 2k and 2k + 1 have different labels, whichever of them comes first.
    labels = (np.repeat(first[::2], 2)[:count] + scene) % 2
    ends = np.stack([dashes[:, [0, length], 0], dashes[:, [length - 1, 2 * length - 1], 1]], axis=2)
    other_path, other_side = np.where(labels, [path, 1 - side], [1 - path, far_side])
    markers = np.stack([ends[scene, path, side], ends[scene, other_path, other_side]], axis=1)
    return Scenes(dashes, markers, labels.astype(np.uint8))


def scene_parts(scenes: Scenes, size: int) -> Iterator[Scenes]:
    """The scenes in parts of at most ``size``."""
    for start in range(0, len(scenes), size):
        part = slice(start, start + size)
        yield Scenes(scenes.dashes[part], scenes.markers[part], scenes.labels[part])


_SCENES = 512
