"""ListOps and Pathfinder: the published laws and settings, every label, the official files."""

import io
import itertools
import random
import statistics
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from slicegraph.tasks import TaskError, load_task, store
from slicegraph.tasks.generated import (
    END,
    FIRST_OPERATOR,
    PATHFINDER,
    TOKENS,
    PathfinderSettings,
    PathGrower,
    Scenes,
    decode,
    draw,
    generate_listops,
    generate_pathfinder,
    generate_scenes,
    list_pathfinder,
    read_listops,
)

SMALL = {"min_length": 2, "max_length": 60}
FUNCTIONS = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}


@pytest.fixture(scope="module")
def listops():
    return generate_listops(3000, seed=7)


def depths(tokens: np.ndarray) -> list[int]:
    """How many brackets are open around and at each token."""
    opens = (tokens >= FIRST_OPERATOR) & (tokens != END)
    return np.cumsum(opens.astype(int) - np.concatenate([[0], tokens[:-1] == END])).tolist()


def value_of(words: list[str]) -> int:
    """Reads an expression from the left, removing what it has understood."""
    word = words.pop(0)
    if word.isdigit():
        return int(word)
    arguments = []
    while words[0] != "]":
        arguments.append(value_of(words))
    words.pop(0)
    assert 2 <= len(arguments) <= 10
    return FUNCTIONS[word](arguments)


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["published", "small"])
def test_every_label_is_the_value_of_its_expression(settings):
    drawn = generate_listops(200, seed=2, **settings)
    for tokens, label in zip(drawn, drawn.labels, strict=True):
        words = decode(tokens).split()
        assert value_of(words) == label
        assert words == []


def grow(rng: random.Random, around: int = 0) -> tuple[int, list[int]]:
    """The published grammar: a value, and how many brackets are open at each of the tokens."""
    if around == 9 or rng.random() > 0.25:
        return rng.randrange(10), [around]
    arguments = [grow(rng, around + 1) for _ in range(rng.randint(2, 10))]
    values, inside = zip(*arguments, strict=True)
    value = rng.choice([min(values), max(values), int(statistics.median(values)), sum(values) % 10])
    return value, [around + 1, *itertools.chain(*inside), around + 1]


def homogeneity(one: np.ndarray, other: np.ndarray) -> float:
    """Chi-square of two samples having one law, in standard deviations above its mean."""
    pooled = np.concatenate([one, other])
    # At most ten bins of about as many; values that are frequent have one for themselves.
    edges = np.unique(np.quantile(pooled, np.arange(10) / 10, method="nearest"))
    a, b = (np.bincount(np.searchsorted(edges, x, "right"), minlength=11)[1:] for x in (one, other))
    ratio = np.sqrt(len(other) / len(one))
    statistic = ((a * ratio - b / ratio) ** 2 / np.maximum(a + b, 1)).sum()
    freedom = max(len(edges) - 1, 1)
    return (statistic - freedom) / np.sqrt(2 * freedom)


def test_expressions_have_the_law_of_the_published_grammar(listops):
    rng = random.Random(6)
    drawn = (grow(rng) for _ in itertools.count())
    grown = list(itertools.islice((one for one in drawn if 500 < len(one[1]) < 2000), 500))
    ours = [(int(value), depths(one)) for one, value in zip(listops, listops.labels, strict=True)]
    for measure in (
        lambda value, nested: value,
        lambda value, nested: len(nested),
        lambda value, nested: max(nested),
        lambda value, nested: sum(nested) / len(nested),
    ):
        one, other = (np.array([measure(*row) for row in rows]) for rows in (ours, grown))
        assert homogeneity(one, other) < 6


def test_lengths_and_depths_are_bounded(listops):
    assert listops.lengths.min() > 500
    assert listops.lengths.max() < 2000
    assert max(max(depths(tokens)) for tokens in listops) == 9
    assert max(max(depths(t)) for t in generate_listops(50, max_depth=4, **SMALL)) == 3


def test_digits_and_operators_are_uniform(listops):
    counts = np.bincount(listops.elements, minlength=len(TOKENS))
    assert counts[0] == 0
    for group in (counts[1:11], counts[FIRST_OPERATOR:END]):
        # Six standard deviations of a fair draw.
        share = 1 / len(group)
        spread = 6 * np.sqrt(group.sum() * share * (1 - share))
        assert np.abs(group - group.sum() * share).max() < spread
    assert counts[END] == counts[FIRST_OPERATOR:END].sum()


def test_an_argument_is_an_operation_with_the_published_probability():
    # Without a bound on lengths nothing is selected, but for the roots that are digits.
    drawn = generate_listops(2000, min_length=1, max_length=10**9, max_depth=3)
    tokens = drawn.elements
    inside = np.concatenate([depths(one) for one in drawn])
    operators = (tokens >= FIRST_OPERATOR) & (tokens != END)
    below_root = int((operators & (inside == 2)).sum())
    digits = int(((tokens < FIRST_OPERATOR) & (inside == 1)).sum())
    assert below_root / (below_root + digits) == pytest.approx(0.25, abs=0.02)


def test_no_expression_is_drawn_twice():
    drawn = generate_listops(1000, min_length=2, max_length=6)
    assert len({one.tobytes() for one in drawn}) == 1000


def test_a_seed_gives_the_same_expressions_and_fewer_are_the_first_of_more():
    few, many = generate_listops(20, seed=3, **SMALL), generate_listops(2000, seed=3, **SMALL)
    assert np.array_equal(few.elements, many.elements[: len(few.elements)])
    assert np.array_equal(few.labels, many.labels[:20])
    other = generate_listops(20, seed=4, **SMALL)
    assert not np.array_equal(few.elements, other.elements[: len(few.elements)])


def test_lengths_that_do_not_occur_are_named():
    with pytest.raises(ValueError, match="gave 0 expressions of 501 to 1999 tokens"):
        generate_listops(1, max_depth=2)


def test_the_task_is_split_80_10_10_and_written_once(tmp_path):
    first, again = (load_task("listops", tmp_path, examples=60) for _ in range(2))
    texts = [decode(first.store[i][0]) for i in range(60)]
    assert len(set(texts)) == 60
    labels = first.labels(np.arange(60)).ravel().tolist()
    assert [value_of(text.split()) for text in texts] == labels
    sizes = {name: len(part) for name, part in first.splits.items()}
    assert sizes == {"train": 48, "valid": 6, "test": 6}
    assert first.store.folder == again.store.folder
    assert load_task("listops", tmp_path, examples=61).store.folder != first.store.folder


def test_the_official_files_are_read_with_their_own_splits(tmp_path):
    for name, value in (("train", 3), ("val", 2), ("test", 1)):
        rows = [f"( ( [MAX {value} ) 0 ) ]\t{value}"] * value
        path = tmp_path / "release" / "listops-1000" / f"basic_{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["Source\tTarget", *rows]) + "\n")
    listops = load_task("listops", tmp_path, tmp_path / "release")
    sizes = {name: len(part) for name, part in listops.splits.items()}
    assert sizes == {"train": 3, "valid": 2, "test": 1}
    assert decode(listops.store[0][0]) == "[MAX 3 0 ]"
    path.write_text("Source\tTarget\n")
    with pytest.raises(TaskError, match=r"basic_test\.tsv has no samples"):
        load_task("listops", tmp_path, tmp_path / "release")


def test_lines_are_expressions_without_brackets_of_pairs_and_blank_lines_at_the_end(tmp_path):
    path = tmp_path / "basic_train.tsv"
    path.write_text(
        "Source\tTarget\n( ( ( [MAX 3 ) ( ( ( [SM 4 ) 8 ) ] ) ) ] )\t3\n7\t7\n\r\n  \n\n"
    )
    rows = [(decode(tokens), label) for (tokens,), label in read_listops(path)]
    assert rows == [("[MAX 3 [SM 4 8 ] ]", 3), ("7", 7)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("( ( [AVG 3 ) ] )\t3", r"unknown word '\[AVG'"),
        ("[MAX 3 4 ] 4", "1 fields between tabs, expected 2"),
        ("\n[MAX 3 4 ]\t4", "1 fields between tabs, expected 2"),
        ("\t", "'' is not a label"),
        *(
            (f"[MAX 3 4 ]\t{label}", f"'{label}' is not a label, expected 0 to 9")
            for label in ("four", "10", "-1", "255", "1.5", "nan", "inf")
        ),
        *(
            (f"{text}\t3", "'.*' is not an expression")
            for text in (
                *("", "( )", "[MAX 3 4", "[MAX 3 4 ] ]", "[MAX ]", "[MAX 3 [MIN ] ]", "]"),
                *("] [MAX 3", "3 4", "[MAX 3 4 ] [MIN 1 2 ]", "[MAX 3 4 ] 5", "5 [MAX 3 4 ]"),
            )
        ),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    path = tmp_path / "basic_train.tsv"
    path.write_text(f"Source\tTarget\n[MAX 3 4 ]\t4\n{line}\n")
    with pytest.raises(ValueError, match=rf"basic_train\.tsv line 3: {message}"):
        list(read_listops(path))


FEW = replace(PATHFINDER[32], contour_length=4, num_distractors=1)


@pytest.fixture(scope="module", params=[32, 128])
def drawn(request):
    settings = PATHFINDER[request.param]
    return settings, generate_scenes(80, seed=5, settings=settings)


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
    assert scenes.labels.mean() == 0.5
    assert set(scenes.labels[::2].tolist()) == {0, 1}


def test_dashes_have_their_length_and_their_number(drawn):
    settings, scenes = drawn
    lengths = np.linalg.norm(scenes.dashes[:, :, 1] - scenes.dashes[:, :, 0], axis=-1)
    assert np.allclose(lengths[np.isfinite(lengths)], settings.dash)
    long, short = np.split(lengths, [2 * settings.contour_length], axis=1)
    assert np.isfinite(long).all()
    short = short.reshape(len(scenes.labels), settings.num_distractors, settings.distractor_length)
    whole = np.isfinite(short).all(2)
    assert np.array_equal(whole, np.isfinite(short).any(2))
    assert whole.any(1).all()


@pytest.mark.parametrize(("size", "continuity"), [(32, 1.0), (128, 1.8)])
def test_turns_have_the_published_weight_where_nothing_blocks(size, continuity):
    rng = np.random.default_rng(8)
    settings = PathfinderSettings(
        image_size=48, marker_radius=0.5, continuity=PATHFINDER[size].continuity
    )
    grower = PathGrower(rng, 3000, settings, margin=1.0)
    grower.add_path(3, 20.0)
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
    spread = 5 * np.sqrt(len(scenes.labels) * share * (1 - share))
    assert counts == pytest.approx(len(scenes.labels) * share, abs=spread)


def test_a_path_turns_a_margin_after_a_dash_and_before_the_next(drawn):
    settings, scenes = drawn
    path = scenes.dashes[:, : settings.contour_length]
    margin = np.diff(path, axis=2)[:, :, 0] / settings.dash * scenes.margins[:, None, None]
    assert np.allclose(path[:, :-1, 1] + margin[:, :-1], path[:, 1:, 0] - margin[:, 1:])


def test_long_paths_begin_at_the_published_distance_and_markers_are_at_their_ends(drawn):
    settings, scenes = drawn
    length = settings.contour_length
    begins = scenes.dashes[:, [0, length], 0]
    apart = np.linalg.norm(begins[:, 0] - begins[:, 1], axis=-1)
    assert np.allclose(apart, {32: 7, 128: 20}[settings.image_size])
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
    assert images.shape == (len(scenes.labels), size, size)
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
    images = draw(generate_scenes(5, 1, FEW), FEW)
    assert np.array_equal(few.elements.reshape(5, 32, 32), images)  # row by row


def test_settings_without_room_or_thickness_are_named():
    with pytest.raises(ValueError, match=r"thickness = 0\.0, expected above 0"):
        PathfinderSettings(thickness=0.0)
    with pytest.raises(ValueError, match=r"no room for PathfinderSettings\(image_size=16"):
        generate_scenes(1, settings=PathfinderSettings(image_size=16))


def test_the_task_is_made_in_parts_with_different_images(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PART", 16)
    whole = load_task("pathfinder", tmp_path, examples=20)
    x = np.concatenate([whole.arrays(name)[0] for name in whole.splits])
    assert x.shape == (20, 32 * 32)
    assert len(np.unique(x, axis=0)) == 20
    assert whole.labels(np.arange(20)).mean() == 0.5
    assert whole.class_names == ("apart", "joined")


def write_pathfinder(folder, count: int) -> None:
    (folder / "metadata").mkdir(parents=True)
    (folder / "imgs").mkdir()
    for number in range(count):
        Image.new("L", (32, 32), number).save(folder / "imgs" / f"sample_{number}.png")
    lines = [f"imgs sample_{number}.png {number} {number % 2} 1.8 6" for number in range(count)]
    (folder / "metadata" / "0.npy").write_text("\n".join(lines))


INNER = "pathfinder32/curv_contour_length_14"


@pytest.mark.parametrize("inner", ["", "pathfinder32", INNER])
def test_official_files_may_be_named_at_any_level(tmp_path, inner):
    write_pathfinder(tmp_path / "release" / INNER, 12)
    found = load_task("pathfinder", tmp_path, tmp_path / "release" / inner).store
    labels = {int(found[i][0][0]): found[i][1] for i in range(len(found))}
    assert labels == {number: number % 2 for number in range(12)}


@pytest.mark.parametrize("size", [0, 128])
def test_a_broken_image_or_one_of_another_size_is_left_out(tmp_path, size):
    write_pathfinder(tmp_path / INNER, 12)
    path = tmp_path / INNER / "imgs" / "sample_7.png"
    path.write_bytes(b"") if not size else Image.new("L", (size, size), 4).save(path)
    reason = r" has \(128, 128\) pixels, expected 32 x 32" if size else ""
    with pytest.warns(UserWarning, match=rf"1 of 12 images .*sample_7\.png'?{reason}"):
        store = load_task("pathfinder", tmp_path, tmp_path).store
    shades = {int(store[i][0][0]): store[i][1] for i in range(11)}
    assert shades == {number: number % 2 for number in range(12) if number != 7}
    assert store.lengths.tolist() == [32 * 32] * 11


def saved(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (saved(np.array(["imgs a.png 0 1"])), "line 1: 'False,' is not a label"),
        (b"\xff\xfe\x00", "line 1: .* names no picture"),
        (b"\n", "that lists a picture"),
        (b"imgs a.png 0 1\n\nimgs b.png 1\n\n", r"line 2: \[\] names no picture"),
        (b"imgs a.png 0 1\nimgs b.png 1 2\n", "line 2: '2' is not a label, expected 0 to 1"),
    ],
)
def test_a_wrong_table_is_named(tmp_path, content, message):
    with pytest.raises(ValueError, match="has no metadata"):
        list_pathfinder(tmp_path)
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "0.npy").write_bytes(content)
    with pytest.raises(ValueError, match=rf"\.npy.* {message}"):
        list_pathfinder(tmp_path)
