"""Dashed paths that wander without touching, in many pictures at once."""

import math

import numpy as np

_CANDIDATES, _ATTEMPTS = 12, 24


class PathGrower:
    """Grows one path after another in every picture, and gives up pictures without room for it.

    A dash begins ``gap`` after the end of the one before, in a direction that differs from its by
    at most ``max_turn``. Dashes and gaps of different paths, and those of one path that are not
    neighbours, keep a distance of ``clearance``.

    What is too near to a path is marked on a grid, generously: a point in a free cell is far enough
    from every path, wherever in the cell it is.

    Args:
        rng: what decides.
        count: the number of pictures to begin with.
        size: the height and width of a picture.
        dash, gap, clearance, max_turn: see above.
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
        max_turn: float,
        border: float,
    ) -> None:
        self.rng, self.dash, self.max_turn = rng, dash, max_turn
        self.low, self.high = border, size - 1 - border
        # Points of a step: from the end of the dash before, over the gap, to the end of this one.
        self.reach = np.linspace(0, dash + gap, math.ceil((dash + gap) / 0.75) + 1)
        self.dashes = np.zeros((count, 0, 2, 2))
        self.fineness = 2 if size <= 64 else 1
        self.grid_size = size * self.fineness
        self.taken = np.zeros((count, self.grid_size**2), bool)
        self.near = clearance * self.fineness + math.sqrt(0.5)
        half = math.ceil(self.reach[-1] * self.fineness / 2 + self.near) + 1
        window = np.arange(-half, half + 1)
        self.window = np.stack(np.meshgrid(window, window)).reshape(2, 1, -1).astype(np.float32)

    def add_path(self, length: int) -> None:
        """Adds a path of ``length`` dashes to every picture, beginning anew where it gets stuck."""
        waiting = np.arange(len(self.dashes))
        done, paths, grids = [], [], []
        for _ in range(_ATTEMPTS):
            rows, path, grid = self._grow(self.taken[waiting], length)
            done.append(waiting[rows])
            paths.append(path)
            grids.append(grid)
            waiting = np.delete(waiting, rows)
            if not len(waiting):
                break
        kept = np.concatenate(done)
        self.dashes = np.concatenate([self.dashes[kept], np.concatenate(paths)], axis=1)
        self.taken = np.concatenate(grids)

    def _grow(self, taken: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of the pictures in which a path fits, the path, and what is taken then."""
        rows, candidates = np.arange(len(taken)), (len(taken), _CANDIDATES)
        start = self.rng.uniform(self.low, self.high, (*candidates, 2))
        angle = self.rng.uniform(-np.pi, np.pi, candidates)
        steps = np.zeros((len(taken), 0, 2, 2))
        for number in range(length):
            points, angle, kept = self._choose(start, angle, taken)
            rows, taken, steps = rows[kept], taken[kept], steps[kept]
            if number:
                self._take(taken, steps[:, -1])
            steps = np.concatenate([steps, points[:, None, [0, -1]]], axis=1)
            start = points[:, None, -1]
            turns = self.rng.uniform(-self.max_turn, self.max_turn, (len(rows), _CANDIDATES))
            angle = angle[:, None] + turns
        self._take(taken, steps[:, -1])
        begin, end = steps[:, :, 0], steps[:, :, 1]
        begin = end - (end - begin) * (self.dash / self.reach[-1])
        return rows, np.stack([begin, end], axis=2), taken

    def _choose(
        self, start: np.ndarray, angle: np.ndarray, taken: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first step with room among the candidates of each picture, its direction, and the
        numbers of the pictures that have one."""
        heading = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        points = start[:, :, None] + self.reach[:, None] * heading[:, :, None]
        inside = ((points >= self.low) & (points <= self.high)).all((2, 3))
        places = np.rint(points * self.fineness).clip(0, self.grid_size - 1)
        cells = self._cells(places[..., 0], places[..., 1])
        picture = np.arange(len(taken))[:, None, None]
        # The first point is the end of the dash before, and may be near to it.
        free = inside & ~taken[picture, cells[:, :, 1:]].any(2)
        rows = np.flatnonzero(free.any(1))
        chosen = free.argmax(1)[rows]
        return points[rows, chosen], angle[rows, chosen], rows

    def _take(self, taken: np.ndarray, steps: np.ndarray) -> None:
        """Marks the cells that are near to ``steps`` ``[B, 2, 2]``, one in each picture."""
        begin, end = (steps * self.fineness).astype(np.float32).transpose(1, 2, 0)[..., None]
        x, y = np.rint((begin + end) / 2) + self.window
        (dx, dy), rx, ry = end - begin, x - begin[0], y - begin[1]
        share = np.clip((rx * dx + ry * dy) / (dx * dx + dy * dy), 0, 1)
        rx, ry = rx - share * dx, ry - share * dy
        near = rx * rx + ry * ry <= self.near**2
        near &= (x >= 0) & (x < self.grid_size) & (y >= 0) & (y < self.grid_size)
        picture, number = np.nonzero(near)
        taken[picture, self._cells(x[picture, number], y[picture, number])] = True

    def _cells(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The numbers of cells, row by row."""
        return y.astype(np.int64) * self.grid_size + x.astype(np.int64)
