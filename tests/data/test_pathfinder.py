"""Pathfinder: balanced, the label true by following the dashes, the picture what was drawn."""

from dataclasses import replace

import numpy as np
import pytest

from slicegraph.data.sequences.dashed_paths import PathGrower
from slicegraph.data.sequences.pathfinder import Scenes, generate_scenes
from slicegraph.data.sequences.pathfinder_images import draw, generate_pathfinder
from slicegraph.data.sequences.pathfinder_settings import PATHFINDER, PathfinderSettings

FEW = replace(PATHFINDER[32], contour_length=4, num_distractors=1)


@pytest.fixture(scope="module", params=[32, 128])
def drawn(request):
    settings = PATHFINDER[request.param]
    return settings, generate_scenes(120, seed=5, settings=settings)


def present(dashes: np.ndarray) -> np.ndarray:
    """Those that found room."""
    return dashes[np.isfinite(dashes).all((1, 2))]


def follow(dashes: np.ndarray, marker: np.ndarray, gap: float) -> np.ndarray:
    """From a marked end over dashes and gaps, until nothing is a gap away: where that is."""
    left = [tuple(map(tuple, dash)) for dash in present(dashes)]
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
    _, scenes = drawn
    for dashes, (start, goal), label, margin in zip(
        scenes.dashes, scenes.markers, scenes.labels, scenes.margins, strict=True
    ):
        arrived = follow(dashes, start, 2 * margin)
        assert np.allclose(arrived, goal) == bool(label)


def test_half_of_the_labels_are_1(drawn):
    _, scenes = drawn
    assert scenes.labels.mean() == 0.5
    assert set(scenes.labels[::2].tolist()) == {0, 1}


def test_dashes_have_their_length_and_their_number(drawn):
    settings, scenes = drawn
    lengths = np.linalg.norm(scenes.dashes[:, :, 1] - scenes.dashes[:, :, 0], axis=-1)
    assert np.allclose(lengths[np.isfinite(lengths)], settings.dash)
    long, short = np.split(lengths, [2 * settings.contour_length], axis=1)
    assert np.isfinite(long).all()
    short = short.reshape(len(scenes), settings.num_distractors, settings.distractor_length)
    whole = np.isfinite(short).all(2)
    assert np.array_equal(whole, np.isfinite(short).any(2))
    assert whole.any(1).all()


@pytest.mark.parametrize(("size", "continuity"), [(32, 1.0), (128, 1.8)])
def test_turns_have_the_published_weight_where_nothing_blocks(size, continuity):
    rng = np.random.default_rng(8)
    grower = PathGrower(rng, 3000, 48, 2.0, 2.0, 2.25, PATHFINDER[size].continuity, border=1.0)
    grower.add_path(3, grower.inside(20.0))
    along = np.diff(grower.dashes, axis=2)[:, :, 0]
    angle = np.arctan2(along[..., 1], along[..., 0])
    turns = (np.diff(angle, axis=1) + np.pi) % (2 * np.pi) - np.pi
    edges = np.linspace(-np.pi / 2, np.pi / 2, 25) / continuity
    observed = np.histogram(turns, edges)[0]
    assert observed.sum() == 6000
    fine = np.linspace(edges[0], edges[-1], 24 * 100 + 1)[:-1] + (edges[1] - edges[0]) / 200
    weight = np.cos(np.minimum(continuity * np.abs(fine), np.pi / 2)) ** 2
    expected = 6000 * weight.reshape(24, 100).sum(1) / weight.sum()
    # Chi-square with 23 degrees of freedom, at most six standard deviations above its mean.
    assert ((observed - expected) ** 2 / expected).sum() < 23 + 6 * np.sqrt(2 * 23)


def test_every_published_margin_is_as_frequent_as_the_others(drawn):
    settings, scenes = drawn
    margins = {32: [1.0], 128: [2.0, 3.0]}[settings.image_size]
    found, counts = np.unique(scenes.margins, return_counts=True)
    assert found.tolist() == margins
    # Five standard deviations of a fair draw.
    share = 1 / len(margins)
    spread = 5 * np.sqrt(len(scenes) * share * (1 - share))
    assert counts == pytest.approx(len(scenes) * share, abs=spread)


def test_a_path_turns_a_margin_after_a_dash_and_before_the_next(drawn):
    settings, scenes = drawn
    path = scenes.dashes[:, : settings.contour_length]
    margin = np.diff(path, axis=2)[:, :, 0] / settings.dash * scenes.margins[:, None, None]
    assert np.allclose(path[:, :-1, 1] + margin[:, :-1], path[:, 1:, 0] - margin[:, 1:])


def test_the_long_paths_begin_at_the_published_distance(drawn):
    settings, scenes = drawn
    apart = scenes.dashes[:, 0, 0] - scenes.dashes[:, settings.contour_length, 0]
    assert np.allclose(np.linalg.norm(apart, axis=-1), {32: 7, 128: 20}[settings.image_size])


def test_one_marker_is_at_a_beginning_and_the_other_at_an_end(drawn):
    settings, scenes = drawn
    length = settings.contour_length
    begins = scenes.dashes[:, [0, length], 0]
    ends = scenes.dashes[:, [length - 1, 2 * length - 1], 1]
    for marker, places in zip(scenes.markers.transpose(1, 0, 2), (begins, ends), strict=True):
        assert (marker[:, None] == places).all(2).any(1).all()


def test_paths_keep_clear_of_each_other(drawn):
    settings, scenes = drawn
    along = np.linspace(0, 1, 9)[:, None]
    long, short = settings.contour_length, settings.distractor_length
    path = np.repeat(
        np.arange(2 + settings.num_distractors), [long] * 2 + [short] * settings.num_distractors
    )
    for dashes, margin in zip(scenes.dashes[:20], scenes.margins, strict=False):
        points = dashes[:, None, 0] + along * (dashes[:, None, 1] - dashes[:, None, 0])
        offset = points[:, None, :, None] - points[None, :, None]
        apart = np.linalg.norm(offset, axis=-1).min((2, 3))
        # Points are checked every 0.75 pixels at most.
        least = np.sqrt((2 * margin + settings.thickness / 2) ** 2 - 0.375**2)
        assert np.nanmin(apart[path[:, None] != path]) >= least


@pytest.mark.parametrize(
    ("size", "long", "short"),
    # At 32 pixels long paths have 3/4 of the contrast of short ones, at 128 all have 0.9.
    [(32, 0.75, 1.0), (128, 0.9, 0.9)],
)
def test_dashes_have_the_published_contrast(size, long, short):
    settings = replace(
        PATHFINDER[size], contour_length=1, distractor_length=1, num_distractors=1, dash=4.0
    )
    y = np.array([5.0, 10.0, 15.0])
    dashes = np.stack([np.stack([np.full(3, x), y], axis=-1) for x in (8.0, 12.0)], axis=1)
    scenes = Scenes(dashes[None], np.full((1, 2, 2), 25.0), np.zeros(1), np.ones(1))
    image = draw(scenes, settings)[0]
    assert image[[5, 10, 15], 10] == pytest.approx(255 * np.array([long, long, short]), abs=1)


def test_the_picture_is_bright_on_dashes_and_markers_and_black_elsewhere(drawn):
    settings, scenes = drawn
    images = draw(scenes, settings)
    size = settings.image_size
    assert images.shape == (len(scenes), size, size)
    assert images.dtype == np.uint8
    grid = np.stack(np.meshgrid(np.arange(size), np.arange(size)), axis=-1).reshape(-1, 2)
    for image, all_dashes, markers in zip(images[:10], scenes.dashes, scenes.markers, strict=False):
        dashes = present(all_dashes)
        begin, along = dashes[:, 0], dashes[:, 1] - dashes[:, 0]
        share = ((grid[:, None] - begin) * along).sum(-1) / settings.dash**2
        foot = begin + share.clip(0, 1)[..., None] * along
        to_dash = np.linalg.norm(grid[:, None] - foot, axis=-1).min(1)
        to_marker = np.linalg.norm(grid[:, None] - markers, axis=-1).min(1)
        edge = settings.thickness / 2 + 0.5
        lit = image.ravel() > 0
        assert not lit[(to_dash > edge + 0.1) & (to_marker > settings.marker_radius + 0.5)].any()
        assert lit[to_dash < edge - 0.1].all()
        assert (image.ravel()[to_marker <= settings.marker_radius - 0.5] == 255).all()


def test_a_seed_gives_the_same_pictures_and_fewer_are_the_first_of_more():
    few, many = (generate_pathfinder(count, 1, FEW) for count in (5, 12))
    assert np.array_equal(few.elements, many.elements[: len(few.elements)])
    assert np.array_equal(few.labels, many.labels[:5])
    assert not np.array_equal(few.elements, generate_pathfinder(5, 2, FEW).elements)


def test_pixels_go_row_by_row():
    pixels = generate_pathfinder(3, 1, FEW)
    assert pixels.lengths.tolist() == [1024] * 3
    images = draw(generate_scenes(3, 1, FEW), FEW)
    assert np.array_equal(pixels.elements.reshape(3, 32, 32), images)


def test_dashes_without_thickness_are_refused():
    with pytest.raises(ValueError, match=r"thickness = 0\.0 is not above 0"):
        PathfinderSettings(thickness=0.0)


def test_paths_that_find_no_room_are_named():
    with pytest.raises(ValueError, match=r"no room for PathfinderSettings\(image_size=16"):
        generate_scenes(1, settings=PathfinderSettings(image_size=16))
