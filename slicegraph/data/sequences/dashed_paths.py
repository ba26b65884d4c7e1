"""Dashed paths that wander without touching, in many pictures at once."""

import math
from collections.abc import Callable

import numpy as np

from slicegraph.data.sequences.path_turns import draw_turns

_CANDIDATES, _TURNS, _ATTEMPTS = 12, (3, 12, 96), 24

Tips = Callable[[np.ndarray], np.ndarray]
"""Where paths may begin, ``[B, candidates, 2]``, in the pictures of these numbers ``[B]``."""
_Chosen = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Points of dashes, their directions, and of which of the pictures given they are."""


class PathGrower:
    """Grows one path after another in every picture, and gives up pictures without room for it.

    In the middle of the gap between two dashes a path turns, see
    :func:`~slicegraph.data.sequences.path_turns.draw_turns`. Dashes of different paths, and those
    of one path that are not neighbours, keep a distance of ``clearance``; if that is no less than
    ``gap``, no path passes through a gap of another.

    What is too near to a path is marked on a grid, generously: a point in a free cell is far enough
    from every path, wherever in the cell it is.

    Args:
        rng: what decides.
        count: the number of pictures to begin with.
        size: the height and width of a picture.
        dash, gap, clearance, continuity: see above.
        border: how far the paths keep from the edge.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        count: int,
        size: int,
        dash: float,
        gap: float,
        clearance: float,
        continuity: float,
        border: float,
    ) -> None:
        self.rng, self.size, self.gap, self.continuity = rng, size, gap, continuity
        self.low, self.high = border, size - 1 - border
        # Points of a dash, seen from the middle of the gap before it.
        self.reach = gap / 2 + np.linspace(0, dash, math.ceil(dash / 0.75) + 1)
        self.dashes = np.zeros((count, 0, 2, 2))
        self.fineness = 2 if size <= 64 else 1
        self.grid_size = size * self.fineness
        self.taken = np.zeros((count, self.grid_size**2), bool)
        self.near = clearance * self.fineness + math.sqrt(0.5)
        half = math.ceil(dash * self.fineness / 2 + self.near) + 1
        window = np.arange(-half, half + 1)
        self.window = np.stack(np.meshgrid(window, window)).reshape(2, 1, -1).astype(np.float32)

    def inside(self, border: float) -> Tips:
        """Paths begin anywhere that is so far from the edge."""
        low = min(border, (self.size - 1) / 2)
        return lambda pictures: self.rng.uniform(
            low, self.size - 1 - low, (len(pictures), _CANDIDATES, 2)
        )

    def beside_the_first(self, distance: float) -> Tips:
        """Paths begin so far from where the first path does."""
        return lambda pictures: (
            self.dashes[:, :1, 0][pictures] + distance * _heading(self._directions(len(pictures)))
        )

    def add_path(self, length: int, tips: Tips, optional: bool = False) -> None:
        """Adds a path of ``length`` dashes to every picture, beginning anew where it gets stuck.

        A picture that has no room for an ``optional`` path stays, with NaN for its dashes.
        """
        waiting = np.arange(len(self.dashes))
        done, paths, grids = [], [], []
        for _ in range(_ATTEMPTS):
            rows, path, grid = self._grow(tips(waiting), self.taken[waiting], length)
            done.append(waiting[rows])
            paths.append(path)
            grids.append(grid)
            waiting = np.delete(waiting, rows)
            if not len(waiting):
                break
        if optional:
            done.append(waiting)
            paths.append(np.full((len(waiting), length, 2, 2), np.nan))
            grids.append(self.taken[waiting])
        kept = np.concatenate(done)
        self.dashes = np.concatenate([self.dashes[kept], np.concatenate(paths)], axis=1)
        self.taken = np.concatenate(grids)

    def _grow(
        self, tips: np.ndarray, taken: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of the pictures in which a path fits, the path, and what is taken then."""
        angle = self._directions(len(tips))
        start = tips - self.gap / 2 * _heading(angle)
        points, angle, rows = self._choose(start, angle, taken, np.arange(len(tips)))
        path = points[:, None, [0, -1]]
        for _ in range(length - 1):
            points, angle, kept = self._turn(points[:, -1], angle, taken, rows)
            rows, path = rows[kept], path[kept]
            self._take(taken, rows, path[:, -1])
            path = np.concatenate([path, points[:, None, [0, -1]]], axis=1)
        self._take(taken, rows, path[:, -1])
        return rows, path, taken[rows]

    def _turn(
        self, end: np.ndarray, angle: np.ndarray, taken: np.ndarray, pictures: np.ndarray
    ) -> _Chosen:
        """A dash more in the pictures that have room; where few turns do, many are tried."""
        start = end + self.gap / 2 * _heading(angle)
        waiting, found = np.arange(len(start)), []
        for candidates in _TURNS:
            turns = draw_turns(self.rng, (len(waiting), candidates), self.continuity)
            angles = angle[waiting, None] + turns
            points, angles, rows = self._choose(
                start[waiting, None], angles, taken, pictures[waiting]
            )
            found.append((points, angles, waiting[rows]))
            waiting = np.delete(waiting, rows)
        points, angle, rows = map(np.concatenate, zip(*found, strict=True))
        return points, angle, rows

    def _directions(self, count: int) -> np.ndarray:
        return self.rng.uniform(-np.pi, np.pi, (count, _CANDIDATES))

    def _choose(
        self, start: np.ndarray, angle: np.ndarray, taken: np.ndarray, pictures: np.ndarray
    ) -> _Chosen:
        """The first dash with room among the candidates of each of these pictures."""
        heading = _heading(angle)[:, :, None]
        points = start[:, :, None] + self.reach[:, None] * heading
        # Half of the gap that follows is inside, too: there the path turns.
        ends = points[:, :, [0, -1]] + np.array([[0], [self.gap / 2]]) * heading
        inside = ((ends >= self.low) & (ends <= self.high)).all((2, 3))
        places = np.rint(points * self.fineness).clip(0, self.grid_size - 1)
        cells = self._cells(places[..., 0], places[..., 1])
        free = inside & ~taken[pictures[:, None, None], cells].any(2)
        rows = np.flatnonzero(free.any(1))
        chosen = free.argmax(1)[rows]
        return points[rows, chosen], angle[rows, chosen], rows

    def _take(self, taken: np.ndarray, pictures: np.ndarray, dashes: np.ndarray) -> None:
        """Marks the cells near to ``dashes`` ``[B, 2, 2]``, one in each of these pictures."""
        begin, end = (dashes * self.fineness).astype(np.float32).transpose(1, 2, 0)[..., None]
        x, y = np.rint((begin + end) / 2) + self.window
        (dx, dy), rx, ry = end - begin, x - begin[0], y - begin[1]
        share = np.clip((rx * dx + ry * dy) / (dx * dx + dy * dy), 0, 1)
        rx, ry = rx - share * dx, ry - share * dy
        near = rx * rx + ry * ry <= self.near**2
        near &= (x >= 0) & (x < self.grid_size) & (y >= 0) & (y < self.grid_size)
        row, number = np.nonzero(near)
        taken[pictures[row], self._cells(x[row, number], y[row, number])] = True

    def _cells(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The numbers of cells, row by row."""
        return y.astype(np.int64) * self.grid_size + x.astype(np.int64)


def _heading(angle: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)
