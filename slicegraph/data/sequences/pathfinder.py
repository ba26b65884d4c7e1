"""Pathfinder: are two marked ends joined by a dashed path? Scenes drawn by a seed."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from slicegraph.data.sequences.dashed_paths import PathGrower
from slicegraph.data.sequences.pathfinder_settings import PATHFINDER, PathfinderSettings


@dataclass(frozen=True)
class Scenes:
    """Pictures as geometry: all in pixels, ``(x, y)``.

    ``dashes`` ``[B, D, 2, 2]`` are the two ends of each dash, path after path; ``markers``
    ``[B, 2, 2]`` the centres of the discs; ``labels`` ``[B]`` whether a path joins them;
    ``margins`` ``[B]`` what is free around dashes. Dashes of paths without room are NaN.
    """

    dashes: np.ndarray
    markers: np.ndarray
    labels: np.ndarray
    margins: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def generate_scenes(
    count: int, seed: int = 0, settings: PathfinderSettings = PATHFINDER[32]
) -> Scenes:
    """Draws scenes, half of them with joined ends, after `"Disentangling neural mechanisms for
    perceptual grouping" <https://arxiv.org/abs/1906.01558>`_.

    Every scene has two long dashed paths that begin near each other and some short ones, all
    clear of each other. The markers are at the beginning of a long path and at the end of the same
    (label 1) or of the other (label 0).

    The settings and the law of turns are those of the authors' program. As there, short paths that
    find no room are left out (here about two of five at 32 pixels). Unlike there, places are
    not rounded to whole pixels, and the second long path grows after the first, not along with it.

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
    parts = [_draw_dashes(rng, settings)]
    while sum(len(margins) for _, margins in parts) < count:
        parts.append(_draw_dashes(rng, settings))
    dashes, margins = (np.concatenate(one)[:count] for one in zip(*parts, strict=True))
    markers, labels = _mark(dashes, settings.contour_length, np.random.default_rng([seed, 1]))
    return Scenes(dashes, markers, labels, margins)


def _draw_dashes(
    rng: np.random.Generator, settings: PathfinderSettings
) -> tuple[np.ndarray, np.ndarray]:
    """``[B, D, 2, 2]``: those of some hundred scenes, as many with each of the margins; and the
    margins ``[B]``."""
    groups = [_grow_dashes(rng, settings, margin) for margin in settings.margins]
    fewest = min(map(len, groups))
    order = rng.permutation(fewest * len(groups))
    dashes = np.concatenate([group[:fewest] for group in groups])
    return dashes[order], np.repeat(settings.margins, fewest)[order]


def _grow_dashes(
    rng: np.random.Generator, settings: PathfinderSettings, margin: float
) -> np.ndarray:
    """Those of scenes in which both long paths found their way."""
    border = settings.marker_radius + 0.5
    grower = PathGrower(
        rng,
        _SCENES // len(settings.margins),
        settings.image_size,
        settings.dash,
        2 * margin,
        2 * margin + settings.thickness / 2,
        settings.continuity,
        border,
    )
    grower.add_path(settings.contour_length, grower.inside(2 * settings.seed_distance))
    grower.add_path(settings.contour_length, grower.beside_the_first(settings.seed_distance))
    for _ in range(settings.num_distractors):
        grower.add_path(settings.distractor_length, grower.inside(border), optional=True)
    if not len(grower.dashes):
        raise ValueError(f"generate_scenes: {_SCENES} pictures had no room for {settings}")
    # Pictures in which a path was found late come last, and are the crowded ones.
    return rng.permutation(grower.dashes)


def _mark(
    dashes: np.ndarray, length: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The markers and the labels."""
    scene = np.arange(len(dashes))
    first, path = rng.integers(2, size=(len(dashes), 2)).T
    # Scenes 2k and 2k + 1 have different labels, whichever of them comes first.
    labels = (np.repeat(first[::2], 2)[: len(dashes)] + scene) % 2
    begin = dashes[scene, path * length, 0]
    end = dashes[scene, np.where(labels, path, 1 - path) * length + length - 1, 1]
    return np.stack([begin, end], axis=1), labels.astype(np.uint8)


def scene_parts(scenes: Scenes, size: int) -> Iterator[Scenes]:
    """The scenes in parts of at most ``size``."""
    for start in range(0, len(scenes), size):
        part = slice(start, start + size)
        yield Scenes(*(getattr(scenes, field.name)[part] for field in fields(scenes)))


_SCENES = 512
