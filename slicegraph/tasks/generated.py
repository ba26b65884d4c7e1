"""Generated tasks, which can also be read from files of the Long Range Arena.

ListOps: nested lists of operations, labelled by their value. Pathfinder and Path-X: does a dashed
path join the two marked ends of an image? A scene is geometry, in pixels ``(x, y)``: dashed paths
grow in many scenes at once, and scenes are drawn in shades of grey.
"""

import hashlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from slicegraph.data.splits import SPLIT_NAMES
from slicegraph.tasks import store
from slicegraph.tasks.images import readable, shades
from slicegraph.tasks.store import (
    DIGITS,
    FRACTIONS,
    SEED,
    Request,
    Sample,
    Sequences,
    TaskError,
    write_sequences,
)

OPERATORS = ("MIN", "MAX", "MED", "SM")
FIRST_DIGIT, FIRST_OPERATOR, END = 1, 11, 15
# The text of each token. Token 0 is padding, which no sequence contains.
TOKENS = ("<pad>", *map(str, range(10)), *(f"[{name}" for name in OPERATORS), "]")
_NUMBERS = {word: token for token, word in enumerate(TOKENS) if token}
_ROUND, _PATIENCE = 4096, 30
_Level = tuple[np.ndarray, np.ndarray]  # operators or digits, and numbers of arguments (digits: 0)


def _generated(request: Request, **source: Any) -> tuple[int, dict[str, int], dict[str, Any]]:
    """The number of samples to generate, the sizes of their splits, and their source."""
    count = request.examples or 0
    if count < 10:
        raise TaskError(f"examples = {count}, expected at least 10")
    ends = [0, *(round(count * sum(FRACTIONS[: k + 1])) for k in range(3))]
    splits = dict(zip(SPLIT_NAMES, np.diff(ends).tolist(), strict=True))
    return count, splits, {**source, "seed": SEED, "examples": count}


def _part_seed(part: int) -> int:
    return int(np.random.SeedSequence([SEED, part]).generate_state(1)[0])


def write_listops(request: Request, folder: Path) -> None:
    """Writes expressions of 501 to 1,999 tokens and their values."""
    if request.data is None:
        count, splits, source = _generated(request, generator="listops")
        sequences = _generate_parts(count)
    else:
        paths, source = listops_files(request), {"files": "lra_release"}
        parts = [list(read_listops(path)) for path in paths]
        splits = store.file_splits(paths, map(len, parts))
        sequences = store.in_parts(sample for part in parts for sample in part)
    write_sequences(folder, sequences, splits, DIGITS, vocabulary=len(TOKENS), source=source)


def listops_files(request: Request) -> list[Path]:
    """The official files of the user."""
    folder = request.folder("the folder lra_release, or that of basic_train.tsv")
    return store.find_files(folder, ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv"))


def read_listops(path: Path) -> Iterator[Sample]:
    """Reads `basic_train.tsv` and the like: a header, then an expression and its value a line."""
    for number, (text, value) in store.fields(path, 2):
        if number == 1 and text == "Source":
            continue
        # Round brackets group pairs and carry no meaning.
        words = [word for word in text.split() if word not in ("(", ")")]
        if unknown := [word for word in words if word not in _NUMBERS]:
            raise ValueError(f"read_listops: {path} line {number}: unknown word {unknown[0]!r}")
        label = store.label(path, number, value, classes=10)
        tokens = np.array([_NUMBERS[word] for word in words], np.uint8)
        begins, ends = (tokens >= FIRST_OPERATOR) & (tokens < END), tokens == END
        depth = np.cumsum(begins.astype(np.int64) - ends)
        # A digit, or one operation that ends where the tokens do; every operation has arguments.
        whole = len(tokens) and depth[-1] == 0 and (depth[:-1] > 0).all()
        if not whole or (begins[:-1] & ends[1:]).any():
            problem = f"{text!r:.60} is not an expression such as [MAX 3 [MIN 4 8 ] ]"
            raise ValueError(f"read_listops: {path} line {number}: {problem}")
        yield [tokens], label


def decode(tokens: np.ndarray) -> str:
    """The text of an expression."""
    return " ".join(TOKENS[token] for token in tokens)


def _generate_parts(count: int) -> Iterator[Sequences]:
    """Generates expressions in parts, without repetition; a hash of each is kept in memory."""
    seen: set[bytes] = set()
    for part in itertools.count():
        drawn = generate_listops(min(store.PART, count - len(seen)), _part_seed(part))
        names = [hashlib.blake2b(one.tobytes(), digest_size=12).digest() for one in drawn]
        rows = zip(drawn, drawn.labels, names, strict=True)
        yield from store.in_parts(([one], label) for one, label, name in rows if name not in seen)
        seen.update(names)
        if len(seen) >= count:
            return


def generate_listops(
    count: int, seed: int = 0, *, min_length: int = 500, max_length: int = 2000, max_depth: int = 10
) -> Sequences:
    """Draws different expressions such as ``[MAX 4 3 [MIN 2 3 ] 1 0 ]``, labelled by their value.

    The grammar and the settings are those of `Long Range Arena
    <https://arxiv.org/abs/2011.04006>`_: MIN, MAX, MED (the median, rounded down) and SM (the sum
    modulo 10) of 2 to 10 arguments; an argument is an operation with probability 1/4, and
    otherwise, or at ``max_depth``, a digit. The number of tokens is between ``min_length`` and
    ``max_length``, exclusively. The same seed gives the same expressions; fewer of them are the
    first of more.

    Example:
        >>> listops = generate_listops(2, min_length=2, max_length=9)
        >>> [decode(one) for one in listops], listops.labels
        (['[MIN 5 5 ]', '[MED 6 3 5 8 1 1 ]'], array([5, 4], dtype=uint8))
    """
    rng, rounds = np.random.default_rng(seed), 0
    found: dict[bytes, int] = {}
    while len(found) < count:
        if rounds == _PATIENCE * (1 + len(found)):
            raise ValueError(
                f"generate_listops: {rounds * _ROUND} draws gave {len(found)} expressions of "
                f"{min_length + 1} to {max_length - 1} tokens; allow for other lengths"
            )
        for text, value in _write(_draw_trees(rng, max_depth), min_length, max_length):
            found.setdefault(text, value)
        rounds += 1
    texts, values = list(found)[:count], list(found.values())[:count]
    ptr = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return Sequences(np.frombuffer(b"".join(texts), np.uint8), ptr, np.array(values, np.uint8))


def _draw_trees(rng: np.random.Generator, max_depth: int) -> list[_Level]:
    """The levels of some thousand trees, from the roots downwards; siblings are neighbours."""
    levels: list[_Level] = []
    n = _ROUND
    while n:
        grows = rng.random(n) < 0.25 if len(levels) < max_depth - 1 else np.zeros(n, bool)
        num_args = np.where(grows, rng.integers(2, 10, n, endpoint=True), 0)
        symbol = np.where(grows, rng.integers(len(OPERATORS), size=n), rng.integers(10, size=n))
        levels.append((symbol, num_args))
        n = int(num_args.sum())
    return levels


def _write(levels: list[_Level], min_length: int, max_length: int) -> Iterator[tuple[bytes, int]]:
    """The tokens and the value of every tree whose length is between the two."""
    values = levels[-1][0]
    sizes = [np.ones_like(values)]  # the number of tokens of every node, level by level
    for symbol, num_args in levels[-2::-1]:
        operators = np.flatnonzero(num_args)
        count = num_args[operators]
        first = np.cumsum(count) - count
        size, args = np.ones_like(symbol), values[np.lexsort((values, np.repeat(operators, count)))]
        size[operators] = 2 + np.add.reduceat(sizes[0], first)
        sizes.insert(0, size)
        low, high = args[first + (count - 1) // 2], args[first + count // 2]
        total = np.add.reduceat(args, first)
        results = [args[first], args[first + count - 1], (low + high) // 2, total % 10]
        values = symbol.copy()
        values[operators] = np.choose(symbol[operators], results)
    ends = np.cumsum(sizes[0])
    text, starts = np.empty(ends[-1], np.uint8), ends - sizes[0]
    for depth, (symbol, num_args) in enumerate(levels):
        if depth:  # after the parent's token and the siblings before
            before, above = np.cumsum(np.append(0, sizes[depth])), levels[depth - 1][1]
            first = np.cumsum(above) - above
            starts = np.repeat(starts + 1 - before[first], above) + before[:-1]
        text[starts] = np.where(num_args, FIRST_OPERATOR, FIRST_DIGIT) + symbol
        text[(starts + sizes[depth] - 1)[num_args > 0]] = END
    for tree in np.flatnonzero((sizes[0] > min_length) & (sizes[0] < max_length)):
        yield text[ends[tree] - sizes[0][tree] : ends[tree]].tobytes(), int(values[tree])


_SIZES = {"pathfinder": 32, "pathx": 128}
_SCENES, _DRAWN = 512, 256
_CANDIDATES, _TURNS, _ATTEMPTS = 12, (3, 12, 96), 24

_Array = np.ndarray
_Chosen = tuple[_Array, _Array, _Array]  # points, directions, rows of the scenes


@dataclass(frozen=True)
class PathfinderSettings:
    """The settings of scenes; lengths are in pixels.

    The gap between two dashes of a path is two margins, and so is the least distance from the
    middle of a dash to the edge of any other. Between two dashes a path turns by an angle of weight
    ``cos(min(continuity * abs(angle), pi / 2)) ** 2``.
    """

    image_size: int = 32
    contour_length: int = 14  # the number of dashes of each of the two long paths
    distractor_length: int = 4  # the number of dashes of a short path
    num_distractors: int = 5  # the largest number of short paths
    dash: float = 2.0  # the length of a dash
    thickness: float = 0.5  # the width of a dash
    margins: tuple[float, ...] = (1.0,)  # the space around dashes, one of these for every scene
    continuity: float = 1.0
    seed_distance: float = 7.0  # between the beginnings of the long paths; twice that to the edge
    marker_radius: float = 1.5  # of the white discs on the two ends
    contrast: float = 1.0  # of long paths; a dash of half a pixel is 3/4 white, times its contrast
    distractor_contrast: float = 4 / 3  # of short paths

    def __post_init__(self) -> None:
        if not 0 < self.thickness <= self.dash:
            raise ValueError(f"thickness = {self.thickness}, expected above 0, up to {self.dash}")


PATHFINDER = {  # the settings of Pathfinder and of Path-X in the Long Range Arena
    32: PathfinderSettings(),
    128: PathfinderSettings(
        image_size=128,
        num_distractors=8,
        dash=5.0,
        thickness=1.5,
        margins=(2.0, 3.0),
        continuity=1.8,
        seed_distance=20.0,
        marker_radius=3.0,
        contrast=0.9,
        distractor_contrast=0.9,
    ),
}


def write_pathfinder(request: Request, folder: Path) -> None:
    """Writes images as sequences of pixels, and whether the marked ends are joined."""
    size = _SIZES[request.task]
    if request.data is not None:
        listed, splits = store.shuffled(list_pathfinder(*pathfinder_files(request)))
        source: dict[str, Any] = {"files": f"lra_release/pathfinder{size}"}
        load = partial(_read_image, size=size)
        sequences = store.in_parts(readable(listed, load, splits, source))
    else:
        count, splits, source = _generated(request, generator="pathfinder", image_size=size)
        sequences = (
            generate_pathfinder(min(store.PART, count - start), _part_seed(part), PATHFINDER[size])
            for part, start in enumerate(range(0, count, store.PART))
        )
    write_sequences(folder, sequences, splits, ("apart", "joined"), source=source)


def pathfinder_files(request: Request) -> list[Path]:
    """The folder of the official images of the user."""
    name = f"pathfinder{_SIZES[request.task]}"
    folder = request.folder(f"the folder lra_release, with {name}/curv_contour_length_14")
    for inner in (name, "curv_contour_length_14"):
        if folder.name != inner and not (folder / "metadata").is_dir():
            folder = store.find_file(folder, inner)
    return [folder]


def list_pathfinder(folder: Path) -> list[tuple[Path, int]]:
    """The images that the tables in `metadata` list, and the label of each."""
    tables = sorted((folder / "metadata").glob("*.npy"), key=lambda path: (len(path.stem), path))
    rows: list[tuple[Path, int]] = []
    for table in tables:
        for number, line in store.lines(table):  # text, whatever the ending
            row = line.split()
            if len(row) < 4:  # folder, name, number, label, ...
                raise ValueError(f"read_pathfinder: {table} line {number}: {row} names no picture")
            label = store.label(table, number, row[3], classes=2)
            rows.append((folder / row[0] / row[1], label))
    if not rows:
        raise ValueError(f"read_pathfinder: {folder} has no metadata/*.npy that lists a picture")
    return rows


def _read_image(path: Path, size: int) -> _Array:
    with Image.open(path) as image:
        if image.size != (size, size):
            raise ValueError(f"{path} has {image.size} pixels, expected {size} x {size}")
        return np.asarray(shades(image, "L"), np.uint8).ravel()


def generate_pathfinder(
    count: int, seed: int = 0, settings: PathfinderSettings = PATHFINDER[32]
) -> Sequences:
    """Draws images as sequences of pixels, row by row; see :func:`generate_scenes`.

    Example:
        >>> pathfinder = generate_pathfinder(6)
        >>> pathfinder.lengths.tolist(), pathfinder.labels.sum()
        ([1024, 1024, 1024, 1024, 1024, 1024], np.uint64(3))
    """
    scenes = generate_scenes(count, seed, settings)
    ptr = np.arange(count + 1, dtype=np.int64) * settings.image_size**2
    return Sequences(draw(scenes, settings).ravel(), ptr, scenes.labels)


class Scenes(NamedTuple):
    """Scenes as geometry."""

    dashes: np.ndarray  # [B, D, 2, 2]: the ends of each dash, path after path, NaN without room
    markers: np.ndarray  # [B, 2, 2]: the centres of the discs
    labels: np.ndarray  # [B]: whether a path joins them
    margins: np.ndarray  # [B]: the free space around dashes


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
    The same seed gives the same scenes; fewer of them are the first of more.
    """
    rng = np.random.default_rng(seed)
    parts = [_draw_dashes(rng, settings)]
    while sum(len(margins) for _, margins in parts) < count:
        parts.append(_draw_dashes(rng, settings))
    dashes, margins = (np.concatenate(one)[:count] for one in zip(*parts, strict=True))
    rng, length = np.random.default_rng([seed, 1]), settings.contour_length
    scene = np.arange(len(dashes))
    first, path = rng.integers(2, size=(len(dashes), 2)).T
    # Scenes 2k and 2k + 1 have different labels, whichever of them comes first.
    labels = (np.repeat(first[::2], 2)[: len(dashes)] + scene) % 2
    begin = dashes[scene, path * length, 0]
    end = dashes[scene, np.where(labels, path, 1 - path) * length + length - 1, 1]
    return Scenes(dashes, np.stack([begin, end], axis=1), labels.astype(np.uint8), margins)


def _draw_dashes(rng: np.random.Generator, settings: PathfinderSettings) -> tuple[_Array, _Array]:
    """The dashes ``[B, D, 2, 2]`` and the margins ``[B]`` of some hundred scenes."""
    groups: list[_Array] = []
    for margin in settings.margins:
        grower = PathGrower(rng, _SCENES // len(settings.margins), settings, margin)
        grower.add_path(settings.contour_length, 2 * settings.seed_distance)
        grower.add_path(settings.contour_length, near_first=settings.seed_distance)
        for _ in range(settings.num_distractors):
            grower.add_path(settings.distractor_length, grower.low, optional=True)
        if not len(grower.dashes):
            raise ValueError(f"generate_scenes: {_SCENES} pictures had no room for {settings}")
        # Scenes in which a path was found late come last, and are the crowded ones.
        groups.append(rng.permutation(grower.dashes))
    fewest = min(map(len, groups))  # as many scenes with each of the margins
    order = rng.permutation(fewest * len(groups))
    dashes = np.concatenate([group[:fewest] for group in groups])
    return dashes[order], np.repeat(settings.margins, fewest)[order]


class PathGrower:
    """Grows one path after another in every scene, and gives up scenes without room for it.

    A path turns in the middle of the gap between two dashes. Dashes that are not neighbours keep a
    distance of at least the gap, so no path passes through a gap of another. Cells of a grid that
    have a point too near to a path are marked as taken.
    """

    def __init__(
        self, rng: np.random.Generator, count: int, settings: PathfinderSettings, margin: float
    ) -> None:
        size, dash = settings.image_size, settings.dash
        self.rng, self.size, self.gap, self.continuity = rng, size, 2 * margin, settings.continuity
        self.low = settings.marker_radius + 0.5  # the distance of the paths from the edge
        self.high = size - 1 - self.low
        # Points of a dash, measured from the middle of the gap before it.
        self.reach = self.gap / 2 + np.linspace(0, dash, math.ceil(dash / 0.75) + 1)
        self.dashes = np.zeros((count, 0, 2, 2))
        self.fineness = 2 if size <= 64 else 1
        self.grid_size = size * self.fineness
        self.taken = np.zeros((count, self.grid_size, self.grid_size), bool)
        self.near = (self.gap + settings.thickness / 2) * self.fineness + math.sqrt(0.5)
        half = math.ceil(dash * self.fineness / 2 + self.near) + 1
        window = np.arange(-half, half + 1)
        self.window = np.stack(np.meshgrid(window, window)).reshape(2, 1, -1).astype(np.float32)

    def add_path(
        self, length: int, border: float = 0.0, *, near_first: float = 0.0, optional: bool = False
    ) -> None:
        """Adds a path of ``length`` dashes to every scene, with new attempts where it gets stuck.

        It begins at least ``border`` from the edge, or ``near_first`` from the beginning of the
        first path. A scene without room for an ``optional`` path has NaN for its dashes.
        """
        low = min(border, (self.size - 1) / 2)
        waiting, found = np.arange(len(self.dashes)), []
        for _ in range(_ATTEMPTS):
            shape = (len(waiting), _CANDIDATES)
            if near_first:
                heading = _heading(self.rng.uniform(-np.pi, np.pi, shape))
                tips = self.dashes[waiting, :1, 0] + near_first * heading
            else:
                tips = self.rng.uniform(low, self.size - 1 - low, (*shape, 2))
            rows, path, taken = self._grow(tips, self.taken[waiting], length)
            found.append((waiting[rows], path, taken))
            waiting = np.delete(waiting, rows)
            if not len(waiting):
                break
        if optional:
            nothing = np.full((len(waiting), length, 2, 2), np.nan)
            found.append((waiting, nothing, self.taken[waiting]))
        kept, paths, self.taken = map(np.concatenate, zip(*found, strict=True))
        self.dashes = np.concatenate([self.dashes[kept], paths], axis=1)

    def _grow(self, tips: _Array, taken: _Array, length: int) -> _Chosen:
        """The rows of the scenes in which a path fits, the path, and the taken cells with it."""
        angle = self.rng.uniform(-np.pi, np.pi, tips.shape[:2])
        start = tips - self.gap / 2 * _heading(angle)
        points, angle, rows = self._choose(start, angle, taken, np.arange(len(tips)))
        path = points[:, None, [0, -1]]
        for _ in range(length - 1):
            start = points[:, -1] + self.gap / 2 * _heading(angle)
            waiting, found = np.arange(len(start)), []
            for candidates in _TURNS:  # where few turns have room, many are tried
                # The density of x = 2 * continuity * turn is 1 + cos(x), up to a factor: of a
                # uniform x and its opposite, whose weights add up to 2, one is taken by its weight.
                x = self.rng.uniform(-np.pi, np.pi, (len(waiting), candidates))
                stays = self.rng.uniform(0, 2, x.shape) < 1 + np.cos(x)
                x = np.where(stays, x, x - np.copysign(np.pi, x))
                angles = angle[waiting, None] + x / (2 * self.continuity)
                chosen = self._choose(start[waiting, None], angles, taken, rows[waiting])
                found.append((*chosen[:2], waiting[chosen[2]]))
                waiting = np.delete(waiting, chosen[2])
            points, angle, kept = map(np.concatenate, zip(*found, strict=True))
            rows, path = rows[kept], path[kept]
            self._take(taken, rows, path[:, -1])
            path = np.concatenate([path, points[:, None, [0, -1]]], axis=1)
        self._take(taken, rows, path[:, -1])
        return rows, path, taken[rows]

    def _choose(self, start: _Array, angle: _Array, taken: _Array, scenes: _Array) -> _Chosen:
        """The first dash with room among the candidates of each of these scenes."""
        heading = _heading(angle)[:, :, None]
        points = start[:, :, None] + self.reach[:, None] * heading
        # Half of the gap that follows is inside, too: there the path turns.
        ends = points[:, :, [0, -1]] + np.array([[0], [self.gap / 2]]) * heading
        inside = ((ends >= self.low) & (ends <= self.high)).all((2, 3))
        cells = np.rint(points * self.fineness).clip(0, self.grid_size - 1).astype(np.int64)
        free = inside & ~taken[scenes[:, None, None], cells[..., 1], cells[..., 0]].any(2)
        rows = np.flatnonzero(free.any(1))
        chosen = free.argmax(1)[rows]
        return points[rows, chosen], angle[rows, chosen], rows

    def _take(self, taken: _Array, scenes: _Array, dashes: _Array) -> None:
        """Marks the cells near to ``dashes`` ``[B, 2, 2]``, one in each of these scenes."""
        begin, end = (dashes * self.fineness).astype(np.float32).transpose(1, 2, 0)[..., None]
        x, y = np.rint((begin + end) / 2) + self.window
        (dx, dy), rx, ry = end - begin, x - begin[0], y - begin[1]
        share = np.clip((rx * dx + ry * dy) / (dx * dx + dy * dy), 0, 1)
        rx, ry = rx - share * dx, ry - share * dy
        near = rx * rx + ry * ry <= self.near**2
        near &= (x >= 0) & (x < self.grid_size) & (y >= 0) & (y < self.grid_size)
        rows = scenes[np.nonzero(near)[0]]
        taken[rows, y[near].astype(np.int64), x[near].astype(np.int64)] = True


def _heading(angle: _Array) -> _Array:
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def draw(scenes: Scenes, settings: PathfinderSettings = PATHFINDER[32]) -> np.ndarray:
    """``[B, image_size, image_size]`` uint8: dashes and white discs, with soft edges, on black."""
    size = settings.image_size
    contrast = np.full(scenes.dashes.shape[1], settings.distractor_contrast)
    contrast[: 2 * settings.contour_length] = settings.contrast
    images = np.zeros((len(scenes.labels), size * size), np.uint8)
    for first in range(0, len(images), _DRAWN):
        part = slice(first, first + _DRAWN)
        canvas = np.zeros(images[part].shape, np.float32)
        discs, width = np.stack([scenes.markers[part]] * 2, axis=2), settings.thickness
        _stamp(canvas, scenes.dashes[part], contrast, length=settings.dash, radius=width / 2)
        _stamp(canvas, discs, np.ones(2), length=0.0, radius=settings.marker_radius)
        images[part] = np.rint(canvas.clip(0, 1) * 255)
    return images.reshape(-1, size, size)


def _stamp(
    canvas: _Array, segments: _Array, contrast: _Array, *, length: float, radius: float
) -> None:
    """Draws ``[B, D, 2, 2]`` segments of a length and a contrast, as wide as twice the radius."""
    size = math.isqrt(canvas.shape[1])
    reach = math.ceil(length / 2 + radius + 1)
    steps = np.arange(-reach, reach + 1)
    window = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    pixels = np.rint(segments.mean(2))[:, :, None] + window
    start, along = segments[:, :, None, 0], np.diff(segments, axis=2)
    squared = np.maximum(np.square(along).sum(-1), 1e-12)
    share = np.clip(((pixels - start) * along).sum(-1) / squared, 0, 1)
    distance = np.sqrt(np.square(pixels - start - share[..., None] * along).sum(-1))
    shade = np.clip(radius + 0.5 - distance, 0, 1) * contrast[:, None]
    inside = ((pixels >= 0) & (pixels < size)).all(-1)
    x, y = pixels[inside].astype(np.int64).T
    np.maximum.at(canvas, (np.nonzero(inside)[0], y * size + x), shade[inside].astype(np.float32))
