"""Pathfinder: balanced, the label true by following the dashes, the picture what was drawn."""

import numpy as np
import pytest

from slicegraph.data.sequences.pathfinder import PATHFINDER, PathfinderSettings, generate_scenes
from slicegraph.data.sequences.pathfinder_images import draw, generate_pathfinder

COUNTS = {32: 120, 128: 40}


@pytest.fixture(scope="module", params=[32, 128])
def drawn(request):
    settings = PATHFINDER[request.param]
    return settings, generate_scenes(COUNTS[request.param], seed=5, settings=settings)


def follow(dashes: np.ndarray, marker: np.ndarray, gap: float) -> np.ndarray:
    """From a marked end over dashes and gaps, until nothing is a gap away: where that is."""
    left = [tuple(map(tuple, dash)) for dash in dashes]
    here = tuple(marker)
    reach = 1e-9
    while True:
        near = [(d, e) for d in left for e in (0, 1) if np.hypot(*np.subtract(d[e], here)) <= reach]
        if not near:
            return np.array(here)
        assert len(near) == 1, "the path forks"
        dash, end = near[0]
        left.remove(dash)
        here, reach = dash[1 - end], gap + 1e-6


def test_the_label_says_whether_a_path_joins_the_markers(drawn):
    settings, scenes = drawn
    for dashes, (start, goal), label in zip(
        scenes.dashes, scenes.markers, scenes.labels, strict=True
    ):
        arrived = follow(dashes, start, settings.gap)
        assert np.allclose(arrived, goal) == bool(label)


def test_half_of_the_labels_are_1(drawn):
    _, scenes = drawn
    assert scenes.labels.mean() == 0.5
    assert set(scenes.labels[::2].tolist()) == {0, 1}


def test_dashes_have_their_length_and_their_number(drawn):
    settings, scenes = drawn
    short = settings.num_distractors * settings.distractor_length
    assert scenes.dashes.shape[1] == 2 * settings.contour_length + short
    lengths = np.linalg.norm(scenes.dashes[:, :, 1] - scenes.dashes[:, :, 0], axis=-1)
    assert np.allclose(lengths, settings.dash)


def test_paths_keep_clear_of_each_other(drawn):
    settings, scenes = drawn
    along = np.linspace(0, 1, 9)[:, None]
    long, short = settings.contour_length, settings.distractor_length
    path = np.repeat(
        np.arange(2 + settings.num_distractors), [long] * 2 + [short] * settings.num_distractors
    )
    for dashes in scenes.dashes[:20]:
        points = dashes[:, None, 0] + along * (dashes[:, None, 1] - dashes[:, None, 0])
        offset = points[:, None, :, None] - points[None, :, None]
        apart = np.linalg.norm(offset, axis=-1).min((2, 3))
        # Points are checked every 0.75 pixels at most.
        least = np.sqrt(settings.clearance**2 - 0.375**2)
        assert apart[path[:, None] != path].min() >= least


def test_the_picture_is_bright_on_dashes_and_markers_and_black_elsewhere(drawn):
    settings, scenes = drawn
    images = draw(scenes, settings)
    size = settings.image_size
    assert images.shape == (len(scenes), size, size)
    assert images.dtype == np.uint8
    grid = np.stack(np.meshgrid(np.arange(size), np.arange(size)), axis=-1).reshape(-1, 2)
    for image, dashes, markers in zip(images[:10], scenes.dashes, scenes.markers, strict=False):
        points = np.concatenate(
            [dashes[:, 0] * (1 - t) + dashes[:, 1] * t for t in np.linspace(0, 1, 21)]
        )
        to_dash = np.linalg.norm(grid[:, None] - points, axis=-1).min(1)
        to_marker = np.linalg.norm(grid[:, None] - markers, axis=-1).min(1)
        edge = settings.thickness / 2 + 0.5
        lit = image.ravel()[None][0] > 0
        assert not lit[(to_dash > edge + 0.1) & (to_marker > settings.marker_radius + 0.5)].any()
        assert lit[to_dash < edge - 0.1].all()
        assert (image.ravel()[to_marker <= settings.marker_radius - 0.5] == 255).all()


def test_a_seed_gives_the_same_pictures_and_fewer_are_the_first_of_more():
    few, many = generate_pathfinder(5, seed=1), generate_pathfinder(12, seed=1)
    assert np.array_equal(few.elements, many.elements[: len(few.elements)])
    assert np.array_equal(few.labels, many.labels[:5])
    assert not np.array_equal(few.elements, generate_pathfinder(5, seed=2).elements)


def test_pixels_go_row_by_row():
    pixels = generate_pathfinder(3, seed=1)
    assert pixels.lengths.tolist() == [1024] * 3
    images = draw(generate_scenes(3, seed=1))
    assert np.array_equal(pixels.elements.reshape(3, 32, 32), images)


def test_paths_as_near_as_their_gaps_are_refused():
    with pytest.raises(ValueError, match=r"clearance = 1\.0 is not above gap = 1\.0"):
        PathfinderSettings(clearance=1.0)


def test_paths_that_find_no_room_are_named():
    with pytest.raises(ValueError, match=r"no room for PathfinderSettings\(image_size=16"):
        generate_scenes(1, settings=PathfinderSettings(image_size=16))
